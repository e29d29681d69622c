// y = w x: rows of w with columns of x. Few columns: a warp per rows, packed weights as they are times x in 8 bits (dp4a).
// Many columns of floats: tiles of 64 by 64 in F32. With ids, an expert's matrix per column, or columns sorted by expert.
#include "few_floats.cuh"
#include "tile.cuh"

struct Quantise {
    Tensor x;
    u64 packed;
};

// Eight threads per 32 numbers of a row of x.
KERNEL(quantise, Quantise, 256) {
    i64 n = (BLOCK_X * THREADS + THREAD) * 4;
    bool is_there = n < n_elements(p.x);
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (is_there) load_four(x, address_of(p.x, index_of(n, p.x.ne)), p.x.nb[0], p.x.type);
    pack_four(x, is_there ? p.packed + n / 32 * sizeof(Packed) : 0);
}

// Rows of w and N columns, multiplied with one matrix, which is read once.
template <int TYPE, int N, int R = ROWS<N>> DEVICE void few_columns(const Product &p, i64 block) {
    i64 row = first_row<R>(block), groups = p.w.ne[0] / 32;
    int last = last_column<N>(p);
    Column c = column_of(p, first_column<N>(p));
    u64 rows[R];
    for (int r = 0; r < R; r++) rows[r] = c.w + at_most(row + r, p.w.ne[1] - 1) * p.w.nb[1];
    float sums[R * N];
    multiply_rows<TYPE, N, R>(sums, rows, p.packed + row_of_x(p, c) * groups * sizeof(Packed), groups, last);
    store_results<R, N>(p, c, last, row, sums);
}

// Two or three products of one column by weights of one type: the blocks of each follow those before, up to its end.
struct Products {
    Product of[3];
    i64 ends[2];
};

// The product that a block computes, and its index among that product's blocks.
#define OF_BLOCK(p, columns)                                                                                           \
    int n = (BLOCK_X >= p.ends[0]) + (BLOCK_X >= p.ends[1]);                                                           \
    columns(p.of[n], n == 0 ? BLOCK_X : BLOCK_X - p.ends[n - 1]);

