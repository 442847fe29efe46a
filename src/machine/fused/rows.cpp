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

constexpr float kSlope = float(kQuickSlope);

void quick_gelu_back(const float* x, float* __restrict gradient, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        const float share = 1.0f / (1.0f + exp_of(-kSlope * x[i]));
        gradient[i] *= share + kSlope * x[i] * (share * (1.0f - share));
    }
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

// The products of x with four rows, which are `apart` numbers apart.
inline void dot_four(const float* x, const float* a, int64_t apart, int64_t count, float* found) {
    float parts[4][kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (int row = 0; row < 4; ++row) {
            for (int lane = 0; lane < kLanes; ++lane) parts[row][lane] += x[i + lane] * a[row * apart + i + lane];
        }
    }
    for (int row = 0; row < 4; ++row) {
        for (int64_t rest = i; rest < count; ++rest) parts[row][rest - i] += x[rest] * a[row * apart + rest];
        found[row] = joined(parts[row], sum_of);
    }
}

void down(const float* x, const float* a, float* low, int64_t count, int64_t rank) {
    for (int64_t r = 0; r < rank; r += kRankStep) dot_four(x, a + r * count, count, count, low + r);
}

void up(float* __restrict y, const float* low, const float* b, int64_t count, int64_t rank) {
    for (int64_t r = 0; r < rank; r += kRankStep) {
        const float *b0 = b + r * count, *b1 = b0 + count, *b2 = b1 + count, *b3 = b2 + count;
        const float l0 = low[r], l1 = low[r + 1], l2 = low[r + 2], l3 = low[r + 3];
        for (int64_t i = 0; i < count; ++i) y[i] += l0 * b0[i] + l1 * b1[i] + l2 * b2[i] + l3 * b3[i];
    }
}

void outer(float* __restrict sum, const float* low, const float* v, int64_t count, int64_t rank) {
    for (int64_t r = 0; r < rank; r += kRankStep) {
        float *s0 = sum + r * count, *s1 = s0 + count, *s2 = s1 + count, *s3 = s2 + count;
        const float l0 = low[r], l1 = low[r + 1], l2 = low[r + 2], l3 = low[r + 3];
        for (int64_t i = 0; i < count; ++i) {
            const float x = v[i];
            s0[i] += l0 * x;
            s1[i] += l1 * x;
            s2[i] += l2 * x;
            s3[i] += l3 * x;
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

// The numbers that one instruction takes, anywhere in memory.
#if defined(__AVX512F__)
constexpr int kVector = 16;
#elif defined(__AVX2__)
constexpr int kVector = 8;
#else
constexpr int kVector = 4;
#endif
typedef float Vector __attribute__((vector_size(kVector * sizeof(float)), aligned(sizeof(float)), may_alias));

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

extern "C" const RowKernels BELLA_ROWS = {widen, narrow, down, up, outer, quick_gelu_back, attend, attend_back};
