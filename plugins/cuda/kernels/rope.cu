// Rotary position embedding: a thread per pair, and one per number that stays as it is.
#include "number.cuh"

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
    // The vision mode counts anew where a section begins.
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

KERNEL(rope, Rope, 128) {
    i64 half = p.mode == VISION ? p.n_dims : p.n_dims / 2, rest = p.x.ne[0] - 2 * half, per_row = half + rest;
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= per_row * p.x.ne[1] * p.x.ne[2] * p.x.ne[3]) return;
    Index row = index_of(n / per_row, p.x.ne + 1);
    i64 i = n % per_row, h = row.i[0], t = row.i[1], b = row.i[2];
    if (i >= half) {
        i64 e = i - half;
        if (e >= p.offset) e += 2 * half;
        store_number(address_of(p.y, e, h, t, b), p.y.type, load_number(address_of(p.x, e, h, t, b), p.x.type));
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
    store_number(address_of(p.y, first, h, t, b), p.y.type, a * cosine - c * sine);
    store_number(address_of(p.y, second, h, t, b), p.y.type, a * sine + c * cosine);
}
