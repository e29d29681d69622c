// Causal attention over a paged cache. A block has a token, a KV head with up to HEADS of the heads that share it, and a part of
// the keys. Its four warps take keys in turn, several at a time, of which K and V are loaded at once and the blocks were looked up
// before; they keep a running maximum and sum per head, and are put together at the end. Parts are put together by another
// kernel.
#include "block.cuh"
#include "cached.cuh"
#include "paged.cuh"

#define WARPS 4
// exp(x) = 2^(x LOG2_E)
#define LOG2_E 1.44269504f
// Parts at most.
#define MAX_PARTS 128

// 2^((x - most) LOG2_E), where most may be that of nothing.
DEVICE float scaled_by(float x, float most) { return exp2f((x - (most == -INF_F ? 0.0f : most)) * LOG2_E); }

DEVICE int start_at(const Paging &p, i64 i, i64 n_tokens) {
    i64 start = i > p.table.ne[1] ? n_tokens : at<const i32>(p.starts.address + i * p.starts.nb[0])[0];
    return start < n_tokens ? (int)start : (int)n_tokens;
}

// Number n of the tokens that are for no tile; -1: there are fewer. Lanes take sequences in turn.
DEVICE i64 token_without_tile(const Attention &p, i64 n) {
    if (p.many == 0) return n;
    int lane = lane_of(THREAD), reached = 0, n_before = 0;
    for (i64 first = 0; first < p.paging.table.ne[1]; first += 32) {
        i64 i = first + lane;
        // A start counts as no less than those before it.
        int start = start_at(p.paging, i, p.q.ne[2]), next = start_at(p.paging, i + 1, p.q.ne[2]);
        start = start > reached ? start : reached;
        for (int lanes = 1; lanes < 32; lanes *= 2) {
            int other = shuffle(start, lane - lanes);
            if (lane >= lanes && other > start) start = other;
        }
        next = next > start ? next : start;
        int own = i < p.paging.table.ne[1] && next - start < p.many ? next - start : 0, sum = own;
        for (int lanes = 1; lanes < 32; lanes *= 2) {
            int other = shuffle(sum, lane - lanes);
            if (lane >= lanes) sum += other;
        }
        u32 past = ballot(n_before + sum > n);
        if (past != 0) return shuffle(start + (int)n - n_before - (sum - own), first_one(past));
        n_before += shuffle(sum, 31);
        reached = shuffle(next, 31);
    }
    return -1;
}

// Numbers of parts, and of what each gave: its maximum and sum.
DEVICE u64 part_at(const Attention &p, i64 head, i64 part) {
    return p.parts + ((BLOCK_Y * p.q.ne[1] + head) * p.n_parts + part) * p.dim_v * 4;
}
DEVICE u64 state_at(const Attention &p, i64 head, i64 part) {
    i64 all = BLOCKS_Y * p.q.ne[1] * p.n_parts;
    return p.parts + (all * p.dim_v + ((BLOCK_Y * p.q.ne[1] + head) * p.n_parts + part) * 2) * 4;
}

