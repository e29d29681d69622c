// y = w x: rows of w with columns of x. Few columns: a warp per row, packed weights as they are times x in 8 bits (dp4a).
// Many columns of floats: tiles of 64 by 64 in F32. With ids, an expert's matrix per column.
#include "product.cuh"

struct Quantise {
    Tensor x;
    u64 packed;
};

// A warp per 32 numbers of a row of x.
KERNEL(quantise, Quantise, 256) {
    i64 groups = p.x.ne[0] / 32, n = BLOCK_X * (THREADS / 32) + warp_of(THREAD);
    int lane = lane_of(THREAD);
    if (n >= groups * p.x.ne[1] * p.x.ne[2] * p.x.ne[3]) return;
    Index row = index_of(n / groups, p.x.ne + 1);
    float x = load_number(address_of(p.x, n % groups * 32 + lane, row.i[0], row.i[1], row.i[2]), p.x.type);
    float d = warp_max(fabsf(x)) / 127.0f;
    int q = d > 0.0f ? (int)rintf(x / d) : 0;
    float sum = (float)q;
    for (int lanes = 8; lanes > 0; lanes >>= 1) sum += shuffle_xor(sum, lanes);
    float other = shuffle_xor(sum, 16);
    int word = (q & 0xff) << (8 * (lane & 3));
    word |= shuffle_xor(word, 1);
    word |= shuffle_xor(word, 2);
    global<Packed> to = at<Packed>(p.packed + n * sizeof(Packed));
    if (lane % 4 == 0) to[0].q[lane / 4] = word;
    if (lane == 0) {
        to[0].d = d;
        to[0].sum[0] = d * sum;
        to[0].sum[1] = d * other;
    }
}

// A warp per row of w and N columns, which meet one matrix: column number BLOCK_Y * N on.
template <int TYPE, int N> DEVICE void few_columns(const Product &p) {
    i64 row = BLOCK_X * (THREADS / 32) + warp_of(THREAD), groups = p.w.ne[0] / 32;
    if (row >= p.w.ne[1]) return;
    Column columns[N];
    float sums[N];
    for (int j = 0; j < N; j++) {
        columns[j] = column_of(p, BLOCK_Y * N + j);
        sums[j] = 0.0f;
    }
    u64 weights = columns[0].w + row * p.w.nb[1];
    for (i64 n = lane_of(THREAD); n < groups; n += 32) {
        Group g = group_of<TYPE>(weights, n);
        for (int j = 0; j < N; j++) {
            Packed x = at<const Packed>(p.packed)[row_of_x(p, columns[j]) * groups + n];
            int low = 0, high = 0;
            for (int i = 0; i < 4; i++) {
                low = dot4(g.q[i], x.q[i], low);
                high = dot4(g.q[i + 4], x.q[i + 4], high);
            }
            sums[j] += x.d * (g.scale[0] * low + g.scale[1] * high) + g.offset[0] * x.sum[0] + g.offset[1] * x.sum[1];
        }
    }
    for (int j = 0; j < N; j++) {
        float sum = warp_sum(sums[j]);
        if (lane_of(THREAD) == 0) store_result(p, columns[j], row, sum);
    }
}

#define FEW_COLUMNS(name, TYPE)                                                                                        \
    KERNEL(mul_mat_##name##_1, Product, 128) { few_columns<TYPE, 1>(p); }                                              \
    KERNEL(mul_mat_##name##_4, Product, 128) { few_columns<TYPE, 4>(p); }

FEW_COLUMNS(q4_0, Q4_0)
FEW_COLUMNS(q4_1, Q4_1)
FEW_COLUMNS(q5_0, Q5_0)
FEW_COLUMNS(q5_1, Q5_1)
FEW_COLUMNS(q8_0, Q8_0)
FEW_COLUMNS(q2_k, Q2_K)
FEW_COLUMNS(q3_k, Q3_K)
FEW_COLUMNS(q4_k, Q4_K)
FEW_COLUMNS(q5_k, Q5_K)
FEW_COLUMNS(q6_k, Q6_K)
FEW_COLUMNS(iq4_nl, IQ4_NL)
FEW_COLUMNS(iq4_xs, IQ4_XS)
FEW_COLUMNS(mxfp4, MXFP4)

// Floats at any strides: a warp per row of w and one column.
template <int TYPE> DEVICE void one_column(const Product &p) {
    i64 row = BLOCK_X * (THREADS / 32) + warp_of(THREAD);
    if (row >= p.w.ne[1]) return;
    Column c = column_of(p, BLOCK_Y);
    float sum = 0.0f;
    for (i64 i = lane_of(THREAD); i < p.w.ne[0]; i += 32) {
        float w = load_number(c.w + row * p.w.nb[1] + i * p.w.nb[0], TYPE);
        sum += w * load_number(address_of(p.x, i, c.x[0], c.x[1], c.x[2]), p.x.type);
    }
    sum = warp_sum(sum);
    if (lane_of(THREAD) == 0) store_result(p, c, row, sum);
}
KERNEL(mul_mat_f32_1, Product, 128) { one_column<F32>(p); }
KERNEL(mul_mat_f16_1, Product, 128) { one_column<F16>(p); }
KERNEL(mul_mat_bf16_1, Product, 128) { one_column<BF16>(p); }

// Rows and columns of a tile, and how much of k at a time.
#define TILE 64
#define DEPTH 32

// A block of 256 threads per tile of y, 4 by 4 numbers each; BLOCK_Z counts batches.
KERNEL(mul_mat_float_tile, Product, 256) {
    SHARED(float, weights, TILE * (DEPTH + 1));
    SHARED(float, inputs, TILE * (DEPTH + 1));
    i64 row0 = BLOCK_X * TILE, column0 = BLOCK_Y * TILE;
    Column c = column_of(p, BLOCK_Z * p.y.ne[1]);
    float sums[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sums[i][j] = 0.0f;
    for (i64 k0 = 0; k0 < p.w.ne[0]; k0 += DEPTH) {
        for (int n = THREAD; n < TILE * DEPTH; n += 256) {
            int r = n / DEPTH, i = n % DEPTH;
            bool inside = k0 + i < p.w.ne[0];
            u64 w = c.w + (row0 + r) * p.w.nb[1] + (k0 + i) * p.w.nb[0];
            weights[r * (DEPTH + 1) + i] = inside && row0 + r < p.w.ne[1] ? load_number(w, p.w.type) : 0.0f;
            u64 x = address_of(p.x, k0 + i, column0 + r, c.x[1], c.x[2]);
            inputs[r * (DEPTH + 1) + i] = inside && column0 + r < p.x.ne[1] ? load_number(x, p.x.type) : 0.0f;
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
            i64 row = row0 + THREAD % 16 + 16 * i, column = column0 + THREAD / 16 + 16 * j;
            if (row >= p.y.ne[0] || column >= p.y.ne[1]) continue;
            at<float>(address_of(p.y, row, column, c.y[1], c.y[2]))[0] = sums[i][j];
        }
    }
}
