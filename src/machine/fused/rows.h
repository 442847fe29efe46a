// Loops over rows of f32 numbers, compiled for several instruction sets (rows.cpp) and chosen when the program runs (fused.cpp).

#pragma once

#include <cstdint>

// The number of rows of adapters is a multiple of this: those that are missing are zeros.
constexpr int64_t kRankStep = 4;

// The factor of x in the sigmoid of QuickGELU, as in mod.rs.
constexpr double kQuickSlope = 1.702;

// Heads of one sample: `tokens` rows of `channels` numbers each, of which one begins `stride` numbers after the other.
struct Heads {
    const float *query, *key, *value;
    int64_t tokens, channels, stride;
    float scale;
};

// Rows of f32 numbers, or of bf16 numbers (`narrow`), of which one begins `stride` numbers after the other.
struct Numbers {
    void* data;
    int64_t stride;
    bool narrow;

    Numbers from(int64_t row) const { return {static_cast<char*>(data) + row * stride * (narrow ? 2 : 4), stride, narrow}; }
};

struct RowKernels {
    // Numbers of bf16 as f32, and rounded to the nearest (even) the other way.
    void (*widen)(const uint16_t* from, float* to, int64_t count);
    void (*narrow)(const float* from, uint16_t* to, int64_t count);
    // low[i, r] = x[i] . a[r], for x [rows, count] and a [rank, count].
    void (*down)(const Numbers& x, const float* a, float* low, int64_t rows, int64_t count, int64_t rank);
    // y[i, o] = x[i] . w[o], for x [rows, count], w [outputs, count] with rows `stride` apart and y with rows `y_stride` apart. Each row of w is
    // read from memory once, for all rows of x.
    void (*product)(const float* x, const float* w, int64_t stride, float* y, int64_t y_stride, int64_t rows, int64_t count, int64_t outputs);
    // to[i] = from[i] + sum of low[i, r] b[r], for b [rank, count], times the numbers `times` [rows, count] if there are any. They may be the
    // same numbers.
    void (*up)(const Numbers& from, const Numbers& to, const float* low, const float* b, const float* times, int64_t rows, int64_t count,
               int64_t rank);
    // sum[r] += low[i, r] v[i] for each row, for sum [rank, count].
    void (*outer)(float* sum, const float* low, const Numbers& v, int64_t rows, int64_t count, int64_t rank);
    // to = the transpose of w + sum of b[r, o] a[r, i], for w [outputs, inputs] with rows `stride` apart and to [inputs, outputs].
    void (*merge)(const float* w, int64_t stride, const float* a, const float* b, float* to, int64_t inputs, int64_t outputs, int64_t rank);
    // The values and the derivatives of x Phi(x), with the distribution function Phi of a standard Gaussian, and of x sigmoid(kQuickSlope x).
    void (*gelu)(const float* x, float* values, float* slopes, int64_t count);
    void (*quick_gelu)(const float* x, float* values, float* slopes, int64_t count);
    // gradient *= the derivative of x sigmoid(kQuickSlope x).
    void (*quick_gelu_back)(const float* x, float* gradient, int64_t count);
    // What each token reads, [tokens, channels] with rows `out_stride` apart; `scratch` has scratch_of(tokens, channels) numbers.
    void (*attend)(const Heads& heads, float* out, int64_t out_stride, float* scratch);
    // The gradients of queries, keys and values, laid out as these (with their stride), from that of what is read.
    void (*attend_back)(const Heads& heads, const float* gradient, int64_t gradient_stride, float* const gradients[3], float* scratch);
};

inline int64_t padded(int64_t tokens) { return (tokens + 15) / 16 * 16; }

inline int64_t scratch_of(int64_t tokens, int64_t channels) { return (channels + 2 * padded(tokens)) * padded(tokens); }

extern "C" {
#if defined(__x86_64__)
extern const RowKernels bella_rows_avx512;
extern const RowKernels bella_rows_avx2;
#endif
extern const RowKernels bella_rows_plain;
}
