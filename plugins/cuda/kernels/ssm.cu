// State space models: the short convolution, a thread per number; the scan, a warp per row of a state.
#include "state.cuh"

struct ShortConv {
    Tensor x, kernel, y;
};

KERNEL(ssm_conv, ShortConv, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne);
    i64 channel = i.i[0], token = i.i[1];
    float sum = 0.0f;
    for (i64 k = 0; k < p.kernel.ne[0]; k++) {
        float tap = at<const float>(address_of(p.kernel, k, channel, 0, 0))[0];
        sum += tap * at<const float>(address_of(p.x, token + k, channel, i.i[2], 0))[0];
    }
    at<float>(address_of(p.y, i))[0] = sum;
}

// y: outputs in the order of x, then n_states times the states of all sequences, those after the last token first.
struct Scan {
    Tensor states, x, dt, a, b, c, ids, y;
    i64 n_states;
};

DEVICE float softplus(float v) { return v > 20.0f ? v : log1pf(expf(v)); }

// Where in y the row of a state begins, `back` tokens before the last.
DEVICE i64 kept(const Scan &p, i64 back, i64 seq, i64 row) {
    i64 per_token = p.x.ne[0] * p.x.ne[1];
    return per_token * p.x.ne[2] * p.x.ne[3] + ((back * p.x.ne[3] + seq) * per_token + row) * p.states.ne[0];
}

KERNEL(ssm_scan, Scan, 128) {
    i64 d_state = p.states.ne[0], head_dim = p.x.ne[0], n_heads = p.x.ne[1], n_tokens = p.x.ne[2], n_seqs = p.x.ne[3];
    i64 row = BLOCK_X * (THREADS / 32) + warp_of(THREAD);
    if (row >= head_dim * n_heads * n_seqs) return;
    i64 i = row % head_dim, head = row / head_dim % n_heads, seq = row / head_dim / n_heads;
    i64 group = head / (n_heads / p.b.ne[1]), slot = at<const i32>(p.ids.address + seq * p.ids.nb[0])[0];
    i64 per_token = head_dim * n_heads, place = head * head_dim + i, lane = lane_of(THREAD);
    float s[PER_LANE];
    for (int j = 0; j < PER_LANE; j++) {
        bool given = lane + 32 * j < d_state && slot >= 0 && slot < p.states.ne[3];
        s[j] = given ? at<const float>(address_of(p.states, lane + 32 * j, i, head, slot))[0] : 0.0f;
    }
    for (i64 token = 0; token < n_tokens; token++) {
        float delta = softplus(at<const float>(address_of(p.dt, head, token, seq, 0))[0]);
        float x = at<const float>(address_of(p.x, i, head, token, seq))[0] * delta, sum = 0.0f;
        for (int j = 0; j < PER_LANE; j++) {
            i64 e = lane + 32 * j;
            if (e >= d_state) continue;
            float a = at<const float>(address_of(p.a, p.a.ne[0] == 1 ? 0 : e, head, 0, 0))[0];
            s[j] = s[j] * expf(delta * a) + at<const float>(address_of(p.b, e, group, token, seq))[0] * x;
            sum += s[j] * at<const float>(address_of(p.c, e, group, token, seq))[0];
        }
        sum = warp_sum(sum);
        if (lane == 0) at<float>(in_order(p.y, (seq * n_tokens + token) * per_token + place))[0] = sum;
        i64 back = n_tokens - 1 - token;
        if (back < p.n_states) store_line(p.y, kept(p, back, seq, place), 1, d_state, s);
    }
    // Of no tokens the state that was given is the last one; before the first token there were zeros.
    for (i64 back = n_tokens; back < p.n_states; back++) {
        for (int j = 0; j < PER_LANE && back > 0; j++) s[j] = 0.0f;
        store_line(p.y, kept(p, back, seq, place), 1, d_state, s);
    }
}
