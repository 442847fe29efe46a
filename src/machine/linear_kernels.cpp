// Linear layers by oneDNN, which libtorch contains, for linear_kernels.rs. Of f32 matrices libtorch itself sends such products to
// MKL, which does not use AVX-512 on processors that are not Intel's; of bf16 matrices it sends them to oneDNN, but copies the bias to each
// row first, and packs the weight at every product. Gradients are products of the same kind.

// Only the operators that are named here are declared: all of them would take most of the time that this file takes to compile.
#define AT_PER_OPERATOR_HEADERS
#include "calls.h"
#include "products.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string_view>

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// The most rows of f32 numbers that are multiplied without oneDNN, which gains on the loop with each more.
constexpr int64_t kFew = 16;

// Whether the numbers of a row of a matrix follow each other. By the transpose of one of bf16 libtorch's own call multiplies faster.
bool has_rows(const Tensor& weight) { return weight.stride(1) == 1; }

}  // namespace

Tensor bella_product(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
    if (x.scalar_type() == at::kBFloat16 && !weight.is_mkldnn() && !has_rows(weight)) return at::linear(x, weight, bias);
    using Signature = Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&, std::string_view,
                             c10::List<std::optional<at::Scalar>>, std::optional<std::string_view>);
    static const auto linear =
        c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Signature>();
    return linear.call(x, weight, bias, "none", c10::List<std::optional<at::Scalar>>(), "");
}

Tensor bella_frozen_product(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
    const bool is_bf16 = weight.scalar_type() == at::kBFloat16, packs = is_bf16 && has_rows(weight);
    if (!is_bf16 && x.size(0) <= kFew && has_rows(weight)) return bella_product_of_few(x, weight, bias);
    return bella_product(x, packs ? bella_packed(weight) : weight, bias);
}

namespace {

// x [n, M, K], weight [n, N, K], bias [N] or [n, N] -> [n, M, N].
struct Linear : torch::autograd::Function<Linear> {
    static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
        // As libtorch's own linear layers do, it keeps only what a gradient needs.
        context->save_for_backward({weight.requires_grad() ? x : Tensor(), x.requires_grad() ? weight : Tensor()});
        context->saved_data["bias_axes"] = bias ? bias->dim() : 0;
        const auto particles = x.size(0);
        const auto product = weight.requires_grad() ? bella_product : bella_frozen_product;
        const auto bias_of = [&](int64_t particle) {
            return bias && bias->dim() == 2 ? std::optional<Tensor>(bias->select(0, particle)) : bias;
        };
        if (particles == 1) return product(x.select(0, 0), weight.select(0, 0), bias_of(0)).unsqueeze(0);
        auto y = at::empty({particles, x.size(1), weight.size(1)}, x.options());
        for (int64_t particle = 0; particle < particles; ++particle) {
            y.select(0, particle).copy_(product(x.select(0, particle), weight.select(0, particle), bias_of(particle)));
        }
        return y;
    }

    // The gradients are linear layers themselves, so that they can be differentiated again.
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const auto saved = context->get_saved_variables();
        const auto &x = saved[0], &weight = saved[1], &gradient = gradients[0];
        variable_list found(3);
        if (weight.defined()) found[0] = apply(gradient, weight.transpose(1, 2), std::nullopt);
        if (x.defined()) found[1] = apply(gradient.transpose(1, 2), x.transpose(1, 2), std::nullopt);
        const auto axes = context->saved_data["bias_axes"].toInt();
        if (axes > 0 && context->needs_input_grad(2)) {
            found[2] = axes == 2 ? gradient.sum(1) : gradient.sum(at::IntArrayRef({0, 1}));
        }
        return found;
    }
};

}  // namespace

// Returns whether this libtorch was built with oneDNN.
extern "C" bool bella_has_onednn() {
    try {
        return c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""}).has_value();
    } catch (...) {
        return false;
    }
}

// Returns null and the message, to be freed by free(), if libtorch fails.
extern "C" Tensor* bella_linear(const Tensor* x, const Tensor* weight, const Tensor* bias, char** message) {
    return guarded(message, [&] { return Linear::apply(*x, *weight, bias ? std::optional<Tensor>(*bias) : std::nullopt); });
}
