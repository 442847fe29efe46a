// The loops of rows.h. This file is compiled once for each instruction set, under the name that BELLA_ROWS gives its table. The loops are
// plain ones that a compiler makes vectors of; sums are kept in sixteen parts that do not depend on the instruction set's width.

#include "rows.h"

#include <cstring>

namespace {

constexpr int kLanes = 16;

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// exp(x) to two units of the last place (Cephes' polynomial on [-ln 2 / 2, ln 2 / 2]); 0 below -87 and finite above 88. A NaN stays one.
inline float exp_of(float x) {
    const float within = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
    const float shifted = within * 1.44269504088896341f + 12582912.0f;
    const float whole = shifted - 12582912.0f;
    const float r = (within - whole * 0.693359375f) - whole * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const float power = float_of((bits_of(shifted) - bits_of(12582912.0f) + 127) << 23);
    return x < -87.0f ? 0.0f : p * power;
}

void widen(const uint16_t* from, float* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = float_of(uint32_t(from[i]) << 16);
}

void narrow(const float* from, uint16_t* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t bits = bits_of(from[i]);
        const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        to[i] = uint16_t(from[i] != from[i] ? 0x7fc0 : rounded);
    }
}

// A number on a curve, and the derivative there.
struct Point {
    float value, slope;
};

inline Point gelu_at(float x) {
    // Abramowitz and Stegun's formula 7.1.26: its error is 1.5e-7. The same power gives the tail and the density.
    const float bell = exp_of(-0.5f * x * x);
    const float t = 1.0f / (1.0f + 0.231641888f * (x < 0 ? -x : x));
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const float tail = 0.5f * p * t * bell;
    const float share = x < 0 ? tail : 1.0f - tail;
    return {x * share, share + 0.3989422804f * x * bell};
}

inline Point quick_gelu_at(float x) {
    constexpr float kSlope = float(kQuickSlope);
    const float share = 1.0f / (1.0f + exp_of(-kSlope * x));
    return {x * share, share + kSlope * x * (share * (1.0f - share))};
}

template <Point (*at)(float)>
void curve(const float* x, float* __restrict values, float* __restrict slopes, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        const Point point = at(x[i]);
        values[i] = point.value;
        slopes[i] = point.slope;
    }
}

void quick_gelu_back(const float* x, float* __restrict gradient, int64_t count) {
    for (int64_t i = 0; i < count; ++i) gradient[i] *= quick_gelu_at(x[i]).slope;
}

// Sixteen numbers as one, by `join`, in an order of its own.
template <typename Join>
inline float joined(float* parts, Join join) {
    for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int lane = 0; lane < width; ++lane) parts[lane] = join(parts[lane], parts[lane + width]);
    }
    return parts[0];
}

inline float sum_of(float a, float b) { return a + b; }

// The numbers that one instruction takes, anywhere in memory.
#if defined(__AVX512F__)
constexpr int kVector = 16;
#elif defined(__AVX2__)
constexpr int kVector = 8;
#else
constexpr int kVector = 4;
#endif
typedef float Vector __attribute__((vector_size(kVector * sizeof(float)), aligned(sizeof(float)), may_alias));

typedef uint32_t VectorBits __attribute__((vector_size(kVector * sizeof(uint32_t)), may_alias));
typedef uint16_t Halves __attribute__((vector_size(kVector * sizeof(uint16_t)), aligned(sizeof(uint16_t)), may_alias));

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline Vector load(const uint16_t* from) {
    return (Vector)(__builtin_convertvector(*reinterpret_cast<const Halves*>(from), VectorBits) << 16);
}

inline void store(const Vector& x, float* to) { *reinterpret_cast<Vector*>(to) = x; }
// As `narrow` rounds.
inline void store(const Vector& x, uint16_t* to) {
    const VectorBits bits = (VectorBits)x, rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const VectorBits is_number = (VectorBits)(x == x);
    *reinterpret_cast<Halves*>(to) = __builtin_convertvector((rounded & is_number) | (~is_number & 0x7fc0), Halves);
}

inline float load_one(const float* from) { return *from; }
inline float load_one(const uint16_t* from) { return float_of(uint32_t(*from) << 16); }

inline void store_one(float x, float* to) { *to = x; }
inline void store_one(float x, uint16_t* to) { narrow(&x, to, 1); }

// The vectors of sixteen numbers.
constexpr int kParts = kLanes / kVector;

// Rows that are taken together, so that a number of the factors is read once for all of them.
#if defined(__AVX512F__)
constexpr int kTogether = 4;
#else
constexpr int kTogether = 2;
#endif

