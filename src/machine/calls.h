// What the C++ files of this folder share: calls that let no exception out, and loops on libtorch's threads. AT_PER_OPERATOR_HEADERS is
// defined before it is included.

#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>

// Runs `make`; returns null and the message, to be freed by free(), if libtorch fails.
template <typename Make>
at::Tensor* guarded(char** message, const Make& make) {
    try {
        return new at::Tensor(make());
    } catch (const std::exception& error) {
        *message = strdup(error.what());
        return nullptr;
    }
}

// Calls work(number) for the numbers up to `count` on libtorch's threads, each of which takes at least `grain`: those of an operation on so
// many numbers (see workers.cpp). Within one of libtorch's parallel regions this thread takes all.
template <typename Work>
void on_threads(int64_t count, int64_t grain, const Work& work) {
    at::Tensor numbers = at::empty({count}, at::kByte);
    const char* start = static_cast<const char*>(numbers.mutable_data_ptr());
    at::TensorIterator::borrowing_nullary_op(numbers).for_each(
        [&](char** data, const int64_t*, int64_t length) {
            const int64_t first = data[0] - start;
            for (int64_t at = 0; at < length; ++at) work(first + at);
        },
        grain);
}
