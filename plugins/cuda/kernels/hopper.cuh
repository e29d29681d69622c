// What sm_90 alone has: tiles that its copy engine fetches as tensor maps describe them, barriers in shared memory that wait
// for their bytes, and products of such tiles by four warps at once, a warpgroup. All of it goes on beside other work.
#pragma once
#include "number.cuh"

// The driver's description of a tensor and of the tiles that are taken of it. Only copy_tile looks inside.
struct alignas(64) TensorMap {
    u64 words[16];
};

// Rows of tiles have so many bytes, eight of them 1024; within these, 16 bytes number i of row r are at i ^ r (swizzle).
enum : u32 { SPAN = 128, EIGHT_ROWS = 8 * SPAN };

#ifdef __CUDACC__

// A kernel that takes tensor maps, so many blocks of which a multiprocessor shall hold. The argument stays where it is: a copy
// of a map is none.
#define MAPPED_KERNEL(name, Params, n_threads, n_blocks)                                                               \
    extern "C" __global__ void __launch_bounds__(n_threads, n_blocks) name(const __grid_constant__ Params p)

extern __shared__ u8 room_for_tiles[];

// The first multiple of EIGHT_ROWS in the launch's dynamic shared memory.
DEVICE u32 first_tile() { return ((u32)__cvta_generic_to_shared(room_for_tiles) + EIGHT_ROWS - 1) / EIGHT_ROWS * EIGHT_ROWS; }

DEVICE u32 place_of(shared<u64> barriers, int i) { return (u32)__cvta_generic_to_shared(barriers + i); }

// Barrier i: a phase of it ends when so many threads have arrived, and all bytes that they expect.
DEVICE void init_barrier(shared<u64> barriers, int i, u32 n_threads) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place_of(barriers, i)), "r"(n_threads) : "memory");
}
// Makes the barriers that this thread made visible to copies.
DEVICE void show_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void arrive(shared<u64> barriers, int i) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(place_of(barriers, i)) : "memory");
}
DEVICE void arrive_expecting(shared<u64> barriers, int i, u32 n_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(place_of(barriers, i)), "r"(n_bytes) : "memory");
}
DEVICE bool has_passed(u32 barrier, u32 parity) {
    u32 passed;
    asm volatile("{\n.reg .pred passed;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 passed, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, passed;\n}"
                 : "=r"(passed) : "r"(barrier), "r"(parity) : "memory");
    return passed != 0;
}
DEVICE u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}
// Waits for the end of the phase of this parity, the first having 0. Ten seconds are an error: better than a card that hangs.
DEVICE void wait_for_phase(shared<u64> barriers, int i, u32 parity) {
    u32 barrier = place_of(barriers, i);
    if (has_passed(barrier, parity)) return;
    u64 start = nanoseconds();
    while (!has_passed(barrier, parity))
        if (nanoseconds() - start > 10000000000ull) asm volatile("trap;");
}

// Has the tile of a map of four dims that begins at these numbers copied to shared memory; numbers outside of the tensor are 0.
// The barrier gets the bytes of a whole tile.
DEVICE void copy_tile(u32 to, const TensorMap &map, int i0, int i1, int i2, int i3, shared<u64> barriers, int i) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];"
                 :: "r"(to), "l"(&map), "r"(i0), "r"(i1), "r"(i2), "r"(i3), "r"(place_of(barriers, i)) : "memory");
}

// A lane's N numbers of the sums [64, 2 N] of a warpgroup: numbers 4 j and 4 j + 1 are of row 16 (warp % 4) + lane / 4 and of
// columns 8 j + 2 (lane % 4) and the next, numbers 4 j + 2 and 4 j + 3 of the row 8 further down. Code that reads or writes them
// calls begin_products before they are added to again.
template <int N> struct Sums {
    float values[N];
    INLINE float operator[](int i) const { return values[i]; }
};
template <int N> DEVICE void clear(Sums<N> &sums) {
    UNROLL for (int i = 0; i < N; i++) sums.values[i] = 0.0f;
}
// Nothing that the compiler does with them goes past here.
template <int N> DEVICE void keep(Sums<N> &sums) {
    UNROLL for (int i = 0; i < N; i++) asm volatile("" : "+f"(sums.values[i]) :: "memory");
}

