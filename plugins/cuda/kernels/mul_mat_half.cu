// y = w x of F16 or BF16 weights and many columns: tiles on tensor cores, sums in F32. x becomes halves first: for F16 weights
// F16, each row brought near 1 by a power of two; for BF16 weights two BF16 whose sum it is but for the last bits, or one.
#include "tensor.cuh"
#include "tile.cuh"

// halves: rows of x without gaps, of two parts twice as long: the first parts, then the rests. units: F32 [rows], of F16. parts:
// of BF16.
struct Halve {
    Tensor x;
    u64 halves, units;
    i64 parts;
};

// Rows that are well within F16's range stay as they are.
DEVICE float unit_for(float magnitude) { return magnitude >= 1.0f && magnitude < 32768.0f ? 1.0f : unit_of(magnitude); }

// Four halves.
struct alignas(8) Four {
    u32 words[2];
};

// A block per row, WIDTH numbers per thread at a time, of which rows have whole ones.
template <int WIDTH> DEVICE void halve_row(const Halve &p) {
    SHARED(float, magnitudes, 8);
    i64 k = p.x.ne[0], step = p.x.nb[0];
    Index row = index_of(BLOCK_X, p.x.ne + 1);
    u64 from = address_of(p.x, 0, row.i[0], row.i[1], row.i[2]);
    int most = 0;
    for (i64 i = WIDTH * THREAD; i < k; i += WIDTH * THREADS) {
        float v[WIDTH];
        load_some<WIDTH>(v, from + i * step, step, p.x.type);
        UNROLL for (int j = 0; j < WIDTH; j++) most = larger_magnitude(most, v[j]);
    }
    float magnitude = magnitude_of_lanes<16>(most);
    if (lane_of(THREAD) == 0) magnitudes[warp_of(THREAD)] = magnitude;
    sync_block();
    float all = warp_magnitude(magnitudes[lane_of(THREAD) % 8]), unit = unit_for(all), inverse = inverse_of(unit);
    for (i64 i = WIDTH * THREAD; i < k; i += WIDTH * THREADS) {
        float v[WIDTH];
        load_some<WIDTH>(v, from + i * step, step, p.x.type);
        u64 to = p.halves + (BLOCK_X * k + i) * 2;
        if (WIDTH == 1) at<u16>(to)[0] = float_to_half(v[0] * inverse);
        else {
            Four four;
            UNROLL for (int j = 0; j < WIDTH / 2; j++)
                four.words[j] = float_to_half(v[2 * j] * inverse) | (u32)float_to_half(v[2 * j + 1] * inverse) << 16;
            at<Four>(to)[0] = four;
        }
    }
    if (THREAD == 0) at<float>(p.units)[BLOCK_X] = unit;
}

KERNEL(halve_f16, Halve, 256) {
    if (p.x.ne[0] % 4 == 0) halve_row<4>(p);
    else halve_row<1>(p);
}

// The upper half of an F32 never overflows; of NaN and infinity it is all there is.
KERNEL(halve_bf16, Halve, 128) {
    i64 k = p.x.ne[0];
    Index row = index_of(BLOCK_X, p.x.ne + 1);
    u64 from = address_of(p.x, 0, row.i[0], row.i[1], row.i[2]);
    global<u16> to = at<u16>(p.halves) + BLOCK_X * p.parts * k;
    for (i64 i = THREAD; i < k; i += THREADS) {
        float x = load_number(from + i * p.x.nb[0], p.x.type);
        if (p.parts == 1) {
            to[i] = float_to_bf16(x);
            continue;
        }
        u16 upper = x == x ? (u16)(float_to_bits(x) >> 16) : 0x7fc0;
        float rest = x - bf16_to_float(upper);
        to[i] = upper;
        to[k + i] = rest == rest ? float_to_bf16(rest) : (u16)0;
    }
}

// p.packed: what Halve gave; its units.
struct Halves {
    Tiled tiled;
    u64 units;
};

