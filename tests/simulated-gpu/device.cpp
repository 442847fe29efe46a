// A simulated GPU for libtorch: registers what libtorch_cuda.so would register, over ordinary memory.
//
// Kernels run on the processor, but everything around them is as with a real GPU: tensors have device cuda:N, mixing devices is
// refused where the real kernels refuse it, the backward pass runs on the device's own thread, and device pointers cannot be
// read by the host. build.sh makes libsimulated_gpu.so of it, and of preload.cpp the library that puts it in libtorch_cuda's place.
//
// Environment:
//   SIMULATED_GPU_DEVICES=1       how many GPUs there are
//   SIMULATED_GPU_MEMORY_MB=8192  memory of each; beyond it, libtorch's "CUDA out of memory"
//   SIMULATED_GPU_STATS=1         at exit, on stderr: peak memory, kernels run, and what made the host wait for the device
//   SIMULATED_GPU_STATS=2         the same with every operator's count
//   SIMULATED_GPU_TRACE=1         each wait of the host as it happens, with its operator and bytes
//   SIMULATED_GPU_GFLOP=20        larger matrix products, which only time the machine, are left out; their result is NaN

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <execinfo.h>
#include <map>
#include <mutex>
#include <optional>
#include <unistd.h>
#include <unordered_map>
#include <unordered_set>

// Made by rules.py from native_functions.yaml: NO_CHECK (of devices, by the generated wrapper of the CUDA kernel), NO_KERNEL (for
// CUDA), OWN_KERNEL (for CUDA, beside one for every device).
#include <rules.inc>

namespace simulated {

using at::Device, at::Storage, at::Tensor, c10::DeviceIndex, c10::IValue, c10::StorageImpl;

size_t setting(const char* name, size_t otherwise) {
    const char* text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

DeviceIndex device_count() {
    static const auto count = static_cast<DeviceIndex>(std::min<size_t>(setting("SIMULATED_GPU_DEVICES", 1), 16));
    return count;
}

thread_local DeviceIndex current = 0;

// ---- Memory: the host's, under addresses that no processor maps, so that a host read of device memory is a crash.

// On x86-64 an address with this bit alone is not canonical; on AArch64 it is the kernel's half.
constexpr uintptr_t TAG = uintptr_t{1} << 55;

void* tagged(void* pointer) { return pointer ? reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(pointer) | TAG) : nullptr; }
void* untagged(const void* pointer) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(pointer) & ~TAG); }

size_t capacity() {
    static const size_t bytes = setting("SIMULATED_GPU_MEMORY_MB", 8192) << 20;
    return bytes;
}

// Of each device. What was taken once stays reserved until the cache is emptied, as with libtorch's own allocator.
struct Taken {
    std::atomic<size_t> used{0}, peak{0}, reserved{0};
};
constexpr DeviceIndex MOST_DEVICES = 16;
std::array<Taken, MOST_DEVICES> taken;

void raise(std::atomic<size_t>& highest, size_t now) {
    for (size_t before = highest; now > before && !highest.compare_exchange_weak(before, now);) {}
}

// What a device address stands for.
struct Held {
    Storage host;
    size_t bytes;
    DeviceIndex device;
};

void release(void* held) {
    auto* was = static_cast<Held*>(held);
    taken[was->device].used -= was->bytes;
    delete was;
}

void check_room(size_t bytes, DeviceIndex device) {
    TORCH_CHECK_WITH(OutOfMemoryError, taken[device].used + bytes <= capacity(), "CUDA out of memory. Tried to allocate ",
                     bytes >> 20, " MiB. GPU ", static_cast<int>(device), " has a total capacity of ", capacity() >> 20,
                     " MiB (simulated)");
}

at::DataPtr on_device(const Storage& host, Device device) {
    const size_t bytes = host.nbytes();
    check_room(bytes, device.index());
    auto& memory = taken[device.index()];
    const size_t now = memory.used += bytes;
    raise(memory.peak, now);
    raise(memory.reserved, now);
    return {tagged(host.mutable_data()), new Held{host, bytes, device.index()}, release, device};
}

void count_wait(const char* what, size_t bytes);

