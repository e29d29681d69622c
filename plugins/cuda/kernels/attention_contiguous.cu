// Attention over contiguous keys: a block per query and head. Of 64 keys at a time warps make the scores,
// then each thread sums its numbers of v; a running maximum keeps the weights finite.
#include "alibi.cuh"
#include "block.cuh"
#include "number.cuh"

struct Attend {
    Tensor q, k, v, mask, sinks, y;
    float scale, softcap, max_bias;
};

// Keys at a time; numbers of v that a thread sums; the largest head.
#define KEYS 64
#define PER_THREAD 8
#define LARGEST (128 * PER_THREAD)

KERNEL(attention_contiguous, Attend, 128) {
    SHARED(float, q, LARGEST);
    SHARED(float, scores, KEYS);
    SHARED(float, weights, KEYS);
    i64 query = BLOCK_X, head = BLOCK_Y, batch = BLOCK_Z, n_heads = p.q.ne[2], n_keys = p.k.ne[1];
    i64 k_head = head / (n_heads / p.k.ne[2]), k_batch = batch / (p.q.ne[3] / p.k.ne[3]);
    i64 v_head = head / (n_heads / p.v.ne[2]), v_batch = batch / (p.q.ne[3] / p.v.ne[3]);
    u64 mask = 0;
    if (p.mask.address) mask = address_of(p.mask, 0, query, head % p.mask.ne[2], batch % p.mask.ne[3]);
    float slope = p.max_bias > 0.0f ? alibi_slope(head, n_heads, p.max_bias) : 1.0f;
    float most = p.sinks.address ? at<const float>(p.sinks.address + head * p.sinks.nb[0])[0] : -INF_F;
    float total = most == -INF_F ? 0.0f : 1.0f, sums[PER_THREAD];
    for (int j = 0; j < PER_THREAD; j++) sums[j] = 0.0f;
    for (i64 i = THREAD; i < p.q.ne[0]; i += THREADS) q[i] = at<const float>(address_of(p.q, i, query, head, batch))[0];
    for (i64 first = 0; first < n_keys; first += KEYS) {
        int n = n_keys - first < KEYS ? (int)(n_keys - first) : KEYS, lane = lane_of(THREAD);
        sync_block();
        for (int i = warp_of(THREAD); i < n; i += THREADS / 32) {
            u64 k = address_of(p.k, 0, first + i, k_head, k_batch);
            float score = 0.0f;
            for (i64 d = lane; d < p.q.ne[0]; d += 32) score += q[d] * load_number(k + d * p.k.nb[0], p.k.type);
            score = warp_sum(score) * p.scale;
            if (p.softcap != 0.0f) score = p.softcap * tanhf(score / p.softcap);
            // What the mask hides counts for nothing, whatever it is.
            float bias = mask ? slope * load_number(mask + (first + i) * p.mask.nb[0], p.mask.type) : 0.0f;
            if (lane == 0) scores[i] = bias == -INF_F ? -INF_F : score + bias;
        }
        sync_block();
        float old = most;
        for (int i = 0; i < n; i++) most = fmaxf(most, scores[i]);
        if (THREAD < n) weights[THREAD] = scores[THREAD] == -INF_F ? 0.0f : expf(scores[THREAD] - most);
        sync_block();
        float keep = old == -INF_F ? 1.0f : expf(old - most);
        total *= keep;
        for (int j = 0; j < PER_THREAD; j++) sums[j] *= keep;
        for (int i = 0; i < n; i++) {
            float weight = weights[i];
            u64 v = address_of(p.v, 0, first + i, v_head, v_batch);
            total += weight;
            if (weight == 0.0f) continue;
            for (int j = 0; j < PER_THREAD; j++) {
                i64 d = THREAD + 128 * j;
                if (d < p.v.ne[0]) sums[j] += weight * load_number(v + d * p.v.nb[0], p.v.type);
            }
        }
    }
    for (int j = 0; j < PER_THREAD; j++) {
        i64 d = THREAD + 128 * j;
        if (d >= p.v.ne[0]) continue;
        at<float>(address_of(p.y, d, head, query, batch))[0] = most == -INF_F ? 0.0f : sums[j] / total;
    }
}
