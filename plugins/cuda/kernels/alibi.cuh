// Slopes of ALiBi.
#pragma once
#include "device.cuh"

// The factor of ALiBi for a head: a power of two.
DEVICE float alibi_slope(i64 head, i64 n_heads, float max_bias) {
    i64 n = 1;
    while (2 * n <= n_heads) n *= 2;
    return head < n ? exp2f(-max_bias / n * (head + 1)) : exp2f(-max_bias / 2.0f / n * (2 * (head - n) + 1));
}
