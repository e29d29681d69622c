// y = activation(gate x) · (up x) of few columns: two matrices of one shape times the same x, as in mul_mat.cu, and the gated
// unit of the results, in one kernel. The results themselves are written, too.
#include "few.cuh"
#include "gate.cuh"

// gate: the product whose result goes through the activation; up_w: where the other matrix begins, laid out alike.
struct GatedProduct {
    Product gate;
    Tensor up, y;
    u64 up_w;
    Gate unit;
};

DEVICE u64 up_row(const GatedProduct &p, const Column &c, i64 row) {
    return p.up_w + (c.w - p.gate.w.address) + row * p.gate.w.nb[1];
}

DEVICE void store_gated(const GatedProduct &p, const Column &c, i64 row, float gate, float up) {
    if (c.is_outside) gate = up = 0.0f;
    at<float>(address_of(p.gate.y, row, c.y[0], c.y[1], c.y[2]))[0] = gate;
    at<float>(address_of(p.up, row, c.y[0], c.y[1], c.y[2]))[0] = up;
    at<float>(address_of(p.y, row, c.y[0], c.y[1], c.y[2]))[0] = gated(p.unit, gate, up);
}

// A warp per row of both and N columns, multiplied with one pair, which is read once.
template <int TYPE, int N> DEVICE void gated_columns(const GatedProduct &p) {
    i64 row = BLOCK_X * (THREADS / 32) + warp_of(THREAD), groups = p.gate.w.ne[0] / 32;
    if (row >= p.gate.w.ne[1]) return;
    i64 first = first_column<N>(p.gate);
    int last = last_column<N>(p.gate);
    Column c = column_of(p.gate, first);
    float gates[N], ups[N];
    for (int j = 0; j < N; j++) gates[j] = ups[j] = 0.0f;
    u64 weights = c.w + row * p.gate.w.nb[1], up_weights = up_row(p, c, row);
    i64 x_row = row_of_x(p.gate, c);
    for (i64 n = lane_of(THREAD); n < groups; n += 32) {
        Group gate = group_of<TYPE>(weights, n), up = group_of<TYPE>(up_weights, n);
        for (int j = 0; j < N; j++) {
            Packed x = at<const Packed>(p.gate.packed)[(x_row + (j < last ? j : last)) * groups + n];
            gates[j] = add_group(gates[j], gate, x);
            ups[j] = add_group(ups[j], up, x);
        }
    }
    for (int j = 0; j < N; j++) {
        float gate = warp_sum(gates[j]), up = warp_sum(ups[j]);
        if (lane_of(THREAD) == 0 && j <= last) store_gated(p, column_of(p.gate, first + j), row, gate, up);
    }
}

#define GATED_COLUMNS(name, TYPE)                                                                                      \
    KERNEL(gated_##name##_1, GatedProduct, 128) { gated_columns<TYPE, 1>(p); }                                         \
    KERNEL(gated_##name##_2, GatedProduct, 128) { gated_columns<TYPE, 2>(p); }                                         \
    KERNEL(gated_##name##_4, GatedProduct, 128) { gated_columns<TYPE, 4>(p); }                                         \
    KERNEL(gated_##name##_8, GatedProduct, 128) { gated_columns<TYPE, 8>(p); }

GATED_COLUMNS(q4_0, Q4_0)
GATED_COLUMNS(q4_1, Q4_1)
GATED_COLUMNS(q5_0, Q5_0)
GATED_COLUMNS(q5_1, Q5_1)
GATED_COLUMNS(q8_0, Q8_0)
GATED_COLUMNS(q2_k, Q2_K)
GATED_COLUMNS(q3_k, Q3_K)
GATED_COLUMNS(q4_k, Q4_K)
GATED_COLUMNS(q5_k, Q5_K)
GATED_COLUMNS(q6_k, Q6_K)
GATED_COLUMNS(iq4_nl, IQ4_NL)
GATED_COLUMNS(iq4_xs, IQ4_XS)
GATED_COLUMNS(mxfp4, MXFP4)

// Floats at any strides: a warp per row of both and one column.
template <int TYPE> DEVICE void gated_column(const GatedProduct &p) {
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
KERNEL(gated_f32_1, GatedProduct, 128) { gated_column<F32>(p); }
KERNEL(gated_f16_1, GatedProduct, 128) { gated_column<F16>(p); }
KERNEL(gated_bf16_1, GatedProduct, 128) { gated_column<BF16>(p); }
