// One kernel with tensor maps, barriers and products of warpgroups, as it is right, and with one mistake each.
#include "hopper.cuh"

// Tiles [64, 128] of F16, the map's; y: F32 [64, 128].
struct Tiles {
    TensorMap map;
    u64 y;
};

enum Mistake {
    NONE, WAITS_FOR_NO_TILE, WAITS_FOR_ANOTHER_TILE, EXPECTS_NO_BYTES, EXPECTS_MORE_BYTES,
    EXPECTS_ONE_OF_TWO, READS_SUMS_EARLY,
    LEAVES_THE_FENCE_OUT, ADDS_WITHOUT_A_FENCE, RELEASES_EARLY, OVERWRITES_AT_ONCE, RELEASES_FOR_OTHERS, SHOWS_NO_BARRIER,
    LEAVES_THE_BLOCKS_BARRIER_OUT, BEGINS_BETWEEN, BEGINS_IN_ANOTHER_ROW, REQUESTS_ANOTHER_PRODUCT, LEAVES_EARLY,
    MULTIPLIES_ALONE, MAKES_NO_BARRIER, NEVER_WAITS_FOR_PRODUCTS,
};

// y = the sum of a aᵀ over steps, of which two have room, for the first 64 rows; four warps multiply, the fifth fetches.
template <int M> DEVICE void multiply(const Tiles &p) {
    const int STAGES = 2, STEPS = M == LEAVES_EARLY ? 2 : 3;
    const u32 TILE = 128 * SPAN;
    SHARED(u64, full, STAGES);
    SHARED(u64, empty, STAGES);
    u32 tiles = first_tile() + (M == BEGINS_BETWEEN ? 64 : M == BEGINS_IN_ANOTHER_ROW ? 128 : 0);
    int warp = warp_of(THREAD), lane = lane_of(THREAD);
    if (THREAD == 0 && M != MAKES_NO_BARRIER) {
        for (int s = 0; s < STAGES; s++) {
            init_barrier(full, s, 1);
            init_barrier(empty, s, M == RELEASES_FOR_OTHERS ? 1 : 4);
        }
        if (M != SHOWS_NO_BARRIER) show_barriers();
    }
    if (M != LEAVES_THE_BLOCKS_BARRIER_OUT) sync_block();
    if (warp == 4) {
        for (int step = 0; step < STEPS && lane == 0; step++) {
            int stage = step % STAGES;
            if (step >= STAGES && M != OVERWRITES_AT_ONCE) wait_for_phase(empty, stage, 0);
            arrive_expecting(full, stage, M == EXPECTS_NO_BYTES ? 0 : M == EXPECTS_MORE_BYTES ? TILE + 16 : TILE);
            copy_tile(tiles + stage * TILE, p.map, 0, 0, step, 0, full, stage);
            if (M == EXPECTS_ONE_OF_TWO) copy_tile(tiles + (2 + stage) * TILE, p.map, 0, 0, step, 0, full, stage);
        }
        if (M == MULTIPLIES_ALONE) {
            Sums<64> sums;
            begin_products(sums);
            multiply_tiles<F16, 128>(sums, matrix_at(tiles), matrix_at(tiles));
        }
        return;
    }
    if (M == LEAVES_EARLY || M == OVERWRITES_AT_ONCE) return;
    Sums<64> sums;
    clear(sums);
    for (int step = 0; step < STEPS; step++) {
        int stage = step % STAGES;
        u32 tile = tiles + stage * TILE;
        if (M == WAITS_FOR_ANOTHER_TILE) wait_for_phase(full, 0, 0);
        else if (M != WAITS_FOR_NO_TILE) wait_for_phase(full, stage, step / STAGES & 1);
        if (M != LEAVES_THE_FENCE_OUT) begin_products(sums);
        if (M == ADDS_WITHOUT_A_FENCE) clear(sums);
        for (u32 d = 0; d < SPAN; d += 32) {
            u32 other = M == REQUESTS_ANOTHER_PRODUCT && warp == 1 ? 64 * SPAN : 0;
            multiply_tiles<F16, 128>(sums, matrix_at(tile + other + d), matrix_at(tile + d));
        }
        end_products();
        if (M == RELEASES_EARLY || M == NEVER_WAITS_FOR_PRODUCTS) {
            if (lane == 0) arrive(empty, stage);
        }
        bool waits = M != NEVER_WAITS_FOR_PRODUCTS && (M != READS_SUMS_EARLY || step < STEPS - 1);
        if (waits) wait_for_products<0>();
        if (M != RELEASES_EARLY && M != NEVER_WAITS_FOR_PRODUCTS && lane == 0 && (M != RELEASES_FOR_OTHERS || warp == 0))
            arrive(empty, stage);
    }
    if (M == NEVER_WAITS_FOR_PRODUCTS) return;
    for (int i = 0; i < 64; i++) {
        int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        at<float>(p.y)[row * 128 + column] = sums[i];
    }
}

