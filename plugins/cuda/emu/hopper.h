// What kernels/hopper.cuh writes in PTX, by what NVIDIA documents of it: barriers in shared memory with phases and bytes, tiles
// that are copied by tensor maps, products of warpgroups. Found are: uses out of order, wrong numbers of bytes, tiles that are
// read before they are there or overwritten while they are read, registers that are touched while products go on.
#pragma once
#include "emu.h"

struct TensorMap;

namespace emu {

// Since when products may use registers, and until when they do: the thread's fences, and groups of products.
struct Touch {
    u32 n_fences, group;
    bool is_summed;
};
// Records that the running thread reads or writes registers of a product.
void touches(Touch &);

u32 first_tile();
void init_barrier(const void *key, const char *name, size_t i, u32 n_threads);
void show_barriers();
void arrive(const void *key, const char *name, size_t i, u32 n_bytes);
void wait_for_phase(const void *key, const char *name, size_t i, u32 parity);
void copy_tile(u32 to, const void *map, const int *at, const void *key, const char *name, size_t i);
void begin_products();
void end_products();
void wait_for_products(u32 left);
// sums [64, n] += a [64, 16] b [n, 16]ᵀ of F16, or else BF16; what this thread has of them.
void multiply_tiles(float *sums, Touch &, int n, u64 a, u64 b, bool is_f16);

} // namespace emu

// What is shared with the machine: an element of shared memory that no thread reads or writes itself.
#define BARRIER(barriers, i) (barriers)[i].at, (barriers).name, (size_t)(i)

#define MAPPED_KERNEL(name, Params, n_threads, n_blocks) KERNEL(name, Params, n_threads)

DEVICE u32 first_tile() { return emu::first_tile(); }
DEVICE void init_barrier(shared<u64> barriers, int i, u32 n_threads) { emu::init_barrier(BARRIER(barriers, i), n_threads); }
DEVICE void show_barriers() { emu::show_barriers(); }
DEVICE void arrive(shared<u64> barriers, int i) { emu::arrive(BARRIER(barriers, i), 0); }
DEVICE void arrive_expecting(shared<u64> barriers, int i, u32 n_bytes) { emu::arrive(BARRIER(barriers, i), n_bytes); }
DEVICE void wait_for_phase(shared<u64> barriers, int i, u32 parity) { emu::wait_for_phase(BARRIER(barriers, i), parity); }
DEVICE void copy_tile(u32 to, const TensorMap &map, int i0, int i1, int i2, int i3, shared<u64> barriers, int i) {
    int at[4] = {i0, i1, i2, i3};
    emu::copy_tile(to, &map, at, BARRIER(barriers, i));
}

template <int N> struct Sums {
    float values[N];
    mutable emu::Touch touch = {};
    float operator[](int i) const {
        emu::touches(touch);
        return values[i];
    }
};
template <int N> DEVICE void clear(Sums<N> &sums) {
    emu::touches(sums.touch);
    for (int i = 0; i < N; i++) sums.values[i] = 0.0f;
}
template <int N> DEVICE void begin_products(Sums<N> &) { emu::begin_products(); }
DEVICE void end_products() { emu::end_products(); }
template <int LEFT> DEVICE void wait_for_products() { emu::wait_for_products(LEFT); }
template <int N> DEVICE void finish_products(Sums<N> &) { emu::wait_for_products(0); }
template <int TYPE, int COLUMNS> DEVICE void multiply_tiles(Sums<COLUMNS / 2> &sums, u64 a, u64 b) {
    emu::multiply_tiles(sums.values, sums.touch, COLUMNS, a, b, TYPE == 1);
}