struct Allocator final : c10::DeviceAllocator {
    at::DataPtr allocate(size_t bytes) override {
        check_room(bytes, current);
        auto memory = c10::GetCPUAllocator()->allocate(bytes);
        // Bytes that are NaN in every float type: nothing may count on zeros in fresh memory.
        if (bytes > 0) std::memset(memory.get(), 0xff, bytes);
        Storage host(Storage::use_byte_size_t(), bytes, std::move(memory), c10::GetCPUAllocator(), false);
        return on_device(host, Device(at::kCUDA, current));
    }
    at::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void* to, const void* from, size_t bytes) const override {
        std::memcpy(untagged(to), untagged(from), bytes);
    }
    // As the real one, which knows its devices only once a tensor has been made.
    bool initialized() override {
        return std::any_of(taken.begin(), taken.end(), [](const Taken& memory) { return memory.peak > 0; });
    }
    void emptyCache(c10::MempoolId_t) override {
        count_wait("empty_cache", 0);
        for (auto& memory : taken) memory.reserved = memory.used.load();
    }
    void recordStream(const at::DataPtr&, c10::Stream) override {}
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
        TORCH_CHECK(initialized() && device >= 0 && device < device_count(), "Invalid device argument");
        c10::CachingDeviceAllocator::DeviceStats all;
        auto& memory = taken[device];
        for (auto [stat, now, peak] : {std::tuple{&all.allocated_bytes[0], memory.used.load(), memory.peak.load()},
                                       std::tuple{&all.reserved_bytes[0], memory.reserved.load(), memory.reserved.load()}}) {
            stat->current = static_cast<int64_t>(now);
            stat->peak = static_cast<int64_t>(peak);
        }
        return all;
    }
    void resetAccumulatedStats(DeviceIndex) override {}
    void resetPeakStats(DeviceIndex device) override { taken[device].peak = taken[device].used.load(); }
    std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
        TORCH_CHECK(device >= 0 && device < device_count(), "CUDA error: invalid device ordinal");
        return {capacity() - std::min(capacity(), taken[device].reserved.load()), capacity()};
    }
} allocator;

// Memory of the host from which a GPU copies by itself.
struct PinnedAllocator final : c10::Allocator {
    std::mutex mutex;
    std::map<const char*, size_t> ranges;

    at::DataPtr allocate(size_t bytes) override;
    at::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
    bool owns(const void* pointer) {
        std::lock_guard lock(mutex);
        auto after = ranges.upper_bound(static_cast<const char*>(pointer));
        if (after == ranges.begin()) return false;
        auto& [start, bytes] = *std::prev(after);
        return static_cast<const char*>(pointer) < start + std::max<size_t>(bytes, 1);
    }
} pinned;

void unpin(void* held) {
    auto* memory = static_cast<at::DataPtr*>(held);
    std::lock_guard lock(pinned.mutex);
    pinned.ranges.erase(static_cast<const char*>(memory->get()));
    delete memory;
}

at::DataPtr PinnedAllocator::allocate(size_t bytes) {
    auto* memory = new at::DataPtr(c10::GetCPUAllocator()->allocate(bytes));
    std::lock_guard lock(mutex);
    if (memory->get()) ranges[static_cast<const char*>(memory->get())] = bytes;
    return {memory->get(), memory, unpin, Device(at::kCPU)};
}

void on_segmentation_fault(int, siginfo_t*, void*) {
    constexpr char text[] = "simulated GPU: segmentation fault: most likely the host read a device pointer (data_ptr of a CUDA tensor)\n";
    [[maybe_unused]] auto written = write(2, text, sizeof text - 1);
    void* frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
    std::signal(SIGSEGV, SIG_DFL);  // and the instruction faults again
}

// ---- What ran, and what the host waited for.

struct Statistics {
    std::mutex mutex;
    std::map<std::string, size_t> kernels, waits;
    size_t bytes_to_host = 0, bytes_to_device = 0;

    ~Statistics() {
        const size_t level = setting("SIMULATED_GPU_STATS", 0);
        if (level == 0) return;
        size_t all = 0;
        for (auto& [_, count] : kernels) all += count;
        size_t peak = 0;
        for (auto& memory : taken) peak += memory.peak;
        std::fprintf(stderr, "simulated GPU: %zu kernels, peak %.1f MiB, to device %zu bytes, to host %zu bytes; host waited:", all,
                     static_cast<double>(peak) / (1 << 20), bytes_to_device, bytes_to_host);
        for (auto& [name, count] : waits) std::fprintf(stderr, " %s=%zu", name.c_str(), count);
        std::fprintf(stderr, "\n");
        for (auto& [name, count] : kernels)
            if (level > 1) std::fprintf(stderr, "simulated GPU:   %8zu %s\n", count, name.c_str());
    }

