// y = w x of F16 or BF16 weights and many columns, on sm_90: tiles of 128 rows come by tensor maps, and warpgroups multiply them
// where they are. x was made halves before (mul_mat_half.cu), for BF16 weights two of
// each number or one. Packed weights are made F16.
#include "hopper.cuh"
#include "product.cuh"

#define ROWS 128
// Numbers of a row that a tile has.
#define DEPTH 64
// Warps that multiply, two groups with half of the rows each; one more has tiles fetched.
#define WARPS 8

// Rows of packed weights, and what they become: F16 [k, rows] without gaps, each row times a power of two, units: F32 [rows].
struct Unpacked {
    Tensor w;
    u64 halves, units;
};

// Eight halves.
struct alignas(16) Eight {
    u32 words[4];
};

// A thread per group, as many rows per block as that leaves room for; longer rows are a block's, in turns.
KERNEL(halve_packed, Unpacked, 128) {
    SHARED(float, magnitudes, 4);
    int groups = (int)(p.w.ne[0] / 32), of_row = groups < THREADS ? (groups + 31) / 32 * 32 : THREADS;
    // Whole warps for each row, and rows without one where those are no divisor.
    int rows = THREADS / of_row, n_row = THREAD / of_row, first = THREAD % of_row;
    i64 row = BLOCK_X * rows + n_row;
    bool is_there = n_row < rows && row < p.w.ne[1];
    u64 from = p.w.address + (is_there ? row : 0) * p.w.nb[1];
    Group g;
    int most = 0;
    for (int n = first; n < groups && is_there; n += of_row) {
        g = group_at(p.w.type, from, n);
        UNROLL for (int i = 0; i < 32; i++) most = larger_magnitude(most, value_of(g, i));
    }
    float magnitude = magnitude_of_lanes<16>(most);
    if (lane_of(THREAD) == 0) magnitudes[warp_of(THREAD)] = magnitude;
    sync_block();
    int warps = of_row / 32, warp = is_there ? n_row * warps + lane_of(THREAD) % warps : 0;
    float unit = unit_of(warp_magnitude(magnitudes[warp])), inverse = inverse_of(unit);
    if (!is_there) return;
    global<Eight> to = at<Eight>(p.halves + row * p.w.ne[0] * 2);
    for (int n = first; n < groups; n += of_row) {
        if (groups > of_row) g = group_at(p.w.type, from, n);
        UNROLL for (int e = 0; e < 4; e++) {
            Eight eight;
            UNROLL for (int i = 0; i < 4; i++) {
                u32 low = float_to_half(value_of(g, 8 * e + 2 * i) * inverse);
                u32 high = float_to_half(value_of(g, 8 * e + 2 * i + 1) * inverse);
                eight.words[i] = low | high << 16;
            }
            to[4 * n + e] = eight;
        }
    }
    if (first == 0) at<float>(p.units)[row] = unit;
}

// w: of dims [k, rows, w.ne[2], w.ne[3]], tiles [DEPTH, ROWS]. x: of dims [k, parts, columns of a batch, batches], tiles
// [DEPTH, 1, COLUMNS]. product: without ids. units: F32 [rows of x], of F16. row_units: F32 [rows], 0 for those of 1.
struct Mapped {
    TensorMap w, x;
    Product product;
    u64 units, row_units;
};

