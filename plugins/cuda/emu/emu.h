// CUDA as far as llmrt's kernels use it, in plain C++: threads of a block are fibers that take turns, warp operations and
// barriers switch between them. Global memory is checked against the simulated driver's allocations, shared memory for
// reads of what was not written and for races. For tests only.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int8_t i8;
typedef uint8_t u8;
typedef int16_t i16;
typedef uint16_t u16;
typedef int32_t i32;
typedef uint32_t u32;
typedef long long i64;
typedef unsigned long long u64;

namespace emu {

// A kernel by name, and how it is called with the bytes of its argument. chip: the lowest that it is for, as in sm_80; 0: it
// is for all.
struct Kernel {
    const char *name;
    u32 params_bytes;
    u32 max_threads;
    u32 chip;
    void (*run)(const void *params);
    Kernel *next;
    Kernel(const char *name, u32 params_bytes, u32 max_threads, u32 chip, void (*run)(const void *));
};

// Where the running fiber is in its grid.
struct Place {
    int thread, threads;
    i64 block[3], blocks[3];
};
extern Place place;

// Memory that the device may use: device addresses low..high, which are at low + shift in this process.
struct Span {
    u64 low, high;
    i64 shift;
};
Span span_of(u64 address);

// Ends the kernel with an error.
[[noreturn]] void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

void barrier();
// Every lane gives a value and gets that of another.
u64 exchange(u64 value, int from_lane);
u32 vote(bool x);
// What a lane gives at once.
static const int MAX_WORDS = 8;
typedef u64 Words[MAX_WORDS];
// Every lane gives n words and sees those of all, until the next such call but one.
const Words *gather(const u64 *words, int n);

// Shared memory of n elements, the same for all threads of a block: found by the address of `key`.
struct Shadow {
    bool is_awaited;
    i32 writer, reader;
    u32 write_block, write_warp, read_block, read_warp;
};
struct Area {
    char *bytes;
    Shadow *shadows;
};
Area area(const void *key, size_t n, size_t size);
// Records that the running thread reads or writes an element; faults if another did so without a barrier between.
void reads(Shadow &, const char *name, size_t i);
void writes(Shadow &, const char *name, size_t i);
// Eight halves that shared memory gets when the running thread waits for the group that is open; no thread may touch them before.
void begin_copy(u16 *to, Shadow *, const char *name, size_t i, const u16 *halves);
void end_copies();
// Waits for all groups but the last n.
void wait_for_copies(u32 n);

template <class T> struct Global {
    u64 address;
    Span span;
    T &operator[](i64 i) const {
        u64 a = address + i * (i64)sizeof(T);
        if (a < span.low || a + sizeof(T) > span.high)
            fault("%zu bytes at %llx are outside of the allocation %llx..%llx", sizeof(T), a, span.low, span.high);
        if (a % alignof(T) != 0) fault("%zu bytes at %llx, which is no multiple of %zu", sizeof(T), a, alignof(T));
        return *(T *)(a + span.shift);
    }
    T &operator*() const { return (*this)[0]; }
    Global operator+(i64 n) const { return {address + n * (i64)sizeof(T), span}; }
};

// An element of shared memory.
template <class T> struct Element {
    T *at;
    Shadow *shadow;
    const char *name;
    size_t i;
    operator T() const {
        reads(*shadow, name, i);
        return *at;
    }
    Element &operator=(T x) {
        writes(*shadow, name, i);
        *at = x;
        return *this;
    }
    Element &operator=(const Element &other) { return *this = (T)other; }
    Element &operator+=(T x) { return *this = (T)*this + x; }
};

template <class T> struct Shared {
    Area area_;
    size_t n;
    const char *name;
    Element<T> operator[](i64 i) const {
        if (i < 0 || (size_t)i >= n) fault("element %lld of the %zu of shared `%s`", i, n, name);
        return {(T *)area_.bytes + i, area_.shadows + i, name, (size_t)i};
    }
};

float half_to_float(u16);
u16 float_to_half(float);

} // namespace emu

#ifdef CHIP
#define EMU_CHIP CHIP
#else
#define EMU_CHIP 0
#endif
#define DEVICE static inline
#define INLINE inline
#define SPECIAL template <> inline
#define KERNEL(name, Params, n_threads, ...)                                                                             \
    static void name(const Params);                                                                                   \
    static emu::Kernel name##_kernel(#name, sizeof(Params), n_threads, EMU_CHIP, [](const void *p) {                  \
        Params params_;                                                                                               \
        memcpy((void *)&params_, p, sizeof params_);                                                                  \
        name(params_);                                                                                                \
    });                                                                                                               \
    static void name([[maybe_unused]] const Params p)
#define SHARED(T, name, n)                                                                                            \
    static const char name##_key = 0;                                                                                 \
    emu::Shared<T> name { emu::area(&name##_key, n, sizeof(T)), n, #name }

#define UNROLL
#define ROLLED
#define THREAD (emu::place.thread)
#define THREADS (emu::place.threads)
#define BLOCK_X (emu::place.block[0])
#define BLOCK_Y (emu::place.block[1])
#define BLOCK_Z (emu::place.block[2])
#define BLOCKS_X (emu::place.blocks[0])
#define BLOCKS_Y (emu::place.blocks[1])
#define INF_F INFINITY

template <class T> using global = emu::Global<T>;
template <class T> using shared = emu::Shared<T>;
template <class T> DEVICE global<T> at(u64 address) { return {address, emu::span_of(address)}; }

DEVICE void sync_block() { emu::barrier(); }
DEVICE float bits_to_float(u32 bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
DEVICE u32 float_to_bits(float f) {
    u32 bits;
    memcpy(&bits, &f, 4);
    return bits;
}
DEVICE int shuffle_xor(int x, int lanes) {
    return (int)(u32)emu::exchange((u32)x, (emu::place.thread & 31) ^ lanes);
}
DEVICE float shuffle_xor(float x, int lanes) {
    return bits_to_float((u32)emu::exchange(float_to_bits(x), (emu::place.thread & 31) ^ lanes));
}
DEVICE float shuffle(float x, int lane) { return bits_to_float((u32)emu::exchange(float_to_bits(x), lane & 31)); }
DEVICE int shuffle(int x, int lane) { return (int)(u32)emu::exchange((u32)x, lane & 31); }
DEVICE u32 ballot(bool x) { return emu::vote(x); }
DEVICE int count_ones(u32 x) { return __builtin_popcount(x); }
DEVICE int first_one(u32 x) { return __builtin_ctz(x); }
DEVICE int dot4(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (i8)((u32)a >> (8 * i)) * (i8)((u32)b >> (8 * i));
    return c;
}
DEVICE float half_to_float(u16 h) { return emu::half_to_float(h); }
DEVICE u16 float_to_half(float f) { return emu::float_to_half(f); }
#ifdef CHIP
#include "tensor.h"
#if CHIP >= 90
#include "hopper.h"
#endif
#endif