// Products that follow see what was done to registers before. All lanes come together, as a warpgroup's instructions require.
template <int N> DEVICE void begin_products(Sums<N> &sums) {
    keep(sums);
    __syncwarp();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Closes a group of products.
DEVICE void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all groups but the last LEFT: then others may have their tiles.
template <int LEFT> DEVICE void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory");
}
// Waits for all, then the sums may be read.
template <int N> DEVICE void finish_products(Sums<N> &sums) {
    __syncwarp();
    wait_for_products<0>();
    keep(sums);
}

#define FOUR(i) "+f"(sums.values[i]), "+f"(sums.values[i + 1]), "+f"(sums.values[i + 2]), "+f"(sums.values[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)
#define SIXTY_FOUR(i) SIXTEEN(i), SIXTEEN(i + 16), SIXTEEN(i + 32), SIXTEEN(i + 48)
#define NAMES_32                                                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64                                                                                                       \
    NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                      \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_128                                                                                                      \
    NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                      \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                                 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                     \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// The sums stay (true), signs too (1, 1), and both matrices have the numbers that are multiplied beside each other (0, 0).
#define PRODUCT(shape, type, names, a, b)                                                                              \
    "{\n.reg .pred stay;\nsetp.eq.u32 stay, 0, 0;\n"                                                                   \
    "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" names "}, " a ", " b ", stay, 1, 1, 0, 0;\n}"

// sums [64, COLUMNS] += a [64, 16] b [COLUMNS, 16]ᵀ of F16 or BF16, by all lanes of a warpgroup.
template <int TYPE, int COLUMNS> struct Multiply;
#define MULTIPLY(TYPE, type, COLUMNS, shape, names, a_name, b_name, ...)                                               \
    template <> struct Multiply<TYPE, COLUMNS> {                                                                       \
        static INLINE void add(Sums<COLUMNS / 2> &sums, u64 a, u64 b) {                                                \
            asm volatile(PRODUCT(shape, type, names, a_name, b_name) : __VA_ARGS__ : "l"(a), "l"(b));                  \
        }                                                                                                              \
    };
MULTIPLY(F16, "f16", 64, "m64n64k16", NAMES_32, "%32", "%33", SIXTEEN(0), SIXTEEN(16))
MULTIPLY(BF16, "bf16", 64, "m64n64k16", NAMES_32, "%32", "%33", SIXTEEN(0), SIXTEEN(16))
MULTIPLY(F16, "f16", 128, "m64n128k16", NAMES_64, "%64", "%65", SIXTY_FOUR(0))
MULTIPLY(BF16, "bf16", 128, "m64n128k16", NAMES_64, "%64", "%65", SIXTY_FOUR(0))
MULTIPLY(F16, "f16", 256, "m64n256k16", NAMES_128, "%128", "%129", SIXTY_FOUR(0), SIXTY_FOUR(64))
MULTIPLY(BF16, "bf16", 256, "m64n256k16", NAMES_128, "%128", "%129", SIXTY_FOUR(0), SIXTY_FOUR(64))

template <int TYPE, int COLUMNS> DEVICE void multiply_tiles(Sums<COLUMNS / 2> &sums, u64 a, u64 b) {
    Multiply<TYPE, COLUMNS>::add(sums, a, b);
}

#endif

// A matrix in such a tile, as products take it: where its first row's numbers begin, in units of 16 bytes like all else;
// the distance of eight rows (bits 32 on); that rows have SPAN bytes and are swizzled (bit 62). The distance of columns (bits
// 16 on) has no meaning then.
DEVICE u64 matrix_at(u32 address) {
    return (u64)1 << 62 | (u64)(EIGHT_ROWS >> 4) << 32 | (u64)1 << 16 | (address & 0x3ffff) >> 4;
}
