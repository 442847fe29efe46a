// Parts of a network that libtorch makes several passes over memory for, in one pass each, for mod.rs: a frozen linear layer with low-rank
// updates, also behind a curve, attention of few tokens, and the gradient of QuickGELU. Each is an operation with a gradient; a gradient that is to be differentiated
// again is that of libtorch's own operations.

#define AT_PER_OPERATOR_HEADERS
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "../calls.h"
#include "../products.h"
#include "rows.h"

namespace fused {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const RowKernels& rows() {
#if defined(__x86_64__)
    static const RowKernels* const chosen = [] {
        __builtin_cpu_init();
        const bool has512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
        if (has512) return &bella_rows_avx512;
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &bella_rows_avx2 : &bella_rows_plain;
    }();
    return *chosen;
#else
    return bella_rows_plain;
#endif
}

// Rows of f32 or bf16 numbers, read and written as f32.
struct Rows {
    char* data;
    int64_t stride;
    bool narrow;

    explicit Rows(const Tensor& of) : Rows(of, of.size(-1)) {}
    Rows(const Tensor& of, int64_t stride)
        : data(static_cast<char*>(of.data_ptr())), stride(stride), narrow(of.scalar_type() == at::kBFloat16) {}

    Numbers from(int64_t row) const { return Numbers{data, stride, narrow}.from(row); }

    // The numbers of a row, in `buffer` if they have to be made.
    const float* read(int64_t row, int64_t count, float* buffer) const { return read_at(row * stride, count, buffer); }
    const float* read_at(int64_t from, int64_t count, float* buffer) const {
        if (!narrow) return reinterpret_cast<const float*>(data) + from;
        rows().widen(reinterpret_cast<const uint16_t*>(data) + from, buffer, count);
        return buffer;
    }
    // Where a row may be computed, which `write` puts in its place.
    float* place(int64_t row, float* buffer) const { return narrow ? buffer : reinterpret_cast<float*>(data) + row * stride; }
    void write(int64_t row, int64_t count, const float* numbers) const { write_at(row * stride, count, numbers); }
    void write_at(int64_t to, int64_t count, const float* numbers) const {
        if (narrow) {
            rows().narrow(numbers, reinterpret_cast<uint16_t*>(data) + to, count);
        } else if (numbers != reinterpret_cast<float*>(data) + to) {
            std::memcpy(reinterpret_cast<float*>(data) + to, numbers, count * sizeof(float));
        }
    }
};

// x [p, M, K], weight [N, K], bias [N] -> [p, M, N], without a graph.
Tensor product(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, bool by_onednn) {
    if (!by_onednn) return at::linear(x, weight, bias);
    return bella_frozen_product(x.reshape({-1, x.size(2)}), weight, bias).view({x.size(0), x.size(1), weight.size(0)});
}

// What a layer's inputs go through first, by the numbers that mod.rs gives.
enum Curve : int64_t { kStraight, kGelu, kQuickGelu };

// The values of a curve by libtorch's operations, with a graph if one is kept.
Tensor bent(const Tensor& x, int64_t curve) {
    if (curve == kStraight) return x;
    if (curve == kGelu) return at::gelu(x);
    const auto scaled = at::mul(x, kQuickSlope);
    return at::GradMode::is_enabled() ? at::mul(x, at::sigmoid(scaled)) : scaled.sigmoid_().mul_(x);
}

// The same numbers in place of x.
void bend(Tensor x, int64_t curve) {
    if (curve == kGelu) at::gelu_(x);
    if (curve == kQuickGelu) x.mul_(at::mul(x, kQuickSlope).sigmoid_());
}

// The rows of factors, as f32 with zero rows up to a multiple of kRankStep: [n, rank, count], times a factor.
template <typename Number>
std::vector<float> factor_rows_of(const Tensor& factors, float scale) {
    const auto n = factors.size(0), rank = factors.size(1), count = factors.size(2), inner = factors.stride(2);
    const auto step = (rank + kRankStep - 1) / kRankStep * kRankStep;
    std::vector<float> all(n * step * count, 0.0f);
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t r = 0; r < rank; ++r) {
            const auto* from = factors.const_data_ptr<Number>() + i * factors.stride(0) + r * factors.stride(1);
            float* to = all.data() + (i * step + r) * count;
            for (int64_t at = 0; at < count; ++at) to[at] = scale * static_cast<float>(from[at * inner]);
        }
    }
    return all;
}

