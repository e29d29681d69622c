// Rotary position embedding: a thread per pair, and one per number that stays as it is; together with the rows of caches
// that heads become.
#include "write.cuh"

struct Rope {
    Tensor x, positions, factors, y;
    u32 n_dims, mode;
    float freq_base, freq_scale, ext_factor, attn_factor, low, high;
    u32 sections[4];
    u32 back, offset;
};
enum : u32 { NORMAL = 0, MROPE = 8, VISION = 24, INTERLEAVED = 40 };

DEVICE float position(const Rope &p, i64 n) { return (float)at<const i32>(p.positions.address + n * p.positions.nb[0])[0]; }

// position · base^(-2i / n_dims), multiplied up; with sections each pair has its own position.
DEVICE float theta_of(const Rope &p, i64 token, int pair) {
    float step = powf(p.freq_base, -2.0f / p.n_dims);
    if (p.mode != MROPE && p.mode != VISION && p.mode != INTERLEAVED) {
        float theta = position(p, token);
        for (int i = 0; i < pair; i++) theta *= step;
        return theta;
    }
    u32 starts[4] = {0, p.sections[0], p.sections[0] + p.sections[1], p.sections[0] + p.sections[1] + p.sections[2]};
    u32 place = (u32)pair % (starts[3] + p.sections[3]), section = 3;
    if (p.mode == INTERLEAVED) {
        if (place < 3 * p.sections[place % 3]) section = place % 3;
    } else {
        while (section > 0 && place < starts[section]) section--;
    }
    // The vision mode counts from 0 where a section begins.
    int n = pair;
    if (p.mode == VISION) {
        u32 begins = (u32)pair;
        for (u32 s = 0; s < 4; s++) {
            u32 back = (place + starts[3] + p.sections[3] - starts[s]) % (starts[3] + p.sections[3]);
            bool first = true;
            for (u32 t = 0; t < s; t++) first = first && starts[t] != starts[s];
            if (s == section && first && back <= (u32)pair) begins = (u32)pair - back;
            else if (s == section) begins = 0;
        }
        n = pair - (int)begins;
    }
    float theta = position(p, section * p.x.ne[2] + token);
    for (int i = 0; i < n; i++) theta *= step;
    return theta;
}

DEVICE i64 n_pairs(const Rope &p) { return p.mode == VISION ? p.n_dims : p.n_dims / 2; }
DEVICE i64 n_threads(const Rope &p) { return (p.x.ne[0] - n_pairs(p)) * p.x.ne[1] * p.x.ne[2] * p.x.ne[3]; }

// Number e of a head becomes v; also in the cache, if there is one: heads side by side in the token's row.
DEVICE void put(const Rope &p, const Write &to, i64 row, i64 e, i64 h, i64 t, i64 b, float v) {
    store_number(address_of(p.y, e, h, t, b), p.y.type, v);
    if (row >= 0) store_number(address_of(to.cache, h * p.x.ne[0] + e, row, 0, 0), to.cache.type, v);
}

// Pair n, or a number after the pairs.
DEVICE void turn(const Rope &p, const Write &to, i64 n) {
    i64 half = n_pairs(p), per_row = p.x.ne[0] - half;
    if (n >= n_threads(p)) return;
    Index at_row = index_of(n / per_row, p.x.ne + 1);
    i64 i = n % per_row, h = at_row.i[0], t = at_row.i[1], b = at_row.i[2];
    i64 row = to.cache.address ? target_of(to, t, 0, 0) : -1;
    if (i >= half) {
        i64 e = i - half;
        if (e >= p.offset) e += 2 * half;
        put(p, to, row, e, h, t, b, load_number(address_of(p.x, e, h, t, b), p.x.type));
        return;
    }
    float extrapolated = theta_of(p, t, (int)i);
    if (p.factors.address) extrapolated /= at<const float>(p.factors.address + i * p.factors.nb[0])[0];
    float interpolated = p.freq_scale * extrapolated, angle = interpolated, magnitude = p.attn_factor;
    if (p.ext_factor != 0.0f) {
        float along = (i - p.low) / fmaxf(p.high - p.low, 0.001f);
        float mix = (1.0f - fminf(fmaxf(along, 0.0f), 1.0f)) * p.ext_factor;
        angle = interpolated * (1.0f - mix) + extrapolated * mix;
        magnitude *= 1.0f + 0.1f * logf(1.0f / p.freq_scale);
    }
    float sine = sinf(angle) * magnitude * (p.back ? -1.0f : 1.0f), cosine = cosf(angle) * magnitude;
    i64 first = p.offset + (p.mode == NORMAL ? 2 * i : i), second = p.mode == NORMAL ? first + 1 : first + half;
    float a = load_number(address_of(p.x, first, h, t, b), p.x.type);
    float c = load_number(address_of(p.x, second, h, t, b), p.x.type);
    put(p, to, row, first, h, t, b, a * cosine - c * sine);
    put(p, to, row, second, h, t, b, a * sine + c * cosine);
}

KERNEL(rope, Rope, 128) {
    Write none = {};
    turn(p, none, BLOCK_X * THREADS + THREAD);
}

// One or two tensors turned, with the caches that they are written to, and rows that are written as they are: the blocks
// of each follow each other. Address 0: there is none.
struct RopeWrite {
    Rope first, second;
    Write first_to, second_to, plain;
    i64 n_first, n_second;
};

KERNEL(rope_write, RopeWrite, 128) {
    if (BLOCK_X < p.n_first) {
        turn(p.first, p.first_to, BLOCK_X * THREADS + THREAD);
        return;
    }
    i64 n = (BLOCK_X - p.n_first) * THREADS + THREAD;
    if (BLOCK_X < p.n_first + p.n_second) {
        turn(p.second, p.second_to, n);
        return;
    }
    n -= p.n_second * THREADS;
    if (n >= n_elements(p.plain.rows)) return;
    Index i = index_of(n, p.plain.rows.ne);
    i64 row = target_of(p.plain, i.i[2], 0, 0);
    if (row < 0) return;
    u64 to = address_of(p.plain.cache, i.i[1] * p.plain.rows.ne[0] + i.i[0], row, 0, 0);
    store_number(to, p.plain.cache.type, load(p.plain.rows, i));
}
