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
        for (int width = kLanes / 2; width > 0; width /= 2) {
            for (int lane = 0; lane < width; ++lane) parts[row][lane] += parts[row][lane + width];
        }
        found[row] = parts[row][0];
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

// The products of one row with all columns [channels, width].
inline void products(const float* row, const float* columns, int64_t channels, int64_t width, float* __restrict found) {
    for (int64_t first = 0; first < width; first += kLanes) {
        float parts[kLanes] = {};
        for (int64_t c = 0; c < channels; ++c) {
            const float x = row[c];
            const float* column = columns + c * width + first;
            for (int lane = 0; lane < kLanes; ++lane) parts[lane] += x * column[lane];
        }
        for (int lane = 0; lane < kLanes; ++lane) found[first + lane] = parts[lane];
    }
}

// The probabilities with which a query reads the tokens, in place of its scores.
inline void softmax(float* scores, int64_t tokens, int64_t width, float scale) {
    float most = scores[0];
    for (int64_t t = 1; t < tokens; ++t) most = scores[t] > most ? scores[t] : most;
    for (int64_t t = 0; t < width; ++t) scores[t] = exp_of(scale * (scores[t] - most));
    float sum = 0;
    for (int64_t t = 0; t < tokens; ++t) sum += scores[t];
    const float share = 1.0f / sum;
    for (int64_t t = 0; t < width; ++t) scores[t] = t < tokens ? scores[t] * share : 0.0f;
}

// out = sum over tokens of weights[t] rows[t].
inline void weighted(const float* weights, const float* rows, int64_t stride, int64_t tokens, int64_t channels, float* __restrict out) {
    int64_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) {
        float parts[kLanes] = {};
        for (int64_t t = 0; t < tokens; ++t) {
            const float weight = weights[t];
            for (int lane = 0; lane < kLanes; ++lane) parts[lane] += weight * rows[t * stride + c + lane];
        }
        for (int lane = 0; lane < kLanes; ++lane) out[c + lane] = parts[lane];
    }
    for (; c < channels; ++c) {
        float sum = 0;
        for (int64_t t = 0; t < tokens; ++t) sum += weights[t] * rows[t * stride + c];
        out[c] = sum;
    }
}

inline void add_scaled(float* __restrict to, float factor, const float* from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

void attend(const Heads& heads, float* out, int64_t out_stride, float* scratch) {
    const int64_t width = padded(heads.tokens);
    float *keys = scratch, *weights = keys + heads.channels * width;
    transposed(heads.key, heads.stride, heads.tokens, heads.channels, keys);
    for (int64_t t = 0; t < heads.tokens; ++t) {
        products(heads.query + t * heads.stride, keys, heads.channels, width, weights);
        softmax(weights, heads.tokens, width, heads.scale);
        weighted(weights, heads.value, heads.stride, heads.tokens, heads.channels, out + t * out_stride);
    }
}

void attend_back(const Heads& heads, const float* gradient, int64_t gradient_stride, float* const gradients[3], float* scratch) {
    const int64_t width = padded(heads.tokens), tokens = heads.tokens, channels = heads.channels, stride = heads.stride;
    float *keys = scratch, *values = keys + channels * width, *weights = values + channels * width, *slopes = weights + width;
    transposed(heads.key, stride, tokens, channels, keys);
    transposed(heads.value, stride, tokens, channels, values);
    for (int64_t t = 0; t < tokens; ++t) {
        std::memset(gradients[1] + t * stride, 0, channels * sizeof(float));
        std::memset(gradients[2] + t * stride, 0, channels * sizeof(float));
    }
    for (int64_t t = 0; t < tokens; ++t) {
        const float *query = heads.query + t * stride, *read = gradient + t * gradient_stride;
        products(query, keys, channels, width, weights);
        softmax(weights, tokens, width, heads.scale);
        products(read, values, channels, width, slopes);
        float mean = 0;
        for (int64_t s = 0; s < tokens; ++s) mean += weights[s] * slopes[s];
        for (int64_t s = 0; s < tokens; ++s) slopes[s] = heads.scale * weights[s] * (slopes[s] - mean);
        weighted(slopes, heads.key, stride, tokens, channels, gradients[0] + t * stride);
        for (int64_t s = 0; s < tokens; ++s) {
            add_scaled(gradients[1] + s * stride, slopes[s], query, channels);
            add_scaled(gradients[2] + s * stride, weights[s], read, channels);
        }
    }
}

}  // namespace

extern "C" const RowKernels BELLA_ROWS = {widen, narrow, down, up, outer, attend, attend_back};
