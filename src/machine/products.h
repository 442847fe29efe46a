// A product of f32 matrices by oneDNN, which linear_kernels.cpp defines and quantised.cpp uses as well.

#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

// x [M, K], weight [N, K], bias [N] -> [M, N], without a graph.
at::Tensor bella_product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
