// x in 8 bits, as packed weights are multiplied with it.
#pragma once
#include "number.cuh"

// 32 numbers of x: q · d, and what each half sums up to.
struct alignas(16) Packed {
    int q[8];
    float d, sum[2], unused;
};

// Four numbers that each lane of a warp brings: eight lanes have a group, whose address they share, lanes without one give 0. The
// same bits whichever kernel has them.
DEVICE void pack_four(const float *x, u64 address) {
    int of_group = lane_of(THREAD) % 8, most = 0, word = 0;
    UNROLL for (int j = 0; j < 4; j++) most = larger_magnitude(most, x[j]);
    // NaN and infinity are in d alone.
    float d = magnitude_of_lanes<4>(most) / 127.0f, sum = 0.0f;
    UNROLL for (int j = 0; j < 4; j++) {
        int q = d > 0.0f && d < INF_F ? (int)rintf(x[j] / d) : 0;
        sum += (float)q;
        word |= (q & 0xff) << (8 * j);
    }
    for (int lanes = 2; lanes > 0; lanes >>= 1) sum += shuffle_xor(sum, lanes);
    float other = shuffle_xor(sum, 4);
    if (address == 0) return;
    global<Packed> to = at<Packed>(address);
    to[0].q[of_group] = word;
    if (of_group == 0) {
        to[0].d = d;
        to[0].sum[0] = d * sum;
        to[0].sum[1] = d * other;
        to[0].unused = 0.0f;
    }
}
