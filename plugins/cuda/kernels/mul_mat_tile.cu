// y = w x of packed weights and many columns: tiles of 64 by 64 on tensor cores, w as it is packed times x in 8 bits. Sums of
// 16 products are integers; scales and offsets come in F32, as in the kernels for few columns.
#include "tensor.cuh"
#include "tile.cuh"

#define TILE 64
// Ints between rows of 32 numbers in shared memory: lanes of a warp then read different banks.
#define STRIDE 12

// Four warps, each with 16 rows and all columns of a tile.
template <int TYPE> DEVICE void packed_tile(const Tiled &t) {
    SHARED(int, weights, TILE * STRIDE);
    SHARED(int, inputs, TILE * STRIDE);
    SHARED(float, scales, TILE * 2);
    SHARED(float, offsets, TILE * 2);
    SHARED(float, units, TILE);
    SHARED(float, totals, TILE * 2);
    SHARED(u64, results, TILE);
    const Product &p = t.product;
    Tile tile = tile_of(t, TILE);
    if (tile.n == 0) return;
    // Half of the threads unpack a row's group each, the others take a column's.
    int mine = THREAD % TILE;
    i64 row0 = BLOCK_X * TILE, row = row0 + mine, groups = p.w.ne[0] / 32, x_row = 0;
    u64 w = column_in(t, tile, 0).w;
    bool is_outside = column_in(t, tile, 0).is_outside, takes_row = THREAD < TILE && row < p.w.ne[1];
    bool takes_column = THREAD >= TILE && mine < tile.n;
    if (takes_column) {
        Column c = column_in(t, tile, mine);
        x_row = row_of_x(p, c);
        results[mine] = address_of(p.y, 0, c.y[0], c.y[1], c.y[2]);
    }
    sync_block();
    int lane = lane_of(THREAD), first = warp_of(THREAD) * 16, place = lane / 4, quarter = lane % 4;
    float sums[8][4];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++) sums[i][j] = 0.0f;
    for (i64 n = 0; n < groups && !is_outside; n++) {
        if (THREAD < TILE) {
            Group g = {};
            if (takes_row) g = group_of<TYPE>(w + row * p.w.nb[1], n);
            for (int i = 0; i < 8; i++) weights[mine * STRIDE + i] = g.q[i];
            for (int h = 0; h < 2; h++) {
                scales[mine * 2 + h] = g.scale[h];
                offsets[mine * 2 + h] = g.offset[h];
            }
        } else {
            Packed x = {};
            if (takes_column) x = at<const Packed>(p.packed)[x_row * groups + n];
            for (int i = 0; i < 8; i++) inputs[mine * STRIDE + i] = x.q[i];
            units[mine] = x.d;
            for (int h = 0; h < 2; h++) totals[mine * 2 + h] = x.sum[h];
        }
        sync_block();
        for (int h = 0; h < 2; h++) {
            u32 a[2];
            for (int i = 0; i < 2; i++) a[i] = weights[(first + place + 8 * i) * STRIDE + 4 * h + quarter];
            for (int i = 0; i < 8; i++) {
                int products[4] = {0, 0, 0, 0};
                multiply_bytes(products, a, inputs[(8 * i + place) * STRIDE + 4 * h + quarter]);
                for (int j = 0; j < 4; j++) {
                    int row = first + place + j / 2 * 8, column = 8 * i + quarter * 2 + j % 2;
                    sums[i][j] += scales[row * 2 + h] * units[column] * products[j];
                    sums[i][j] += offsets[row * 2 + h] * totals[column * 2 + h];
                }
            }
        }
        sync_block();
    }
    for (int i = 0; i < 8; i++) {
        for (int j = 0; j < 4; j++) {
            i64 row = row0 + first + place + j / 2 * 8;
            int column = 8 * i + quarter * 2 + j % 2;
            if (row < p.y.ne[0] && column < tile.n) at<float>(results[column] + row * p.y.nb[0])[0] = sums[i][j];
        }
    }
}

#define TILES(name, TYPE) KERNEL(mul_mat_##name##_tile, Tiled, 128) { packed_tile<TYPE>(p); }

TILES(q4_0, Q4_0)
TILES(q4_1, Q4_1)
TILES(q5_0, Q5_0)
TILES(q5_1, Q5_1)
TILES(q8_0, Q8_0)
TILES(q4_0_eights, Q4_0_EIGHTS)
TILES(q8_0_eights, Q8_0_EIGHTS)
TILES(q2_k, Q2_K)
TILES(q3_k, Q3_K)
TILES(q4_k, Q4_K)
TILES(q5_k, Q5_K)
TILES(q6_k, Q6_K)
TILES(iq4_nl, IQ4_NL)
TILES(iq4_xs, IQ4_XS)
TILES(mxfp4, MXFP4)