    void count(const std::string& name, const std::vector<Tensor>& tensors, bool non_blocking = false) {
        // These give the host a number, or need one to know the size of their result.
        static const std::unordered_set<std::string> reads = {
            "aten::_local_scalar_dense", "aten::nonzero", "aten::nonzero.out", "aten::masked_select", "aten::masked_select.out",
            "aten::equal", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::repeat_interleave.Tensor",
            "aten::bincount"};
        std::lock_guard lock(mutex);
        ++kernels[name];
        std::string wait = reads.count(name) ? name.substr(6) : "";
        if (name == "aten::copy_" && tensors.size() == 2 && tensors[0].is_cuda() != tensors[1].is_cuda()) {
            (tensors[0].is_cuda() ? bytes_to_device : bytes_to_host) += tensors[1].nbytes();
            wait = tensors[0].is_cuda() ? "copy_to_device" : "copy_to_host";
            // The one copy that the host need not wait for.
            if (tensors[0].is_cuda() && non_blocking && pinned.owns(tensors[1].storage().data())) wait = "";
        }
        if (!wait.empty()) waited(wait.c_str(), tensors.back().nbytes());
    }

    // With the lock held.
    void waited(const char* what, size_t bytes) {
        ++waits[what];
        static const bool trace = setting("SIMULATED_GPU_TRACE", 0) > 0;
        if (trace) std::fprintf(stderr, "simulated GPU: %s of %zu bytes\n", what, bytes);
    }
} statistics;

void count_wait(const char* what, size_t bytes) {
    std::lock_guard lock(statistics.mutex);
    statistics.waited(what, bytes);
}

// ---- The device guard: one stream per device, on which all is done when it returns.

struct Guard final : c10::impl::DeviceGuardImplInterface {
    at::DeviceType type() const override { return at::kCUDA; }
    Device exchangeDevice(Device device) const override {
        const Device before = getDevice();
        setDevice(device);
        return before;
    }
    Device getDevice() const override { return {at::kCUDA, current}; }
    void setDevice(Device device) const override {
        TORCH_CHECK(device.is_cuda() && device.index() < device_count(), "CUDA error: invalid device ordinal");
        uncheckedSetDevice(device);
    }
    void uncheckedSetDevice(Device device) const noexcept override {
        if (device.index() >= 0) current = device.index();
    }
    static c10::Stream only(Device device) {
        return c10::Stream(c10::Stream::DEFAULT, Device(at::kCUDA, device.has_index() ? device.index() : current));
    }
    c10::Stream getStream(Device device) const override { return only(device); }
    c10::Stream getDefaultStream(Device device) const override { return only(device); }
    c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return only(device); }
    c10::Stream getNewStream(Device device, int) const override { return only(device); }
    c10::Stream exchangeStream(c10::Stream stream) const override { return only(stream.device()); }
    DeviceIndex deviceCount() const noexcept override { return device_count(); }
    void record(void**, const c10::Stream&, DeviceIndex, c10::EventFlag) const override {}
    void block(void*, const c10::Stream&) const override {}
    bool queryEvent(void*) const override { return true; }
    bool queryStream(const c10::Stream&) const override { return true; }
    void synchronizeStream(const c10::Stream&) const override {}
    void synchronizeEvent(void*) const override {}
    void synchronizeDevice(DeviceIndex) const override {}
    double elapsedTime(void*, void*, DeviceIndex) const override { return 0.0; }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

// ---- Random numbers: a generator of the processor behind each device's, so that a seed gives what it gives on the CPU.

struct Generator final : c10::GeneratorImpl {
    at::Generator host = at::detail::createCPUGenerator();

    explicit Generator(DeviceIndex index) : GeneratorImpl(Device(at::kCUDA, index), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
    static at::DeviceType device_type() { return at::kCUDA; }
    void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
    void set_offset(uint64_t) override {}
    uint64_t get_offset() const override { return 0; }
    uint64_t current_seed() const override { return host.current_seed(); }
    uint64_t seed() override { return host.seed(); }
    void set_state(const c10::TensorImpl& state) override { host.unsafeGetGeneratorImpl()->set_state(state); }
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host.unsafeGetGeneratorImpl()->get_state(); }
    Generator* clone_impl() const override {
        auto* copy = new Generator(device().index());
        copy->host = host.clone();
        return copy;
    }
};

