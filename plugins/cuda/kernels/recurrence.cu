// Linear attention with a state of S × S numbers per head that is passed from token to token: a warp per row or column
// of a state, which depend on no other.
#include "state.cuh"

// Which line of a state a warp has.
struct Turn {
    i64 line, head, sequence;
};
DEVICE Turn turn_of(i64 s, i64 n_heads) {
    i64 n = BLOCK_X * (THREADS / 32) + warp_of(THREAD);
    return {n % s, n / s % n_heads, n / s / n_heads};
}

// Number i of a head of a token.
DEVICE float number(const Tensor &t, i64 i, i64 head, i64 token) {
    return at<const float>(address_of(t, i, head, token, 0))[0];
}

// Sources [S, n_heads, n_tokens], the tokens of all sequences one after the other; state [S·S·n_heads, n_seqs].
// y: the outputs, then the states.
struct Linear {
    Tensor k, v, q, g, state, y;
    float scale;
};

// Column j: S_ij = g_i S_ij + k_i v_j, then y_j = scale · Σ q_i S_ij.
KERNEL(gated_linear_attn, Linear, 256) {
    i64 size = p.k.ne[0], n_heads = p.k.ne[1], n_tokens = p.k.ne[2], per_seq = n_tokens / p.state.ne[1];
    Turn turn = turn_of(size, n_heads);
    if (turn.sequence >= p.state.ne[1]) return;
    i64 first = turn.head * size * size + turn.line, lane = lane_of(THREAD);
    float s[PER_LANE];
    load_line(p.state, {turn.sequence, first, size, size}, s);
    for (i64 t = turn.sequence * per_seq; t < (turn.sequence + 1) * per_seq; t++) {
        float v = number(p.v, turn.line, turn.head, t), sum = 0.0f;
        for (int j = 0; j < PER_LANE; j++) {
            i64 i = lane + 32 * j;
            if (i >= size) continue;
            s[j] = s[j] * number(p.g, i, turn.head, t) + number(p.k, i, turn.head, t) * v;
            sum += s[j] * number(p.q, i, turn.head, t);
        }
        sum = warp_sum(sum);
        if (lane == 0) at<float>(address_of(p.y, turn.head * size + turn.line, t, 0, 0))[0] = sum * p.scale;
    }
    store_line(p.y, n_tokens * size * n_heads + turn.sequence * size * size * n_heads + first, size, size, s);
}

struct Wkv6 {
    Tensor k, v, r, first, decay, state, y;
};

// Column j: y_j = Σ r_i (S_ij + first_i k_i v_j), then S_ij = decay_i S_ij + k_i v_j.
KERNEL(rwkv_wkv6, Wkv6, 256) {
    i64 size = p.k.ne[0], n_heads = p.k.ne[1], n_tokens = p.k.ne[2], per_seq = n_tokens / p.state.ne[1];
    Turn turn = turn_of(size, n_heads);
    if (turn.sequence >= p.state.ne[1]) return;
    i64 first = turn.head * size * size + turn.line, lane = lane_of(THREAD);
    float s[PER_LANE];
    load_line(p.state, {turn.sequence, first, size, size}, s);
    for (i64 t = turn.sequence * per_seq; t < (turn.sequence + 1) * per_seq; t++) {
        float v = number(p.v, turn.line, turn.head, t), sum = 0.0f;
        for (int j = 0; j < PER_LANE; j++) {
            i64 i = lane + 32 * j;
            if (i >= size) continue;
            float kv = number(p.k, i, turn.head, t) * v;
            sum += number(p.r, i, turn.head, t) * (s[j] + number(p.first, i, turn.head, 0) * kv);
            s[j] = s[j] * number(p.decay, i, turn.head, t) + kv;
        }
        sum = warp_sum(sum);
        if (lane == 0) at<float>(address_of(p.y, turn.head * size + turn.line, t, 0, 0))[0] = sum;
    }
    store_line(p.y, n_tokens * size * n_heads + turn.sequence * size * size * n_heads + first, size, size, s);
}

struct Wkv7 {
    Tensor r, w, k, v, a, b, state, y;
};