// With a row per warp (`_row`) for products of so few rows that a card has warps to spare.
#define FEW_COLUMNS(name, TYPE)                                                                                        \
    KERNEL(mul_mat_##name##_row, Product, 128) { few_columns<TYPE, 1, 1>(p, BLOCK_X); }                                \
    KERNEL(mul_mat_##name##_1, Product, 128) { few_columns<TYPE, 1>(p, BLOCK_X); }                                     \
    KERNEL(mul_mat_##name##_2, Product, 128) { few_columns<TYPE, 2>(p, BLOCK_X); }                                     \
    KERNEL(mul_mat_##name##_4, Product, 128) { few_columns<TYPE, 4>(p, BLOCK_X); }                                     \
    KERNEL(mul_mats_##name##_1, Products, 128) { OF_BLOCK(p, (few_columns<TYPE, 1>)) }

FEW_COLUMNS(q4_0, Q4_0)
FEW_COLUMNS(q4_1, Q4_1)
FEW_COLUMNS(q5_0, Q5_0)
FEW_COLUMNS(q5_1, Q5_1)
FEW_COLUMNS(q8_0, Q8_0)
FEW_COLUMNS(q4_0_eights, Q4_0_EIGHTS)
FEW_COLUMNS(q8_0_eights, Q8_0_EIGHTS)
FEW_COLUMNS(q2_k, Q2_K)
FEW_COLUMNS(q3_k, Q3_K)
FEW_COLUMNS(q4_k, Q4_K)
FEW_COLUMNS(q5_k, Q5_K)
FEW_COLUMNS(q6_k, Q6_K)
FEW_COLUMNS(iq4_nl, IQ4_NL)
FEW_COLUMNS(iq4_xs, IQ4_XS)
FEW_COLUMNS(mxfp4, MXFP4)

// The same of floats in whole pieces of 16 bytes.
template <int TYPE, int N, int R = ROWS<N>> DEVICE void float_columns(const Product &p, i64 block) {
    i64 row = first_row<R>(block);
    int last = last_column<N>(p);
    Column c = column_of(p, first_column<N>(p));
    u64 rows[R];
    for (int r = 0; r < R; r++) rows[r] = c.w + at_most(row + r, p.w.ne[1] - 1) * p.w.nb[1];
    float sums[R * N];
    multiply_floats<TYPE, N, R>(sums, rows, p, c, last);
    store_results<R, N>(p, c, last, row, sums);
}

// And of floats at any strides: a warp per row of w.
template <int TYPE, int N> DEVICE void scattered_columns(const Product &p, i64 block) {
    i64 row = first_row<1>(block);
    if (row >= p.w.ne[1]) return;
    int last = last_column<N>(p);
    Column c = column_of(p, first_column<N>(p));
    float sums[N];
    for (int j = 0; j < N; j++) sums[j] = 0.0f;
    u64 x = address_of(p.x, 0, c.x[0], c.x[1], c.x[2]);
    for (i64 i = lane_of(THREAD); i < p.w.ne[0]; i += 32) {
        float w = load_number(c.w + row * p.w.nb[1] + i * p.w.nb[0], TYPE);
        for (int j = 0; j < N; j++) {
            float v = load_number(x + (j < last ? j : last) * p.x.nb[1] + i * p.x.nb[0], p.x.type);
            sums[j] = fmaf(w, v, sums[j]);
        }
    }
    store_results<1, N>(p, c, last, row, sums);
}

#define FLOAT_COLUMNS(name, TYPE, columns)                                                                             \
    KERNEL(mul_mat_##name##_1, Product, 128) { columns<TYPE, 1>(p, BLOCK_X); }                                         \
    KERNEL(mul_mat_##name##_2, Product, 128) { columns<TYPE, 2>(p, BLOCK_X); }                                         \
    KERNEL(mul_mat_##name##_4, Product, 128) { columns<TYPE, 4>(p, BLOCK_X); }                                         \
    KERNEL(mul_mat_##name##_8, Product, 128) { columns<TYPE, 8>(p, BLOCK_X); }                                         \
    KERNEL(mul_mats_##name##_1, Products, 128) { OF_BLOCK(p, (columns<TYPE, 1>)) }

FLOAT_COLUMNS(f32, F32, float_columns)
FLOAT_COLUMNS(f16, F16, float_columns)
FLOAT_COLUMNS(bf16, BF16, float_columns)
KERNEL(mul_mat_f32_row, Product, 128) { float_columns<F32, 1, 1>(p, BLOCK_X); }
KERNEL(mul_mat_f16_row, Product, 128) { float_columns<F16, 1, 1>(p, BLOCK_X); }
KERNEL(mul_mat_bf16_row, Product, 128) { float_columns<BF16, 1, 1>(p, BLOCK_X); }
FLOAT_COLUMNS(f32_scattered, F32, scattered_columns)
FLOAT_COLUMNS(f16_scattered, F16, scattered_columns)
FLOAT_COLUMNS(bf16_scattered, BF16, scattered_columns)

// Rows and columns of a tile, and how much of k at a time.
#define TILE 64
#define DEPTH 32

// A block of 256 threads per tile of y, 4 by 4 numbers each.
KERNEL(mul_mat_float_tile, Tiled, 256) {
    SHARED(float, weights, TILE * (DEPTH + 1));
    SHARED(float, inputs, TILE * (DEPTH + 1));
    SHARED(u64, sources, TILE);
    SHARED(u64, results, TILE);
    const Tensor &w = p.product.w, &x = p.product.x, &y = p.product.y;
    Tile tile = tile_of(p, TILE);
    if (tile.n == 0) return;
    if (THREAD < tile.n) {
        Column c = column_in(p, tile, THREAD);
        sources[THREAD] = address_of(x, 0, c.x[0], c.x[1], c.x[2]);
        results[THREAD] = address_of(y, 0, c.y[0], c.y[1], c.y[2]);
    }
    sync_block();
    i64 row0 = BLOCK_X * TILE, depth = w.ne[0];
    Column c = column_in(p, tile, 0);
    float sums[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sums[i][j] = 0.0f;
    for (i64 k0 = 0; k0 < depth && !c.is_outside; k0 += DEPTH) {
        for (int n = THREAD; n < TILE * DEPTH; n += 256) {
            int r = n / DEPTH, i = n % DEPTH;
            bool has_w = k0 + i < depth && row0 + r < w.ne[1], has_x = k0 + i < depth && r < tile.n;
            u64 from = c.w + (row0 + r) * w.nb[1] + (k0 + i) * w.nb[0];
            weights[r * (DEPTH + 1) + i] = has_w ? load_number(from, w.type) : 0.0f;
            inputs[r * (DEPTH + 1) + i] = has_x ? load_number(sources[r] + (k0 + i) * x.nb[0], x.type) : 0.0f;
        }
        sync_block();
        int r = THREAD % 16, s = THREAD / 16;
        for (int k = 0; k < DEPTH; k++) {
            float a[4], b[4];
            for (int i = 0; i < 4; i++) {
                a[i] = weights[(r + 16 * i) * (DEPTH + 1) + k];
                b[i] = inputs[(s + 16 * i) * (DEPTH + 1) + k];
            }
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sums[i][j] += a[i] * b[j];
        }
        sync_block();
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            i64 row = row0 + THREAD % 16 + 16 * i;
            int column = THREAD / 16 + 16 * j;
            if (row < y.ne[0] && column < tile.n) at<float>(results[column] + row * y.nb[0])[0] = sums[i][j];
        }
    }
}

struct Sort {
    Tensor ids;
    u64 order, starts;
    i64 n_experts;
};

// The expert of column n; n_experts: none.
DEVICE i64 expert_of(const Sort &p, i64 n) {
    i64 id = at<const i32>(address_of(p.ids, n % p.ids.ne[0], n / p.ids.ne[0], 0, 0))[0];
    return id < 0 || id > p.n_experts ? p.n_experts : id;
}

// A block per expert, and one for none, finds its columns and where they begin. Each warp takes a run of the columns.
KERNEL(sort_columns, Sort, 256) {
    SHARED(int, lower, 8);
    SHARED(int, same, 8);
    i64 expert = BLOCK_X, n = p.ids.ne[0] * p.ids.ne[1], run = (n + 255) / 256 * 32;
    int lane = lane_of(THREAD), warp = warp_of(THREAD), n_lower = 0, n_same = 0;
    i64 first = warp * run, end = first + run < n ? first + run : n;
    for (i64 i = first; i < end; i += 32) {
        i64 found = i + lane < end ? expert_of(p, i + lane) : p.n_experts + 1;
        n_lower += count_ones(ballot(found < expert));
        n_same += count_ones(ballot(found == expert));
    }
    if (lane == 0) {
        lower[warp] = n_lower;
        same[warp] = n_same;
    }
    sync_block();
    int start = 0, to = 0;
    for (int w = 0; w < 8; w++) {
        start += lower[w];
        if (w < warp) to += same[w];
    }
    to += start;
    for (i64 i = first; i < end; i += 32) {
        bool is_same = i + lane < end && expert_of(p, i + lane) == expert;
        u32 all = ballot(is_same);
        if (is_same) at<i32>(p.order)[to + count_ones(all & ((1u << lane) - 1))] = (i32)(i + lane);
        to += count_ones(all);
    }
    if (THREAD == 0) at<i32>(p.starts)[expert] = start;
    if (THREAD == 0 && expert == p.n_experts) at<i32>(p.starts)[expert + 1] = (i32)n;
}
