// Products of small matrices by a warp on its tensor core, and copies into shared memory that go on beside other work.
//
// Of matrices, with place = lane / 4 and quarter = lane % 4, a lane has of a [16, depth] words of rows place and place + 8,
// of b [depth, 8] words of column place, and of c [16, 8] columns 2 quarter and the next of rows place (0, 1) and place + 8
// (2, 3). The words of a depth of 8 halves, or 16 bytes: the quarter's; deeper ones follow, rows before depths.
#pragma once
#include "number.cuh"

#ifdef __CUDACC__

// The chip, as in sm_80. The emulation is compiled for 75 and for 80.
#define CHIP (__CUDA_ARCH__ / 10)

DEVICE void bytes_8_8_16(int *c, u32 a, u32 b) {
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(c[0]), "+r"(c[1]) : "r"(a), "r"(b));
}
DEVICE void halves_16_8_8(float *c, const u32 *a, const u32 *b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
#if CHIP >= 80
DEVICE void bytes_16_8_16(int *c, const u32 *a, u32 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b));
}
#define PRODUCT_16_8_16(name, type)                                                                                    \
    DEVICE void name(float *c, const u32 *a, const u32 *b) {                                                           \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                                             \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                          \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                           \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                       \
    }
PRODUCT_16_8_16(halves_16_8_16, "f16")
PRODUCT_16_8_16(bf16s_16_8_16, "bf16")

DEVICE u32 two_f16(float low, float high) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
DEVICE u32 two_bf16(float low, float high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

// 16 bytes from global memory, or zeros, to elements at.. of shared memory, by the time that wait_for_copies returns.
DEVICE void copy_16(shared<u16> to, i64 at, u64 from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"((u32)__cvta_generic_to_shared(to + at)), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}
// Closes a group of copies.
DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for the thread's own copies, but those of the last N groups.
template <int N> DEVICE void wait_for_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
#endif

// Four matrices of 8 by 8 halves: lanes 8 i and on give where the rows of matrix i begin. A lane gets of each the numbers
// 2 quarter and the next of row place; turned: of column place, rows 2 quarter and the next.
DEVICE void load_four(u32 *words, shared<u16> from, i64 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"((u32)__cvta_generic_to_shared(from + at)) : "memory");
}
DEVICE void load_four_turned(u32 *words, shared<u16> from, i64 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"((u32)__cvta_generic_to_shared(from + at)) : "memory");
}

#elif !defined(CHIP)
#error "the emulation defines CHIP, the chip that it compiles kernels for"
#endif

// Eight halves, at a multiple of 8.
DEVICE void store_8(shared<u16> to, i64 at, const Sixteen &x) {
#ifdef __CUDACC__
    *(Sixteen *)(to + at) = x;
#else
    for (int i = 0; i < 8; i++) to[at + i] = (u16)(x.words[i / 2] >> (16 * (i % 2)));
#endif
}

// The same back.
DEVICE Sixteen load_8(shared<u16> from, i64 at) {
#ifdef __CUDACC__
    return *(const Sixteen *)(from + at);
#else
    Sixteen x;
    for (int i = 0; i < 4; i++) x.words[i] = from[at + 2 * i] | (u32)from[at + 2 * i + 1] << 16;
    return x;
#endif
}

#if CHIP < 80
DEVICE void copy_16(shared<u16> to, i64 at, u64 from, bool is_there) {
    Sixteen x = {{0, 0, 0, 0}};
    if (is_there) x = ::at<const Sixteen>(from)[0];
    store_8(to, at, x);
}
DEVICE void end_copies() {}
template <int N> DEVICE void wait_for_copies() {}
#endif

// c += a [16, 16] b [16, 8] of signed bytes.
DEVICE void multiply_bytes(int *c, const u32 *a, u32 b) {
#if CHIP >= 80
    bytes_16_8_16(c, a, b);
#else
    bytes_8_8_16(c, a[0], b);
    bytes_8_8_16(c + 2, a[1], b);
#endif
}

// c += a [16, 16] b [16, 8] of F16 or BF16, which chips before sm_80 do not multiply.
template <int TYPE> DEVICE void multiply_halves(float *c, const u32 *a, const u32 *b) {
#if CHIP >= 80
    if (TYPE == BF16) bf16s_16_8_16(c, a, b);
    else halves_16_8_16(c, a, b);
#else
    static_assert(TYPE == F16, "no such product");
    halves_16_8_8(c, a, b);
    halves_16_8_8(c, a + 2, b + 1);
#endif
}

// Two numbers as halves in a word, the first lowest.
template <int TYPE> DEVICE u32 two_halves(float low, float high) {
#if CHIP >= 80
    return TYPE == BF16 ? two_bf16(low, high) : two_f16(low, high);
#else
    static_assert(TYPE == F16, "no product uses them");
    return float_to_half(low) | (u32)float_to_half(high) << 16;
#endif
}
