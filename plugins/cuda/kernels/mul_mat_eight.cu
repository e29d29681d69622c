// y = w x of packed weights and few columns on tensor cores, and the gated unit of two such products: 16 rows and up to eight
// columns per block. Weights are unpacked into shared memory, 32 parts of a row at a time as lanes have them in few.cuh, and
// multiplied with x in 8 bits. What a lane adds up there is a chain here, and chains are put together as lanes are there: a
// number has the same bits as beside fewer columns.
#include "few.cuh"
#include "gated_product.cuh"
#include "tensor.cuh"

#define ROWS_HERE 16
#define COLUMNS 8
#define PARTS 32
#define WARPS 4
// Pairs of neighbouring parts that a warp multiplies of each 32, every fourth.
#define PAIRS_HERE (PARTS / 2 / WARPS)
// Halves that one half of a row's parts is long in shared memory, and a column of x: lanes then read different banks.
#define W_LENGTH (PARTS * 8 + 8)
#define X_LENGTH (PARTS * 24 + 8)
// An integer below 2^22 that is added to the bits of 1.5 * 2^23 makes the sum of both as a float.
#define INTEGER_ZERO 0x4b400000
DEVICE float as_float(int bits) { return bits_to_float((u32)bits) - 12582912.0f; }

// A part's scales, one or one for each run, and then its offsets.
template <int TYPE> constexpr int SCALES = has_one_scale(TYPE) ? 1 : 2;
template <int TYPE> constexpr int FACTORS = SCALES<TYPE> * (has_offsets(TYPE) ? 2 : 1);
template <int TYPE> struct alignas(4 * FACTORS<TYPE>) Factors {
    float of[FACTORS<TYPE>];
};
template <int TYPE> DEVICE Factors<TYPE> factors_of(const Group &g) {
    Factors<TYPE> f;
    for (int i = 0; i < SCALES<TYPE>; i++) f.of[i] = g.scale[i];
    for (int i = SCALES<TYPE>; i < FACTORS<TYPE>; i++) f.of[i] = g.offset[i - SCALES<TYPE>];
    return f;
}

