// What kernels/tensor.cuh writes in PTX, by what NVIDIA documents of it: who has which number of a matrix, what comes out.
#pragma once
#include "emu.h"

DEVICE float bf16_to_float(u16 b);
DEVICE u16 float_to_bf16(float f);

// c += a [rows, 16] b [16, 8] of signed bytes; rows are 8 or 16.
DEVICE void multiplied_bytes(int *c, const u32 *a, u32 b, int rows) {
    int lane = emu::place.thread & 31;
    const u64 words[2] = {a[0] | (u64)(rows > 8 ? a[1] : 0) << 32, b};
    const emu::Words *of = emu::gather(words, 2);
    for (int j = 0; j < rows / 4; j++) {
        int row = lane / 4, column = lane % 4 * 2 + j % 2;
        for (int quarter = 0; quarter < 4; quarter++)
            c[j] = dot4((int)(u32)(of[row * 4 + quarter][0] >> (j / 2 * 32)), (int)(u32)of[column * 4 + quarter][1], c[j]);
    }
}
DEVICE void bytes_8_8_16(int *c, u32 a, u32 b) { multiplied_bytes(c, &a, b, 8); }

// c += a [16, depth] b [depth, 8]; word w of a has numbers 8 (w / 2) + 2 quarter and the next of row place + 8 (w % 2).
template <int DEPTH> DEVICE void multiplied_halves(float *c, const u32 *a, const u32 *b, float (*value)(u16)) {
    const int N = DEPTH / 8;
    int lane = emu::place.thread & 31;
    u64 words[3 * N];
    for (int w = 0; w < 3 * N; w++) {
        u32 two = w < 2 * N ? a[w] : b[w - 2 * N];
        words[w] = float_to_bits(value((u16)two)) | (u64)float_to_bits(value((u16)(two >> 16))) << 32;
    }
    const emu::Words *of = emu::gather(words, 3 * N);
    for (int j = 0; j < 4; j++) {
        int row = lane / 4, column = lane % 4 * 2 + j % 2;
        for (int k = 0; k < DEPTH; k++) {
            int quarter = k % 8 / 2, shift = k % 2 * 32;
            u64 x = of[row * 4 + quarter][k / 8 * 2 + j / 2] >> shift, y = of[column * 4 + quarter][2 * N + k / 8] >> shift;
            c[j] += bits_to_float((u32)x) * bits_to_float((u32)y);
        }
    }
}
DEVICE void halves_16_8_8(float *c, const u32 *a, const u32 *b) { multiplied_halves<8>(c, a, b, half_to_float); }

#if CHIP >= 80
DEVICE void bytes_16_8_16(int *c, const u32 *a, u32 b) { multiplied_bytes(c, a, b, 16); }
DEVICE void halves_16_8_16(float *c, const u32 *a, const u32 *b) { multiplied_halves<16>(c, a, b, half_to_float); }
DEVICE void bf16s_16_8_16(float *c, const u32 *a, const u32 *b) { multiplied_halves<16>(c, a, b, bf16_to_float); }

DEVICE u32 two_f16(float low, float high) { return float_to_half(low) | (u32)float_to_half(high) << 16; }
DEVICE u32 two_bf16(float low, float high) { return float_to_bf16(low) | (u32)float_to_bf16(high) << 16; }

// The bytes are read at once and are there when they are waited for: both are allowed.
DEVICE void copy_16(shared<u16> to, i64 i, u64 from, bool is_there) {
    struct alignas(16) Eight {
        u16 halves[8];
    } x = {};
    if (is_there) x = at<const Eight>(from)[0];
    if (i % 8 != 0) emu::fault("a copy to element %lld of shared `%s`, which is no multiple of 8", i, to.name);
    to[i + 7];
    emu::begin_copy(to[i].at, to[i].shadow, to.name, (size_t)i, x.halves);
}
DEVICE void end_copies() { emu::end_copies(); }
template <int N> DEVICE void wait_for_copies() { emu::wait_for_copies(N); }
#endif

// The places of rows come from lanes 8 i and on; turned: word i has numbers from two rows.
DEVICE void loaded_four(u32 *words, shared<u16> from, i64 i, bool is_turned) {
    if (i % 8 != 0) emu::fault("a row of a matrix at element %lld of shared `%s`, which is no multiple of 8", i, from.name);
    const u64 own = (u64)i;
    const emu::Words *rows = emu::gather(&own, 1);
    int place = (emu::place.thread & 31) / 4, pair = (emu::place.thread & 31) % 4 * 2;
    for (int m = 0; m < 4; m++) {
        u16 two[2];
        for (int n = 0; n < 2; n++) {
            int row = is_turned ? pair + n : place, column = is_turned ? place : pair + n;
            two[n] = from[(i64)rows[8 * m + row][0] + column];
        }
        words[m] = two[0] | (u32)two[1] << 16;
    }
}
DEVICE void load_four(u32 *words, shared<u16> from, i64 i) { loaded_four(words, from, i, false); }
DEVICE void load_four_turned(u32 *words, shared<u16> from, i64 i) { loaded_four(words, from, i, true); }
