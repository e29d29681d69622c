// Eight numbers at a time of a row of the KV cache: loaded as they are in memory, so that many are on their way, and made
// floats when they are used. F16, BF16 and F32 by 16 bytes, Q8_0 by 4.
#pragma once
#include "number.cuh"

// Any dtype, at any alignment.
enum : int { ANY = -1 };

// Number i of a row.
DEVICE float cached(const Tensor &t, u64 row, i64 i) {
    if (t.type != Q8_0) return load_number(row + i * t.nb[0], t.type);
    u64 block = row + i / 32 * 34;
    return half_to_float(at<const u16>(block)[0]) * at<const i8>(block + 2)[i % 32];
}

// Eight numbers, as many words as they are in. Of Q8_0: three words that have the bytes, of which the last may be half of one,
// how many bits are before them, and the scale.
template <int TYPE> struct Eight {
    u32 words[TYPE == F32 ? 8 : TYPE == Q8_0 ? 5 : 4];
};
// Where they are: they are loaded when they are used.
template <> struct Eight<ANY> {
    u64 row;
    i64 i, n;
};

// Numbers i.. of a row, zeros where `n` ends before them; n and i are multiples of 8, but with ANY.
template <int TYPE> DEVICE Eight<TYPE> load_eight(u64 row, i64 i, i64 n) {
    Eight<TYPE> x = {};
    if constexpr (TYPE == ANY) {
        x = {row, i, n};
    } else if constexpr (TYPE == F32) {
        if (i >= n) return x;
        UNROLL for (int h = 0; h < 2; h++) {
            Sixteen four = at<const Sixteen>(row + i * 4)[h];
            UNROLL for (int j = 0; j < 4; j++) x.words[4 * h + j] = four.words[j];
        }
    } else if constexpr (TYPE == Q8_0) {
        if (i >= n) return x;
        // Blocks of 34 bytes begin at even addresses: the word before the numbers' first is of the same block.
        u64 block = row + i / 32 * 34, bytes = block + 2 + i % 32;
        global<const u32> words = at<const u32>(bytes & ~3ull);
        x.words[0] = words[0];
        x.words[1] = words[1];
        x.words[2] = at<const u16>(bytes + 6)[0];
        x.words[3] = 8 * (u32)(bytes & 3);
        x.words[4] = at<const u16>(block)[0];
    } else {
        if (i >= n) return x;
        Sixteen all = at<const Sixteen>(row + i * 2)[0];
        UNROLL for (int j = 0; j < 4; j++) x.words[j] = all.words[j];
    }
    return x;
}

// The same as floats.
template <int TYPE> DEVICE void to_floats(const Tensor &t, const Eight<TYPE> &x, float *to) {
    if constexpr (TYPE == ANY) {
        UNROLL for (int j = 0; j < 8; j++) to[j] = x.i + j < x.n ? cached(t, x.row, x.i + j) : 0.0f;
    } else if constexpr (TYPE == F32) {
        UNROLL for (int j = 0; j < 8; j++) to[j] = bits_to_float(x.words[j]);
    } else if constexpr (TYPE == Q8_0) {
        float scale = half_to_float((u16)x.words[4]);
        u32 two[2] = {(u32)(((u64)x.words[1] << 32 | x.words[0]) >> x.words[3]),
                      (u32)(((u64)x.words[2] << 32 | x.words[1]) >> x.words[3])};
        UNROLL for (int j = 0; j < 8; j++) to[j] = scale * (i8)(two[j / 4] >> (8 * (j % 4)));
    } else {
        UNROLL for (int j = 0; j < 4; j++) {
            u32 w = x.words[j];
            to[2 * j] = TYPE == BF16 ? bits_to_float(w << 16) : half_to_float((u16)w);
            to[2 * j + 1] = TYPE == BF16 ? bits_to_float(w & 0xffff0000u) : half_to_float((u16)(w >> 16));
        }
    }
}
