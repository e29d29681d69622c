// y = w x of packed weights and many columns: tiles of 64 by 64 on tensor cores, w as it is packed times x in 8 bits. Sums of
// 16 products are integers; scales and offsets come in F32, as in the kernels for few columns.
#include "product.cuh"

#define TILE 64
// Ints between rows of 32 numbers in shared memory: lanes of a warp then read different banks.
#define STRIDE 12

// Four warps, each with 16 rows and all columns of a tile. BLOCK_Z counts batches.
template <int TYPE> DEVICE void tile(const Product &p) {
    SHARED(int, weights, TILE * STRIDE);
    SHARED(int, inputs, TILE * STRIDE);
    SHARED(float, scales, TILE * 2);
    SHARED(float, offsets, TILE * 2);
    SHARED(float, units, TILE);
    SHARED(float, totals, TILE * 2);
    i64 row0 = BLOCK_X * TILE, column0 = BLOCK_Y * TILE, groups = p.w.ne[0] / 32;
    Column c = column_of(p, BLOCK_Z * p.y.ne[1]);
    int lane = lane_of(THREAD), first = warp_of(THREAD) * 16, place = lane / 4, quarter = lane % 4;
    float sums[8][4];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++) sums[i][j] = 0.0f;
    for (i64 n = 0; n < groups; n++) {
        // Half of the threads unpack a row's group each, the others take a column's.
        int at_row = THREAD % TILE;
        if (THREAD < TILE) {
            bool inside = row0 + at_row < p.w.ne[1];
            Group g;
            if (inside) g = group_of<TYPE>(c.w + (row0 + at_row) * p.w.nb[1], n);
            for (int i = 0; i < 8; i++) weights[at_row * STRIDE + i] = inside ? g.q[i] : 0;
            for (int h = 0; h < 2; h++) {
                scales[at_row * 2 + h] = inside ? g.scale[h] : 0.0f;
                offsets[at_row * 2 + h] = inside ? g.offset[h] : 0.0f;
            }
        } else {
            bool inside = column0 + at_row < p.x.ne[1];
            i64 row = (c.x[2] * p.x.ne[2] + c.x[1]) * p.x.ne[1] + column0 + at_row;
            Packed x;
            if (inside) x = at<const Packed>(p.packed)[row * groups + n];
            for (int i = 0; i < 8; i++) inputs[at_row * STRIDE + i] = inside ? x.q[i] : 0;
            units[at_row] = inside ? x.d : 0.0f;
            for (int h = 0; h < 2; h++) totals[at_row * 2 + h] = inside ? x.sum[h] : 0.0f;
        }
        sync_block();
        for (int h = 0; h < 2; h++) {
            int low = weights[(first + place) * STRIDE + 4 * h + quarter];
            int high = weights[(first + place + 8) * STRIDE + 4 * h + quarter];
            for (int i = 0; i < 8; i++) {
                int products[4] = {0, 0, 0, 0};
                multiply_16_8_16(products, low, high, inputs[(8 * i + place) * STRIDE + 4 * h + quarter]);
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
            i64 row = row0 + first + place + j / 2 * 8, column = column0 + 8 * i + quarter * 2 + j % 2;
            if (row >= p.y.ne[0] || column >= p.y.ne[1]) continue;
            at<float>(address_of(p.y, row, column, c.y[1], c.y[2]))[0] = sums[i][j];
        }
    }
}

#define TILES(name, TYPE) KERNEL(mul_mat_##name##_tile, Product, 128) { tile<TYPE>(p); }

TILES(q4_0, Q4_0)
TILES(q4_1, Q4_1)
TILES(q5_0, Q5_0)
TILES(q5_1, Q5_1)
TILES(q8_0, Q8_0)
TILES(q2_k, Q2_K)
TILES(q3_k, Q3_K)
TILES(q4_k, Q4_K)
TILES(q5_k, Q5_K)
TILES(q6_k, Q6_K)
TILES(iq4_nl, IQ4_NL)
TILES(iq4_xs, IQ4_XS)
TILES(mxfp4, MXFP4)