// Row i: S_ij = w_j S_ij + v_i k_j + (Σ S_il a_l) b_j, then y_i = Σ S_ij r_j.
KERNEL(rwkv_wkv7, Wkv7, 256) {
    i64 size = p.k.ne[0], n_heads = p.k.ne[1], n_tokens = p.k.ne[2], per_seq = n_tokens / p.state.ne[1];
    Turn turn = turn_of(size, n_heads);
    if (turn.sequence >= p.state.ne[1]) return;
    i64 first = (turn.head * size + turn.line) * size, lane = lane_of(THREAD);
    float s[PER_LANE];
    load_line(p.state, {turn.sequence, first, 1, size}, s);
    for (i64 t = turn.sequence * per_seq; t < (turn.sequence + 1) * per_seq; t++) {
        float v = number(p.v, turn.line, turn.head, t), removed = 0.0f, sum = 0.0f;
        for (int j = 0; j < PER_LANE; j++)
            if (lane + 32 * j < size) removed += s[j] * number(p.a, lane + 32 * j, turn.head, t);
        removed = warp_sum(removed);
        for (int n = 0; n < PER_LANE; n++) {
            i64 j = lane + 32 * n;
            if (j >= size) continue;
            float kv = v * number(p.k, j, turn.head, t);
            s[n] = s[n] * number(p.w, j, turn.head, t) + kv + removed * number(p.b, j, turn.head, t);
            sum += s[n] * number(p.r, j, turn.head, t);
        }
        sum = warp_sum(sum);
        if (lane == 0) at<float>(address_of(p.y, turn.head * size + turn.line, t, 0, 0))[0] = sum;
    }
    store_line(p.y, n_tokens * size * n_heads + turn.sequence * size * size * n_heads + first, 1, size, s);
}

// y: the outputs, then n_states times the states of all sequences, those after the last token first.
struct Delta {
    Tensor q, k, v, g, beta, state, y;
    i64 n_states;
};

// Column j, which is stored as row j: S_i = exp(g_i) S_i, then S += k · (v_j - S·k) β, then y_j = S·q / √size.
KERNEL(gated_delta_net, Delta, 256) {
    i64 size = p.v.ne[0], n_heads = p.v.ne[1], n_tokens = p.v.ne[2], n_seqs = p.v.ne[3], lane = lane_of(THREAD);
    Turn turn = turn_of(size, n_heads);
    i64 column = turn.line, head = turn.head, seq = turn.sequence, per_state = size * size * n_heads;
    if (seq >= n_seqs) return;
    i64 kept = size * n_heads * n_tokens * n_seqs + seq * per_state + (head * size + column) * size;
    i64 q_seq = seq / (n_seqs / p.q.ne[3]), k_seq = seq / (n_seqs / p.k.ne[3]);
    float s[PER_LANE];
    for (int j = 0; j < PER_LANE; j++) {
        i64 i = lane + 32 * j;
        s[j] = i < size ? at<const float>(address_of(p.state, i, column, head, seq))[0] : 0.0f;
    }
    for (i64 t = 0; t < n_tokens; t++) {
        u64 q = address_of(p.q, 0, head % p.q.ne[1], t, q_seq), k = address_of(p.k, 0, head % p.k.ne[1], t, k_seq);
        float sum = 0.0f, k_of[PER_LANE];
        for (int j = 0; j < PER_LANE; j++) {
            i64 i = lane + 32 * j;
            k_of[j] = 0.0f;
            if (i >= size) continue;
            k_of[j] = at<const float>(k + i * p.k.nb[0])[0];
            s[j] *= expf(at<const float>(address_of(p.g, p.g.ne[0] == 1 ? 0 : i, head, t, seq))[0]);
            sum += s[j] * k_of[j];
        }
        float beta = at<const float>(address_of(p.beta, 0, head, t, seq))[0];
        float delta = (at<const float>(address_of(p.v, column, head, t, seq))[0] - warp_sum(sum)) * beta;
        sum = 0.0f;
        for (int j = 0; j < PER_LANE; j++) {
            i64 i = lane + 32 * j;
            s[j] += delta * k_of[j];
            if (i < size) sum += s[j] * at<const float>(q + i * p.q.nb[0])[0];
        }
        sum = warp_sum(sum) / sqrtf((float)size);
        if (lane == 0) at<float>(address_of(p.y, head * size + column, seq * n_tokens + t, 0, 0))[0] = sum;
        i64 back = n_tokens - 1 - t;
        if (back < p.n_states) store_line(p.y, kept + back * n_seqs * per_state, 1, size, s);
    }
    // Of no tokens the state that was given is the last one; before the first token there were zeros.
    for (i64 back = n_tokens; back < p.n_states; back++) {
        for (int j = 0; j < PER_LANE && back > 0; j++) s[j] = 0.0f;
        store_line(p.y, kept + back * n_seqs * per_state, 1, size, s);
    }
}
