//! Peak memory of this process: resident on the CPU; on a GPU what libtorch's allocator has taken, which it keeps.

use tch::Device;

use crate::machine::device::cuda_memory_bytes;
use crate::machine::memory::peak_bytes;

/// Free bytes of a GPU before anything is computed on it.
#[derive(Clone, Copy, Debug)]
pub struct Before(Option<u64>);

/// What a device has free now.
pub fn used(device: Device) -> Before {
    match device {
        Device::Cuda(index) => Before(cuda_memory_bytes(index).map(|(free, _)| free)),
        _ => Before(None),
    }
}

/// The peak so far, where the system tells. On a GPU the allocator's blocks, with other processes' changes since `before`.
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

/// From here on the resident peak counts anew (Linux).
pub fn reset() {
    crate::machine::memory::release_freed();
    // Without it the peak of what came before stays: larger, not wrong.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Lets the kernel end this process first where memory runs out, not one that the user works with (Linux).
pub fn volunteer() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}