const at::Generator& default_generator(DeviceIndex index) {
    static const std::vector<at::Generator> all = [] {
        std::vector<at::Generator> made;
        for (DeviceIndex i = 0; i < device_count(); ++i) made.push_back(at::make_generator<Generator>(i));
        return made;
    }();
    return all.at(index < 0 ? current : index);
}

// ---- Kernels: the processor's, on host tensors over the same memory.

// The tensors of a list of tensors that may be absent, such as indices. Lists that TorchScript makes do not always say that they are.
std::optional<std::vector<std::optional<Tensor>>> optional_tensors(const IValue& value) {
    if (!value.isList() || value.isTensorList()) return std::nullopt;
    std::vector<std::optional<Tensor>> found;
    for (const IValue& one : value.toListRef()) {
        if (!one.isTensor() && !one.isNone()) return std::nullopt;
        found.push_back(one.isTensor() ? std::optional(one.toTensor()) : std::nullopt);
    }
    if (found.empty() && !value.isOptionalTensorList()) return std::nullopt;
    return found;
}

// What one call sees of its device tensors.
class Call {
  public:
    explicit Call(Device device) : device_(device) {}

    // The tensor over the same memory that the processor's kernel is given.
    Tensor host(const Tensor& tensor) {
        if (!tensor.defined()) return tensor;
        for (auto& [device, host] : pairs_)
            if (device.is_same(tensor)) return host;
        auto host = tensor.is_cuda() ? dressed(tensor, host_storage(tensor.storage()), c10::DispatchKey::CPU) : tensor;
        pairs_.emplace_back(tensor, host);
        return host;
    }

    IValue host(const IValue& value) {
        if (value.isTensor()) return host(value.toTensor());
        if (value.isTensorList()) {
            c10::List<Tensor> list;
            for (const Tensor& tensor : value.toTensorVector()) list.push_back(host(tensor));
            return list;
        }
        if (const auto tensors = optional_tensors(value)) {
            c10::List<std::optional<Tensor>> list;
            for (const auto& tensor : *tensors) list.push_back(tensor ? std::optional(host(*tensor)) : std::nullopt);
            return list;
        }
        if (value.isDevice() && value.toDevice().is_cuda()) return Device(at::kCPU);
        return value;
    }

    // What the caller gets for a tensor that the kernel returned: an argument itself, a view of one, or something new.
    Tensor device(const Tensor& tensor) {
        if (!tensor.defined() || tensor.is_cuda()) return tensor;
        for (auto& [device, host] : pairs_)
            if (host.is_same(tensor)) return device;
        return dressed(tensor, device_storage(tensor.storage()), c10::DispatchKey::CUDA);
    }

    IValue device(const IValue& value) {
        if (value.isTensor()) return device(value.toTensor());
        if (!value.isTensorList()) return value;
        c10::List<Tensor> list;
        for (const Tensor& tensor : value.toTensorVector()) list.push_back(device(tensor));
        return list;
    }

    // Arguments that the kernel has resized or given other memory.
    void settle() {
        for (auto& [device, host] : pairs_) {
            if (!device.defined() || !device.is_cuda()) continue;
            auto *impl = device.unsafeGetTensorImpl(), *now = host.unsafeGetTensorImpl();
            auto* memory = impl->storage().unsafeGetStorageImpl();
            const Storage changed = now->storage();
            if (storages_.at(memory).unsafeGetStorageImpl() != changed.unsafeGetStorageImpl()) {
                impl->set_storage_keep_dtype(device_storage(changed));
            } else if (changed.data() != untagged(memory->data()) || changed.nbytes() != memory->nbytes()) {
                memory->set_data_ptr_noswap(on_device(changed, device.device()));
                memory->set_nbytes(changed.nbytes());
            }
            if (impl->sizes() != now->sizes() || impl->strides() != now->strides() ||
                impl->storage_offset() != now->storage_offset())
                impl->set_sizes_and_strides(now->sizes(), now->strides(), now->storage_offset());
        }
    }

