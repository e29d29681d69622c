// What a lane reads of a row of packed weights at once, and what it is: 32 weights in two runs of 16, which for some types are
// in two groups. It is read as early as possible, and unpacked when it is multiplied.
#pragma once
#include "product.cuh"

constexpr bool is_k(int type) { return type == Q4_K || type == Q5_K; }
// Whether a weight is more than a scale times an integer.
constexpr bool has_offsets(int type) {
    return type != Q8_0 && type != Q8_0_EIGHTS && type != Q4_0_EIGHTS && type != IQ4_NL && type != IQ4_XS && type != MXFP4;
}
// Whether both runs are of one group, with one scale.
constexpr bool has_one_scale(int type) { return !is_k(type) && type != Q2_K && type != Q3_K && type != Q6_K; }

// Types whose groups are read as they are: unpacked at once.
template <int TYPE> struct Raw {
    Group g;
};
// The block's scales, and 16 bytes of numbers.
template <> struct Raw<Q4_K> {
    Vector head, low;
};
// And as many of fifth bits.
template <> struct Raw<Q5_K> {
    Vector head, high, low;
};
template <> struct Raw<Q4_0_EIGHTS> {
    Vector words;
    u32 scale;
};
template <> struct Raw<Q8_0_EIGHTS> {
    Vector low, high;
    u32 scale;
};
template <> struct Raw<Q4_0> {
    Eighteen block;
};
template <> struct Raw<Q6_K> {
    Vector low, high;
    int scales[2];
    u32 d;
};

template <int TYPE> INLINE Raw<TYPE> raw_at(u64 row, i64 n) { return {group_of<TYPE>(row, n)}; }
template <int TYPE> INLINE Group unpacked(const Raw<TYPE> &raw, int) { return raw.g; }

SPECIAL Raw<Q4_0> raw_at<Q4_0>(u64 row, i64 n) { return {eighteen_at(row + n * 18)}; }
SPECIAL Group unpacked<Q4_0>(const Raw<Q4_0> &raw, int) {
    Group g;
    nibbles(g, raw.block.w);
    float d = half_to_float((u16)raw.block.half);
    both(g, d, -8.0f * d);
    return g;
}
SPECIAL Raw<Q4_0_EIGHTS> raw_at<Q4_0_EIGHTS>(u64 row, i64 n) {
    u64 eight = row + (n >> 3) * 144;
    return {vector_at(eight + 16 + 16 * (n & 7)), at<const u16>(eight)[n & 7]};
}
SPECIAL Group unpacked<Q4_0_EIGHTS>(const Raw<Q4_0_EIGHTS> &raw, int) {
    return sealed_nibbles(raw.words.w, half_to_float((u16)raw.scale));
}
SPECIAL Raw<Q8_0_EIGHTS> raw_at<Q8_0_EIGHTS>(u64 row, i64 n) {
    u64 eight = row + (n >> 3) * 272, qs = eight + 16 + 32 * (n & 7);
    return {vector_at(qs), vector_at(qs + 16), at<const u16>(eight)[n & 7]};
}
SPECIAL Group unpacked<Q8_0_EIGHTS>(const Raw<Q8_0_EIGHTS> &raw, int) {
    Group g;
    for (int i = 0; i < 4; i++) {
        g.q[i] = raw.low.w[i];
        g.q[i + 4] = raw.high.w[i];
    }
    both(g, half_to_float((u16)raw.scale), 0.0f);
    return g;
}

