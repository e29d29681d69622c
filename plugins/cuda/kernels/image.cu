// Images made smaller or larger: windows of them, and samples between their elements. A thread per number.
#include "number.cuh"

// Windows in dims 0 and 1. The mean is of all of a window, padding as zeros, or of what is there.
struct Pool {
    Tensor x, y;
    i64 size[2], stride[2], pad[2];
    u32 is_mean, counts_padding;
};

KERNEL(pool, Pool, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne);
    // The lowest number there is.
    float most = bits_to_float(0xff7fffffu), sum = 0.0f;
    i64 n_seen = 0;
    for (i64 t1 = 0; t1 < p.size[1]; t1++)
        for (i64 t0 = 0; t0 < p.size[0]; t0++) {
            Index j = i;
            j.i[0] = i.i[0] * p.stride[0] + t0 - p.pad[0];
            j.i[1] = i.i[1] * p.stride[1] + t1 - p.pad[1];
            if (j.i[0] < 0 || j.i[0] >= p.x.ne[0] || j.i[1] < 0 || j.i[1] >= p.x.ne[1]) continue;
            float v = load(p.x, j);
            most = fmaxf(most, v);
            sum += v;
            n_seen++;
        }
    i64 divisor = p.counts_padding ? p.size[0] * p.size[1] : n_seen > 0 ? n_seen : 1;
    at<float>(address_of(p.y, i))[0] = p.is_mean ? sum / divisor : most;
}

// scale: elements of y for one of x; offset: where the middle of an element is, 0 with aligned corners.
struct Upscale {
    Tensor x, y;
    u32 mode;
    float scale[4], offset;
};
enum : u32 { NEAREST, BILINEAR, BICUBIC };

DEVICE i64 within(i64 i, i64 n) { return i < 0 ? 0 : i < n ? i : n - 1; }

DEVICE i64 nearest(const Upscale &p, i64 i, int d) {
    i64 j = (i64)((float)i / p.scale[d]);
    return j < p.x.ne[d] ? j : p.x.ne[d] - 1;
}

// The element of a plane of x; past an edge that at the edge.
DEVICE float element(const Upscale &p, const Index &plane, i64 i0, i64 i1) {
    Index at = plane;
    at.i[0] = within(i0, p.x.ne[0]);
    at.i[1] = within(i1, p.x.ne[1]);
    return load(p.x, at);
}

DEVICE float bilinear(const Upscale &p, const Index &plane, float p0, float p1) {
    i64 i0 = (i64)floorf(p0), i1 = (i64)floorf(p1);
    float d0 = fminf(fmaxf(p0 - within(i0, p.x.ne[0]), 0.0f), 1.0f);
    float d1 = fminf(fmaxf(p1 - within(i1, p.x.ne[1]), 0.0f), 1.0f);
    float low = element(p, plane, i0, i1) * (1.0f - d0) + element(p, plane, i0 + 1, i1) * d0;
    float high = element(p, plane, i0, i1 + 1) * (1.0f - d0) + element(p, plane, i0 + 1, i1 + 1) * d0;
    return low * (1.0f - d1) + high * d1;
}

// Weights of the elements at -1, 0, 1 and 2 for a place between 0 and 1: cubic convolution, a = -0.75.
DEVICE float cubic_weight(int i, float t) {
    const float a = -0.75f;
    float x = i == 0 ? t + 1.0f : i == 1 ? t : i == 2 ? 1.0f - t : 2.0f - t;
    if (i == 1 || i == 2) return ((a + 2.0f) * x - (a + 3.0f)) * x * x + 1.0f;
    return ((a * x - 5.0f * a) * x + 8.0f * a) * x - 4.0f * a;
}

DEVICE float bicubic(const Upscale &p, const Index &plane, float p0, float p1) {
    float f0 = floorf(p0), f1 = floorf(p1), sum = 0.0f;
    for (int j = 0; j < 4; j++) {
        float row = 0.0f;
        for (int i = 0; i < 4; i++)
            row += element(p, plane, (i64)f0 + i - 1, (i64)f1 + j - 1) * cubic_weight(i, p0 - f0);
        sum += row * cubic_weight(j, p1 - f1);
    }
    return sum;
}

// The elements first..end of a dim that an element of y covers, around a place, as far as `reach`.
struct Cover {
    i64 first, end;
    float place, reach;
};
DEVICE Cover cover_of(const Upscale &p, i64 i, int d) {
    float place = ((float)i + p.offset) / p.scale[d], reach = fmaxf(1.0f / p.scale[d], 1.0f);
    float first = fmaxf(place - reach + p.offset, 0.0f), end = fmaxf(place + reach + p.offset, 0.0f);
    return {(i64)first, (i64)end < p.x.ne[d] ? (i64)end : p.x.ne[d], place, reach};
}
DEVICE float weight_of(const Upscale &p, const Cover &c, i64 i) {
    return fmaxf(1.0f - fabsf(((float)i - c.place + p.offset) / c.reach), 0.0f);
}

DEVICE float antialiased(const Upscale &p, const Index &plane, const Index &i) {
    Cover c0 = cover_of(p, i.i[0], 0), c1 = cover_of(p, i.i[1], 1);
    double sum = 0.0, total = 0.0;
    for (i64 i1 = c1.first; i1 < c1.end; i1++)
        for (i64 i0 = c0.first; i0 < c0.end; i0++) {
            float weight = weight_of(p, c0, i0) * weight_of(p, c1, i1);
            sum += (double)element(p, plane, i0, i1) * weight;
            total += weight;
        }
    return total > 0.0 ? (float)(sum / total) : 0.0f;
}

KERNEL(upscale, Upscale, 128) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne), plane = {{0, 0, nearest(p, i.i[2], 2), nearest(p, i.i[3], 3)}};
    float p0 = ((float)i.i[0] + p.offset) / p.scale[0] - p.offset, y;
    float p1 = ((float)i.i[1] + p.offset) / p.scale[1] - p.offset;
    if (p.mode == NEAREST) y = element(p, plane, nearest(p, i.i[0], 0), nearest(p, i.i[1], 1));
    else y = p.mode == BILINEAR ? bilinear(p, plane, p0, p1) : bicubic(p, plane, p0, p1);
    store(p.y, i, y);
}

KERNEL(upscale_antialiased, Upscale, 128) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne), plane = {{0, 0, nearest(p, i.i[2], 2), nearest(p, i.i[3], 3)}};
    store(p.y, i, antialiased(p, plane, i));
}