std::vector<float> factor_rows(const Tensor& factors, double scale) {
    return factors.scalar_type() == at::kBFloat16 ? factor_rows_of<at::BFloat16>(factors, float(scale))
                                                  : factor_rows_of<float>(factors, float(scale));
}

// The sizes of an adapted layer.
struct Sizes {
    int64_t particles, rows, inputs, outputs, rank;
    // Whether all particles have the same inputs.
    bool shared;

    Sizes(const Tensor& x, const Tensor& weight, const Tensor& a)
        : particles(a.size(0)), rows(x.size(1)), inputs(x.size(2)), outputs(weight.size(0)),
          rank((a.size(1) + kRankStep - 1) / kRankStep * kRankStep), shared(x.size(0) == 1) {}

    int64_t input_row(int64_t particle, int64_t row) const { return (shared ? 0 : particle * rows) + row; }
};

// The rows of a particle that one thread takes, so many that sums over them are few, and so few that all threads have some.
constexpr int64_t kSlice = 256;

int64_t slices_of(int64_t rows) { return (rows + kSlice - 1) / kSlice; }

// Whether a gradient of the saved input `place` is wanted. libtorch counts the inputs that are there; a bias may be missing.
bool needs(AutogradContext* context, const variable_list& saved, size_t place) {
    size_t number = 0;
    for (size_t before = 0; before < place; ++before) number += saved[before].defined();
    return context->needs_input_grad(number);
}

// The gradients of `result` by the saved inputs at `inputs` that need one, as graphs, in a list of `count`.
variable_list gradients_of(AutogradContext* context, const Tensor& result, const Tensor& gradient, const variable_list& saved,
                           const std::vector<size_t>& inputs, size_t count) {
    variable_list wanted, found(count);
    std::vector<size_t> places;
    for (const auto place : inputs) {
        if (!needs(context, saved, place)) continue;
        wanted.push_back(saved[place]);
        places.push_back(place);
    }
    const auto all = torch::autograd::grad({result}, wanted, {gradient}, /*retain_graph=*/true, /*create_graph=*/true);
    for (size_t at = 0; at < places.size(); ++at) found[places[at]] = all[at];
    return found;
}

// A frozen layer with its updates: x W^T + bias + scale x A^T B^T for x [p, M, in], W [out, in], bias [out], A [n, rank, in],
// B [n, out, rank] is [n, M, out].
struct Layer {
    const Tensor &x, &weight;
    const std::optional<Tensor>& bias;
    const Tensor &a, &b;
    // x W^T + bias, where it is known.
    const std::optional<Tensor>& known;
    double scale;
    bool by_onednn;

    // The layer, and the products x A^T [n, M, rank].
    std::pair<Tensor, Tensor> by_rows() const {
        // Rows that stay in the first cache.
        constexpr int64_t kRows = 8;
        const Sizes size(x, weight, a);
        const bool merged = merges();
        const auto frozen = known ? known->contiguous() : (merged ? by_merged() : product(x, weight, bias, by_onednn));
        const auto low = at::empty({size.particles, size.rows, size.rank}, x.options().dtype(at::kFloat));
        const bool apart = known || (size.shared && size.particles > 1);
        const auto y = apart ? at::empty({size.particles, size.rows, size.outputs}, x.options()) : frozen;
        const auto a_rows = factor_rows(a, 1.0), b_rows = factor_rows(b.transpose(1, 2), scale);
        const Rows from(x), frozen_rows(frozen), y_rows(y);
        const auto slices = slices_of(size.rows);
        on_threads(size.particles * slices, 1, [&](int64_t number) {
            const auto particle = number / slices, first = number % slices * kSlice, end = std::min(first + kSlice, size.rows);
            const float* own_a = a_rows.data() + particle * size.rank * size.inputs;
            const float* own_b = b_rows.data() + particle * size.rank * size.outputs;
            for (int64_t row = first; row < end; row += kRows) {
                const auto count = std::min(kRows, end - row), own = particle * size.rows + row, input = size.input_row(particle, row);
                float* lower = low.data_ptr<float>() + own * size.rank;
                rows().down(from.from(input), own_a, lower, count, size.inputs, size.rank);
                if (merged) continue;
                rows().up(frozen_rows.from(input), y_rows.from(own), lower, own_b, nullptr, count, size.outputs, size.rank);
            }
        });
        return {y, low};
    }