// Parts of Q4_K and Q5_K: bytes 16 (n & 7) and after, low nibbles a half of one group and high nibbles that of the next.
SPECIAL Raw<Q4_K> raw_at<Q4_K>(u64 row, i64 n) {
    u64 block = row + (n >> 3) * 144;
    return {vector_at(block), vector_at(block + 16 + 16 * (n & 7))};
}
SPECIAL Raw<Q5_K> raw_at<Q5_K>(u64 row, i64 n) {
    u64 block = row + (n >> 3) * 176;
    return {vector_at(block), vector_at(block + 16 + 16 * (n & 1)), vector_at(block + 48 + 16 * (n & 7))};
}
// Scales and offsets of both groups of a part. Of the eight scales and minima of a block, 6 bits each, the first four are the
// low bits of bytes; the others are in nibbles, and in the two bits that those bytes leave.
DEVICE void scales_of_pair(Group &g, const Vector &head, int n) {
    float d = half_to_float((u16)head.w[0]), least = half_to_float((u16)((u32)head.w[0] >> 16));
    int shift = 16 * ((n >> 1) & 1);
    u32 a = (u32)head.w[1] >> shift, b = (u32)head.w[2] >> shift, c = (u32)head.w[3] >> shift;
    bool is_late = (n & 4) != 0;
    u32 s = is_late ? (c & 0x0f0f) | (a >> 2 & 0x3030) : a & 0x3f3f;
    u32 m = is_late ? (c >> 4 & 0x0f0f) | (b >> 2 & 0x3030) : b & 0x3f3f;
    g.scale[0] = d * (float)(s & 0xff), g.scale[1] = d * (float)(s >> 8 & 0xff);
    g.offset[0] = -least * (float)(m & 0xff), g.offset[1] = -least * (float)(m >> 8 & 0xff);
}
SPECIAL Group unpacked<Q4_K>(const Raw<Q4_K> &raw, int n) {
    Group g;
    nibbles(g, raw.low.w);
    scales_of_pair(g, raw.head, n);
    return g;
}
SPECIAL Group unpacked<Q5_K>(const Raw<Q5_K> &raw, int n) {
    Group g;
    nibbles(g, raw.low.w);
    int shift = n & 6;
    for (int i = 0; i < 4; i++) {
        u32 high = (u32)raw.high.w[i] >> shift;
        g.q[i] |= (high & 0x01010101) << 4;
        g.q[i + 4] |= (high >> 1 & 0x01010101) << 4;
    }
    scales_of_pair(g, raw.head, n);
    return g;
}

// Parts of Q6_K: n & 4 is the half of the block, n & 2 which 32 of its 64 bytes, n & 1 which 16 of those.
SPECIAL Raw<Q6_K> raw_at<Q6_K>(u64 row, i64 n) {
    u64 block = row + (n >> 3) * 210;
    int part = n & 7;
    Raw<Q6_K> raw;
    raw.low = from_even(block + 16 * part);
    raw.high = from_even(block + 128 + 32 * (part >> 2) + 16 * (part & 1));
    int scale = 8 * (part >> 2) + (part & 3);
    for (int h = 0; h < 2; h++) raw.scales[h] = at<const i8>(block + 192)[scale + 4 * h];
    raw.d = at<const u16>(block + 208)[0];
    return raw;
}
SPECIAL Group unpacked<Q6_K>(const Raw<Q6_K> &raw, int n) {
    Group g;
    nibbles(g, raw.low.w);
    int shift = n & 2;
    float d = half_to_float((u16)raw.d);
    for (int i = 0; i < 4; i++) {
        u32 high = (u32)raw.high.w[i] >> shift;
        g.q[i] |= (high & 0x03030303) << 4;
        g.q[i + 4] |= (high >> 4 & 0x03030303) << 4;
    }
    for (int h = 0; h < 2; h++) {
        g.scale[h] = d * (float)raw.scales[h];
        g.offset[h] = -32.0f * g.scale[h];
    }
    return g;
}

// Which groups of x the runs of part n are multiplied with, and which halves of them.
struct Runs {
    int group[2], half[2];
};
template <int TYPE> DEVICE Runs runs_of(int n) {
    if constexpr (is_k(TYPE)) return {{n & ~1, n | 1}, {n & 1, n & 1}};
    int first = (n & ~3) | (n >> 1 & 1);
    if (TYPE == Q6_K) return {{first, first + 2}, {n & 1, n & 1}};
    return {{n, n}, {0, 1}};
}