  private:
    static Tensor dressed(const Tensor& like, Storage storage, c10::DispatchKey key) {
        TORCH_CHECK(like.layout() == at::kStrided, "The simulated GPU has dense tensors only");
        auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
        tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
        if (like.dim() == 0) tensor.unsafeGetTensorImpl()->set_wrapped_number(like.unsafeGetTensorImpl()->is_wrapped_number());
        return tensor;
    }

    Storage host_storage(const Storage& device) {
        auto& host = storages_[device.unsafeGetStorageImpl()];
        if (!host) {
            at::DataPtr memory(untagged(device.data()), new Storage(device), [](void* kept) { delete static_cast<Storage*>(kept); },
                               Device(at::kCPU));
            host = Storage(Storage::use_byte_size_t(), device.nbytes(), std::move(memory), c10::GetCPUAllocator(), true);
        }
        return host;
    }

    Storage device_storage(const Storage& host) {
        for (auto& [device, known] : storages_)
            if (known.unsafeGetStorageImpl() == host.unsafeGetStorageImpl())
                return Storage(c10::intrusive_ptr<StorageImpl>::reclaim_copy(device));
        Storage device(Storage::use_byte_size_t(), host.nbytes(), on_device(host, device_), &allocator, true);
        storages_[device.unsafeGetStorageImpl()] = host;
        made_.push_back(device);
        return device;
    }

    Device device_;
    std::vector<std::pair<Tensor, Tensor>> pairs_;
    std::unordered_map<StorageImpl*, Storage> storages_;
    std::vector<Storage> made_;
};

// What is known of an operator.
struct Rule {
    std::string name;
    bool any_device = false;     // copies between devices
    bool host_scalars = false;   // takes numbers on the CPU (real kernels: "device_check: NoCheck")
    bool no_kernel = false;      // CUDA has none
    bool product = false;        // of matrices: cuBLAS knows no integers
};

const Rule& rule(const c10::OperatorHandle& op) {
    static std::mutex mutex;
    static std::unordered_map<const c10::FunctionSchema*, Rule> rules;
    static const std::unordered_set<std::string> no_check(std::begin(NO_CHECK), std::end(NO_CHECK));
    static const std::unordered_set<std::string> no_kernel(std::begin(NO_KERNEL), std::end(NO_KERNEL));
    static const std::unordered_set<std::string> products = {"aten::mm",     "aten::bmm", "aten::addmm", "aten::baddbmm",
                                                             "aten::addbmm", "aten::mv",  "aten::addmv", "aten::dot"};
    std::lock_guard lock(mutex);
    auto [place, fresh] = rules.try_emplace(&op.schema());
    if (fresh) {
        auto& made = place->second;
        made.name = c10::toString(op.operator_name());
        made.any_device = made.name == "aten::copy_" || made.name == "aten::_copy_from";
        made.host_scalars = no_check.count(made.name) > 0;
        made.no_kernel = no_kernel.count(made.name) > 0;
        made.product = products.count(op.schema().name()) > 0;
    }
    return place->second;
}

// Refuses what the real kernels refuse; the device of the call.
Device checked(const c10::OperatorHandle& op, const Rule& rule, c10::ArrayRef<IValue> values) {
    std::optional<Device> common;
    std::vector<std::tuple<Tensor, const c10::Argument*>> tensors;
    std::vector<Tensor> plain;
    for (size_t i = 0; i < values.size(); ++i) {
        auto add = [&](const Tensor& tensor) {
            if (!tensor.defined()) return;
            tensors.emplace_back(tensor, &op.schema().arguments()[i]);
            plain.push_back(tensor);
            if (tensor.is_cuda() && !common) common = tensor.device();
        };
        if (values[i].isTensor()) add(values[i].toTensor());
        else if (values[i].isTensorList()) for (const Tensor& tensor : values[i].toTensorVector()) add(tensor);
        else if (const auto listed = optional_tensors(values[i]))
            for (const auto& tensor : *listed) add(tensor.value_or(Tensor()));
        else if (values[i].isDevice() && values[i].toDevice().is_cuda() && !common) common = values[i].toDevice();
    }
    if (common && !common->has_index()) common->set_index(current);
    TORCH_CHECK_NOT_IMPLEMENTED(!rule.no_kernel, "Could not run '", rule.name, "' with arguments from the 'CUDA' backend.");
    for (auto& [tensor, argument] : tensors) {
        const bool written = argument->alias_info() && argument->alias_info()->isWrite();
        const bool number = rule.host_scalars && tensor.is_cpu() && tensor.dim() == 0 && !written;
        // Indexing takes indices of the host, and of the tensor's own device.
        const bool index = tensor.is_cpu() && argument->name() == "indices" && rule.name.find("index") != std::string::npos &&
                           argument->type()->kind() == c10::TypeKind::ListType;
        TORCH_CHECK(rule.any_device || number || index || tensor.device() == *common,
                    "Expected all tensors to be on the same device, but got ", argument->name(), " is on ", tensor.device(),
                    ", different from other tensors on ", *common, " (when checking argument in method wrapper_CUDA_",
                    rule.name.substr(rule.name.find("::") + 2), ")");
        TORCH_CHECK_NOT_IMPLEMENTED(!rule.product || !c10::isIntegralType(tensor.scalar_type(), true), "\"", rule.name,
                                    "_cuda\" not implemented for '", c10::toString(tensor.scalar_type()), "'");
    }
    const bool non_blocking = rule.name == "aten::copy_" && values[2].toBool();
    statistics.count(rule.name, plain, non_blocking);
    return common.value_or(Device(at::kCUDA, current));
}

