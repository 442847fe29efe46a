// Frozen linear layers whose weights are stored in 8 or 4 bits, for quantised/. A product makes the numbers of its weight, some rows at
// a time, and so does the product of its gradient; neither keeps them. On processors the numbers are made by the loops below, on other
// devices by operations of libtorch. Both compute them in f32 and round them to the type of the product at the end.

#define AT_PER_OPERATOR_HEADERS
#include "../calls.h"
#include "../products.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

namespace quantised {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The ways in which codes are stored, as quantised/mod.rs numbers them.
enum Form : int64_t {
    // int8 codes [out, in] with a largest absolute value of each row, scales [out]: code · scale / 127.
    kInt8 = 0,
    // Indices into a table, two a byte and the first in the high bits, [blocks, 32], of the rows one after the other, with a largest
    // absolute value of each 64 of them, scales [blocks].
    kNf4 = 1,
    // Whole numbers from 0 to 15, two a byte and the first in the high bits, [out, in / 2]. A column belongs to a group, group [in], each
    // of which has a scale and a zero, [out, groups]: (code - zero) · scale.
    kGroups = 2,
};

constexpr int64_t kBlock = 64;
// bitsandbytes writes 1 / 127 so.
constexpr float kPerCode = 7.874015718698502e-3f;
// The most numbers that a product makes of its weight at a time.
constexpr int64_t kSlice = int64_t{1} << 24;

// The quantiles of a normal distribution that QLoRA takes (Dettmers et al. 2023, arXiv 2305.14314, appendix E).
constexpr std::array<float, 16> kTable = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// Some rows of a layer.
struct Layer : torch::CustomClassHolder {
    int64_t form, inputs, first, rows;
    // Whether products go through oneDNN.
    bool onednn;
    Tensor codes, scales, zeros, group;
};

using Held = c10::intrusive_ptr<Layer>;

// Calls `row` on the numbers from 0 to `count`, so many on each thread that it has some work.
template <typename Row>
void for_rows(int64_t count, int64_t width, const Row& row) {
    on_threads(count, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, width)), row);
}

// The two numbers of each byte.
const float (&pairs())[256][2] {
    static float all[256][2];
    static const bool made = [] {
        for (int byte = 0; byte < 256; ++byte) {
            all[byte][0] = kTable[byte >> 4];
            all[byte][1] = kTable[byte & 15];
        }
        return true;
    }();
    (void)made;
    return all;
}

// The numbers from place `at` to `end` of all rows one after the other.
template <typename To>
void nf4_numbers(const uint8_t* codes, const float* scales, int64_t at, int64_t end, To* to) {
    const auto& table = pairs();
    if ((at & 1) && at < end) {
        *to++ = static_cast<To>(kTable[codes[at >> 1] & 15] * scales[at / kBlock]);
        ++at;
    }
    while (at < end) {
        const float scale = scales[at / kBlock];
        const int64_t stop = std::min(end, (at / kBlock + 1) * kBlock);
        for (; at + 1 < stop; at += 2, to += 2) {
            const float* both = table[codes[at >> 1]];
            to[0] = static_cast<To>(both[0] * scale);
            to[1] = static_cast<To>(both[1] * scale);
        }
        if (at < stop) {
            *to++ = static_cast<To>(kTable[codes[at >> 1] >> 4] * scale);
            ++at;
        }
    }
}

template <typename To>
void fill_on_host(const Layer& layer, int64_t first, int64_t count, To* to) {
    const int64_t inputs = layer.inputs;
    const auto* scales = layer.scales.const_data_ptr<float>();
    if (layer.form == kInt8) {
        const auto* codes = layer.codes.const_data_ptr<int8_t>();
        for_rows(count, inputs, [&](int64_t row) {
            const int8_t* own = codes + (first + row) * inputs;
            const float scale = scales[first + row];
            To* y = to + row * inputs;
            for (int64_t at = 0; at < inputs; ++at) y[at] = static_cast<To>(static_cast<float>(own[at]) * scale * kPerCode);
        });
    } else if (layer.form == kNf4) {
        const auto* codes = layer.codes.const_data_ptr<uint8_t>();
        for_rows(count, inputs, [&](int64_t row) {
            nf4_numbers(codes, scales, (first + row) * inputs, (first + row + 1) * inputs, to + row * inputs);
        });
    } else {
        const auto* codes = layer.codes.const_data_ptr<uint8_t>();
        const auto* zeros = layer.zeros.const_data_ptr<float>();
        const auto* group = layer.group.const_data_ptr<int32_t>();
        const int64_t groups = layer.scales.size(1);
        for_rows(count, inputs, [&](int64_t row) {
            const uint8_t* own = codes + (first + row) * (inputs / 2);
            const float *scale = scales + (first + row) * groups, *zero = zeros + (first + row) * groups;
            To* y = to + row * inputs;
            for (int64_t at = 0; at < inputs; ++at) {
                const int code = at & 1 ? own[at >> 1] & 15 : own[at >> 1] >> 4;
                y[at] = static_cast<To>((static_cast<float>(code) - zero[group[at]]) * scale[group[at]]);
            }
        });
    }
}

