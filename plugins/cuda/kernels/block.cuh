// Sums and maxima over the threads of a block, for each of them.
#pragma once
#include "device.cuh"

DEVICE float block_sum(float x) {
    SHARED(float, parts, 32);
    x = warp_sum(x);
    sync_block();
    if (lane_of(THREAD) == 0) parts[warp_of(THREAD)] = x;
    sync_block();
    float sum = 0.0f;
    for (int i = 0; i < THREADS / 32; i++) sum += parts[i];
    return sum;
}

DEVICE float block_max(float x) {
    SHARED(float, largest, 32);
    x = warp_max(x);
    sync_block();
    if (lane_of(THREAD) == 0) largest[warp_of(THREAD)] = x;
    sync_block();
    float most = -INF_F;
    for (int i = 0; i < THREADS / 32; i++) most = fmaxf(most, largest[i]);
    return most;
}
