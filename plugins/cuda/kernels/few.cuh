// What products with few columns add up. Sums are written as fused operations, so that kernels with the same sums have the
// same bits whatever else the compiler does with them.
#pragma once
#include "product.cuh"

// sum plus 32 weights times as many numbers of x.
DEVICE float add_group(float sum, const Group &g, const Packed &x) {
    int low = 0, high = 0;
    for (int i = 0; i < 4; i++) {
        low = dot4(g.q[i], x.q[i], low);
        high = dot4(g.q[i + 4], x.q[i + 4], high);
    }
    float scaled = x.d * fmaf(g.scale[0], (float)low, g.scale[1] * (float)high);
    return sum + fmaf(g.offset[1], x.sum[1], fmaf(g.offset[0], x.sum[0], scaled));
}

// A block takes one column (N 1), or all columns of one batch, at most N: its first, and how many follow. Where fewer than
// N - 1 follow, the last is computed again in place of those that are missing, and stored once.
template <int N> DEVICE i64 first_column(const Product &p) { return N == 1 ? BLOCK_Y : BLOCK_Y * p.y.ne[1]; }
template <int N> DEVICE int last_column(const Product &p) { return N == 1 ? 0 : (int)p.y.ne[1] - 1; }
