// x in 8 bits, as packed weights are multiplied with it.
#pragma once
#include "number.cuh"

// 32 numbers of x: q · d, and what each half sums up to.
struct alignas(16) Packed {
    int q[8];
    float d, sum[2], unused;
};

// The numbers that the lanes of a warp bring, to an address: the same bits whichever kernel has them.
DEVICE void pack(float x, u64 address) {
    int lane = lane_of(THREAD);
    // NaN and infinity are in d alone.
    float d = warp_magnitude(x) / 127.0f;
    int q = d > 0.0f && d < INF_F ? (int)rintf(x / d) : 0;
    float sum = (float)q;
    for (int lanes = 8; lanes > 0; lanes >>= 1) sum += shuffle_xor(sum, lanes);
    float other = shuffle_xor(sum, 16);
    int word = (q & 0xff) << (8 * (lane & 3));
    word |= shuffle_xor(word, 1);
    word |= shuffle_xor(word, 2);
    global<Packed> to = at<Packed>(address);
    if (lane % 4 == 0) to[0].q[lane / 4] = word;
    if (lane == 0) {
        to[0].d = d;
        to[0].sum[0] = d * sum;
        to[0].sum[1] = d * other;
    }
}