// to[row, at] = x[row] . a[at] for some rows of x and kRankStep rows of a, of which one begins `apart` numbers after the other. Meanwhile, the
// numbers that lie `ahead` behind those of a are asked of memory, if there are any.
template <int kRows, typename Number>
inline void dots(const Number* x, int64_t stride, const float* a, int64_t apart, float* to, int64_t to_stride, int64_t count, int64_t ahead = 0) {
    Vector sums[kRows][kRankStep][kParts] = {};
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (int part = 0; part < kParts; ++part) {
            const int64_t from = i + part * kVector;
            Vector factors[kRankStep];
            for (int at = 0; at < kRankStep; ++at) {
                factors[at] = load(a + at * apart + from);
                if (ahead) __builtin_prefetch(a + at * apart + from + ahead, 0, 2);
            }
            for (int row = 0; row < kRows; ++row) {
                const Vector numbers = load(x + row * stride + from);
                for (int at = 0; at < kRankStep; ++at) sums[row][at][part] += numbers * factors[at];
            }
        }
    }
    for (int row = 0; row < kRows; ++row) {
        for (int at = 0; at < kRankStep; ++at) {
            float parts[kLanes];
            std::memcpy(parts, sums[row][at], sizeof parts);
            for (int64_t rest = i; rest < count; ++rest) parts[rest - i] += load_one(x + row * stride + rest) * a[at * apart + rest];
            to[row * to_stride + at] = joined(parts, sum_of);
        }
    }
}

template <int kRows, typename Number>
inline void down_block(const Number* x, int64_t stride, const float* a, float* low, int64_t count, int64_t rank) {
    for (int64_t r = 0; r < rank; r += kRankStep) dots<kRows>(x, stride, a + r * count, count, low + r, rank, count);
}

template <typename Number>
void down_rows(const Number* x, int64_t stride, const float* a, float* low, int64_t rows, int64_t count, int64_t rank) {
    int64_t row = 0;
    for (; row + kTogether <= rows; row += kTogether) down_block<kTogether>(x + row * stride, stride, a, low + row * rank, count, rank);
    for (; row < rows; ++row) down_block<1>(x + row * stride, stride, a, low + row * rank, count, rank);
}

void down(const Numbers& x, const float* a, float* low, int64_t rows, int64_t count, int64_t rank) {
    x.narrow ? down_rows(static_cast<const uint16_t*>(x.data), x.stride, a, low, rows, count, rank)
             : down_rows(static_cast<const float*>(x.data), x.stride, a, low, rows, count, rank);
}

// The rows of w that are asked of memory ahead: their numbers come too late where the processor alone sees what is read.
constexpr int64_t kAhead = 16;

void product(const float* x, const float* w, int64_t stride, float* y, int64_t y_stride, int64_t rows, int64_t count, int64_t outputs) {
    int64_t output = 0;
    for (; output + kRankStep <= outputs; output += kRankStep) {
        const float* own = w + output * stride;
        int64_t row = 0;
        const auto some = [&](auto block, int64_t together) {
            for (; row + together <= rows; row += together) {
                block(x + row * count, count, own, stride, y + row * y_stride + output, y_stride, count, kAhead * stride);
            }
        };
        some(dots<kTogether, float>, kTogether);
        some(dots<1, float>, 1);
    }
    for (; output < outputs; ++output) {
        for (int64_t row = 0; row < rows; ++row) {
            float sum = 0;
            for (int64_t i = 0; i < count; ++i) sum += x[row * count + i] * w[output * stride + i];
            y[row * y_stride + output] = sum;
        }
    }
}

// The first numbers of some rows of `low`, which stay in registers, since nothing that is written can change them.
template <int kRows>
struct First {
    float low[kRows][kRankStep];

    First(const float* all, int64_t rank) {
        for (int row = 0; row < kRows; ++row) std::memcpy(low[row], all + row * rank, sizeof low[row]);
    }
};