// Leaves in `sums` what the chains n of parts n, n + 8 and so on add up to, of numbers 0 to 3 of all lanes: columns 2 quarter and
// the next of rows place (0, 1) and place + 8 (2, 3). rows: the four of the 16 that this warp reads; groups of x are at x, and
// columns after `last` are it.
template <int TYPE>
DEVICE void multiply_sixteen(shared<float> sums, u64 (&rows)[ROWS_HERE / WARPS], u64 x, i64 groups, int last) {
    constexpr int R = ROWS_HERE / WARPS, S = SCALES<TYPE>;
    // All first halves of parts, then all second ones.
    SHARED(u16, weights, 2 * ROWS_HERE * W_LENGTH);
    SHARED(Factors<TYPE>, factors, ROWS_HERE * (PARTS + 1));
    SHARED(u16, columns, COLUMNS * X_LENGTH);
    int lane = lane_of(THREAD), warp = warp_of(THREAD), place = lane / 4, quarter = lane % 4;
    Raw<TYPE> raw[R];
    UNROLL for (int r = 0; r < R; r++) {
        raw[r] = {};
        if (lane < groups) raw[r] = raw_at<TYPE>(rows[r], lane);
    }
    float chains[PAIRS_HERE][2][4];
    UNROLL for (int i = 0; i < PAIRS_HERE; i++)
        UNROLL for (int e = 0; e < 8; e++) chains[i][e / 4][e % 4] = 0.0f;
    // Runs of part n + 8 are of groups 8 further. Of x, both runs of a pair's first part, then of its second.
    const Runs of[2] = {runs_of<TYPE>(2 * warp), runs_of<TYPE>(2 * warp + 1)};
    const Runs own = runs_of<TYPE>(2 * warp + lane / 16);
    int run = lane / 8 % 2, of_run = run == 0 ? own.group[0] * 24 + own.half[0] * 8 : own.group[1] * 24 + own.half[1] * 8;
    int b_at = lane % 8 * X_LENGTH + of_run;
    // A thread copies these pieces of the columns.
    u32 from[COLUMNS], length = (u32)groups * (u32)sizeof(Packed);
    UNROLL for (int j = 0; j < COLUMNS; j++) from[j] = (u32)(j < last ? j : last) * length;
    x += 16 * THREAD;
    for (int left = (int)groups; left > 0; left -= PARTS) {
        if (left < groups) sync_block();
        if (warp < 3) {
            UNROLL for (int j = 0; j < COLUMNS; j++)
                copy_16(columns, j * X_LENGTH + 8 * THREAD, x + from[j], THREAD < 3 * left);
        }
        end_copies();
        x += PARTS * sizeof(Packed);
        UNROLL for (int r = 0; r < R; r++) {
            // Nothing is past the last part, of x neither.
            if (lane >= left) raw[r] = {};
            Group g = unpacked<TYPE>(raw[r], lane);
            int row = R * warp + r;
            UNROLL for (int h = 0; h < 2; h++) {
                Sixteen q = {{(u32)g.q[4 * h], (u32)g.q[4 * h + 1], (u32)g.q[4 * h + 2], (u32)g.q[4 * h + 3]}};
                store_8(weights, (h * ROWS_HERE + row) * W_LENGTH + 8 * lane, q);
            }
            factors[row * (PARTS + 1) + lane] = factors_of<TYPE>(g);
            rows[r] += PARTS / 8 * bytes_of_256(TYPE);
            if (lane + PARTS < left) raw[r] = raw_at<TYPE>(rows[r], lane);
        }
        wait_for_copies<0>();
        sync_block();
        UNROLL for (int i = 0; i < PAIRS_HERE; i++) {
            u32 b[4];
            load_four(b, columns, b_at + 8 * 24 * i);
            UNROLL for (int k = 0; k < 2; k++) {
                int n = 8 * i + 2 * warp + k;
                // Rows place and place + 8 of the first run, then of the second.
                u32 a[4];
                load_four(a, weights, lane * W_LENGTH + 8 * n);
                int products[2][4];
                for (int e = 0; e < 4; e++) products[0][e] = products[1][e] = INTEGER_ZERO;
                multiply_bytes(products[0], a, b[2 * k]);
                multiply_bytes(products[S - 1], a + 2, b[2 * k + 1]);
                Factors<TYPE> of_row[2];
                UNROLL for (int r = 0; r < 2; r++)
                    of_row[r] = factors[(place + 8 * r) * (PARTS + 1) + (is_k(TYPE) ? n - k : n)];
                UNROLL for (int c = 0; c < 2; c++) {
                    float d[2], total[2];
                    UNROLL for (int h = 0; h < 2; h++) {
                        int group = of[k].group[h] + 8 * i, half = is_k(TYPE) || TYPE == Q6_K ? k : h;
                        const Sixteen units = load_8(columns, (quarter * 2 + c) * X_LENGTH + group * 24 + 16);
                        d[h] = bits_to_float(units.words[0]);
                        total[h] = bits_to_float(units.words[1 + half]);
                    }
                    UNROLL for (int r = 0; r < 2; r++) {
                        float sum = chains[i][k][2 * r + c];
                        const float *f = of_row[r].of;
                        UNROLL for (int h = 0; h < S; h++) sum = fmaf(f[h] * d[h], as_float(products[h][2 * r + c]), sum);
                        if (has_offsets(TYPE))
                            UNROLL for (int h = 0; h < 2; h++) sum = fmaf(f[S == 1 ? 1 : 2 + h], total[h], sum);
                        chains[i][k][2 * r + c] = sum;
                    }
                }
            }
        }
    }
    UNROLL for (int k = 0; k < 2; k++)
        UNROLL for (int e = 0; e < 4; e++) {
            float sum = (chains[0][k][e] + chains[2][k][e]) + (chains[1][k][e] + chains[3][k][e]);
            sums[((2 * warp + k) * 4 + e) * 32 + lane] = sum;
        }
    sync_block();
}
// Number e of this lane, of all chains.
DEVICE float sum_of(shared<float> sums, int e) {
    float of[8];
    for (int n = 0; n < 8; n++) of[n] = sums[(n * 4 + e) * 32 + lane_of(THREAD)];
    UNROLL for (int lanes = 4; lanes > 0; lanes /= 2)
        UNROLL for (int n = 0; n < lanes; n++) of[n] += of[n + lanes];
    return of[0];
}