// Four warps, two by two, each with a quarter of a tile of ROWS by COLUMNS; DEPTH numbers at a time in shared memory, those of
// STAGES - 1 steps on their way. Rows there have 8 halves more, so that lanes read different banks. x comes in PARTS.
template <int TYPE, int PARTS, int ROWS, int COLUMNS, int DEPTH, int STAGES> DEVICE void half_tile(const Halves &h) {
    const int STRIDE = DEPTH + 8, STAGE = (ROWS + PARTS * COLUMNS) * STRIDE;
    const int M = ROWS / 32, N = COLUMNS / 32;
    SHARED(u16, halves, STAGES * STAGE);
    SHARED(u64, sources, COLUMNS);
    SHARED(u64, results, COLUMNS);
    SHARED(float, units, COLUMNS);
    const Product &p = h.tiled.product;
    Tile tile = tile_of(h.tiled, COLUMNS);
    if (tile.n == 0) return;
    Column c0 = column_in(h.tiled, tile, 0);
    i64 row0 = BLOCK_X * ROWS, k = p.w.ne[0];
    if (THREAD < tile.n) {
        Column c = column_in(h.tiled, tile, THREAD);
        i64 row = row_of_x(p, c);
        sources[THREAD] = p.packed + row * PARTS * k * 2;
        results[THREAD] = address_of(p.y, 0, c.y[0], c.y[1], c.y[2]);
        units[THREAD] = TYPE == F16 ? at<const float>(h.units)[row] : 1.0f;
    }
    sync_block();
    auto fetch = [&](i64 step) {
        const int CHUNKS = DEPTH / 8;
        int stage = (int)(step % STAGES) * STAGE;
        for (int n = THREAD; n < ROWS * CHUNKS; n += 128) {
            int r = n / CHUNKS, i = n % CHUNKS * 8;
            bool is_there = row0 + r < p.w.ne[1] && step * DEPTH + i < k;
            copy_16(halves, stage + r * STRIDE + i, c0.w + (row0 + r) * p.w.nb[1] + (step * DEPTH + i) * 2, is_there);
        }
        for (int n = THREAD; n < PARTS * COLUMNS * CHUNKS; n += 128) {
            int r = n / CHUNKS, i = n % CHUNKS * 8, column = r % COLUMNS, part = r / COLUMNS;
            bool is_there = column < tile.n && step * DEPTH + i < k;
            u64 from = is_there ? sources[column] + (part * k + step * DEPTH + i) * 2 : p.packed;
            copy_16(halves, stage + (ROWS + r) * STRIDE + i, from, is_there);
        }
    };
    int lane = lane_of(THREAD), warp = warp_of(THREAD), first_row = warp % 2 * (ROWS / 2), first_column = warp / 2 * (COLUMNS / 2);
    // Where this lane's row of four matrices begins: a as two by two, b as two of 8 columns and 16 numbers each.
    int a_at = (first_row + lane % 16) * STRIDE + lane / 16 * 8;
    int b_at = (ROWS + first_column + lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8;
    float sums[M][2 * N][4];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < 2 * N; j++)
            for (int e = 0; e < 4; e++) sums[i][j][e] = 0.0f;
    i64 steps = c0.is_outside ? 0 : (k + DEPTH - 1) / DEPTH;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) fetch(s);
        end_copies();
    }
    for (i64 step = 0; step < steps; step++) {
        wait_for_copies<STAGES - 2>();
        sync_block();
        if (step + STAGES - 1 < steps) fetch(step + STAGES - 1);
        end_copies();
        int stage = (int)(step % STAGES) * STAGE;
        for (int d = 0; d < DEPTH; d += 16) {
            u32 a[M][4];
            for (int i = 0; i < M; i++) load_four(a[i], halves, stage + a_at + i * 16 * STRIDE + d);
            for (int part = 0; part < PARTS; part++) {
                for (int j = 0; j < N; j++) {
                    u32 b[4];
                    load_four(b, halves, stage + b_at + (part * COLUMNS + j * 16) * STRIDE + d);
                    for (int i = 0; i < M; i++) {
                        multiply_halves<TYPE>(sums[i][2 * j], a[i], b);
                        multiply_halves<TYPE>(sums[i][2 * j + 1], a[i], b + 2);
                    }
                }
            }
        }
    }
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < 2 * N; j++) {
            for (int e = 0; e < 4; e++) {
                i64 row = row0 + first_row + 16 * i + lane / 4 + e / 2 * 8;
                int column = first_column + 8 * j + lane % 4 * 2 + e % 2;
                if (row >= p.y.ne[0] || column >= tile.n) continue;
                at<float>(results[column] + row * p.y.nb[0])[0] = sums[i][j][e] * units[column];
            }
        }
    }
}

KERNEL(mul_mat_f16_wide, Halves, 128) { half_tile<F16, 1, 128, 64, 32, 3>(p); }
KERNEL(mul_mat_f16_narrow, Halves, 128) { half_tile<F16, 1, 32, 32, 64, 3>(p); }
#if CHIP >= 80
KERNEL(mul_mat_bf16_wide, Halves, 128) { half_tile<BF16, 2, 128, 64, 32, 2>(p); }
KERNEL(mul_mat_bf16_narrow, Halves, 128) { half_tile<BF16, 2, 32, 32, 64, 3>(p); }
KERNEL(mul_mat_bf16_one_wide, Halves, 128) { half_tile<BF16, 1, 128, 64, 32, 3>(p); }
KERNEL(mul_mat_bf16_one_narrow, Halves, 128) { half_tile<BF16, 1, 32, 32, 64, 3>(p); }
#endif

// After a product without units: columns of y times those of x, of which most are 1. BLOCK_X counts columns.
KERNEL(scale_columns, Halves, 128) {
    const Product &product = p.tiled.product;
    Column c = column_of(product, BLOCK_X);
    float unit = at<const float>(p.units)[row_of_x(product, c)];
    if (unit == 1.0f) return;
    global<float> y = at<float>(address_of(product.y, 0, c.y[0], c.y[1], c.y[2]));
    for (i64 i = BLOCK_Y * THREADS + THREAD; i < product.y.ne[0]; i += BLOCKS_Y * THREADS) y[i] = y[i] * unit;
}
