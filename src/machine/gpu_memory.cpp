// What libtorch's own allocator knows of a GPU's memory, for gpu_memory.rs: tch has no call for it. The interface is the one
// that all devices share (c10::DeviceAllocator), so nothing here needs CUDA to be built or linked.

#include <c10/core/CachingDeviceAllocator.h>

#include <cstdint>

namespace {

// The allocator of the GPUs, or null before libtorch_cuda is loaded.
c10::DeviceAllocator* allocator() {
    return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(c10::DeviceType::CUDA));
}

template <typename Work>
bool done(Work work) {
    try {
        auto* found = allocator();
        if (found == nullptr) return false;
        work(*found);
        return true;
    } catch (...) {
        return false;
    }
}

}  // namespace

extern "C" bool bella_gpu_free(std::int8_t device, std::uint64_t* free) {
    return done([&](c10::DeviceAllocator& gpu) {
        // Nothing is cached before the first tensor, and an allocator without devices refuses to be asked.
        if (gpu.initialized()) gpu.emptyCache();
        *free = gpu.getMemoryInfo(device).first;
    });
}

extern "C" bool bella_gpu_tensors(std::int8_t device, std::uint64_t* now, std::uint64_t* peak) {
    return done([&](c10::DeviceAllocator& gpu) {
        *now = *peak = 0;
        if (!gpu.initialized()) return;
        const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
        const auto bytes = gpu.getDeviceStats(device).allocated_bytes[all];
        *now = static_cast<std::uint64_t>(bytes.current);
        *peak = static_cast<std::uint64_t>(bytes.peak);
    });
}

extern "C" bool bella_gpu_restart_peak(std::int8_t device) {
    return done([&](c10::DeviceAllocator& gpu) {
        if (gpu.initialized()) gpu.resetPeakStats(device);
    });
}
