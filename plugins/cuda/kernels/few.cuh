// Products with few columns of packed weights. A warp takes R rows at once, so that what a lane reads of x serves all of them,
// and reads the next part of each row while it multiplies one. x is in shared memory, piece by piece. Sums are written as fused
// operations, and the order of a sum depends on nothing but the type of the weights: kernels have the same bits for a number
// whatever else they compute.
#pragma once
#include "raw.cuh"

DEVICE i64 at_most(i64 n, i64 most) { return n < most ? n : most; }

// A block takes one column (N 1), or N of the columns of one batch, group BLOCK_Z of them: its first, and how many follow. Where
// fewer than N - 1 follow, the last is computed again in place of those that are missing, and stored once.
template <int N> DEVICE i64 first_column(const Product &p) { return N == 1 ? BLOCK_Y : BLOCK_Y * p.y.ne[1] + BLOCK_Z * N; }
template <int N> DEVICE int last_column(const Product &p) {
    return N == 1 ? 0 : (int)at_most(p.y.ne[1] - BLOCK_Z * N, N) - 1;
}

// Rows that a warp takes: as many as sums of all columns, and what is read of the weights, leave registers for.
template <int N> constexpr int ROWS = N <= 2 ? 2 : 4;
// The first row of a warp, in block number `block` of a product.
template <int R> DEVICE i64 first_row(i64 block) { return (block * (THREADS / 32) + warp_of(THREAD)) * R; }

// Of M numbers, a power of two up to LANES * 2, the sum over all lanes of number `lane / (32 / M)`. Lanes exchange halves of what
// they have, so that each has fewer numbers with every step; the order of additions is warp_sum's.
template <int M, int LANES = 16> DEVICE float sum_of_lane(float *x) {
    if constexpr (LANES == 0) {
        return x[0];
    } else if constexpr (M == 1) {
        x[0] += shuffle_xor(x[0], LANES);
        return sum_of_lane<1, LANES / 2>(x);
    } else {
        bool is_upper = (lane_of(THREAD) & LANES) != 0;
        UNROLL for (int i = 0; i < M / 2; i++) {
            float kept = is_upper ? x[i + M / 2] : x[i], given = is_upper ? x[i] : x[i + M / 2];
            x[i] = kept + shuffle_xor(given, LANES);
        }
        return sum_of_lane<M / 2, LANES / 2>(x);
    }
}

// Writes what the lanes of a warp have of rows from `row` on, in columns from c on: a lane writes one number.
template <int R, int N> DEVICE void store_results(const Product &p, Column c, int last, i64 row, float (&sums)[R * N]) {
    constexpr int LANES = 32 / (R * N);
    float sum = sum_of_lane<R * N>(sums);
    int lane = lane_of(THREAD), n = lane / LANES, j = n % N;
    row += n / N;
    c.y[0] += j;
    if (lane % LANES == 0 && j <= last && row < p.w.ne[1]) store_result(p, c, row, sum);
}

// Groups of x in shared memory at a time.
template <int N> constexpr int CHUNK = N == 1 ? 256 : N == 2 ? 128 : 64;

// sums[r * N + j] = row r of weights, at rows[r], times column j of x, whose groups are at x; columns after `last` are it.
template <int TYPE, int N, int R>
DEVICE void multiply_rows(float (&sums)[R * N], const u64 (&rows)[R], u64 x, i64 groups, int last) {
    constexpr int C = CHUNK<N>, PLANE = C + 1;
    constexpr bool HAS_OFFSETS = has_offsets(TYPE), HAS_ONE_SCALE = has_one_scale(TYPE);
    // Halves of groups: all first ones of a column, then all second ones, with a gap so that first and second ones
    // of neighbours are in different banks.
    SHARED(Vector, numbers, 2 * N * PLANE);
    SHARED(float, scales, N * C);
    SHARED(float, totals, HAS_OFFSETS ? 2 * N * C : 1);
    int lane = lane_of(THREAD);
    // Pieces of 16 bytes of x that a thread brings: which of the three of which group.
    constexpr int PIECES = (3 * C + 127) / 128;
    int group[PIECES], piece[PIECES];
    UNROLL for (int i = 0; i < PIECES; i++) {
        int n = THREAD + 128 * i;
        group[i] = n / 3;
        piece[i] = n - 3 * group[i];
    }
    Raw<TYPE> raw[R];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int j = 0; j < N; j++) sums[r * N + j] = 0.0f;
        raw[r] = {};
        if (lane < groups) raw[r] = raw_at<TYPE>(rows[r], lane);
    }
    for (i64 first = 0; first < groups; first += C) {
        int count = (int)at_most(groups - first, C);
        if (first > 0) sync_block();
        UNROLL for (int j = 0; j < N; j++) {
            global<const Vector> from = at<const Vector>(x + ((j < last ? j : last) * groups + first) * sizeof(Packed));
            UNROLL for (int i = 0; i < PIECES; i++) {
                int n = group[i];
                if (n >= count) continue;
                Vector found = from[THREAD + 128 * i];
                if (piece[i] < 2) numbers[(2 * j + piece[i]) * PLANE + n] = found;
                else {
                    scales[j * C + n] = bits_to_float((u32)found.w[0]);
                    if (HAS_OFFSETS) {
                        totals[2 * j * C + n] = bits_to_float((u32)found.w[1]);
                        totals[(2 * j + 1) * C + n] = bits_to_float((u32)found.w[2]);
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
                    int low = 0;
                    UNROLL for (int i = 0; i < 4; i++) low = dot4(g[r].q[i], a.w[i], low);
                    int high = HAS_ONE_SCALE ? low : 0;
                    UNROLL for (int i = 0; i < 4; i++) high = dot4(g[r].q[i + 4], b.w[i], high);
                    float sum = sums[r * N + j];
                    if (HAS_ONE_SCALE) sum = fmaf(g[r].scale[0] * d[0], (float)high, sum);
                    else {
                        sum = fmaf(g[r].scale[0] * d[0], (float)low, sum);
                        sum = fmaf(g[r].scale[1] * d[1], (float)high, sum);
                    }
                    if (HAS_OFFSETS) {
                        UNROLL for (int h = 0; h < 2; h++) sum = fmaf(g[r].offset[h], total[h], sum);
                    }
                    sums[r * N + j] = sum;
                }
            }
        }
    }
}