// Caches of TYPE, heads of up to 256 CHUNKS numbers; a lane has 8 numbers of each chunk of a key. STEPS times as many keys at
// once as lanes have room for.
template <int TYPE, int HEADS, int CHUNKS, int STEPS> DEVICE void attention_of_heads(const Attention &p) {
    const int NUMBERS = 8 * CHUNKS, STRIDE = 33, SIZE = HEADS * NUMBERS * STRIDE;
    const bool IN_REGISTERS = HEADS < 8;
    SHARED(float, results, 2 * SIZE);
    SHARED(float, maxima, WARPS * HEADS);
    SHARED(float, totals, WARPS * HEADS);
    int n_heads = (int)p.q.ne[1], dim = (int)p.q.ne[0], dim_v = (int)p.dim_v, group = (int)p.group, shares = (int)p.shares;
    int kv_head = shares == 1 ? (int)BLOCK_X : (int)BLOCK_X / shares, share = ((int)BLOCK_X - kv_head * shares) * (int)p.per_share;
    int head0 = kv_head * group + share, n_here = group - share < (int)p.per_share ? group - share : (int)p.per_share;
    i64 token = token_without_tile(p, BLOCK_Y);
    if (token < 0 || n_here <= 0) return;
    // Lanes of a key, keys of a step and of all steps, and what this lane has of them.
    int width = dim > dim_v ? dim : dim_v, shift = width <= 64 ? 3 : width <= 128 ? 4 : 5, lanes = 1 << shift;
    int per_step = 32 >> shift, batch = STEPS * per_step;
    int lane = lane_of(THREAD), warp = warp_of(THREAD), mine = lane >> shift, sub = lane & (lanes - 1);
    // q is on its way while keys are looked for, all of it at once: what is not there is read from where there is something.
    const int TURNS = HEADS * NUMBERS / WARPS;
    float numbers[TURNS];
    UNROLL for (int t = 0; t < TURNS; t++) {
        int e = THREAD + t * 32 * WARPS, g = e / NUMBERS >> shift, i = e - g * (NUMBERS << shift);
        bool is_there = g < n_here && i < dim;
        numbers[t] = at<const float>(address_of(p.q, is_there ? i : 0, head0 + (is_there ? g : 0), token, 0))[0];
    }
    // Parts are equal, of all that is seen, but for the last.
    View view = view_of(p.paging, token, p.q.ne[2]);
    int seen = view.sequence < 0 || view.end < view.first ? 0 : (int)(view.end - view.first), turn = WARPS * batch;
    int per_part = p.parts ? (seen + (int)p.n_parts - 1) / (int)p.n_parts : seen;
    per_part = (per_part + turn - 1) & ~(turn - 1);
    int begin = (int)BLOCK_Z * per_part, stop = begin + per_part < seen ? begin + per_part : seen;
    if (p.parts && begin >= stop) {
        for (int g = THREAD; g < n_here; g += THREADS) {
            global<float> state = at<float>(state_at(p, head0 + g, BLOCK_Z));
            state[0] = -INF_F;
            state[1] = 0.0f;
        }
        return;
    }
    // Lanes look for the block of a key each, before the keys at hand are multiplied.
    int key = (int)view.first + begin + warp * batch, end = (int)view.first + stop;
    auto spot_ahead = [&](int first) { return spot_of(p.paging, first + lane < end ? first + lane : end - 1); };
    Spot spot = {0, 0};
    int block = -1;
    if (begin < stop) {
        spot = spot_ahead(key);
        block = block_of(p.paging, view.sequence, spot);
    }
    // Number n of a lane, of head g.
    auto place = [&](int g, int n) { return (g * NUMBERS + n) * STRIDE + sub; };
    UNROLL for (int t = 0; t < TURNS; t++) {
        int e = THREAD + t * 32 * WARPS, g = e / NUMBERS >> shift, i = e - g * (NUMBERS << shift);
        float x = g < n_here && i < dim ? numbers[t] * p.scale : 0.0f;
        if (g < HEADS) results[(g * NUMBERS + (i >> 3 >> shift) * 8 + i % 8) * STRIDE + (i >> 3 & (lanes - 1))] = x;
    }
    sync_block();
    float q[HEADS][NUMBERS], sums[HEADS][NUMBERS], slope[HEADS], most[HEADS], total[HEADS];
    UNROLL for (int g = 0; g < HEADS; g++) {
        slope[g] = 0.0f;
        most[g] = -INF_F;
        total[g] = 0.0f;
        UNROLL for (int n = 0; n < NUMBERS; n++) {
            if (IN_REGISTERS) q[g][n] = results[place(g, n)];
            sums[g][n] = 0.0f;
        }
    }
    if (p.max_bias > 0.0f)
        UNROLL for (int g = 0; g < HEADS; g++) slope[g] = alibi_slope(head0 + g, n_heads, p.max_bias);
    for (; key < end; key += turn) {
        int own = lane < batch && key + lane < end ? (int)slot_in(p.paging, block, spot) : -1;
        int slot[STEPS];
        Eight<TYPE> k[STEPS][CHUNKS], v[STEPS][CHUNKS];
        UNROLL for (int s = 0; s < STEPS; s++) slot[s] = shuffle(own, s * per_step + mine);
        UNROLL for (int s = 0; s < STEPS; s++) {
            u64 k_row = p.k.address + (u64)(u32)slot[s] * (u32)p.k.nb[1], v_row = p.v.address + (u64)(u32)slot[s] * (u32)p.v.nb[1];
            UNROLL for (int c = 0; c < CHUNKS; c++) {
                int i = ((c << shift) + sub) * 8;
                i64 k_end = slot[s] < 0 ? 0 : (kv_head + 1) * dim, v_end = slot[s] < 0 ? 0 : (kv_head + 1) * dim_v;
                k[s][c] = load_eight<TYPE>(k_row, kv_head * dim + i, k_end);
                v[s][c] = load_eight<TYPE>(v_row, kv_head * dim_v + i, v_end);
            }
        }
        spot = spot_ahead(key + turn);
        block = block_of(p.paging, view.sequence, spot);
        float scores[STEPS][HEADS];
        UNROLL for (int s = 0; s < STEPS; s++) {
            UNROLL for (int g = 0; g < HEADS; g++) scores[s][g] = 0.0f;
            UNROLL for (int c = 0; c < CHUNKS; c++) {
                float x[8];
                to_floats<TYPE>(p.k, k[s][c], x);
                UNROLL for (int g = 0; g < HEADS; g++)
                    UNROLL for (int j = 0; j < 8; j++)
                        scores[s][g] += (IN_REGISTERS ? q[g][8 * c + j] : (float)results[place(g, 8 * c + j)]) * x[j];
            }
        }
        ROLLED for (int other = lanes / 2; other > 0; other /= 2)
            UNROLL for (int s = 0; s < STEPS; s++)
                UNROLL for (int g = 0; g < HEADS; g++) scores[s][g] += shuffle_xor(scores[s][g], other);
        UNROLL for (int g = 0; g < HEADS; g++) {
            float new_most = most[g];
            UNROLL for (int s = 0; s < STEPS; s++) {
                float score = scores[s][g];
                if (p.softcap != 0.0f) score = p.softcap * tanhf(score / p.softcap);
                score -= slope[g] * ((int)view.position - (key + s * per_step + mine));
                score = slot[s] < 0 ? -INF_F : score;
                scores[s][g] = score;
                // NaN is no maximum, but makes the sums NaN.
                new_most = fmaxf(new_most, score == score ? score : 0.0f);
            }
            float keep = scaled_by(most[g], new_most);
            most[g] = new_most;
            total[g] *= keep;
            UNROLL for (int n = 0; n < NUMBERS; n++) sums[g][n] *= keep;
            UNROLL for (int s = 0; s < STEPS; s++) {
                scores[s][g] = scaled_by(scores[s][g], new_most);
                total[g] += scores[s][g];
            }
        }
        UNROLL for (int s = 0; s < STEPS; s++) {
            UNROLL for (int c = 0; c < CHUNKS; c++) {
                float x[8];
                to_floats<TYPE>(p.v, v[s][c], x);
                UNROLL for (int g = 0; g < HEADS; g++)
                    UNROLL for (int j = 0; j < 8; j++) sums[g][8 * c + j] += scores[s][g] * x[j];
            }
        }
    }
    // The keys of a warp's lanes together, then those of warps.
    UNROLL for (int g = 0; g < HEADS; g++) {
        float all = most[g];
        for (int other = lanes; other < 32; other *= 2) all = fmaxf(all, shuffle_xor(all, other));
        if (lane == 0) maxima[warp * HEADS + g] = all;
    }
    sync_block();
    UNROLL for (int g = 0; g < HEADS; g++) {
        float all = -INF_F;
        for (int w = 0; w < WARPS; w++) all = fmaxf(all, maxima[w * HEADS + g]);
        float keep = scaled_by(most[g], all);
        total[g] *= keep;
        most[g] = all;
        UNROLL for (int n = 0; n < NUMBERS; n++) sums[g][n] *= keep;
        for (int other = lanes; other < 32; other *= 2) {
            total[g] += shuffle_xor(total[g], other);
            UNROLL for (int n = 0; n < NUMBERS; n++) sums[g][n] += shuffle_xor(sums[g][n], other);
        }
        if (lane == 0) totals[warp * HEADS + g] = total[g];
    }
    // Two warps' sums beside each other, then those of the other two on top.
    ROLLED for (int half = 0; half < 2; half++) {
        if (warp / 2 == half && mine == 0) {
            UNROLL for (int g = 0; g < HEADS; g++)
                UNROLL for (int n = 0; n < NUMBERS; n++) {
                    int to = warp % 2 * SIZE + place(g, n);
                    results[to] = half == 0 ? sums[g][n] : results[to] + sums[g][n];
                }
        }
        sync_block();
    }
    for (int g = 0, i = THREAD; g < n_here; i += THREADS) {
        while (i >= dim_v && g < n_here) i -= dim_v, g++;
        if (g == n_here) break;
        int from = (g * NUMBERS + (i >> 3 >> shift) * 8 + i % 8) * STRIDE + (i >> 3 & (lanes - 1)), head = head0 + g;
        float sum = results[from] + results[SIZE + from];
        if (p.parts) {
            at<float>(part_at(p, head, BLOCK_Z))[i] = sum;
            continue;
        }
        float all = -INF_F, all_total = 0.0f;
        for (int w = 0; w < WARPS; w++) {
            all = fmaxf(all, maxima[w * HEADS + g]);
            all_total += totals[w * HEADS + g];
        }
        float sink = p.sinks.address ? at<const float>(p.sinks.address + head * p.sinks.nb[0])[0] : -INF_F;
        float base = fmaxf(all, sink), keep = scaled_by(all, base);
        all_total = all_total * keep + scaled_by(sink, base);
        at<float>(address_of(p.y, head * dim_v + i, token, 0, 0))[0] = all_total != 0.0f ? sum * keep / all_total : 0.0f;
    }
    if (p.parts && THREAD < n_here) {
        global<float> state = at<float>(state_at(p, head0 + THREAD, BLOCK_Z));
        float all = -INF_F, all_total = 0.0f;
        for (int w = 0; w < WARPS; w++) {
            all = fmaxf(all, maxima[w * HEADS + THREAD]);
            all_total += totals[w * HEADS + THREAD];
        }
        state[0] = all;
        state[1] = all_total;
    }
}