template <int TYPE> DEVICE void eight_columns(const Product &p) {
    constexpr int R = ROWS_HERE / WARPS;
    SHARED(float, sums, 2 * WARPS * 128);
    int lane = lane_of(THREAD), warp = warp_of(THREAD), last = last_column<COLUMNS>(p);
    i64 row = BLOCK_X * ROWS_HERE, groups = p.w.ne[0] / 32;
    Column c = column_of(p, first_column<COLUMNS>(p));
    u64 rows[R];
    for (int r = 0; r < R; r++) rows[r] = c.w + at_most(row + R * warp + r, p.w.ne[1] - 1) * p.w.nb[1];
    multiply_sixteen<TYPE>(sums, rows, p.packed + row_of_x(p, c) * groups * sizeof(Packed), groups, last);
    int j = lane % 4 * 2 + warp % 2;
    row += lane / 4 + warp / 2 * 8;
    c.y[0] += j;
    if (j <= last && row < p.w.ne[1]) store_result(p, c, row, sum_of(sums, warp));
}

// Eight rows of gates, then those of their ups.
template <int TYPE> DEVICE void eight_gated_columns(const GatedProduct &p) {
    constexpr int R = ROWS_HERE / WARPS;
    SHARED(float, sums, 2 * WARPS * 128);
    int lane = lane_of(THREAD), warp = warp_of(THREAD), last = last_column<COLUMNS>(p.gate);
    i64 row = BLOCK_X * (ROWS_HERE / 2), groups = p.gate.w.ne[0] / 32;
    Column c = column_of(p.gate, first_column<COLUMNS>(p.gate));
    u64 rows[R];
    for (int r = 0; r < R; r++) {
        i64 n = at_most(row + R * (warp % 2) + r, p.gate.w.ne[1] - 1);
        rows[r] = warp < WARPS / 2 ? c.w + n * p.gate.w.nb[1] : up_row(p, c, n);
    }
    multiply_sixteen<TYPE>(sums, rows, p.gate.packed + row_of_x(p.gate, c) * groups * sizeof(Packed), groups, last);
    int j = lane % 4 * 2 + warp;
    row += lane / 4;
    c.y[0] += j;
    if (warp < 2 && j <= last && row < p.gate.w.ne[1]) store_gated(p, c, row, sum_of(sums, warp), sum_of(sums, warp + 2));
}

// With registers for three blocks where the compiler would take those of two.
#define EIGHT_COLUMNS(name, TYPE, ...)                                                                                 \
    KERNEL(mul_mat_##name##_8, Product, __VA_ARGS__) { eight_columns<TYPE>(p); }                                       \
    KERNEL(gated_##name##_8, GatedProduct, __VA_ARGS__) { eight_gated_columns<TYPE>(p); }

EIGHT_COLUMNS(q4_0, Q4_0, 128)
EIGHT_COLUMNS(q4_1, Q4_1, 128)
EIGHT_COLUMNS(q5_0, Q5_0, 128)
EIGHT_COLUMNS(q5_1, Q5_1, 128)
EIGHT_COLUMNS(q8_0, Q8_0, 128)
EIGHT_COLUMNS(q4_0_eights, Q4_0_EIGHTS, 128)
EIGHT_COLUMNS(q8_0_eights, Q8_0_EIGHTS, 128)
EIGHT_COLUMNS(q2_k, Q2_K, 128, 3)
EIGHT_COLUMNS(q3_k, Q3_K, 128, 3)
EIGHT_COLUMNS(q4_k, Q4_K, 128, 3)
EIGHT_COLUMNS(q5_k, Q5_K, 128, 3)
EIGHT_COLUMNS(q6_k, Q6_K, 128, 3)
EIGHT_COLUMNS(iq4_nl, IQ4_NL, 128)
EIGHT_COLUMNS(iq4_xs, IQ4_XS, 128)
EIGHT_COLUMNS(mxfp4, MXFP4, 128)