template <int kRows, typename Number>
inline void up_block(const Number* from, int64_t from_stride, Number* to, int64_t to_stride, const float* low, const float* b,
                     const float* times, int64_t count, int64_t rank) {
    const First<kRows> first(low, rank);
    int64_t i = 0;
    for (; i + kVector <= count; i += kVector) {
        Vector sums[kRows];
        for (int row = 0; row < kRows; ++row) sums[row] = load(from + row * from_stride + i);
        for (int at = 0; at < kRankStep; ++at) {
            const Vector factors = load(b + at * count + i);
            for (int row = 0; row < kRows; ++row) sums[row] += first.low[row][at] * factors;
        }
        for (int64_t r = kRankStep; r < rank; r += kRankStep) {
            for (int at = 0; at < kRankStep; ++at) {
                const Vector factors = load(b + (r + at) * count + i);
                for (int row = 0; row < kRows; ++row) sums[row] += low[row * rank + r + at] * factors;
            }
        }
        for (int row = 0; times && row < kRows; ++row) sums[row] *= load(times + row * count + i);
        for (int row = 0; row < kRows; ++row) store(sums[row], to + row * to_stride + i);
    }
    for (; i < count; ++i) {
        for (int row = 0; row < kRows; ++row) {
            float sum = load_one(from + row * from_stride + i);
            for (int64_t r = 0; r < rank; ++r) sum += low[row * rank + r] * b[r * count + i];
            store_one(times ? sum * times[row * count + i] : sum, to + row * to_stride + i);
        }
    }
}

template <typename Number>
void up_rows(const Numbers& from, const Numbers& to, const float* low, const float* b, const float* times, int64_t rows, int64_t count,
             int64_t rank) {
    const auto* own = static_cast<const Number*>(from.data);
    auto* out = static_cast<Number*>(to.data);
    int64_t row = 0;
    const auto some = [&](auto block, int64_t together) {
        for (; row + together <= rows; row += together) {
            block(own + row * from.stride, from.stride, out + row * to.stride, to.stride, low + row * rank, b,
                  times ? times + row * count : nullptr, count, rank);
        }
    };
    some(up_block<kTogether, Number>, kTogether);
    some(up_block<1, Number>, 1);
}

void up(const Numbers& from, const Numbers& to, const float* low, const float* b, const float* times, int64_t rows, int64_t count,
        int64_t rank) {
    to.narrow ? up_rows<uint16_t>(from, to, low, b, times, rows, count, rank) : up_rows<float>(from, to, low, b, times, rows, count, rank);
}

template <int kRows, typename Number>
inline void outer_block(float* sum, const float* low, const Number* v, int64_t stride, int64_t count, int64_t rank) {
    const First<kRows> first(low, rank);
    int64_t i = 0;
    for (; i + kVector <= count; i += kVector) {
        Vector numbers[kRows];
        for (int row = 0; row < kRows; ++row) numbers[row] = load(v + row * stride + i);
        for (int at = 0; at < kRankStep; ++at) {
            Vector own = load(sum + at * count + i);
            for (int row = 0; row < kRows; ++row) own += first.low[row][at] * numbers[row];
            store(own, sum + at * count + i);
        }
        for (int64_t r = kRankStep; r < rank; r += kRankStep) {
            for (int at = 0; at < kRankStep; ++at) {
                Vector own = load(sum + (r + at) * count + i);
                for (int row = 0; row < kRows; ++row) own += low[row * rank + r + at] * numbers[row];
                store(own, sum + (r + at) * count + i);
            }
        }
    }
    for (; i < count; ++i) {
        for (int64_t r = 0; r < rank; ++r) {
            for (int row = 0; row < kRows; ++row) sum[r * count + i] += low[row * rank + r] * load_one(v + row * stride + i);
        }
    }
}

template <typename Number>
void outer_rows(float* sum, const float* low, const Number* v, int64_t stride, int64_t rows, int64_t count, int64_t rank) {
    int64_t row = 0;
    for (; row + kTogether <= rows; row += kTogether) outer_block<kTogether>(sum, low + row * rank, v + row * stride, stride, count, rank);
    for (; row < rows; ++row) outer_block<1>(sum, low + row * rank, v + row * stride, stride, count, rank);
}

void outer(float* sum, const float* low, const Numbers& v, int64_t rows, int64_t count, int64_t rank) {
    v.narrow ? outer_rows(sum, low, static_cast<const uint16_t*>(v.data), v.stride, rows, count, rank)
             : outer_rows(sum, low, static_cast<const float*>(v.data), v.stride, rows, count, rank);
}

// Shuffles by numbers are GCC's; with another compiler `merge` takes its numbers one by one.
#if defined(__AVX512F__) && !defined(__clang__)
#define BELLA_SHUFFLES
// Exchanges the blocks off the diagonal of 2 kApart x 2 kApart numbers of sixteen rows.
template <int kApart>
inline void exchange(Vector* rows) {
    VectorBits first, second;
    for (int lane = 0; lane < kLanes; ++lane) {
        first[lane] = lane & kApart ? kLanes + lane - kApart : lane;
        second[lane] = lane & kApart ? kLanes + lane : lane + kApart;
    }
    for (int row = 0; row < kLanes; ++row) {
        if (row & kApart) continue;
        const Vector above = rows[row], below = rows[row + kApart];
        rows[row] = __builtin_shuffle(above, below, first);
        rows[row + kApart] = __builtin_shuffle(above, below, second);
    }
}