    // Whether each update is added to the frozen matrix, which takes less time where there are many rows, and little memory.
    bool merges() const {
        constexpr int64_t kLeastRows = 256, kMostWeights = 1 << 22;
        const Sizes size(x, weight, a);
        const bool fits = size.rows >= kLeastRows && weight.numel() <= kMostWeights;
        return fits && by_onednn && !known && x.scalar_type() == at::kFloat && !(size.shared && size.particles > 1);
    }

    // The layer by products with matrices of which each has its update added.
    Tensor by_merged() const {
        const Sizes size(x, weight, a);
        const auto a_rows = factor_rows(a, 1.0), b_rows = factor_rows(b.transpose(1, 2), scale);
        const auto frozen = weight.stride(1) == 1 ? weight : weight.contiguous();
        const auto own = at::empty({size.inputs, size.outputs}, weight.options());
        Tensor y;
        for (int64_t particle = 0; particle < size.particles; ++particle) {
            rows().merge(frozen.const_data_ptr<float>(), frozen.stride(0), a_rows.data() + particle * size.rank * size.inputs,
                         b_rows.data() + particle * size.rank * size.outputs, own.data_ptr<float>(), size.inputs, size.outputs, size.rank);
            const auto found = bella_product(x.select(0, particle), own.t(), bias);
            if (size.particles == 1) return found.unsqueeze(0);
            if (particle == 0) y = at::empty({size.particles, size.rows, size.outputs}, x.options());
            y.select(0, particle).copy_(found);
        }
        return y;
    }
};

// A layer with its gradients. Of inputs that go through a curve first, these alone are kept.
struct Adapted : torch::autograd::Function<Adapted> {
    // The inputs of `forward`, of which each has a gradient or none.
    static constexpr size_t kInputs = 9;