// Whether `mm.out(self, mat2, out)` would take minutes on a processor.
bool too_large(const Rule& rule, c10::ArrayRef<IValue> values) {
    static const double most = 1e9 * static_cast<double>(setting("SIMULATED_GPU_GFLOP", 20));
    if (rule.name != "aten::mm.out") return false;
    const Tensor a = values[0].toTensor(), b = values[1].toTensor();
    return 2.0 * static_cast<double>(a.size(0)) * static_cast<double>(a.size(1)) * static_cast<double>(b.size(1)) > most;
}

// Every operator that has no kernel of its own below.
void run_on_host(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const auto& arguments = op.schema().arguments();
    const size_t start = stack->size() - arguments.size();
    const auto values = c10::ArrayRef<IValue>(*stack).slice(start);
    const Device device = checked(op, rule(op), values);
    if (too_large(rule(op), values)) {
        const IValue result = values.back();
        torch::jit::drop(*stack, arguments.size());
        stack->push_back(result);
        return;
    }
    Call call(device);
    for (size_t i = 0; i < arguments.size(); ++i) {
        auto& value = (*stack)[start + i];
        if (arguments[i].type()->str().find("Generator") == std::string::npos) {
            value = call.host(value);
        } else {
            const auto given = value.isNone() ? default_generator(device.index()) : value.toGenerator();
            TORCH_CHECK(given.device().is_cuda(), "Expected a 'cuda' device type for generator but found 'cpu'");
            value = static_cast<Generator*>(given.unsafeGetGeneratorImpl())->host;
        }
    }
    {
        at::AutoDispatchBelowADInplaceOrView below_autograd;
        op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    }
    call.settle();
    const size_t returned = op.schema().returns().size();
    for (size_t i = stack->size() - returned; i < stack->size(); ++i) (*stack)[i] = call.device((*stack)[i]);
}

Device device_or_current(std::optional<Device> device) {
    const DeviceIndex index = device && device->has_index() ? device->index() : current;
    TORCH_CHECK(index < device_count(), "CUDA error: invalid device ordinal");
    return {at::kCUDA, index};
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<Device> device,
             std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
    TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
    c10::DeviceGuard guard(device_or_current(device));
    return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(dtype),
                                     format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<Device> device, std::optional<bool> pinned) {
    TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
    c10::DeviceGuard guard(device_or_current(device));
    return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                             c10::dtype_or_default(dtype));
}

// Attention: the fused operators that GPUs use, computed by the processor's flash kernel where it can.
int64_t attention_choice(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
                         double dropout, bool, std::optional<double>, bool grouped) {
    const bool four = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
    const bool fused = four && dropout == 0.0 && !grouped && query.scalar_type() != at::kDouble &&
                       query.size(-1) == key.size(-1) && key.size(-1) == value.size(-1) &&
                       !(mask && mask->defined() && mask->requires_grad());
    return static_cast<int64_t>(fused ? at::SDPBackend::efficient_attention : at::SDPBackend::math);
}

std::optional<Tensor> mask_of(const std::optional<Tensor>& mask) {
    return mask && mask->defined() ? mask : std::nullopt;
}