// Sixteen outputs and inputs of `merge`.
inline void merge_block(const float* w, int64_t stride, const float* a, const float* b, float* to, int64_t inputs, int64_t outputs, int64_t rank) {
    Vector rows[kLanes];
    for (int row = 0; row < kLanes; ++row) rows[row] = load(w + row * stride);
    exchange<8>(rows);
    exchange<4>(rows);
    exchange<2>(rows);
    exchange<1>(rows);
    for (int64_t r = 0; r < rank; ++r) {
        const Vector factors = load(b + r * outputs);
        for (int row = 0; row < kLanes; ++row) rows[row] += a[r * inputs + row] * factors;
    }
    for (int row = 0; row < kLanes; ++row) store(rows[row], to + row * outputs);
}
#endif

void merge(const float* w, int64_t stride, const float* a, const float* b, float* to, int64_t inputs, int64_t outputs, int64_t rank) {
    int64_t whole_inputs = 0, whole_outputs = 0;
#if defined(BELLA_SHUFFLES)
    whole_inputs = inputs / kLanes * kLanes;
    whole_outputs = outputs / kLanes * kLanes;
    for (int64_t output = 0; output < whole_outputs; output += kLanes) {
        for (int64_t input = 0; input < whole_inputs; input += kLanes) {
            const float* from = w + output * stride + input;
            merge_block(from, stride, a + input, b + output, to + input * outputs + output, inputs, outputs, rank);
        }
    }
#endif
    for (int64_t output = 0; output < outputs; ++output) {
        for (int64_t input = output < whole_outputs ? whole_inputs : 0; input < inputs; ++input) {
            float sum = w[output * stride + input];
            for (int64_t r = 0; r < rank; ++r) sum += a[r * inputs + input] * b[r * outputs + output];
            to[input * outputs + output] = sum;
        }
    }
}

// Rows [tokens, channels] as columns [channels, padded(tokens)], with zeros behind.
void transposed(const float* rows, int64_t stride, int64_t tokens, int64_t channels, float* columns) {
    const int64_t width = padded(tokens);
    for (int64_t c = 0; c < channels; ++c) {
        for (int64_t t = 0; t < tokens; ++t) columns[c * width + t] = rows[t * stride + c];
        for (int64_t t = tokens; t < width; ++t) columns[c * width + t] = 0;
    }
}

// A matrix of which one row begins `rows` numbers after the other, and one number of a row `inner` numbers after the other.
struct Left {
    const float* numbers;
    int64_t rows, inner;
};

// Two of them for four rows are eight sums that do not wait for each other.
constexpr int kBeside = 2;

// Some rows and columns of `multiply`, whose sums stay in registers.
template <int kRows, int kBlocks>
inline void tile(const Left& a, const float* b, int64_t b_stride, int64_t inner, float* c, int64_t c_stride) {
    Vector sums[kRows][kBlocks] = {};
    for (int64_t i = 0; i < inner; ++i) {
        const Vector* columns = reinterpret_cast<const Vector*>(b + i * b_stride);
        for (int row = 0; row < kRows; ++row) {
            const float x = a.numbers[row * a.rows + i * a.inner];
            for (int block = 0; block < kBlocks; ++block) sums[row][block] += x * columns[block];
        }
    }
    for (int row = 0; row < kRows; ++row) {
        for (int block = 0; block < kBlocks; ++block) reinterpret_cast<Vector*>(c + row * c_stride)[block] = sums[row][block];
    }
}

// Some rows of `multiply`.
template <int kRows>
inline void band(const Left& a, const float* b, int64_t b_stride, int64_t inner, int64_t columns, float* c, int64_t c_stride) {
    int64_t column = 0;
    for (; column + kBeside * kVector <= columns; column += kBeside * kVector) {
        tile<kRows, kBeside>(a, b + column, b_stride, inner, c + column, c_stride);
    }
    for (; column + kVector <= columns; column += kVector) tile<kRows, 1>(a, b + column, b_stride, inner, c + column, c_stride);
    for (; column < columns; ++column) {
        for (int row = 0; row < kRows; ++row) {
            float sum = 0;
            for (int64_t i = 0; i < inner; ++i) sum += a.numbers[row * a.rows + i * a.inner] * b[i * b_stride + column];
            c[row * c_stride + column] = sum;
        }
    }
}

