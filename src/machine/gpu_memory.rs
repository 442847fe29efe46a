//! The memory of a GPU: what is free, and what tensors of this process take and took at most, as libtorch's allocator
//! counts it (`torch.cuda.memory_allocated` and `max_memory_allocated` are the same figures).

/// The bytes of this process's tensors on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Tensors {
    pub now: u64,
    /// The largest amount since the process or the count started.
    pub peak: u64,
}

unsafe extern "C" {
    fn bella_gpu_free(device: i8, free: *mut u64) -> bool;
    fn bella_gpu_tensors(device: i8, now: *mut u64, peak: *mut u64) -> bool;
    fn bella_gpu_restart_peak(device: i8) -> bool;
}

/// Returns the bytes of GPU `index` that no process has taken, after libtorch has returned what it keeps of freed tensors to the driver;
/// `None` if there is no such GPU. It waits for the GPU, so it must not run inside a step.
pub fn free(index: usize) -> Option<u64> {
    let mut found = 0;
    // SAFETY: the function writes to the number before it returns, and lets no exception out.
    unsafe { bella_gpu_free(i8::try_from(index).ok()?, &mut found) }.then_some(found)
}

/// Returns the bytes of tensors on GPU `index`; `None` if there is no such GPU.
pub fn tensors(index: usize) -> Option<Tensors> {
    let mut found = Tensors { now: 0, peak: 0 };
    // SAFETY: as above.
    unsafe { bella_gpu_tensors(i8::try_from(index).ok()?, &mut found.now, &mut found.peak) }.then_some(found)
}

/// Restarts the count of the peak at what tensors take now.
pub fn restart_peak(index: usize) {
    if let Ok(index) = i8::try_from(index) {
        // SAFETY: no pointers are passed. Without such a GPU there is no peak either.
        let _ = unsafe { bella_gpu_restart_peak(index) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gpu_there_are_no_figures() {
        assert!(free(0).is_none());
        assert!(tensors(0).is_none());
        restart_peak(0);
    }
}
