// Packed weights, 32 at a time: integers of 8 bits, and a scale and an offset for each half. Layouts are GGUF's, and those that
// a weight gets at `seal` (../src/layout.rs).
#pragma once
#include "number.cuh"

enum : int {
    Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14,
    IQ4_NL = 20, IQ4_XS = 23, MXFP4 = 39,
    // Sealed: of each eight blocks, which have as many bytes as before, first the scales and then the numbers, so that both are
    // read 16 bytes at once. Numbers of Q4_0 are two's complement there.
    Q4_0_EIGHTS = Q4_0 + 64, Q8_0_EIGHTS = Q8_0 + 64,
};

// Bytes of 256 numbers.
constexpr int bytes_of_256(int type) {
    switch (type) {
    case MXFP4: return 8 * 17;
    case Q4_1: return 8 * 20;
    case Q5_0: return 8 * 22;
    case Q5_1: return 8 * 24;
    case Q8_0: case Q8_0_EIGHTS: return 8 * 34;
    case Q2_K: return 84;
    case Q3_K: return 110;
    case Q5_K: return 176;
    case Q6_K: return 210;
    case IQ4_XS: return 136;
    default: return 144;
    }
}

// What a thread reads at once, from a multiple of 16.
struct alignas(16) Vector {
    int w[4];
};
DEVICE Vector vector_at(u64 address) { return at<const Vector>(address)[0]; }
// A half, and the 16 bytes that follow it.
struct Eighteen {
    u32 half;
    int w[4];
};
// The upper half of a word and the lower one of the next.
DEVICE int between(int low, int high) { return (int)((u32)low >> 16 | (u32)high << 16); }

// Weight i is scale[i / 16] · q[i] + offset[i / 16]; q are bytes, four to an int, the first lowest.
struct Group {
    int q[8];
    float scale[2], offset[2];
};

// Four bytes, from an even address or from any.
DEVICE u32 four_even(u64 address) {
    global<const u16> p = at<const u16>(address);
    return p[0] | (u32)p[1] << 16;
}
DEVICE u32 four_any(u64 address) {
    global<const u8> p = at<const u8>(address);
    return p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
}
// From an even address: four words where words may be read, and the half that is left before or after them.
DEVICE Eighteen eighteen_at(u64 address) {
    bool is_between = (address & 2) != 0;
    global<const int> p = at<const int>(address + (address & 2));
    int a = p[0], b = p[1], c = p[2], d = p[3];
    u32 left = at<const u16>(is_between ? address : address + 16)[0];
    if (is_between) return {left, {a, b, c, d}};
    return {(u32)a & 0xffff, {between(a, b), between(b, c), between(c, d), between(d, (int)left)}};
}
// 16 bytes from an even address, three words and what is left of them at one end or both.
DEVICE Vector from_even(u64 address) {
    bool is_between = (address & 2) != 0;
    global<const int> p = at<const int>(address + (address & 2));
    int a = p[0], b = p[1], c = p[2];
    int left = at<const u16>(is_between ? address : address + 12)[0], last = at<const u16>(address + 14)[0];
    if (is_between) return {{(int)((u32)a << 16 | (u32)left), between(a, b), between(b, c), between(c, last)}};
    return {{a, b, c, (int)((u32)last << 16 | (u32)left)}};
}
DEVICE float half_at(u64 address) { return half_to_float(at<const u16>(address)[0]); }
DEVICE int byte_of(const int *q, int i) { return (i8)((u32)q[i >> 2] >> (8 * (i & 3))); }

// The low nibbles of 16 bytes, then the high ones.
DEVICE void nibbles(Group &g, const int *words) {
    for (int i = 0; i < 4; i++) {
        g.q[i] = words[i] & 0x0f0f0f0f;
        g.q[i + 4] = (u32)words[i] >> 4 & 0x0f0f0f0f;
    }
}
DEVICE void nibbles(Group &g, u64 qs) {
    int words[4];
    for (int i = 0; i < 4; i++) words[i] = (int)four_even(qs + 4 * i);
    nibbles(g, words);
}