#define ATTENTION(name, TYPE)                                                                                          \
    KERNEL(attention_##name##_1, Attention, 128) { attention_of_heads<TYPE, 1, 1, 4>(p); }                            \
    KERNEL(attention_##name##_2, Attention, 128) { attention_of_heads<TYPE, 2, 1, 4>(p); }                            \
    KERNEL(attention_##name##_4, Attention, 128) { attention_of_heads<TYPE, 4, 1, 4>(p); }                            \
    KERNEL(attention_##name##_8, Attention, 128) { attention_of_heads<TYPE, 8, 1, 2>(p); }                            \
    KERNEL(attention_##name##_wide, Attention, 128) { attention_of_heads<TYPE, 2, 3, 1>(p); }

ATTENTION(f16, F16)
ATTENTION(bf16, BF16)
ATTENTION(f32, F32)
ATTENTION(q8_0, Q8_0)
KERNEL(attention_any, Attention, 128) { attention_of_heads<ANY, 1, 1, 1>(p); }

// A block per head, token and 32 numbers puts the parts together; warps take parts in turn, and have TURNS of them on their
// way while the maxima are compared.
KERNEL(attention_parts, Attention, MAX_PARTS) {
    SHARED(float, weights, MAX_PARTS);
    SHARED(float, sums, MAX_PARTS);
    const int TURNS = 16;
    int warp = warp_of(THREAD), n_parts = (int)p.n_parts;
    i64 head = BLOCK_X, token = token_without_tile(p, BLOCK_Y), i = BLOCK_Z * 32 + lane_of(THREAD);
    if (token < 0) return;
    bool is_there = i < p.dim_v;
    u64 first = part_at(p, head, 0);
    float x[TURNS], most = -INF_F, total = 0.0f, sum = 0.0f;
    if (THREAD < n_parts) {
        global<const float> state = at<const float>(state_at(p, head, THREAD));
        most = state[0];
        total = state[1];
    }
    auto load = [&](int n0) {
        UNROLL for (int t = 0; t < TURNS; t++) {
            int n = n0 + t * WARPS;
            x[t] = at<const float>(first)[(n < n_parts ? n : 0) * p.dim_v + (is_there ? i : 0)];
        }
    };
    load(warp);
    float sink = p.sinks.address ? at<const float>(p.sinks.address + head * p.sinks.nb[0])[0] : -INF_F;
    float base = fmaxf(block_max(most), sink), weight = most == -INF_F ? 0.0f : scaled_by(most, base);
    weights[THREAD] = weight;
    total = block_sum(total * weight) + scaled_by(sink, base);
    auto add = [&](int n0) {
        UNROLL for (int t = 0; t < TURNS; t++) {
            // Of a part that saw nothing, as of one that is not, there is nothing.
            float own = weights[n0 + t * WARPS];
            sum += own != 0.0f ? own * x[t] : 0.0f;
        }
    };
    add(warp);
    if (n_parts > TURNS * WARPS) {
        load(warp + TURNS * WARPS);
        add(warp + TURNS * WARPS);
    }
    sums[THREAD] = sum;
    sync_block();
    if (warp > 0 || !is_there) return;
    sum = sums[THREAD] + sums[THREAD + 32] + sums[THREAD + 64] + sums[THREAD + 96];
    at<float>(address_of(p.y, head * p.dim_v + i, token, 0, 0))[0] = total != 0.0f ? sum / total : 0.0f;
}

struct Mask {
    Paging paging;
    Tensor y;
};

// A block per token: -inf, then 0 where it sees a slot.
KERNEL(paged_mask, Mask, 256) {
    i64 token = BLOCK_X;
    View view = view_of(p.paging, token, p.y.ne[1]);
    for (i64 i = THREAD; i < p.y.ne[0]; i += THREADS) at<float>(address_of(p.y, i, token, 0, 0))[0] = -INF_F;
    sync_block();
    for (i64 key = view.first + THREAD; view.sequence >= 0 && key < view.end; key += THREADS) {
        i64 slot = slot_of(p.paging, view.sequence, key);
        if (slot >= 0) at<float>(address_of(p.y, slot, token, 0, 0))[0] = 0.0f;
    }
}
