// Lines of the states that recurrent ops pass from token to token: a warp has one, in registers, lane after lane.
#pragma once
#include "device.cuh"

// Numbers that a lane has; 32 times that is the longest line.
#define PER_LANE 8

// n numbers, `step` apart, of which the first is number `first` of dim 0 of row `row`.
struct Line {
    i64 row, first, step, n;
};

DEVICE void load_line(const Tensor &t, const Line &line, float *s) {
    for (int j = 0; j < PER_LANE; j++) {
        i64 i = lane_of(THREAD) + 32 * j;
        s[j] = i < line.n ? at<const float>(address_of(t, line.first + i * line.step, line.row, 0, 0))[0] : 0.0f;
    }
}

// The address of number n of a tensor of two dims, counted in order.
DEVICE u64 in_order(const Tensor &t, i64 n) { return address_of(t, n % t.ne[0], n / t.ne[0], 0, 0); }

// Numbers first, first + step, ... of a result, counted in order.
DEVICE void store_line(const Tensor &y, i64 first, i64 step, i64 n, const float *s) {
    for (int j = 0; j < PER_LANE; j++) {
        i64 i = lane_of(THREAD) + 32 * j;
        if (i < n) at<float>(in_order(y, first + i * step))[0] = s[j];
    }
}