    static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                          const Tensor& a, const Tensor& b, const std::optional<Tensor>& known, double scale, bool by_onednn, int64_t curve) {
        const auto input = bent(x, curve);
        const auto [y, low] = Layer{input, weight, bias, a, b, known, scale, by_onednn}.by_rows();
        context->save_for_backward({x, weight, bias ? *bias : Tensor(), a, b, low});
        context->saved_data["scale"] = scale;
        context->saved_data["by_onednn"] = by_onednn;
        context->saved_data["curve"] = curve;
        return y;
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        if (at::GradMode::is_enabled()) return again(context, gradients[0]);
        variable_list found(kInputs);
        const auto saved = context->get_saved_variables();
        const auto &x = saved[0], &weight = saved[1], &a = saved[3], &b = saved[4], &low = saved[5];
        const Sizes size(x, weight, a);
        const bool to_x = needs(context, saved, 0), to_a = needs(context, saved, 3), to_b = needs(context, saved, 4);
        const auto gradient = gradients[0].contiguous();
        const auto scale = context->saved_data["scale"].toDouble();
        const auto curve = context->saved_data["curve"].toInt();
        const auto lowered = at::empty(low.sizes(), low.options());
        const auto a_rows = factor_rows(a, 1.0), b_rows = factor_rows(b.transpose(1, 2), scale);
        const auto slices = slices_of(size.rows);
        const auto sums_a = at::zeros({size.particles, slices, size.rank, size.inputs}, low.options());
        const auto sums_b = at::zeros({size.particles, slices, size.rank, size.outputs}, low.options());
        const Rows inputs(x), gradient_rows(gradient);
        on_threads(size.particles * slices, 1, [&](int64_t number) {
            // Rows that stay in the first cache.
            constexpr int64_t kRows = 8;
            const auto particle = number / slices, first = number % slices * kSlice, end = std::min(first + kSlice, size.rows);
            float* sum_a = sums_a.data_ptr<float>() + number * size.rank * size.inputs;
            float* sum_b = sums_b.data_ptr<float>() + number * size.rank * size.outputs;
            for (int64_t row = first; row < end; row += kRows) {
                const auto count = std::min(kRows, end - row), own = particle * size.rows + row;
                const auto slopes = gradient_rows.from(own);
                float* lower = lowered.data_ptr<float>() + own * size.rank;
                rows().down(slopes, b_rows.data() + particle * size.rank * size.outputs, lower, count, size.outputs, size.rank);
                if (to_b) rows().outer(sum_b, low.data_ptr<float>() + own * size.rank, slopes, count, size.outputs, size.rank);
                if (to_a && curve == kStraight) rows().outer(sum_a, lower, inputs.from(size.input_row(particle, row)), count, size.inputs, size.rank);
            }
        });
        if (to_x) {
            const auto slopes = size.shared && size.particles > 1 ? gradient.sum(0, true) : gradient;
            found[0] = product(slopes, weight.t(), std::nullopt, context->saved_data["by_onednn"].toBool());
            if (curve == kStraight) add_updates(found[0], size, lowered, a_rows);
        }
        if (curve != kStraight) through_curve(curve, x, found[0], size, lowered, a_rows, to_a ? sums_a : Tensor());
        if (to_a) found[3] = summed(sums_a, a.size(1)).to(a.scalar_type());
        if (to_b) found[4] = summed(sums_b, b.size(2)).mul(scale).transpose(1, 2).to(b.scalar_type());
        return found;
    }

    // The sums [n, rank, count] over slices [n, slices, padded rank, count], one after the other in the order of rows.
    static Tensor summed(const Tensor& slices, int64_t rank) {
        auto sum = slices.select(1, 0);
        for (int64_t slice = 1; slice < slices.size(1); ++slice) sum = sum.add(slices.select(1, slice));
        return sum.narrow(1, 0, rank);
    }

    // Adds the part through the updates to the gradient of the inputs [p, M, in], of which `found` is that through the frozen matrix.
    static void add_updates(const Tensor& found, const Sizes& size, const Tensor& lowered, const std::vector<float>& a_rows) {
        const Rows found_rows(found);
        const auto slices = slices_of(size.rows), parts = found.size(0);
        on_threads(parts * slices, 1, [&](int64_t number) {
            const auto part = number / slices, first = number % slices * kSlice, count = std::min(kSlice, size.rows - first);
            const auto own = found_rows.from(part * size.rows + first);
            for (int64_t particle = part; particle < size.particles; particle += parts == 1 ? 1 : size.particles) {
                const float* lower = lowered.data_ptr<float>() + (particle * size.rows + first) * size.rank;
                const float* own_a = a_rows.data() + particle * size.rank * size.inputs;
                rows().up(own, own, lower, own_a, nullptr, count, size.inputs, size.rank);
            }
        });
    }

    // The same where the inputs x [n, M, in] went through a curve, and the sums for A, of which one look at x serves both. Either may be
    // undefined, if it is not wanted.
    static void through_curve(int64_t curve, const Tensor& x, const Tensor& found, const Sizes& size, const Tensor& lowered,
                              const std::vector<float>& a_rows, const Tensor& sums_a) {
        // Rows that stay in the first cache, or in the second.
        constexpr int64_t kRows = 4;
        const auto values_of = curve == kGelu ? rows().gelu : rows().quick_gelu;
        const Rows inputs(x);
        const auto slices = slices_of(size.rows), numbers = kRows * size.inputs;
        on_threads(size.particles * slices, 1, [&](int64_t number) {
            const auto particle = number / slices, first = number % slices * kSlice, end = std::min(first + kSlice, size.rows);
            const float* own_a = a_rows.data() + particle * size.rank * size.inputs;
            // Not zeros, unlike those of a vector: what is read was written.
            const std::unique_ptr<float[]> wide(new float[3 * numbers]);
            float *values = wide.get() + numbers, *slopes = values + numbers;
            for (int64_t row = first; row < end; row += kRows) {
                const auto count = std::min(kRows, end - row), own = particle * size.rows + row;
                values_of(inputs.read(own, count * size.inputs, wide.get()), values, slopes, count * size.inputs);
                const float* lower = lowered.data_ptr<float>() + own * size.rank;
                if (found.defined()) {
                    const auto to = Rows(found).from(own);
                    rows().up(to, to, lower, own_a, slopes, count, size.inputs, size.rank);
                }
                if (sums_a.defined()) {
                    float* sum = sums_a.data_ptr<float>() + number * size.rank * size.inputs;
                    rows().outer(sum, lower, Numbers{values, size.inputs, false}, count, size.inputs, size.rank);
                }
            }
        });
    }

    // The gradients by libtorch's operations, which can be differentiated.
    static variable_list again(AutogradContext* context, const Tensor& gradient) {
        const auto saved = context->get_saved_variables();
        const auto &weight = saved[1], &bias = saved[2], &a = saved[3], &b = saved[4];
        const auto x = bent(saved[0], context->saved_data["curve"].toInt());
        const auto n = a.size(0);
        const auto frozen = at::linear(x, weight, bias.defined() ? std::optional<Tensor>(bias) : std::nullopt);
        const auto low = at::matmul(x, a.transpose(1, 2));
        const auto scaled = b.transpose(1, 2).mul(context->saved_data["scale"].toDouble());
        const auto y = at::baddbmm(frozen.expand({n, -1, -1}), low, scaled);
        return gradients_of(context, y, gradient, saved, {0, 3, 4}, kInputs);
    }
};