// y = a aᵀ of the first numbers of the first tensor's rows, in rows of 16 << LOG bytes: as many as these hold, or 16. Without a
// swizzle (0), rows of 16 bytes follow each other, and columns from 8 on are another tile.
template <int LOG> DEVICE void multiply_narrow(const Tiles &p) {
    const u32 ROW = 16 << LOG, TILE = 128 * ROW, N = LOG == 0 ? 2 : 1, MODE = LOG == 0 ? 0 : 4 - LOG;
    SHARED(u64, full, 1);
    u32 tiles = first_tile();
    int warp = warp_of(THREAD), lane = lane_of(THREAD);
    if (THREAD == 0) {
        init_barrier(full, 0, 1);
        show_barriers();
    }
    sync_block();
    if (warp == 4) {
        if (lane != 0) return;
        arrive_expecting(full, 0, N * TILE);
        for (u32 n = 0; n < N; n++) copy_tile(tiles + n * TILE, p.map, n * 8, 0, 0, 0, full, 0);
        return;
    }
    Sums<64> sums;
    clear(sums);
    wait_for_phase(full, 0, 0);
    begin_products(sums);
    for (u32 d = 0; d < ROW; d += 32) {
        u64 matrix = (u64)MODE << 62 | (u64)(8 * ROW >> 4) << 32 | (u64)(TILE >> 4) << 16 | (tiles + d) >> 4;
        multiply_tiles<F16, 128>(sums, matrix, matrix);
    }
    end_products();
    finish_products(sums);
    for (int i = 0; i < 64; i++) {
        int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        at<float>(p.y)[row * 128 + column] = sums[i];
    }
}
MAPPED_KERNEL(multiplies_rows_of_16_bytes, Tiles, 160, 1) { multiply_narrow<0>(p); }
MAPPED_KERNEL(multiplies_rows_of_32_bytes, Tiles, 160, 1) { multiply_narrow<1>(p); }
MAPPED_KERNEL(multiplies_rows_of_64_bytes, Tiles, 160, 1) { multiply_narrow<2>(p); }

#define MULTIPLY(name, MISTAKE) MAPPED_KERNEL(name, Tiles, 160, 1) { multiply<MISTAKE>(p); }

MULTIPLY(multiplies_tiles, NONE)
MULTIPLY(waits_for_no_tile, WAITS_FOR_NO_TILE)
MULTIPLY(waits_for_another_tile, WAITS_FOR_ANOTHER_TILE)
MULTIPLY(expects_no_bytes, EXPECTS_NO_BYTES)
MULTIPLY(expects_more_bytes, EXPECTS_MORE_BYTES)
MULTIPLY(expects_one_of_two_tiles, EXPECTS_ONE_OF_TWO)
MULTIPLY(reads_sums_early, READS_SUMS_EARLY)
MULTIPLY(leaves_the_fence_out, LEAVES_THE_FENCE_OUT)
MULTIPLY(adds_without_a_fence, ADDS_WITHOUT_A_FENCE)
MULTIPLY(releases_a_tile_early, RELEASES_EARLY)
MULTIPLY(overwrites_at_once, OVERWRITES_AT_ONCE)
MULTIPLY(releases_for_others, RELEASES_FOR_OTHERS)
MULTIPLY(shows_no_barrier, SHOWS_NO_BARRIER)
MULTIPLY(leaves_the_blocks_barrier_out, LEAVES_THE_BLOCKS_BARRIER_OUT)
MULTIPLY(begins_between, BEGINS_BETWEEN)
MULTIPLY(begins_in_another_row, BEGINS_IN_ANOTHER_ROW)
MULTIPLY(requests_another_product, REQUESTS_ANOTHER_PRODUCT)
MULTIPLY(leaves_before_its_tiles_are_there, LEAVES_EARLY)
MULTIPLY(multiplies_alone, MULTIPLIES_ALONE)
MULTIPLY(makes_no_barrier, MAKES_NO_BARRIER)
MULTIPLY(never_waits_for_products, NEVER_WAITS_FOR_PRODUCTS)