// Bit 4 of each number, from 32 bits.
DEVICE void fifth_bits(Group &g, u32 bits) {
    for (int i = 0; i < 8; i++) {
        u32 b = bits >> (4 * i);
        g.q[i] |= (b & 1) << 4 | (b & 2) << 11 | (b & 4) << 18 | (b & 8) << 25;
    }
}

DEVICE void both(Group &g, float scale, float offset) {
    g.scale[0] = g.scale[1] = scale;
    g.offset[0] = g.offset[1] = offset;
}

// Numbers that stand for nibbles, as four ints.
DEVICE u32 looked_up(u32 nibbles, u32 t0, u32 t1, u32 t2, u32 t3) {
    u32 y = 0;
    for (int i = 0; i < 4; i++) {
        u32 n = (nibbles >> (8 * i)) & 15;
        u32 word = n < 8 ? (n < 4 ? t0 : t1) : (n < 12 ? t2 : t3);
        y |= ((word >> (8 * (n & 3))) & 0xff) << (8 * i);
    }
    return y;
}
// -127 -104 -83 -65, -49 -35 -22 -10, 1 13 25 38, 53 69 89 113
DEVICE void by_iq4_book(Group &g) {
    for (int i = 0; i < 8; i++) g.q[i] = looked_up(g.q[i], 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
}
// 0 1 2 3, 4 6 8 12, and the same below 0: twice the numbers of E2M1
DEVICE void by_e2m1_book(Group &g) {
    for (int i = 0; i < 8; i++) g.q[i] = looked_up(g.q[i], 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
}

// Scale and minimum number i of the 12 bytes that Q4_K and Q5_K keep them in, 6 bits each.
DEVICE void k_scales(u64 s, int i, int &scale, int &min) {
    global<const u8> b = at<const u8>(s);
    if (i < 4) {
        scale = b[i] & 63;
        min = b[i + 4] & 63;
    } else {
        scale = (b[i + 4] & 15) | (b[i - 4] >> 6) << 4;
        min = (b[i + 4] >> 4) | (b[i] >> 6) << 4;
    }
}

template <int TYPE> INLINE Group group_of(u64 row, i64 n);

SPECIAL Group group_of<Q4_0>(u64 row, i64 n) {
    Group g;
    Eighteen block = eighteen_at(row + n * 18);
    float d = half_to_float((u16)block.half);
    nibbles(g, block.w);
    both(g, d, -8.0f * d);
    return g;
}
// Of sealed Q4_0, whose upper and lower four bits are numbers: 16 times each is a byte without the other.
DEVICE Group sealed_nibbles(const int *words, float scale) {
    Group g;
    for (int i = 0; i < 4; i++) {
        g.q[i] = (int)((u32)words[i] << 4 & 0xf0f0f0f0);
        g.q[i + 4] = (int)((u32)words[i] & 0xf0f0f0f0);
    }
    both(g, 0.0625f * scale, 0.0f);
    return g;
}
SPECIAL Group group_of<Q4_0_EIGHTS>(u64 row, i64 n) {
    u64 eight = row + (n >> 3) * 144;
    Vector words = vector_at(eight + 16 + 16 * (n & 7));
    return sealed_nibbles(words.w, half_at(eight + 2 * (n & 7)));
}
SPECIAL Group group_of<Q4_1>(u64 row, i64 n) {
    Group g;
    u64 block = row + n * 20;
    nibbles(g, block + 4);
    both(g, half_at(block), half_at(block + 2));
    return g;
}
SPECIAL Group group_of<Q5_0>(u64 row, i64 n) {
    Group g;
    u64 block = row + n * 22;
    float d = half_at(block);
    nibbles(g, block + 6);
    fifth_bits(g, four_even(block + 2));
    both(g, d, -16.0f * d);
    return g;
}
SPECIAL Group group_of<Q5_1>(u64 row, i64 n) {
    Group g;
    u64 block = row + n * 24;
    nibbles(g, block + 8);
    fifth_bits(g, four_even(block + 4));
    both(g, half_at(block), half_at(block + 2));
    return g;
}
SPECIAL Group group_of<Q8_0>(u64 row, i64 n) {
    Group g;
    u64 block = row + n * 34;
    // As 18 bytes, and 16 more from an even address.
    Eighteen first = eighteen_at(block), last = eighteen_at(block + 16);
    for (int i = 0; i < 4; i++) {
        g.q[i] = first.w[i];
        g.q[i + 4] = last.w[i];
    }
    both(g, half_to_float((u16)first.half), 0.0f);
    return g;
}
SPECIAL Group group_of<Q8_0_EIGHTS>(u64 row, i64 n) {
    Group g;
    u64 eight = row + (n >> 3) * 272, qs = eight + 16 + 32 * (n & 7);
    Vector low = vector_at(qs), high = vector_at(qs + 16);
    for (int i = 0; i < 4; i++) {
        g.q[i] = low.w[i];
        g.q[i + 4] = high.w[i];
    }
    both(g, half_at(eight + 2 * (n & 7)), 0.0f);
    return g;
}
SPECIAL Group group_of<IQ4_NL>(u64 row, i64 n) {
    Group g;
    Eighteen block = eighteen_at(row + n * 18);
    nibbles(g, block.w);
    by_iq4_book(g);
    both(g, half_to_float((u16)block.half), 0.0f);
    return g;
}
SPECIAL Group group_of<MXFP4>(u64 row, i64 n) {
    Group g;
    u64 block = row + n * 17;
    for (int i = 0; i < 4; i++) {
        u32 w = four_any(block + 1 + 4 * i);
        g.q[i] = w & 0x0f0f0f0f;
        g.q[i + 4] = (w >> 4) & 0x0f0f0f0f;
    }
    by_e2m1_book(g);
    // Half of two to the power e - 127.
    u32 e = at<const u8>(block)[0];
    both(g, bits_to_float(e < 2 ? 0x00200000u << e : (e - 1) << 23), 0.0f);
    return g;
}
SPECIAL Group group_of<Q2_K>(u64 row, i64 n) {
    Group g;
    u64 block = row + (n >> 3) * 84;
    int part = n & 7, shift = 2 * (part & 3);
    for (int i = 0; i < 8; i++) g.q[i] = four_even(block + 16 + 32 * (part >> 2) + 4 * i) >> shift & 0x03030303;
    float d = half_at(block + 80), min = half_at(block + 82);
    for (int h = 0; h < 2; h++) {
        int s = at<const u8>(block)[2 * part + h];
        g.scale[h] = d * (s & 15);
        g.offset[h] = -min * (s >> 4);
    }
    return g;
}
SPECIAL Group group_of<Q3_K>(u64 row, i64 n) {
    Group g;
    u64 block = row + (n >> 3) * 110;
    int part = n & 7, shift = 2 * (part & 3);
    for (int i = 0; i < 8; i++) {
        u32 low = four_even(block + 32 + 32 * (part >> 2) + 4 * i) >> shift & 0x03030303;
        u32 high = four_even(block + 4 * i) >> part & 0x01010101;
        g.q[i] = low | high << 2;
    }
    float d = half_at(block + 108);
    global<const u8> scales = at<const u8>(block + 96);
    for (int h = 0; h < 2; h++) {
        int j = 2 * part + h;
        int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
        int s = (low | ((scales[8 + (j & 3)] >> (2 * (j >> 2))) & 3) << 4) - 32;
        g.scale[h] = d * s;
        g.offset[h] = -4.0f * d * s;
    }
    return g;
}
SPECIAL Group group_of<Q4_K>(u64 row, i64 n) {
    Group g;
    u64 block = row + (n >> 3) * 144;
    int part = n & 7, shift = 4 * (part & 1), scale, min;
    for (int i = 0; i < 8; i++) g.q[i] = four_even(block + 16 + 32 * (part >> 1) + 4 * i) >> shift & 0x0f0f0f0f;
    k_scales(block + 4, part, scale, min);
    both(g, half_at(block) * scale, -half_at(block + 2) * min);
    return g;
}
SPECIAL Group group_of<Q5_K>(u64 row, i64 n) {
    Group g;
    u64 block = row + (n >> 3) * 176;
    int part = n & 7, shift = 4 * (part & 1), scale, min;
    for (int i = 0; i < 8; i++) {
        u32 low = four_even(block + 48 + 32 * (part >> 1) + 4 * i) >> shift & 0x0f0f0f0f;
        u32 high = four_even(block + 16 + 4 * i) >> part & 0x01010101;
        g.q[i] = low | high << 4;
    }
    k_scales(block + 4, part, scale, min);
    both(g, half_at(block) * scale, -half_at(block + 2) * min);
    return g;
}
SPECIAL Group group_of<Q6_K>(u64 row, i64 n) {
    Group g;
    u64 block = row + (n >> 3) * 210;
    int part = n & 7, half = part >> 2, j = part & 3;
    for (int i = 0; i < 8; i++) {
        u32 low = four_even(block + 64 * half + 32 * (j & 1) + 4 * i) >> (4 * (j >> 1)) & 0x0f0f0f0f;
        u32 high = four_even(block + 128 + 32 * half + 4 * i) >> (2 * j) & 0x03030303;
        g.q[i] = low | high << 4;
    }
    float d = half_at(block + 208);
    for (int h = 0; h < 2; h++) {
        float scale = d * at<const i8>(block + 192)[2 * part + h];
        g.scale[h] = scale;
        g.offset[h] = -32.0f * scale;
    }
    return g;
}
SPECIAL Group group_of<IQ4_XS>(u64 row, i64 n) {
    Group g;
    u64 block = row + (n >> 3) * 136;
    int part = n & 7;
    nibbles(g, block + 8 + 16 * part);
    by_iq4_book(g);
    int low = at<const u8>(block + 4)[part >> 1] >> (4 * (part & 1)) & 15;
    int high = at<const u16>(block + 2)[0] >> (2 * part) & 3;
    both(g, half_at(block) * ((low | high << 4) - 32), 0.0f);
    return g;
}

// As above, where all threads of a warp have one dtype that is known when the kernel runs.
DEVICE Group group_at(i64 type, u64 row, i64 n) {
    switch (type) {
    case Q4_0: return group_of<Q4_0>(row, n);
    case Q4_1: return group_of<Q4_1>(row, n);
    case Q5_0: return group_of<Q5_0>(row, n);
    case Q5_1: return group_of<Q5_1>(row, n);
    case Q8_0: return group_of<Q8_0>(row, n);
    case Q4_0_EIGHTS: return group_of<Q4_0_EIGHTS>(row, n);
    case Q8_0_EIGHTS: return group_of<Q8_0_EIGHTS>(row, n);
    case Q2_K: return group_of<Q2_K>(row, n);
    case Q3_K: return group_of<Q3_K>(row, n);
    case Q4_K: return group_of<Q4_K>(row, n);
    case Q5_K: return group_of<Q5_K>(row, n);
    case Q6_K: return group_of<Q6_K>(row, n);
    case IQ4_NL: return group_of<IQ4_NL>(row, n);
    case IQ4_XS: return group_of<IQ4_XS>(row, n);
    default: return group_of<MXFP4>(row, n);
    }
}
DEVICE float value_of(const Group &g, int i) { return g.scale[i >> 4] * byte_of(g.q, i) + g.offset[i >> 4]; }
DEVICE bool is_packed(i64 type) { return type != F32 && type != F16 && type != BF16; }