// x sigmoid(1.702 x). The numbers are those of libtorch's operations; only x is kept, and the gradient is one pass.
struct QuickGelu : torch::autograd::Function<QuickGelu> {
    static Tensor forward(AutogradContext* context, const Tensor& x) {
        context->save_for_backward({x});
        return bent(x, kQuickGelu);
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const auto saved = context->get_saved_variables();
        if (at::GradMode::is_enabled()) return gradients_of(context, bent(saved[0], kQuickGelu), gradients[0], saved, {0}, 1);
        const auto &x = saved[0], found = at::empty(x.sizes(), x.options()), gradient = gradients[0].contiguous();
        // Rows of so many numbers that they stay in the first cache.
        constexpr int64_t kRow = 1024;
        const auto count = x.numel(), rows_of = (count + kRow - 1) / kRow;
        const Rows inputs(x, kRow), slopes(gradient, kRow), to(found, kRow);
        on_threads(rows_of, 16, [&](int64_t row) {
            const auto length = std::min(kRow, count - row * kRow);
            float wide[2 * kRow];
            float* product = to.place(row, wide);
            const auto* given = slopes.read(row, length, wide);
            if (given != product) std::memcpy(product, given, length * sizeof(float));
            rows().quick_gelu_back(inputs.read(row, length, wide + kRow), product, length);
            to.write(row, length, product);
        });
        return {found};
    }
};

// What tokens read of each other, [S, T, heads * D], of queries, keys and values [S, T, 3 * heads * D].
struct Attention : torch::autograd::Function<Attention> {
    // Numbers for the heads of one sample: those that have to be made wider, and scratch.
    struct Buffers {
        // Not zeros, unlike those of a vector: what is read was written.
        std::unique_ptr<float[]> rows, scratch;
        Buffers(int64_t tokens, int64_t channels)
            : rows(new float[7 * tokens * channels]), scratch(new float[scratch_of(tokens, channels)]) {}
    };

