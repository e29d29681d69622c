// Which columns of y a tile of a product has: those beside each other, or those of one expert.
#pragma once
#include "product.cuh"

// order: I32, numbers of columns, each expert's together; starts: I32 [n_expert + 2], where those of each expert begin, where
// those of none, and the end. At 0: columns as they are, and BLOCK_Z counts batches. BLOCK_X counts rows, BLOCK_Y columns.
struct Tiled {
    Product product;
    u64 order, starts;
};

// n columns, of which the first is number `first` of all, or of order; n = 0: there is no such tile.
struct Tile {
    i64 first;
    int n;
};

DEVICE int up_to(i64 left, int most) { return left < 0 ? 0 : left < most ? (int)left : most; }

// Number BLOCK_Y of the tiles of all experts, each expert's being its own. Lanes take experts in turn.
DEVICE Tile tile_of_expert(const Tiled &t, int n_columns) {
    global<const i32> starts = at<const i32>(t.starts);
    i64 n_experts = t.product.w.ne[2] + 1, n_before = 0;
    int lane = lane_of(THREAD);
    for (i64 e0 = 0; e0 < n_experts; e0 += 32) {
        int first = 0, n = 0;
        if (e0 + lane < n_experts) {
            first = starts[e0 + lane];
            n = starts[e0 + lane + 1] - first;
        }
        int n_tiles = (n + n_columns - 1) / n_columns, sum = n_tiles;
        for (int lanes = 1; lanes < 32; lanes *= 2) {
            int other = shuffle(sum, lane - lanes);
            if (lane >= lanes) sum += other;
        }
        u32 past = ballot(n_before + sum > BLOCK_Y);
        if (past != 0) {
            int found = 31 - count_ones(past) + 1;
            i64 skipped = (BLOCK_Y - n_before - shuffle(sum - n_tiles, found)) * n_columns;
            return {shuffle(first, found) + skipped, up_to(shuffle(n, found) - skipped, n_columns)};
        }
        n_before += shuffle(sum, 31);
    }
    return {0, 0};
}

DEVICE Tile tile_of(const Tiled &t, int n_columns) {
    if (t.order != 0) return tile_of_expert(t, n_columns);
    i64 n = t.product.y.ne[1], first = BLOCK_Y * n_columns;
    return {BLOCK_Z * n + first, up_to(n - first, n_columns)};
}

// Column j of a tile.
DEVICE Column column_in(const Tiled &t, const Tile &tile, int j) {
    i64 n = tile.first + j;
    return column_of(t.product, t.order != 0 ? (i64)at<const i32>(t.order)[n] : n);
}