// c = a b for a [rows, inner], b [inner, columns] and c [rows, columns]. Each number is a sum in the order of `inner`.
void multiply(Left a, const float* b, int64_t b_stride, int64_t rows, int64_t inner, int64_t columns, float* c, int64_t c_stride) {
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4, a.numbers += 4 * a.rows, c += 4 * c_stride) band<4>(a, b, b_stride, inner, columns, c, c_stride);
    for (; row < rows; ++row, a.numbers += a.rows, c += c_stride) band<1>(a, b, b_stride, inner, columns, c, c_stride);
}

// The sum of the products of two rows, whose number is a multiple of sixteen.
inline float dot(const float* a, const float* b, int64_t count) {
    float parts[kLanes] = {};
    for (int64_t i = 0; i < count; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) parts[lane] += a[i + lane] * b[i + lane];
    }
    return joined(parts, sum_of);
}

// The probabilities with which a query reads the tokens, in place of its scores, with zeros behind.
inline void softmax(float* scores, int64_t tokens, int64_t width, float scale) {
    for (int64_t t = tokens; t < width; ++t) scores[t] = scores[0];
    float most[kLanes], sums[kLanes] = {};
    std::memcpy(most, scores, sizeof most);
    for (int64_t t = kLanes; t < width; t += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) most[lane] = scores[t + lane] > most[lane] ? scores[t + lane] : most[lane];
    }
    const float largest = joined(most, [](float a, float b) { return a > b ? a : b; });
    for (int64_t t = 0; t < width; ++t) scores[t] = exp_of(scale * (scores[t] - largest));
    for (int64_t t = tokens; t < width; ++t) scores[t] = 0;
    for (int64_t t = 0; t < width; t += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) sums[lane] += scores[t + lane];
    }
    const float share = 1.0f / joined(sums, sum_of);
    for (int64_t t = 0; t < width; ++t) scores[t] *= share;
}

// The probabilities with which each token reads the others, rows of `width` numbers. Takes the keys as columns.
void probabilities(const Heads& heads, const float* keys, float* weights) {
    const int64_t width = padded(heads.tokens);
    multiply({heads.query, heads.stride, 1}, keys, width, heads.tokens, heads.channels, width, weights, width);
    for (int64_t t = 0; t < heads.tokens; ++t) softmax(weights + t * width, heads.tokens, width, heads.scale);
}

void attend(const Heads& heads, float* out, int64_t out_stride, float* scratch) {
    const int64_t width = padded(heads.tokens), tokens = heads.tokens, channels = heads.channels;
    float *keys = scratch, *weights = keys + channels * width;
    transposed(heads.key, heads.stride, tokens, channels, keys);
    probabilities(heads, keys, weights);
    multiply({weights, width, 1}, heads.value, heads.stride, tokens, tokens, channels, out, out_stride);
}

void attend_back(const Heads& heads, const float* gradient, int64_t gradient_stride, float* const gradients[3], float* scratch) {
    const int64_t width = padded(heads.tokens), tokens = heads.tokens, channels = heads.channels, stride = heads.stride;
    float *columns = scratch, *weights = columns + channels * width, *slopes = weights + width * width;
    transposed(heads.key, stride, tokens, channels, columns);
    probabilities(heads, columns, weights);
    transposed(heads.value, stride, tokens, channels, columns);
    multiply({gradient, gradient_stride, 1}, columns, width, tokens, channels, width, slopes, width);
    for (int64_t t = 0; t < tokens; ++t) {
        float* slope = slopes + t * width;
        const float* weight = weights + t * width;
        const float mean = dot(weight, slope, width);
        for (int64_t s = 0; s < width; ++s) slope[s] = heads.scale * weight[s] * (slope[s] - mean);
    }
    multiply({slopes, width, 1}, heads.key, stride, tokens, tokens, channels, gradients[0], stride);
    multiply({slopes, 1, width}, heads.query, stride, tokens, tokens, channels, gradients[1], stride);
    multiply({weights, 1, width}, gradient, gradient_stride, tokens, tokens, channels, gradients[2], stride);
}

}  // namespace

extern "C" const RowKernels BELLA_ROWS = {
    widen, narrow, down, product, up, outer, merge, curve<gelu_at>, curve<quick_gelu_at>, quick_gelu_back, attend, attend_back};