    struct Shape {
        int64_t samples, tokens, heads, channels;
        Shape(const Tensor& qkv, int64_t heads)
            : samples(qkv.size(0)), tokens(qkv.size(1)), heads(heads), channels(qkv.size(2) / (3 * heads)) {}
        int64_t width() const { return heads * channels; }
        // Where a head of a token begins among what tokens read, and among queries (0), keys (1) and values (2).
        int64_t place(int64_t sample, int64_t token, int64_t head) const { return (sample * tokens + token) * width() + head * channels; }
        int64_t place(int64_t sample, int64_t token, int64_t part, int64_t head) const {
            return ((sample * tokens + token) * 3 + part) * width() + head * channels;
        }
    };

    // Queries, keys and values of a head: where they are, or wider, as rows that follow each other.
    static Heads head_of(const Rows& qkv, const Shape& shape, int64_t sample, int64_t head, float* buffer) {
        const float* parts[3];
        for (int64_t part = 0; part < 3; ++part) {
            float* own = buffer + part * shape.tokens * shape.channels;
            // Numbers of f32 are read where they are.
            parts[part] = qkv.narrow ? own : qkv.read_at(shape.place(sample, 0, part, head), shape.channels, own);
            for (int64_t token = 0; qkv.narrow && token < shape.tokens; ++token) {
                qkv.read_at(shape.place(sample, token, part, head), shape.channels, own + token * shape.channels);
            }
        }
        const auto scale = 1.0f / std::sqrt(float(shape.channels));
        return {parts[0], parts[1], parts[2], shape.tokens, shape.channels, qkv.narrow ? shape.channels : 3 * shape.width(), scale};
    }

    static Tensor forward(AutogradContext* context, const Tensor& qkv, int64_t heads) {
        const Shape shape(qkv, heads);
        const auto read = at::empty({shape.samples, shape.tokens, shape.width()}, qkv.options());
        const Rows from(qkv), to(read);
        on_threads(shape.samples, 1, [&](int64_t sample) {
            Buffers buffers(shape.tokens, shape.channels);
            float* wide = buffers.rows.get() + 3 * shape.tokens * shape.channels;
            for (int64_t head = 0; head < shape.heads; ++head) {
                float* out = to.narrow ? wide : read.data_ptr<float>() + shape.place(sample, 0, head);
                const auto stride = to.narrow ? shape.channels : shape.width();
                rows().attend(head_of(from, shape, sample, head, buffers.rows.get()), out, stride, buffers.scratch.get());
                for (int64_t token = 0; to.narrow && token < shape.tokens; ++token) {
                    to.write_at(shape.place(sample, token, head), shape.channels, out + token * shape.channels);
                }
            }
        });
        context->save_for_backward({qkv});
        context->saved_data["heads"] = heads;
        return read;
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const auto saved = context->get_saved_variables();
        const auto heads = context->saved_data["heads"].toInt();
        if (at::GradMode::is_enabled()) return gradients_of(context, plainly(saved[0], heads), gradients[0], saved, {0}, 2);
        const auto& qkv = saved[0];
        const Shape shape(qkv, heads);
        const auto gradient = gradients[0].contiguous(), found = at::empty(qkv.sizes(), qkv.options());
        const Rows from(qkv), gradient_rows(gradient), to(found);
        const auto size = shape.tokens * shape.channels;
        on_threads(shape.samples, 1, [&](int64_t sample) {
            Buffers buffers(shape.tokens, shape.channels);
            float *wide = buffers.rows.get() + 3 * size, *out = wide + size;
            for (int64_t head = 0; head < shape.heads; ++head) {
                const auto own = head_of(from, shape, sample, head, buffers.rows.get());
                if (!to.narrow) {
                    float* const towards[3] = {found.data_ptr<float>() + shape.place(sample, 0, 0, head),
                                               found.data_ptr<float>() + shape.place(sample, 0, 1, head),
                                               found.data_ptr<float>() + shape.place(sample, 0, 2, head)};
                    const auto* read = gradient.const_data_ptr<float>() + shape.place(sample, 0, head);
                    rows().attend_back(own, read, shape.width(), towards, buffers.scratch.get());
                    continue;
                }
                float* const towards[3] = {out, out + size, out + 2 * size};
                for (int64_t token = 0; token < shape.tokens; ++token) {
                    gradient_rows.read_at(shape.place(sample, token, head), shape.channels, wide + token * shape.channels);
                }
                rows().attend_back(own, wide, shape.channels, towards, buffers.scratch.get());
                for (int64_t part = 0; part < 3; ++part) {
                    for (int64_t token = 0; token < shape.tokens; ++token) {
                        to.write_at(shape.place(sample, token, part, head), shape.channels, towards[part] + token * shape.channels);
                    }
                }
            }
        });
        return {found, Tensor()};
    }

