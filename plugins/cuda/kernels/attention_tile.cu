// Causal attention of prompts over a paged cache, on tensor cores. A block has a KV head and 64 rows: the heads that share it,
// for tokens beside each other of one sequence. Keys come in tiles, each read once; a running maximum and sum per row.
#include "paged.cuh"
#include "tensor.cuh"

#define ROWS 64
// exp(x) = 2^(x LOG2_E)
#define LOG2_E 1.44269504f

// Rows of a block: number `first` on of those of a run.
struct RowTile {
    Run run;
    i64 first;
};

// Number n of the tiles; of a run of 0 tokens: there is no such tile. Sequences of few tokens have none.
DEVICE RowTile tile_of(const Attention &p, i64 n) {
    i64 start = 0, group = p.q.ne[1] / p.n_kv_heads;
    for (i64 i = 0; i <= p.paging.table.ne[1] + 1; i++) {
        Run run = run_of(p.paging, i, start, p.q.ne[2]);
        start += run.n;
        i64 n_tiles = run.sequence >= 0 && run.n < p.many ? 0 : (run.n * group + ROWS - 1) / ROWS;
        if (n < n_tiles) return {run, n * ROWS};
        n -= n_tiles;
    }
    return {{-1, 0, 0}, 0};
}

// Numbers i to i + 7 of a row of Q8_0, as F16.
DEVICE Sixteen eight_of_q8_0(u64 row, i64 i) {
    u64 block = row + i / 32 * 34;
    float d = half_to_float(at<const u16>(block)[0]);
    global<const i8> q = at<const i8>(block + 2 + i % 32);
    Sixteen x;
    for (int j = 0; j < 4; j++) x.words[j] = two_halves<F16>(d * q[2 * j], d * q[2 * j + 1]);
    return x;
}

