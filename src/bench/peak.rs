//! The peak memory of this process. On the CPU it is the resident memory; on a GPU, the memory that libtorch's
//! allocator has taken, which it keeps.

use tch::Device;

use crate::machine::device::cuda_memory_bytes;
use crate::machine::memory::peak_bytes;

/// The free bytes of a GPU before anything is computed on it.
#[derive(Clone, Copy, Debug)]
pub struct Before(Option<u64>);

/// Returns the bytes that a device has free now.
pub fn before(device: Device) -> Before {
    match device {
        Device::Cuda(index) => Before(cuda_memory_bytes(index).map(|(free, _)| free)),
        _ => Before(None),
    }
}

/// Returns the peak so far, where the system reports it. On a GPU this is the memory of the allocator, plus what other
/// processes have taken since `before`.
pub fn bytes(device: Device, before: Before) -> Option<u64> {
    match device {
        Device::Cpu => peak_bytes(),
        Device::Cuda(index) => {
            let now = cuda_memory_bytes(index).map(|(free, _)| free);
            before.0.zip(now).map(|(then, now)| then.saturating_sub(now))
        }
        _ => None,
    }
}

/// Restarts the count of the resident peak (Linux).
pub fn reset() {
    crate::machine::memory::release_freed();
    // If this fails, the earlier peak remains: the figure is then too large, but still an upper bound.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Asks the kernel to end this process first when memory runs out, before any program the user works with (Linux).
pub fn volunteer() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}