    // The same by libtorch's operations.
    static Tensor plainly(const Tensor& qkv, int64_t heads) {
        const Shape shape(qkv, heads);
        const auto parts = qkv.view({shape.samples, shape.tokens, 3, heads, shape.channels}).permute({2, 0, 3, 1, 4}).unbind(0);
        const auto scores = at::matmul(parts[0], parts[1].transpose(2, 3)).mul(1.0 / std::sqrt(double(shape.channels)));
        const auto read = at::matmul(at::softmax(scores, -1), parts[2]);
        return read.transpose(1, 2).reshape({shape.samples, shape.tokens, shape.width()});
    }
};

}  // namespace

// The numbers that one instruction takes, where the loops were compiled for such instructions.
extern "C" int64_t bella_vectors() {
#if defined(__x86_64__)
    return &rows() == &bella_rows_avx512 ? 16 : (&rows() == &bella_rows_avx2 ? 8 : 0);
#else
    return 0;
#endif
}

// All return null and a message, to be freed by free(), if libtorch fails.

extern "C" Tensor* bella_adapted(const Tensor* x, const Tensor* weight, const Tensor* bias, const Tensor* a, const Tensor* b,
                                 const Tensor* product, double scale, bool by_onednn, int64_t curve, char** message) {
    return guarded(message, [&] {
        const auto input = x->contiguous();
        const auto own = bias ? std::optional<Tensor>(*bias) : std::nullopt;
        const auto known = product ? std::optional<Tensor>(*product) : std::nullopt;
        const Layer layer{input, *weight, own, *a, *b, known, scale, by_onednn};
        if (at::GradMode::is_enabled()) return Adapted::apply(input, *weight, own, *a, *b, known, scale, by_onednn, curve);
        bend(input, curve);
        return layer.merges() ? layer.by_merged() : layer.by_rows().first;
    });
}

extern "C" Tensor* bella_attention(const Tensor* qkv, int64_t heads, char** message) {
    return guarded(message, [&] { return Attention::apply(qkv->contiguous(), heads); });
}

extern "C" Tensor* bella_quick_gelu(const Tensor* x, char** message) {
    return guarded(message, [&] { return QuickGelu::apply(x->contiguous()); });
}

}  // namespace fused

at::Tensor bella_product_of_few(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
    constexpr int64_t kOutputs = 16;  // that a thread takes at once
    const auto outputs = weight.size(0), inputs = weight.size(1), count = x.size(0);
    const auto rows_of_x = x.contiguous();
    auto y = at::empty({count, outputs}, x.options());
    const float *from = rows_of_x.const_data_ptr<float>(), *numbers = weight.const_data_ptr<float>();
    float* to = y.mutable_data_ptr<float>();
    on_threads((outputs + kOutputs - 1) / kOutputs, std::max<int64_t>(1, (int64_t{1} << 16) / inputs / kOutputs), [&](int64_t number) {
        const int64_t first = number * kOutputs, stride = weight.stride(0);
        fused::rows().product(from, numbers + first * stride, stride, to + first, outputs, count, inputs, std::min(kOutputs, outputs - first));
    });
    return bias ? y.add_(*bias) : y;
}
