// Numbers of the dtypes that kernels read and write one by one, as F32.
#pragma once
#include "device.cuh"

enum : int { F32 = 0, F16 = 1, Q8_0 = 8, I32 = 26, I64 = 27, BF16 = 30 };

DEVICE float bf16_to_float(u16 b) { return bits_to_float((u32)b << 16); }

// To the nearest, ties to even; NaN stays one.
DEVICE u16 float_to_bf16(float f) {
    u32 bits = float_to_bits(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)((bits >> 16) | 0x40);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

DEVICE float load_number(u64 address, i64 type) {
    switch (type) {
    case F16: return half_to_float(at<const u16>(address)[0]);
    case BF16: return bf16_to_float(at<const u16>(address)[0]);
    default: return at<const float>(address)[0];
    }
}

DEVICE void store_number(u64 address, i64 type, float x) {
    switch (type) {
    case F16: at<u16>(address)[0] = float_to_half(x); break;
    case BF16: at<u16>(address)[0] = float_to_bf16(x); break;
    default: at<float>(address)[0] = x;
    }
}

// Sixteen bytes at a multiple of 16.
struct alignas(16) Sixteen {
    u32 words[4];
};

// Element `at` of a tensor.
DEVICE float load(const Tensor &t, const Index &at) { return load_number(address_of(t, at), t.type); }
DEVICE void store(const Tensor &t, const Index &at, float x) { store_number(address_of(t, at), t.type, x); }

// A power of two that brings numbers of this magnitude below 2^15, so that none overflows as F16; NaN and infinity stay so.
DEVICE float unit_of(float magnitude) {
    u32 e = float_to_bits(magnitude) >> 23;
    e = e < 40 ? 40 : e > 254 ? 254 : e;
    return bits_to_float((e - 14) << 23);
}
// What numbers are multiplied by for that.
DEVICE float inverse_of(float unit) { return bits_to_float((254u << 23) - float_to_bits(unit)); }

// Four numbers of a row, the first at an address, the others so many bytes apart; at once where they are 16 bytes in a row.
DEVICE void load_four(float *v, u64 address, i64 step, i64 type) {
    if (type == F32 && step == 4 && address % 16 == 0) {
        Sixteen four = at<const Sixteen>(address)[0];
        UNROLL for (int j = 0; j < 4; j++) v[j] = bits_to_float(four.words[j]);
        return;
    }
    UNROLL for (int j = 0; j < 4; j++) v[j] = load_number(address + j * step, type);
}
DEVICE void store_four(const float *v, u64 address, i64 step, i64 type) {
    if (type == F32 && step == 4 && address % 16 == 0) {
        Sixteen four;
        UNROLL for (int j = 0; j < 4; j++) four.words[j] = float_to_bits(v[j]);
        at<Sixteen>(address)[0] = four;
        return;
    }
    UNROLL for (int j = 0; j < 4; j++) store_number(address + j * step, type, v[j]);
}

// Four, or one.
template <int WIDTH> DEVICE void load_some(float *v, u64 address, i64 step, i64 type) {
    if (WIDTH == 4) load_four(v, address, step, type);
    else v[0] = load_number(address, type);
}
template <int WIDTH> DEVICE void store_some(const float *v, u64 address, i64 step, i64 type) {
    if (WIDTH == 4) store_four(v, address, step, type);
    else store_number(address, type, v[0]);
}
