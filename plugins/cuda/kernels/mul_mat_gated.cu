// y = activation(gate x) · (up x) of few columns: two matrices of one shape times the same x, as in mul_mat.cu, and the gated
// unit of the results, in one kernel. The results themselves are written, too.
#include "few_floats.cuh"
#include "gated_product.cuh"

// Gates and ups of a warp take turns: half as many of each as rows of one matrix.
template <int R> DEVICE void rows_of_both(u64 (&rows)[R], const GatedProduct &p, const Column &c, i64 row) {
    for (int r = 0; r < R; r += 2) {
        i64 n = at_most(row + r / 2, p.gate.w.ne[1] - 1);
        rows[r] = c.w + n * p.gate.w.nb[1];
        rows[r + 1] = up_row(p, c, n);
    }
}

template <int R, int N>
DEVICE void store_all_gated(const GatedProduct &p, Column c, int last, i64 row, const float (&sums)[R * N]) {
    constexpr int M = R / 2 * N, LANES = 32 / M;
    float gates[M], ups[M];
    UNROLL for (int i = 0; i < M; i++) {
        gates[i] = sums[i / N * 2 * N + i % N];
        ups[i] = sums[(i / N * 2 + 1) * N + i % N];
    }
    float gate = sum_of_lane<M>(gates), up = sum_of_lane<M>(ups);
    int lane = lane_of(THREAD), n = lane / LANES, j = n % N;
    row += n / N;
    c.y[0] += j;
    if (lane % LANES == 0 && j <= last && row < p.gate.w.ne[1]) store_gated(p, c, row, gate, up);
}

// Rows of both and N columns, multiplied with one pair, which is read once.
template <int TYPE, int N> DEVICE void gated_columns(const GatedProduct &p) {
    constexpr int R = ROWS<N>;
    i64 row = first_row<R / 2>(BLOCK_X), groups = p.gate.w.ne[0] / 32;
    int last = last_column<N>(p.gate);
    Column c = column_of(p.gate, first_column<N>(p.gate));
    u64 rows[R];
    rows_of_both(rows, p, c, row);
    float sums[R * N];
    multiply_rows<TYPE, N, R>(sums, rows, p.gate.packed + row_of_x(p.gate, c) * groups * sizeof(Packed), groups, last);
    store_all_gated<R, N>(p, c, last, row, sums);
}

#define GATED_COLUMNS(name, TYPE)                                                                                      \
    KERNEL(gated_##name##_1, GatedProduct, 128) { gated_columns<TYPE, 1>(p); }                                         \
    KERNEL(gated_##name##_2, GatedProduct, 128) { gated_columns<TYPE, 2>(p); }                                         \
    KERNEL(gated_##name##_4, GatedProduct, 128) { gated_columns<TYPE, 4>(p); }

GATED_COLUMNS(q4_0, Q4_0)
GATED_COLUMNS(q4_1, Q4_1)
GATED_COLUMNS(q5_0, Q5_0)
GATED_COLUMNS(q5_1, Q5_1)
GATED_COLUMNS(q8_0, Q8_0)
GATED_COLUMNS(q4_0_eights, Q4_0_EIGHTS)
GATED_COLUMNS(q8_0_eights, Q8_0_EIGHTS)
GATED_COLUMNS(q2_k, Q2_K)
GATED_COLUMNS(q3_k, Q3_K)
GATED_COLUMNS(q4_k, Q4_K)
GATED_COLUMNS(q5_k, Q5_K)
GATED_COLUMNS(q6_k, Q6_K)
GATED_COLUMNS(iq4_nl, IQ4_NL)
GATED_COLUMNS(iq4_xs, IQ4_XS)
GATED_COLUMNS(mxfp4, MXFP4)

// The same of floats in whole pieces of 16 bytes.
template <int TYPE, int N> DEVICE void gated_float_columns(const GatedProduct &p) {
    constexpr int R = ROWS<N>;
    i64 row = first_row<R / 2>(BLOCK_X);
    int last = last_column<N>(p.gate);
    Column c = column_of(p.gate, first_column<N>(p.gate));
    u64 rows[R];
    rows_of_both(rows, p, c, row);
    float sums[R * N];
    multiply_floats<TYPE, N, R>(sums, rows, p.gate, c, last);
    store_all_gated<R, N>(p, c, last, row, sums);
}

#define GATED_FLOATS(name, TYPE)                                                                                       \
    KERNEL(gated_##name##_1, GatedProduct, 128) { gated_float_columns<TYPE, 1>(p); }                                   \
    KERNEL(gated_##name##_2, GatedProduct, 128) { gated_float_columns<TYPE, 2>(p); }                                   \
    KERNEL(gated_##name##_4, GatedProduct, 128) { gated_float_columns<TYPE, 4>(p); }                                   \
    KERNEL(gated_##name##_8, GatedProduct, 128) { gated_float_columns<TYPE, 8>(p); }

GATED_FLOATS(f32, F32)
GATED_FLOATS(f16, F16)
GATED_FLOATS(bf16, BF16)

// And of floats at any strides: a warp per row of both and one column.
template <int TYPE> DEVICE void scattered_gated(const GatedProduct &p) {
    const Tensor &w = p.gate.w, &x = p.gate.x;
    i64 row = BLOCK_X * (THREADS / 32) + warp_of(THREAD);
    if (row >= w.ne[1]) return;
    Column c = column_of(p.gate, BLOCK_Y);
    u64 weights = c.w + row * w.nb[1], up_weights = up_row(p, c, row);
    float gate = 0.0f, up = 0.0f;
    for (i64 i = lane_of(THREAD); i < w.ne[0]; i += 32) {
        float v = load_number(address_of(x, i, c.x[0], c.x[1], c.x[2]), x.type);
        gate = fmaf(load_number(weights + i * w.nb[0], TYPE), v, gate);
        up = fmaf(load_number(up_weights + i * w.nb[0], TYPE), v, up);
    }
    gate = warp_sum(gate);
    up = warp_sum(up);
    if (lane_of(THREAD) == 0) store_gated(p, c, row, gate, up);
}
KERNEL(gated_f32_scattered_1, GatedProduct, 128) { scattered_gated<F32>(p); }
KERNEL(gated_f16_scattered_1, GatedProduct, 128) { scattered_gated<F16>(p); }
KERNEL(gated_bf16_scattered_1, GatedProduct, 128) { scattered_gated<BF16>(p); }