// Heads of up to DIM numbers, KEYS keys at a time; K and V are TYPE, or Q8_0 that becomes F16. Each of four warps has 16 rows.
template <int TYPE, int DIM, int KEYS> DEVICE void attention_tile(const Attention &p) {
    // 8 halves between rows, so that lanes read different banks.
    const int STRIDE = DIM + 8;
    SHARED(u16, keys, KEYS * STRIDE);
    SHARED(u16, values, KEYS * STRIDE);
    SHARED(int, slots, 2 * KEYS);
    i64 n_heads = p.q.ne[1], dim = p.q.ne[0], kv_head = BLOCK_X, group = n_heads / p.n_kv_heads;
    // The last tokens see the most keys: theirs begin first.
    RowTile tile = tile_of(p, BLOCKS_Y - 1 - BLOCK_Y);
    if (tile.run.n == 0) return;
    i64 sequence = tile.run.sequence, end_row = tile.run.n * group;
    end_row = tile.first + ROWS < end_row ? tile.first + ROWS : end_row;
    if (sequence < 0) {
        for (i64 n = THREAD; n < (end_row - tile.first) * p.dim_v; n += THREADS) {
            i64 row = tile.first + n / p.dim_v, head = kv_head * group + row % group, i = head * p.dim_v + n % p.dim_v;
            at<float>(address_of(p.y, i, tile.run.first + row / group, 0, 0))[0] = 0.0f;
        }
        return;
    }
    // Keys that any of the rows sees.
    i64 start = at<const i32>(p.paging.lens.address + sequence * p.paging.lens.nb[0])[0] - tile.run.n;
    i64 first_position = start + tile.first / group, end_position = start + (end_row - 1) / group + 1;
    i64 window = p.paging.window, room = p.paging.table.ne[0] * p.paging.block_size;
    int begin = window == 0 || first_position < window ? 0 : (int)(first_position - window + 1);
    int end = (int)(end_position < room ? end_position : room);

    // Two rows of a lane: where they are, positions of their tokens and first keys seen, counted from the first key of all,
    // and what scores lose per position.
    int lane = lane_of(THREAD), quarter = lane % 4, position[2], first[2];
    u32 q[DIM / 16][4];
    float factor[2], slope[2];
    auto row_at = [&](int r) { return tile.first + warp_of(THREAD) * 16 + lane / 4 + 8 * r; };
    UNROLL for (int r = 0; r < 2; r++) {
        i64 row = row_at(r), head = kv_head * group + row % group, token = tile.run.first + row / group;
        position[r] = (int)(start + row / group) - begin;
        first[r] = window == 0 ? 0 : (int)(position[r] - window + 1);
        slope[r] = p.max_bias > 0.0f ? alibi_slope(head, n_heads, p.max_bias) : 0.0f;
        // All numbers are on their way before the first is used: number j of every eight.
        u64 from = row < end_row ? address_of(p.q, 0, head, token, 0) : 0;
        float numbers[DIM / 8][2];
        UNROLL for (int d = 0; d < DIM / 8; d++) {
            UNROLL for (int j = 0; j < 2; j++) {
                int i = 8 * d + 2 * quarter + j;
                numbers[d][j] = from != 0 && i < dim ? at<const float>(from + i * p.q.nb[0])[0] : 0.0f;
            }
        }
        int most = 0;
        UNROLL for (int d = 0; d < DIM / 8; d++)
            UNROLL for (int j = 0; j < 2; j++) most = larger_magnitude(most, numbers[d][j]);
        float unit = unit_of(magnitude_of_lanes<2>(most)), inverse = inverse_of(unit);
        factor[r] = unit * p.scale;
        UNROLL for (int d = 0; d < DIM / 16; d++) {
            UNROLL for (int h = 0; h < 2; h++) {
                float *two = numbers[2 * d + h];
                q[d][2 * h + r] = two_halves<TYPE>(two[0] * inverse, two[1] * inverse);
            }
        }
    }

    auto find_slots = [&](int step) {
        int key = begin + step * KEYS + THREAD;
        if (THREAD < KEYS) slots[step % 2 * KEYS + THREAD] = key < end ? (int)slot_of(p.paging, sequence, key) : -1;
    };
    auto fetch = [&](shared<u16> to, const Tensor &from, int n_numbers, int step) {
        ROLLED for (int n = THREAD; n < KEYS * (DIM / 8); n += 128) {
            int key = n / (DIM / 8), i = n % (DIM / 8) * 8;
            // Products take 16 at a time.
            if (i >= (n_numbers + 15) / 16 * 16) continue;
            int slot = slots[step % 2 * KEYS + key];
            i64 number = kv_head * n_numbers + i;
            bool is_there = slot >= 0 && i < n_numbers;
            u64 row = from.address + (is_there ? slot : 0) * from.nb[1];
            if (TYPE == BF16 || from.type != Q8_0) {
                copy_16(to, key * STRIDE + i, row + (is_there ? number * 2 : 0), is_there);
            } else {
                Sixteen x = {{0, 0, 0, 0}};
                if (is_there) x = eight_of_q8_0(row, number);
                store_8(to, key * STRIDE + i, x);
            }
        }
    };
    float most[2] = {-INF_F, -INF_F}, total[2] = {0.0f, 0.0f}, sums[DIM / 8][4];
    UNROLL for (int i = 0; i < DIM / 8; i++)
        UNROLL for (int e = 0; e < 4; e++) sums[i][e] = 0.0f;
    int steps = end > begin ? (end - begin + KEYS - 1) / KEYS : 0;
    find_slots(0);
    sync_block();
    if (steps > 0) fetch(keys, p.k, (int)dim, 0);
    end_copies();
    for (int step = 0; step < steps; step++) {
        wait_for_copies<0>();
        sync_block();
        fetch(values, p.v, (int)p.dim_v, step);
        end_copies();
        find_slots(step + 1);
        float scores[KEYS / 8][4];
        UNROLL for (int i = 0; i < KEYS / 8; i++)
            UNROLL for (int e = 0; e < 4; e++) scores[i][e] = 0.0f;
        UNROLL for (int d = 0; d < DIM / 16; d++) {
            if (16 * d >= dim) continue;
            UNROLL for (int i = 0; i < KEYS / 16; i++) {
                u32 b[4];
                load_four(b, keys, (16 * i + lane / 16 * 8 + lane % 8) * STRIDE + 16 * d + lane / 8 % 2 * 8);
                multiply_halves<TYPE>(scores[2 * i], q[d], b);
                multiply_halves<TYPE>(scores[2 * i + 1], q[d], b + 2);
            }
        }
        sync_block();
        if (step + 1 < steps) fetch(keys, p.k, (int)dim, step + 1);
        end_copies();
        auto each_score = [&](auto change) {
            UNROLL for (int i = 0; i < KEYS / 8; i++)
                UNROLL for (int e = 0; e < 4; e++) scores[i][e] = change(scores[i][e], e / 2, 8 * i + 2 * quarter + e % 2);
        };
        each_score([&](float score, int r, int) { return score * factor[r]; });
        // In loops of their own, which most models skip: instructions are fetched, too.
        if (p.softcap != 0.0f) each_score([&](float score, int, int) { return p.softcap * tanhf(score / p.softcap); });
        if (p.max_bias > 0.0f)
            each_score([&](float score, int r, int n) { return score - slope[r] * (position[r] - (step * KEYS + n)); });
        each_score([&](float score, int r, int n) {
            int key = step * KEYS + n;
            bool is_seen = first[r] <= key && key <= position[r] && slots[step % 2 * KEYS + n] >= 0;
            return is_seen ? score : -INF_F;
        });
        UNROLL for (int r = 0; r < 2; r++) {
            float new_most = most[r];
            UNROLL for (int i = 0; i < KEYS / 8; i++)
                UNROLL for (int e = 0; e < 2; e++) new_most = fmaxf(new_most, scores[i][2 * r + e]);
            for (int lanes = 1; lanes < 4; lanes *= 2) new_most = fmaxf(new_most, shuffle_xor(new_most, lanes));
            // NaN is no maximum, but makes the sums NaN.
            float base = new_most == -INF_F ? 0.0f : new_most, keep = exp2f((most[r] - base) * LOG2_E);
            most[r] = new_most;
            total[r] *= keep;
            UNROLL for (int i = 0; i < KEYS / 8; i++) {
                UNROLL for (int e = 0; e < 2; e++) {
                    float weight = exp2f((scores[i][2 * r + e] - base) * LOG2_E);
                    scores[i][2 * r + e] = weight;
                    total[r] += weight;
                }
            }
            UNROLL for (int i = 0; i < DIM / 8; i++)
                UNROLL for (int e = 0; e < 2; e++) sums[i][2 * r + e] *= keep;
        }
        wait_for_copies<1>();
        sync_block();
        UNROLL for (int i = 0; i < KEYS / 16; i++) {
            u32 a[4];
            UNROLL for (int w = 0; w < 4; w++) {
                float *two = &scores[2 * i + w / 2][w % 2 * 2];
                a[w] = two_halves<TYPE>(two[0], two[1]);
            }
            UNROLL for (int d = 0; d < DIM / 16; d++) {
                if (16 * d >= p.dim_v) continue;
                u32 b[4];
                load_four_turned(b, values, (16 * i + lane % 16) * STRIDE + 16 * d + lane / 16 * 8);
                multiply_halves<TYPE>(sums[2 * d], a, b);
                multiply_halves<TYPE>(sums[2 * d + 1], a, b + 2);
            }
        }
    }
    UNROLL for (int r = 0; r < 2; r++) {
        for (int lanes = 1; lanes < 4; lanes *= 2) total[r] += shuffle_xor(total[r], lanes);
        i64 row = row_at(r), head = kv_head * group + row % group, token = tile.run.first + row / group;
        if (row >= end_row) continue;
        float sink = p.sinks.address ? at<const float>(p.sinks.address + head * p.sinks.nb[0])[0] : -INF_F;
        float all = fmaxf(most[r], sink), base = all == -INF_F ? 0.0f : all, keep = exp2f((most[r] - base) * LOG2_E);
        float sum = total[r] * (most[r] == -INF_F ? 1.0f : keep) + exp2f((sink - base) * LOG2_E);
        float inverse = sum != 0.0f ? keep / sum : 0.0f;
        UNROLL for (int i = 0; i < DIM / 8; i++) {
            if (8 * i >= p.dim_v) continue;
            UNROLL for (int e = 0; e < 2; e++) {
                u64 to = address_of(p.y, head * p.dim_v + 8 * i + 2 * quarter + e, token, 0, 0);
                at<float>(to)[0] = sums[i][2 * r + e] * inverse;
            }
        }
    }
}

KERNEL(attention_tile_f16_64, Attention, 128) { attention_tile<F16, 64, 64>(p); }
KERNEL(attention_tile_f16_128, Attention, 128) { attention_tile<F16, 128, 64>(p); }
KERNEL(attention_tile_f16_256, Attention, 128) { attention_tile<F16, 256, 16>(p); }
#if CHIP >= 80
KERNEL(attention_tile_bf16_64, Attention, 128) { attention_tile<BF16, 64, 64>(p); }
KERNEL(attention_tile_bf16_128, Attention, 128) { attention_tile<BF16, 128, 64>(p); }
KERNEL(attention_tile_bf16_256, Attention, 128) { attention_tile<BF16, 256, 16>(p); }
#endif