// The two codes of each byte side by side.
Tensor apart(const Tensor& bytes) {
    return at::stack({bytes.bitwise_right_shift(4), bytes.bitwise_and(15)}, -1);
}

// The same by operations of libtorch, in f32.
Tensor on_device(const Layer& layer, int64_t first, int64_t count) {
    const int64_t inputs = layer.inputs;
    if (layer.form == kInt8) {
        const Tensor scales = layer.scales.narrow(0, first, count).unsqueeze(1);
        return layer.codes.narrow(0, first, count).to(at::kFloat).mul_(scales).mul_(kPerCode);
    }
    if (layer.form == kNf4) {
        const int64_t start = first * inputs, end = start + count * inputs;
        const int64_t from = start / kBlock, blocks = (end + kBlock - 1) / kBlock - from;
        const Tensor index = apart(layer.codes.narrow(0, from, blocks)).reshape({-1}).to(at::kInt);
        const Tensor host = at::from_blob(const_cast<float*>(kTable.data()), {16}, at::kFloat);
        const Tensor numbers = host.to(index.device()).index_select(0, index).view({blocks, kBlock});
        const Tensor scaled = numbers.mul(layer.scales.narrow(0, from, blocks).unsqueeze(1));
        return scaled.view({-1}).narrow(0, start - from * kBlock, count * inputs).view({count, inputs});
    }
    const Tensor codes = apart(layer.codes.narrow(0, first, count)).reshape({count, inputs}).to(at::kFloat);
    const auto spread = [&](const Tensor& all) { return all.narrow(0, first, count).index_select(1, layer.group); };
    return codes.sub(spread(layer.zeros)).mul_(spread(layer.scales));
}

// Whether the loops make numbers of a type.
bool by_loops(const Layer& layer, at::ScalarType kind) {
    return layer.codes.is_cpu() && (kind == at::kFloat || kind == at::kDouble || kind == at::kBFloat16);
}

// Writes the numbers of some rows to a tensor of such a type.
void fill(const Layer& layer, int64_t first, int64_t count, const Tensor& made) {
    switch (made.scalar_type()) {
        case at::kDouble: return fill_on_host(layer, first, count, made.mutable_data_ptr<double>());
        case at::kBFloat16: return fill_on_host(layer, first, count, made.mutable_data_ptr<at::BFloat16>());
        default: return fill_on_host(layer, first, count, made.mutable_data_ptr<float>());
    }
}

// The numbers [count, in] of some rows, counted from the first one of `layer`.
Tensor numbers(const Layer& layer, int64_t start, int64_t count, at::ScalarType kind) {
    const int64_t first = layer.first + start;
    if (!layer.codes.is_cpu()) return on_device(layer, first, count).to(kind);
    if (!by_loops(layer, kind)) return numbers(layer, start, count, at::kFloat).to(kind);
    Tensor made = at::empty({count, layer.inputs}, at::TensorOptions().dtype(kind));
    fill(layer, first, count, made);
    return made;
}

// The same for one product, in memory that the thread keeps for its next one: freed and taken anew, it would leave holes between the
// activations that stay, and a pass through 7 billion weights would take gigabytes more.
Tensor lent_numbers(const Layer& layer, int64_t start, int64_t count, at::ScalarType kind) {
    if (!by_loops(layer, kind)) return numbers(layer, start, count, kind);
    thread_local Tensor kept;
    const int64_t all = count * layer.inputs;
    if (!kept.defined() || kept.scalar_type() != kind || kept.numel() < all) {
        kept = at::empty({all}, at::TensorOptions().dtype(kind));
    }
    const Tensor made = kept.narrow(0, 0, all).view({count, layer.inputs});
    fill(layer, layer.first + start, count, made);
    return made;
}

Tensor product(const Layer& layer, const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
    return layer.onednn ? bella_product(x, weight, bias) : at::linear(x, weight, bias);
}

int64_t rows_of_slice(const Layer& layer) {
    return std::max<int64_t>(1, std::min(layer.rows, kSlice / std::max<int64_t>(1, layer.inputs)));
}

// x [M, in] -> [M, rows].
Tensor forth(const Layer& layer, const Tensor& x, const std::optional<Tensor>& bias) {
    const int64_t step = rows_of_slice(layer);
    if (step == layer.rows) return product(layer, x, lent_numbers(layer, 0, step, x.scalar_type()), bias);
    Tensor y = at::empty({x.size(0), layer.rows}, x.options());
    for (int64_t start = 0; start < layer.rows; start += step) {
        const int64_t count = std::min(step, layer.rows - start);
        const auto own = bias ? std::optional<Tensor>(bias->narrow(0, start, count)) : bias;
        y.narrow(1, start, count).copy_(product(layer, x, lent_numbers(layer, start, count, x.scalar_type()), own));
    }
    return y;
}

