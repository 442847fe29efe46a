// Threads that take whole pieces of work, for workers.rs. They are libtorch's own, within one of its parallel regions, where every
// operation keeps to the thread that calls it. libtorch's header for such regions works only in a file that is compiled with
// OpenMP, and then a second OpenMP library would be linked; so the region is that of an operation on as many numbers as threads.

#define AT_PER_OPERATOR_HEADERS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdlib>
#include <cstring>
#include <exception>

// Calls work(data) once on each of `workers` threads, or in turn where libtorch has fewer. `work` must let no exception out. Returns
// null, or a message to be freed by free() if libtorch fails.
extern "C" char* bella_on_workers(int64_t workers, void (*work)(void*), void* data) {
    try {
        at::Tensor numbers = at::empty({workers}, at::kByte);
        at::TensorIterator::borrowing_nullary_op(numbers).for_each(
            [&](char**, const int64_t*, int64_t count) {
                for (int64_t number = 0; number < count; ++number) work(data);
            },
            /*grain_size=*/1);
        return nullptr;
    } catch (const std::exception& error) {
        return strdup(error.what());
    }
}
