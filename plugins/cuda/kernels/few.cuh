// Products with few columns of packed weights. A warp takes R rows at once, so that what a lane reads of x serves all of them,
// and reads the next part of each row while it multiplies one. x is in shared memory, piece by piece. Sums are written as fused
// operations, and the order of a sum depends on nothing but the type of the weights: kernels have the same bits for a number
// whatever else they compute.
#pragma once
#include "raw.cuh"

// A block takes one column (N 1), or all columns of one batch, at most N: its first, and how many follow. Where fewer than
// N - 1 follow, the last is computed again in place of those that are missing, and stored once.
template <int N> DEVICE i64 first_column(const Product &p) { return N == 1 ? BLOCK_Y : BLOCK_Y * p.y.ne[1]; }
template <int N> DEVICE int last_column(const Product &p) { return N == 1 ? 0 : (int)p.y.ne[1] - 1; }

// Rows that a warp takes: as many as sums of all columns, and what is read of the weights, leave registers for.
template <int N> constexpr int ROWS = N <= 2 ? 2 : 4;
// The first row of a warp.
template <int R> DEVICE i64 first_row() { return (BLOCK_X * (THREADS / 32) + warp_of(THREAD)) * R; }
DEVICE i64 at_most(i64 n, i64 most) { return n < most ? n : most; }

// Writes what the lanes of a warp have of rows from `row` on, in all columns.
template <int R, int N> DEVICE void store_results(const Product &p, i64 first, int last, i64 row, float (&sums)[R][N]) {
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int j = 0; j < N; j++) {
            float sum = warp_sum(sums[r][j]);
            if (lane_of(THREAD) == 0 && j <= last && row + r < p.w.ne[1])
                store_result(p, column_of(p, first + j), row + r, sum);
        }
    }
}

// Groups of x in shared memory at a time.
template <int N> constexpr int CHUNK = N == 1 ? 256 : N == 2 ? 128 : 64;

// sums[r][j] = row r of weights, at rows[r], times column j of x, whose groups are at x; columns after number `last` are it.
template <int TYPE, int N, int R>
DEVICE void multiply_rows(float (&sums)[R][N], const u64 (&rows)[R], u64 x, i64 groups, int last) {
    constexpr int C = CHUNK<N>, PLANE = C + 1;
    constexpr bool HAS_OFFSETS = has_offsets(TYPE), HAS_ONE_SCALE = has_one_scale(TYPE);
    // Halves of groups: all first ones of a column, then all second ones. One more than there are, so that first and second ones
    // of neighbours are in different banks.
    SHARED(Vector, numbers, 2 * N * PLANE);
    SHARED(float, scales, N * C);
    SHARED(float, totals, HAS_OFFSETS ? 2 * N * C : 1);
    int lane = lane_of(THREAD);
    Raw<TYPE> raw[R];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int j = 0; j < N; j++) sums[r][j] = 0.0f;
        raw[r] = {};
        if (lane < groups) raw[r] = raw_at<TYPE>(rows[r], lane);
    }
    for (i64 first = 0; first < groups; first += C) {
        int count = (int)at_most(groups - first, C);
        if (first > 0) sync_block();
        for (int j = 0; j < N; j++) {
            global<const Vector> from = at<const Vector>(x + ((j < last ? j : last) * groups + first) * sizeof(Packed));
            for (int i = THREAD; i < 3 * count; i += THREADS) {
                Vector piece = from[i];
                int n = i / 3, which = i % 3;
                if (which < 2) numbers[(2 * j + which) * PLANE + n] = piece;
                else {
                    scales[j * C + n] = bits_to_float((u32)piece.w[0]);
                    if (HAS_OFFSETS) {
                        totals[2 * j * C + n] = bits_to_float((u32)piece.w[1]);
                        totals[(2 * j + 1) * C + n] = bits_to_float((u32)piece.w[2]);
                    }
                }
            }
        }
        sync_block();
        ROLLED for (int n = lane; n < count; n += 32) {
            Group g[R];
            UNROLL for (int r = 0; r < R; r++) {
                g[r] = unpacked<TYPE>(raw[r], n);
                if (first + n + 32 < groups) raw[r] = raw_at<TYPE>(rows[r], first + n + 32);
            }
            Runs of = runs_of<TYPE>(n);
            UNROLL for (int j = 0; j < N; j++) {
                const Vector a = numbers[(2 * j + of.half[0]) * PLANE + of.group[0]];
                const Vector b = numbers[(2 * j + of.half[1]) * PLANE + of.group[1]];
                float d[2] = {scales[j * C + of.group[0]], scales[j * C + of.group[1]]}, total[2] = {0.0f, 0.0f};
                if (HAS_OFFSETS) {
                    for (int h = 0; h < 2; h++) total[h] = totals[(2 * j + of.half[h]) * C + of.group[h]];
                }
                UNROLL for (int r = 0; r < R; r++) {
                    int low = 0, high = 0;
                    UNROLL for (int i = 0; i < 4; i++) {
                        low = dot4(g[r].q[i], a.w[i], low);
                        high = dot4(g[r].q[i + 4], b.w[i], high);
                    }
                    float sum = sums[r][j];
                    if (HAS_ONE_SCALE) sum = fmaf(g[r].scale[0] * d[0], (float)(low + high), sum);
                    else {
                        sum = fmaf(g[r].scale[0] * d[0], (float)low, sum);
                        sum = fmaf(g[r].scale[1] * d[1], (float)high, sum);
                    }
                    if (HAS_OFFSETS) {
                        UNROLL for (int h = 0; h < 2; h++) sum = fmaf(g[r].offset[h], total[h], sum);
                    }
                    sums[r][j] = sum;
                }
            }
        }
    }
}
