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

struct RowKernels {
    // Numbers of bf16 as f32, and rounded to the nearest (even) the other way.
    void (*widen)(const uint16_t* from, float* to, int64_t count);
    void (*narrow)(const float* from, uint16_t* to, int64_t count);
    // low[r] = x . a[r], for a [rank, count].
    void (*down)(const float* x, const float* a, float* low, int64_t count, int64_t rank);
    // y += sum of low[r] b[r], for b [rank, count].
    void (*up)(float* y, const float* low, const float* b, int64_t count, int64_t rank);
    // sum[r] += low[r] v, for sum [rank, count].
    void (*outer)(float* sum, const float* low, const float* v, int64_t count, int64_t rank);
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
