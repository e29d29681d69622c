// y = w x of packed weights and many columns: tiles of 64 by 64 on tensor cores, w as it is packed times x in 8 bits. Sums of
// 16 or 32 products are integers; scales and offsets come in F32, as in the kernels for few columns.
#include "tensor.cuh"
#include "tile.cuh"

#define TILE 64
// Groups of a row that are multiplied between two barriers: each of the block's threads unpacks one.
#define GROUPS 2
// Halves that a group is long in shared memory, of w and of x: 32 bytes, then four floats. Lanes then read different banks.
#define LENGTH 24
#define SIDE (TILE * GROUPS * LENGTH)

// Whether both halves of a group have one scale and one offset, and whether there are offsets.
constexpr bool is_of_32(int type) { return type != Q2_K && type != Q3_K && type != Q6_K; }
constexpr bool has_offsets(int type) {
    bool is_plain = type == Q4_0 || type == Q4_1 || type == Q5_0 || type == Q5_1;
    return is_plain || type == Q4_K || type == Q5_K || !is_of_32(type);
}

// Group as three times sixteen bytes.
DEVICE void store_group(shared<u16> to, i64 at, const Group &g) {
    Sixteen rest = {{float_to_bits(g.scale[0]), float_to_bits(g.scale[1]), float_to_bits(g.offset[0]), float_to_bits(g.offset[1])}};
    for (int h = 0; h < 2; h++) {
        Sixteen q = {{(u32)g.q[4 * h], (u32)g.q[4 * h + 1], (u32)g.q[4 * h + 2], (u32)g.q[4 * h + 3]}};
        store_8(to, at + 8 * h, q);
    }
    store_8(to, at + 16, rest);
}

// Four warps, each with 16 rows and all columns of a tile. Two stages: while one is multiplied, x of the next is copied, and
// the weights of the next are on their way to registers.
template <int TYPE> DEVICE void packed_tile(const Tiled &t) {
    SHARED(u16, stages, 2 * 2 * SIDE);
    SHARED(u64, sources, TILE);
    SHARED(u64, results, TILE);
    const Product &p = t.product;
    Tile tile = tile_of(t, TILE);
    if (tile.n == 0) return;
    i64 row0 = BLOCK_X * TILE, groups = p.w.ne[0] / 32, steps = (groups + GROUPS - 1) / GROUPS;
    Column c0 = column_in(t, tile, 0);
    if (THREAD < tile.n) {
        Column c = column_in(t, tile, THREAD);
        sources[THREAD] = p.packed + row_of_x(p, c) * groups * sizeof(Packed);
        results[THREAD] = address_of(p.y, 0, c.y[0], c.y[1], c.y[2]);
    }
    sync_block();
    // A thread's group of each step is of this row.
    int mine = THREAD % TILE, own = THREAD / TILE;
    u64 row = c0.w + (row0 + mine) * p.w.nb[1];
    auto weights = [&](i64 step) {
        Group g = {};
        if (row0 + mine < p.w.ne[1] && step * GROUPS + own < groups) g = group_of<TYPE>(row, step * GROUPS + own);
        return g;
    };
    auto stage_of = [&](i64 step) { return (int)(step % 2) * 2 * SIDE; };
    auto keep = [&](i64 step, const Group &g) { store_group(stages, stage_of(step) + (own * TILE + mine) * LENGTH, g); };
    auto fetch = [&](i64 step) {
        for (int n = THREAD; n < TILE * GROUPS * 3; n += 128) {
            int third = n % 3, column = n / 3 % TILE, part = n / 3 / TILE;
            bool is_there = column < tile.n && step * GROUPS + part < groups;
            u64 from = is_there ? sources[column] + (step * GROUPS + part) * sizeof(Packed) + 16 * third : p.packed;
            copy_16(stages, stage_of(step) + SIDE + (part * TILE + column) * LENGTH + 8 * third, from, is_there);
        }
    };
    int lane = lane_of(THREAD), first = warp_of(THREAD) * 16, place = lane / 4, quarter = lane % 4;
    float sums[8][4];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++) sums[i][j] = 0.0f;
    if (c0.is_outside) steps = 0;
    if (steps > 0) {
        fetch(0);
        end_copies();
        keep(0, weights(0));
    }
    for (i64 step = 0; step < steps; step++) {
        wait_for_copies<0>();
        sync_block();
        bool is_last = step + 1 == steps;
        Group next = {};
        if (!is_last) {
            fetch(step + 1);
            end_copies();
            next = weights(step + 1);
        }
        ROLLED for (int part = 0; part < GROUPS; part++) {
            int w = stage_of(step) + part * TILE * LENGTH, x = w + SIDE;
            // Rows place and place + 8 of the first 16 numbers, then of the others.
            u32 a[4];
            load_four(a, stages, w + (first + lane % 16) * LENGTH + lane / 16 * 8);
            Sixteen row_units[2];
            for (int r = 0; r < 2; r++) row_units[r] = load_8(stages, w + (first + place + 8 * r) * LENGTH + 16);
            UNROLL for (int j = 0; j < TILE / 16; j++) {
                // Both halves of 8 columns, then of the next 8.
                u32 b[4];
                load_four(b, stages, x + (16 * j + lane / 16 * 8 + lane % 8) * LENGTH + lane / 8 % 2 * 8);
                UNROLL for (int i = 0; i < 2; i++) {
                    int products[2][4] = {};
                    multiply_bytes(products[0], a, b[2 * i]);
                    multiply_bytes(products[is_of_32(TYPE) ? 0 : 1], a + 2, b[2 * i + 1]);
                    UNROLL for (int c = 0; c < 2; c++) {
                        Sixteen units = load_8(stages, x + (16 * j + 8 * i + quarter * 2 + c) * LENGTH + 16);
                        float d = bits_to_float(units.words[0]);
                        float of_half[2] = {bits_to_float(units.words[1]), bits_to_float(units.words[2])};
                        UNROLL for (int r = 0; r < 2; r++) {
                            float &sum = sums[2 * j + i][2 * r + c];
                            const u32 *rest = row_units[r].words;
                            if (is_of_32(TYPE)) {
                                sum += bits_to_float(rest[0]) * d * products[0][2 * r + c];
                                if (has_offsets(TYPE)) sum += bits_to_float(rest[2]) * (of_half[0] + of_half[1]);
                                continue;
                            }
                            for (int h = 0; h < 2; h++) {
                                sum += bits_to_float(rest[h]) * d * products[h][2 * r + c];
                                sum += bits_to_float(rest[2 + h]) * of_half[h];
                            }
                        }
                    }
                }
            }
        }
        // Its last readers are past this step's barrier.
        if (!is_last) keep(step + 1, next);
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