void same_device(const char* name, std::initializer_list<const Tensor*> tensors) {
    std::vector<Tensor> all;
    for (const Tensor* tensor : tensors) {
        TORCH_CHECK(!tensor->defined() || tensor->device() == (*tensors.begin())->device(),
                    "Expected all tensors to be on the same device (", name, ")");
        all.push_back(*tensor);
    }
    statistics.count(name, all);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                                     const std::optional<Tensor>& mask, bool, double dropout, bool causal,
                                                     std::optional<double> scale) {
    same_device("aten::_scaled_dot_product_efficient_attention", {&query, &key, &value});
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    Call call(query.device());
    auto given = mask_of(mask);
    auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        call.host(query), call.host(key), call.host(value), dropout, causal, given ? std::optional(call.host(*given)) : given, scale);
    const auto counter = at::TensorOptions(at::kLong);
    return {call.device(out), call.device(sums), at::empty({}, counter), at::empty({}, counter)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                                                              const Tensor& value, const Tensor& mask, const Tensor& out,
                                                              const Tensor& sums, const Tensor&, const Tensor&, double dropout,
                                                              std::array<bool, 4>, bool causal, std::optional<double> scale) {
    if (!gradient.defined()) return {};
    same_device("aten::_scaled_dot_product_efficient_attention_backward", {&gradient, &query, &key, &value, &out, &sums});
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    Call call(query.device());
    auto given = mask_of(mask);
    auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        call.host(gradient), call.host(query), call.host(key), call.host(value), call.host(out), call.host(sums), dropout, causal,
        given ? std::optional(call.host(*given)) : given, scale);
    return {call.device(q), call.device(k), call.device(v), Tensor()};
}

}  // namespace simulated

// libtorch looks these hooks up by their name, in this namespace.
namespace at {
struct CUDAHooks final : CUDAHooksInterface {
    explicit CUDAHooks(CUDAHooksArgs) {}
    void init() const override {}
    const Generator& getDefaultGenerator(DeviceIndex index) const override { return simulated::default_generator(index); }
    Generator getNewGenerator(DeviceIndex index) const override {
        return make_generator<simulated::Generator>(index < 0 ? simulated::current : index);
    }
    Device getDeviceFromPtr(void*) const override { return {kCUDA, simulated::current}; }
    bool hasCUDA() const override { return true; }
    bool hasCUDART() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return simulated::device_count() > 0; }
    bool hasPrimaryContext(DeviceIndex) const override { return true; }
    DeviceIndex deviceCount() const override { return simulated::device_count(); }
    int getNumGPUs() const override { return simulated::device_count(); }
    DeviceIndex current_device() const override { return simulated::current; }
    DeviceIndex getCurrentDevice() const override { return simulated::current; }
    void setCurrentDevice(DeviceIndex index) const override { simulated::current = index; }
    DeviceIndex exchangeDevice(DeviceIndex index) const override { return std::exchange(simulated::current, index); }
    DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return index < 0 ? simulated::current : exchangeDevice(index); }
    Allocator* getPinnedMemoryAllocator() const override { return &simulated::pinned; }
    bool isPinnedPtr(const void* data) const override { return simulated::pinned.owns(data); }
    Allocator* getCUDADeviceAllocator() const override { return &simulated::allocator; }
    long versionCUDART() const override { return 13000; }
    std::string showConfig() const override { return "simulated"; }
    void deviceSynchronize(DeviceIndex) const override { simulated::count_wait("synchronize", 0); }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&simulated::run_on_host>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
    m.impl("empty.memory_format", TORCH_FN(simulated::empty));
    m.impl("empty_strided", TORCH_FN(simulated::empty_strided));
    m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
    m.impl("view", TORCH_FN(at::native::view));
    m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
    for (const char* name : OWN_KERNEL) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&simulated::run_on_host>());
    // Has a kernel for all devices that asks a table of device kernels, which has no entry for this one.
    m.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&simulated::run_on_host>());
    m.impl("_scaled_dot_product_efficient_attention", TORCH_FN(simulated::attention));
    m.impl("_scaled_dot_product_efficient_attention_backward", TORCH_FN(simulated::attention_backward));
}

static const bool ready = [] {
    c10::SetAllocator(at::kCUDA, &simulated::allocator);
    at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&simulated::attention_choice);
    struct sigaction action {};
    action.sa_sigaction = simulated::on_segmentation_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    return true;
}();
