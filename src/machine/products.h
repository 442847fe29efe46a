// Products of matrices by oneDNN, which linear_kernels.cpp defines, and the memory of packed matrices (packed.cpp).

#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

// x [M, K], weight [N, K], bias [N] -> [M, N], of f32 or bf16 numbers, without a graph.
at::Tensor bella_product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

// The same with a weight that nobody writes to but by libtorch's operations: in bf16, where it is packed once, to the bit. Few rows of f32 are
// left to bella_product_of_few, which differs by rounding.
at::Tensor bella_frozen_product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

// The same of f32 numbers for few rows of x, which oneDNN multiplies no faster than twice as many: each row of the weight, whose numbers follow
// each other, is read from memory once.
at::Tensor bella_product_of_few(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

// A matrix of bf16 numbers [N, K] with rows of numbers that follow each other, in the layout in which oneDNN multiplies by it; or the matrix
// itself, if there is no room.
at::Tensor bella_packed(const at::Tensor& weight);
