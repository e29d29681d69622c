// What kernels are written in: a thin layer that is CUDA when compiled for a chip, and ../emu/emu.h as plain C++.
//
// A kernel has one argument, a struct. Blocks have whole warps, and warp operations need all 32 lanes. Global memory is
// reached through at<T>(address), shared memory through SHARED: the emulation checks both.
#pragma once

#ifdef __CUDACC__

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define DEVICE static __device__ __forceinline__
#define INLINE __device__ __forceinline__
#define SPECIAL template <> __device__ __forceinline__
// Threads of a block, and optionally how many blocks a multiprocessor shall have registers for.
#define KERNEL(name, Params, ...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name(const Params p)
// What keeps arrays in registers, and few of them in use, where the compiler would not do it unasked.
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#define SHARED(T, name, n) __shared__ __align__(16) T name[n]

#define THREAD ((int)threadIdx.x)
#define THREADS ((int)blockDim.x)
#define BLOCK_X ((i64)blockIdx.x)
#define BLOCK_Y ((i64)blockIdx.y)
#define BLOCK_Z ((i64)blockIdx.z)
#define BLOCKS_X ((i64)gridDim.x)
#define BLOCKS_Y ((i64)gridDim.y)

// Where a tensor's elements are: an array of T on the device.
template <class T> using global = T *;
template <class T> DEVICE T *at(u64 address) { return (T *)address; }
// What SHARED declares, as an argument.
template <class T> using shared = T *;

DEVICE void sync_block() { __syncthreads(); }
DEVICE float shuffle_xor(float x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
DEVICE int shuffle_xor(int x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
DEVICE float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
DEVICE int shuffle(int x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
DEVICE u32 ballot(bool x) { return __ballot_sync(0xffffffffu, x); }
DEVICE int count_ones(u32 x) { return __popc(x); }
// The lowest bit that is 1, of a word with one.
DEVICE int first_one(u32 x) { return __popc((x & (0u - x)) - 1); }
// c plus the products of four signed bytes of a and of b.
DEVICE int dot4(int a, int b, int c) { return __dp4a(a, b, c); }

DEVICE float half_to_float(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
DEVICE u16 float_to_half(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
DEVICE float bits_to_float(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 float_to_bits(float f) { return __float_as_uint(f); }
#define INF_F __int_as_float(0x7f800000)

#else
#include "emu.h"
#endif

DEVICE int lane_of(int thread) { return thread & 31; }
DEVICE int warp_of(int thread) { return thread >> 5; }

DEVICE float warp_sum(float x) {
    for (int lanes = 16; lanes > 0; lanes >>= 1) x += shuffle_xor(x, lanes);
    return x;
}
DEVICE float warp_max(float x) {
    for (int lanes = 16; lanes > 0; lanes >>= 1) x = fmaxf(x, shuffle_xor(x, lanes));
    return x;
}
// Magnitudes are compared as bits: NaN's are above all others'. The larger of one and that of x.
DEVICE int larger_magnitude(int most, float x) {
    int bits = (int)(float_to_bits(x) & 0x7fffffffu);
    return most > bits ? most : bits;
}
// The largest of 2 FROM neighbouring lanes.
template <int FROM> DEVICE float magnitude_of_lanes(int most) {
    for (int lanes = FROM; lanes > 0; lanes >>= 1) {
        int other = shuffle_xor(most, lanes);
        most = most > other ? most : other;
    }
    return bits_to_float((u32)most);
}
DEVICE float warp_magnitude(float x) { return magnitude_of_lanes<16>(larger_magnitude(0, x)); }

// A tensor as the plugin passes it: address, elements and bytes per dim, dtype number.
struct Tensor {
    u64 address;
    i64 ne[4];
    i64 nb[4];
    i64 type;
};

DEVICE i64 n_elements(const Tensor &t) { return t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3]; }

// Where in a tensor.
struct Index {
    i64 i[4];
};

// Element number n of dims ne, innermost first. Small numbers are divided as such: 64-bit division takes long.
DEVICE Index index_of(i64 n, const i64 *ne) {
    Index at = {};
    if (n < ne[0]) {
        at.i[0] = n;
        return at;
    }
    if (n >> 32 == 0 && (ne[0] | ne[1] | ne[2]) >> 32 == 0) {
        u32 m = (u32)n;
        for (int d = 0; d < 3; d++) {
            u32 size = (u32)ne[d];
            at.i[d] = m % size;
            m /= size;
        }
        at.i[3] = m;
        return at;
    }
    for (int d = 0; d < 3; d++) {
        at.i[d] = n % ne[d];
        n /= ne[d];
    }
    at.i[3] = n;
    return at;
}

// The address of an element of a dtype without blocks, or of the start of row (i1, i2, i3) where i0 is 0.
DEVICE u64 address_of(const Tensor &t, i64 i0, i64 i1, i64 i2, i64 i3) {
    return t.address + i0 * t.nb[0] + i1 * t.nb[1] + i2 * t.nb[2] + i3 * t.nb[3];
}
DEVICE u64 address_of(const Tensor &t, const Index &at) {
    return address_of(t, at.i[0], at.i[1], at.i[2], at.i[3]);
}
