// Softmax of rows, a block per row; the router's weights of chosen experts, a warp per token.
#include "alibi.cuh"
#include "block.cuh"
#include "number.cuh"

struct SoftMax {
    Tensor x, mask, sinks, y;
    float scale, max_bias;
};

KERNEL(soft_max, SoftMax, 256) {
    Index row = index_of(BLOCK_X, p.x.ne + 1);
    i64 i1 = row.i[0], head = row.i[1], i3 = row.i[2], n = p.x.ne[0];
    u64 x = address_of(p.x, 0, i1, head, i3), y = address_of(p.y, 0, i1, head, i3), mask = 0;
    float slope = p.max_bias > 0.0f ? alibi_slope(head, p.x.ne[2], p.max_bias) : 1.0f;
    if (p.mask.address) mask = address_of(p.mask, 0, i1, head % p.mask.ne[2], i3 % p.mask.ne[3]);
    float sink = p.sinks.address ? at<const float>(p.sinks.address + head * p.sinks.nb[0])[0] : -INF_F, most = sink;
    for (i64 i = THREAD; i < n; i += THREADS) {
        float v = at<const float>(x + i * p.x.nb[0])[0] * p.scale;
        if (mask) v += slope * load_number(mask + i * p.mask.nb[0], p.mask.type);
        at<float>(y + i * p.y.nb[0])[0] = v;
        most = fmaxf(most, v);
    }
    most = block_max(most);
    float sum = 0.0f;
    for (i64 i = THREAD; i < n; i += THREADS) {
        float v = most == -INF_F ? 0.0f : expf(at<const float>(y + i * p.y.nb[0])[0] - most);
        at<float>(y + i * p.y.nb[0])[0] = v;
        sum += v;
    }
    sum = block_sum(sum) + (sink == -INF_F ? 0.0f : expf(sink - most));
    float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    for (i64 i = THREAD; i < n; i += THREADS)
        at<float>(y + i * p.y.nb[0])[0] = at<const float>(y + i * p.y.nb[0])[0] * inverse;
}

struct Router {
    Tensor logits, ids, y;
    u32 gating, normalise;
    float factor;
};
enum : u32 { SOFT_MAX_THEN_PICK, SIGMOID_THEN_PICK, PICK_THEN_SOFT_MAX };

// The logit of chosen expert j; an id outside has none.
DEVICE float logit_of(const Router &p, i64 token, i64 j, float outside) {
    i64 id = at<const i32>(address_of(p.ids, j, token, 0, 0))[0];
    if (id < 0 || id >= p.logits.ne[0]) return outside;
    return at<const float>(address_of(p.logits, id, token, 0, 0))[0];
}

KERNEL(moe_weights, Router, 128) {
    i64 token = BLOCK_X * (THREADS / 32) + warp_of(THREAD), n_used = p.ids.ne[0];
    if (token >= p.ids.ne[1]) return;
    bool picks_first = p.gating == PICK_THEN_SOFT_MAX, sigmoid = p.gating == SIGMOID_THEN_PICK;
    i64 n = picks_first ? n_used : p.logits.ne[0];
    float most = -INF_F, sum = 0.0f;
    for (i64 i = lane_of(THREAD); i < n && !sigmoid; i += 32) {
        float v = picks_first ? logit_of(p, token, i, 0.0f) : at<const float>(address_of(p.logits, i, token, 0, 0))[0];
        most = fmaxf(most, v);
    }
    most = warp_max(most);
    for (i64 i = lane_of(THREAD); i < n && !sigmoid; i += 32) {
        float v = picks_first ? logit_of(p, token, i, 0.0f) : at<const float>(address_of(p.logits, i, token, 0, 0))[0];
        sum += expf(v - most);
    }
    sum = warp_sum(sum);
    float total = 0.0f;
    for (int pass = 0; pass < 2; pass++) {
        float divisor = pass == 1 && p.normalise ? fmaxf(warp_sum(total), 6.1035156e-5f) : 1.0f;
        for (i64 j = lane_of(THREAD); j < n_used; j += 32) {
            float v = logit_of(p, token, j, picks_first ? 0.0f : -INF_F);
            float w = sigmoid ? 1.0f / (1.0f + expf(-v)) : most == -INF_F ? 0.0f : expf(v - most) / sum;
            if (pass == 0) total += w;
            else at<float>(address_of(p.y, 0, j, token, 0))[0] = w / divisor * p.factor;
        }
    }
}