// A block's tile of y, BLOCK_X counting rows, BLOCK_Y columns and BLOCK_Z batches; STAGES tiles of w and x in shared memory.
template <int TYPE, int PARTS, int COLUMNS, int STAGES> DEVICE void mapped_tile(const Mapped &m) {
    const u32 X = ROWS * SPAN, PART = COLUMNS * SPAN, STAGE = X + PARTS * PART;
    // Tiles that are there; tiles that may be overwritten.
    SHARED(u64, full, STAGES);
    SHARED(u64, empty, STAGES);
    const Product &p = m.product;
    u32 tiles = first_tile();
    // From a lane: the compiler then treats it as one number for all.
    int warp = shuffle(warp_of(THREAD), 0), lane = lane_of(THREAD), steps = (int)((p.w.ne[0] + DEPTH - 1) / DEPTH);
    i64 row0 = BLOCK_X * ROWS, column0 = BLOCK_Y * COLUMNS, y2 = BLOCK_Z % p.y.ne[2], y3 = BLOCK_Z / p.y.ne[2];
    if (THREAD == 0) {
        for (int s = 0; s < STAGES; s++) {
            init_barrier(full, s, 1);
            init_barrier(empty, s, WARPS);
        }
        show_barriers();
    }
    sync_block();
    if (warp == WARPS) {
        int w2 = (int)(y2 / (p.x.ne[2] / p.w.ne[2])), w3 = (int)(y3 / (p.x.ne[3] / p.w.ne[3]));
        for (int step = 0; step < steps && lane == 0; step++) {
            int stage = step % STAGES, round = step / STAGES;
            u32 to = tiles + stage * STAGE;
            if (round > 0) wait_for_phase(empty, stage, (round - 1) & 1);
            arrive_expecting(full, stage, STAGE);
            copy_tile(to, m.w, step * DEPTH, (int)row0, w2, w3, full, stage);
            for (int part = 0; part < PARTS; part++)
                copy_tile(to + X + part * PART, m.x, step * DEPTH, part, (int)column0, (int)BLOCK_Z, full, stage);
        }
        return;
    }
    Sums<COLUMNS / 2> sums;
    clear(sums);
    for (int step = 0; step < steps; step++) {
        int stage = step % STAGES;
        u32 w = tiles + stage * STAGE + warp / 4 * 64 * SPAN, x = tiles + stage * STAGE + X;
        wait_for_phase(full, stage, step / STAGES & 1);
        begin_products(sums);
        UNROLL for (u32 d = 0; d < SPAN; d += 32)
            UNROLL for (int part = 0; part < PARTS; part++)
                multiply_tiles<TYPE, COLUMNS>(sums, matrix_at(w + d), matrix_at(x + part * PART + d));
        end_products();
        // Of the step before, while those of this one go on.
        wait_for_products<1>();
        if (step > 0 && lane == 0) arrive(empty, (step - 1) % STAGES);
    }
    finish_products(sums);
    u64 y = address_of(p.y, 0, 0, y2, y3);
    i64 first_row = row0 + warp * 16 + lane / 4, first_column = column0 + lane % 4 * 2;
    float row_units[2] = {1.0f, 1.0f};
    for (int h = 0; h < 2; h++)
        if (m.row_units != 0 && first_row + 8 * h < p.y.ne[0]) row_units[h] = at<const float>(m.row_units)[first_row + 8 * h];
    UNROLL for (int i = 0; i < COLUMNS / 2; i++) {
        i64 row = first_row + i / 2 % 2 * 8, column = first_column + i / 4 * 8 + i % 2;
        if (row >= p.y.ne[0] || column >= p.y.ne[1]) continue;
        float unit = TYPE == F16 ? at<const float>(m.units)[BLOCK_Z * p.y.ne[1] + column] : 1.0f;
        at<float>(y + column * p.y.nb[1] + row * p.y.nb[0])[0] = sums[i] * row_units[i / 2 % 2] * unit;
    }
}

// Narrow ones are for products of few tiles, with more stages in flight.
MAPPED_KERNEL(mul_mat_f16_wgmma_narrow, Mapped, (WARPS + 1) * 32, 1) { mapped_tile<F16, 1, 64, 8>(p); }
MAPPED_KERNEL(mul_mat_bf16_wgmma_narrow, Mapped, (WARPS + 1) * 32, 1) { mapped_tile<BF16, 2, 64, 6>(p); }
MAPPED_KERNEL(mul_mat_bf16_one_wgmma_narrow, Mapped, (WARPS + 1) * 32, 1) { mapped_tile<BF16, 1, 64, 8>(p); }
MAPPED_KERNEL(mul_mat_f16_wgmma, Mapped, (WARPS + 1) * 32, 2) { mapped_tile<F16, 1, 128, 3>(p); }
MAPPED_KERNEL(mul_mat_f16_wgmma_wide, Mapped, (WARPS + 1) * 32, 1) { mapped_tile<F16, 1, 256, 4>(p); }
MAPPED_KERNEL(mul_mat_bf16_wgmma, Mapped, (WARPS + 1) * 32, 1) { mapped_tile<BF16, 2, 128, 4>(p); }
MAPPED_KERNEL(mul_mat_bf16_one_wgmma, Mapped, (WARPS + 1) * 32, 2) { mapped_tile<BF16, 1, 128, 3>(p); }
MAPPED_KERNEL(mul_mat_bf16_one_wgmma_wide, Mapped, (WARPS + 1) * 32, 1) { mapped_tile<BF16, 1, 256, 4>(p); }