// x [M, rows] -> [M, in].
Tensor back(const Layer& layer, const Tensor& x) {
    const int64_t step = rows_of_slice(layer);
    Tensor y;
    for (int64_t start = 0; start < layer.rows; start += step) {
        const int64_t count = std::min(step, layer.rows - start);
        const Tensor weight = lent_numbers(layer, start, count, x.scalar_type()).t();
        const Tensor part = product(layer, count == layer.rows ? x : x.narrow(1, start, count).contiguous(), weight, std::nullopt);
        y = y.defined() ? y.add_(part) : part;
    }
    return y;
}

// The gradient of a product by its input is the product by the transposed weight, and the reverse.
struct Product : torch::autograd::Function<Product> {
    static Tensor forward(AutogradContext* context, const Tensor& x, const Held& layer, const std::optional<Tensor>& bias,
                          bool transposed) {
        context->saved_data["layer"] = c10::IValue::make_capsule(layer);
        context->saved_data["transposed"] = transposed;
        return transposed ? back(*layer, x) : forth(*layer, x, bias);
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const auto held = c10::static_intrusive_pointer_cast<Layer>(context->saved_data["layer"].toCapsule());
        const bool transposed = context->saved_data["transposed"].toBool();
        return {apply(gradients[0], held, std::nullopt, !transposed), Tensor(), Tensor(), Tensor()};
    }
};

// Whether x exceeds the middle between two neighbours of the table counts for the higher one.
std::array<float, 15> middles() {
    std::array<float, 15> all{};
    for (size_t at = 0; at < all.size(); ++at) all[at] = (kTable[at] + kTable[at + 1]) / 2;
    return all;
}

}  // namespace

// A layer as Rust passes it. `zeros` and `group` may be null.
struct BellaLayer {
    int64_t form, inputs, first, rows;
    const Tensor *codes, *scales, *zeros, *group;
};

namespace {

Held held(const BellaLayer& of, bool onednn) {
    auto layer = c10::make_intrusive<Layer>();
    layer->form = of.form;
    layer->inputs = of.inputs;
    layer->first = of.first;
    layer->rows = of.rows;
    layer->onednn = onednn;
    layer->codes = *of.codes;
    layer->scales = *of.scales;
    if (of.zeros) layer->zeros = *of.zeros;
    if (of.group) layer->group = *of.group;
    return layer;
}

}  // namespace

// Returns x Wᵀ + b, [M, rows], for x [M, in] and a bias [rows] or null.
extern "C" Tensor* bella_quantised_linear(const BellaLayer* layer, const Tensor* x, const Tensor* bias, bool onednn,
                                          char** message) {
    return guarded(message, [&] {
        return Product::apply(*x, held(*layer, onednn), bias ? std::optional<Tensor>(*bias) : std::nullopt, false);
    });
}

// Returns the numbers of the rows in a type. `plainly` makes them by operations of libtorch on processors as well.
extern "C" Tensor* bella_dequantised(const BellaLayer* layer, int kind, bool plainly, char** message) {
    return guarded(message, [&] {
        const auto to = static_cast<at::ScalarType>(kind);
        const auto all = held(*layer, false);
        return plainly ? on_device(*all, all->first, all->rows).to(to) : numbers(*all, 0, all->rows, to);
    });
}

// Returns the codes [blocks, 32] of numbers in f32 on the CPU, and writes the largest absolute value of each block to `scales`
// [blocks]. As in bitsandbytes, a whole block is multiplied by the inverse of its largest value, and the rest of an incomplete one is
// divided by it. The places behind the last number hold zeros.
extern "C" Tensor* bella_nf4_codes(const Tensor* of, const Tensor* scales, char** message) {
    return guarded(message, [&] {
        static const auto borders = middles();
        const int64_t all = of->numel(), blocks = (all + kBlock - 1) / kBlock;
        Tensor codes = at::empty({blocks, kBlock / 2}, at::kByte);
        const auto* from = of->const_data_ptr<float>();
        auto* largest = scales->mutable_data_ptr<float>();
        auto* to = codes.mutable_data_ptr<uint8_t>();
        for_rows(blocks, kBlock, [&](int64_t block) {
            const int64_t start = block * kBlock, count = std::min(kBlock, all - start);
            float most = 0.0f;
            for (int64_t at = 0; at < count; ++at) most = std::max(most, std::abs(from[start + at]));
            const bool whole = count == kBlock;
            const float least = std::max(most, 1e-38f), inverse = 1.0f / least;
            std::array<uint8_t, kBlock> own{};
            for (int64_t at = 0; at < kBlock; ++at) {
                const float x = at < count ? from[start + at] : 0.0f;
                const float scaled = std::min(1.0f, std::max(-1.0f, whole ? x * inverse : x / least));
                int code = 0;
                for (const float border : borders) code += scaled > border;
                own[at] = static_cast<uint8_t>(code);
            }
            for (int64_t at = 0; at < kBlock / 2; ++at) to[block * kBlock / 2 + at] = own[2 * at] << 4 | own[2 * at + 1];
            largest[block] = whole ? most : least;
        });
        return codes;
    });
}

}  // namespace quantised
