// Threads that take whole pieces of work, for workers.rs. They are libtorch's own, within one of its parallel regions, where every
// operation keeps to the thread that calls it. libtorch's header for such regions works only in a file that is compiled with
// OpenMP, and then a second OpenMP library would be linked; so the region is that of an operation on as many numbers as threads.

#define AT_PER_OPERATOR_HEADERS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <exception>

namespace at {
// Of the header that cannot be included. A thread's first call takes over the number of threads from libtorch's settings.
TORCH_API int get_num_threads();
}  // namespace at

namespace {

// One thread for OpenMP while it lives, in the thread that makes it. Within a parallel region nothing starts further threads, but oneDNN asks
// OpenMP how many it may start, makes its primitives for so many, and some of its kernels (gradients of 1 x 1 convolutions with AVX2) then wait
// for those that never come. OpenMP is asked by name, since linking with it could bring a second library beside libtorch's.
class OneThread {
public:
    OneThread() {
        at::get_num_threads();
        before_ = most() ? most()() : 0;
        if (set() && before_ > 0) set()(1);
    }
    ~OneThread() {
        if (set() && before_ > 0) set()(before_);
    }
    OneThread(const OneThread&) = delete;
    OneThread& operator=(const OneThread&) = delete;

private:
    using Most = int (*)();
    using Set = void (*)(int);

    static Most most() {
        static const auto found = reinterpret_cast<Most>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
        return found;
    }
    static Set set() {
        static const auto found = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
        return found;
    }

    int before_ = 0;
};

}  // namespace

// Calls work(data) once on each of `workers` threads, or in turn where libtorch has fewer. `work` must let no exception out. Returns
// null, or a message to be freed by free() if libtorch fails.
extern "C" char* bella_on_workers(int64_t workers, void (*work)(void*), void* data) {
    try {
        at::Tensor numbers = at::empty({workers}, at::kByte);
        at::TensorIterator::borrowing_nullary_op(numbers).for_each(
            [&](char**, const int64_t*, int64_t count) {
                const OneThread alone;
                for (int64_t number = 0; number < count; ++number) work(data);
            },
            /*grain_size=*/1);
        return nullptr;
    } catch (const std::exception& error) {
        return strdup(error.what());
    }
}
