// Causal attention over a paged cache. A block per head, token and part of the keys: its four warps take keys in turn,
// keep a running maximum and sum, and are put together at the end. Parts are put together by another kernel.
#include "paged.cuh"

// Number i of a row of the cache.
DEVICE float cached(const Tensor &t, u64 row, i64 i) {
    if (t.type != Q8_0) return load_number(row + i * t.nb[0], t.type);
    u64 block = row + i / 32 * 34;
    return half_to_float(at<const u16>(block)[0]) * at<const i8>(block + 2)[i % 32];
}

// Number n of the tokens that are for no tile; -1: there are fewer.
DEVICE i64 token_without_tile(const Attention &p, i64 n) {
    if (p.many == 0) return n;
    i64 start = 0;
    for (i64 i = 0; i <= p.paging.table.ne[1]; i++) {
        Run run = run_of(p.paging, i, start, p.q.ne[2]);
        start += run.n;
        if (run.sequence < 0 || run.n >= p.many) continue;
        if (n < run.n) return run.first + n;
        n -= run.n;
    }
    return -1;
}

// Numbers of a head that a lane has; 32 times that is the largest head.
#define PER_LANE 8
#define WARPS 4

KERNEL(attention, Attention, 128) {
    SHARED(float, results, WARPS * 32 * PER_LANE);
    SHARED(float, maxima, WARPS);
    SHARED(float, totals, WARPS);
    i64 head = BLOCK_X, token = token_without_tile(p, BLOCK_Y), part = BLOCK_Z, n_heads = p.q.ne[1], dim = p.q.ne[0];
    if (token < 0) return;
    i64 kv_head = head / (n_heads / p.n_kv_heads);
    int lane = lane_of(THREAD), warp = warp_of(THREAD);
    View view = view_of(p.paging, token, p.q.ne[2]);
    float slope = p.max_bias > 0.0f ? alibi_slope(head, n_heads, p.max_bias) : 0.0f;
    float q[PER_LANE], sums[PER_LANE], most = -INF_F, total = 0.0f;
    for (int j = 0; j < PER_LANE; j++) {
        i64 i = lane + 32 * j;
        q[j] = i < dim ? at<const float>(address_of(p.q, i, head, token, 0))[0] : 0.0f;
        sums[j] = 0.0f;
    }
    // Parts are equal, of all that is seen.
    i64 seen = view.sequence < 0 || view.end < view.first ? 0 : view.end - view.first, per_part = (seen + p.n_parts - 1) / p.n_parts;
    i64 first = view.first + part * per_part, end = first + per_part < view.end ? first + per_part : view.end;
    for (i64 key = first + warp; seen > 0 && key < end; key += WARPS) {
        i64 slot = slot_of(p.paging, view.sequence, key);
        if (slot < 0) continue;
        u64 k = address_of(p.k, 0, slot, 0, 0), v = address_of(p.v, 0, slot, 0, 0);
        float score = 0.0f;
        for (int j = 0; j < PER_LANE; j++)
            if (lane + 32 * j < dim) score += q[j] * cached(p.k, k, kv_head * dim + lane + 32 * j);
        score = warp_sum(score) * p.scale;
        if (p.softcap != 0.0f) score = p.softcap * tanhf(score / p.softcap);
        score -= slope * (view.position - key);
        // NaN is no maximum, but makes the sums NaN.
        float new_most = fmaxf(most, score == score ? score : 0.0f);
        if (new_most == -INF_F) continue;
        float keep = expf(most - new_most), weight = expf(score - new_most);
        most = new_most;
        total = total * keep + weight;
        for (int j = 0; j < PER_LANE; j++)
            if (lane + 32 * j < p.dim_v) sums[j] = sums[j] * keep + weight * cached(p.v, v, kv_head * p.dim_v + lane + 32 * j);
    }
    for (int j = 0; j < PER_LANE; j++) results[(warp * PER_LANE + j) * 32 + lane] = sums[j];
    if (lane == 0) {
        maxima[warp] = most;
        totals[warp] = total;
    }
    sync_block();
    float sink = p.sinks.address ? at<const float>(p.sinks.address + head * p.sinks.nb[0])[0] : -INF_F;
    float all_most = p.parts || view.sequence < 0 ? -INF_F : sink, all_total = 0.0f, factors[WARPS];
    for (int w = 0; w < WARPS; w++) all_most = fmaxf(all_most, maxima[w]);
    for (int w = 0; w < WARPS; w++) {
        factors[w] = maxima[w] == -INF_F ? 0.0f : expf(maxima[w] - all_most);
        all_total += totals[w] * factors[w];
    }
    u64 to = p.parts + (((BLOCK_Y * n_heads + head) * p.n_parts + part) * (p.dim_v + 2)) * 4;
    if (p.parts == 0 && all_most != -INF_F && sink != -INF_F) all_total += expf(sink - all_most);
    for (i64 i = THREAD; i < p.dim_v; i += THREADS) {
        float sum = 0.0f;
        for (int w = 0; w < WARPS; w++) sum += factors[w] * results[w * 32 * PER_LANE + i];
        if (p.parts) at<float>(to)[i] = sum;
        else at<float>(address_of(p.y, head * p.dim_v + i, token, 0, 0))[0] = all_total != 0.0f ? sum / all_total : 0.0f;
    }
    if (p.parts && THREAD == 0) {
        at<float>(to)[p.dim_v] = all_most;
        at<float>(to)[p.dim_v + 1] = all_total;
    }
}

// A block per head and token puts the parts together.
KERNEL(attention_parts, Attention, 128) {
    i64 head = BLOCK_X, token = token_without_tile(p, BLOCK_Y);
    if (token < 0) return;
    global<const float> from = at<const float>(p.parts + (BLOCK_Y * p.q.ne[1] + head) * p.n_parts * (p.dim_v + 2) * 4);
    float most = p.sinks.address ? at<const float>(p.sinks.address + head * p.sinks.nb[0])[0] : -INF_F;
    float sink = most, total = 0.0f;
    for (i64 n = 0; n < p.n_parts; n++) most = fmaxf(most, from[n * (p.dim_v + 2) + p.dim_v]);
    if (sink != -INF_F) total = expf(sink - most);
    for (i64 n = 0; n < p.n_parts && most != -INF_F; n++) {
        global<const float> part = from + n * (p.dim_v + 2);
        total += part[p.dim_v + 1] * expf(part[p.dim_v] - most);
    }
    for (i64 i = THREAD; i < p.dim_v; i += THREADS) {
        float sum = 0.0f;
        for (i64 n = 0; n < p.n_parts && most != -INF_F; n++) {
            global<const float> part = from + n * (p.dim_v + 2);
            sum += part[i] * expf(part[p.dim_v] - most);
        }
        at<float>(address_of(p.y, head * p.dim_v + i, token, 0, 0))[0] = total != 0.0f ? sum / total : 0.0f;
    }
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
