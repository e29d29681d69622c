// Products of warpgroups: the half of hopper.h that reads tiles. They are computed at the call, and no thread may touch
// their registers or tiles before they are waited for.
#include "hopper.h"
#include "machine.h"

namespace emu {

// A thread's fences, groups of products that it closed, those that are known to be done, and products ever.
struct Lane {
    u32 n_fences, n_closed, n_done, n_products, n_open;
};
static Lane lanes[32 * MAX_WARPS];
// Whether a kernel has products at all.
static bool is_used;
static Lane &self() {
    if (place.threads > 32 * MAX_WARPS) fault("the emulation has products for %d warps", MAX_WARPS);
    is_used = true;
    return lanes[place.thread];
}

// A warp's products, and the chunks that those read which are not done.
struct Reading {
    u32 chunk, group;
};
struct Group {
    u32 n_computed;
    int n_reading;
    Reading reading[1 << 14];
    // Of the last two: a lane may be one ahead.
    float results[2][16][256];
};
static Group groups[MAX_WARPS];

// The operands that the warps of a warpgroup passed, which must be the same: the last of them.
struct Operands {
    u64 a, b, shape;
};
static const u32 N_OPERANDS = 256;
static Operands operands[MAX_WARPS / 4][N_OPERANDS];
static u32 n_operands[MAX_WARPS / 4];

void begin_block_of_products() {
    if (!is_used) return;
    is_used = false;
    memset(lanes, 0, sizeof lanes);
    for (Group &g : groups) g.n_computed = g.n_reading = 0;
    memset(n_operands, 0, sizeof n_operands);
}

void touches(Touch &t) {
    Lane &lane = self();
    if (t.is_summed && t.group >= lane.n_done) fault("registers of a product are touched before it was waited for");
    t.n_fences = lane.n_fences + 1;
}

// All lanes are here: these instructions are a warp's.
static void together() {
    const u64 nothing = 0;
    gather(&nothing, 1);
}

void begin_products() {
    together();
    self().n_fences++;
}

void end_products() {
    together();
    self().n_closed++;
    self().n_open = 0;
}

void wait_for_products(u32 left) {
    together();
    Lane &lane = self();
    if (lane.n_closed > left && lane.n_done < lane.n_closed - left) lane.n_done = lane.n_closed - left;
    int w = warp_here(), n_left = 0;
    Group &g = groups[w];
    for (int i = 0; i < g.n_reading; i++) {
        Chunk &c = chunks[g.reading[i].chunk];
        if (g.reading[i].group >= lane.n_done) {
            g.reading[n_left++] = g.reading[i];
        } else if (--c.n_readers[w] == 0) {
            c.read_at[w] = clocks[w].counts[w];
        }
    }
    g.n_reading = n_left;
}

void end_thread() {
    if (!is_used) return;
    const Lane &lane = self();
    if (lane.n_done < lane.n_closed || lane.n_open > 0) fault("ends before its products were waited for");
    u32 other = lanes[place.thread / 128 * 128].n_products;
    if (place.thread % 128 == 127 && lane.n_products != other)
        fault("%u products, and its warpgroup's first thread has %u", lane.n_products, other);
}

// The 16 bytes at an address, which the warp now reads.
static const char *read_chunk(u32 address) {
    u32 n = chunk_at(address);
    int w = warp_here();
    Chunk &c = chunks[n];
    Group &g = groups[w];
    if (c.state == Chunk::NEVER) fault("a product reads address %u of shared memory, where nothing was copied to", address);
    if (c.state == Chunk::ON_THEIR_WAY || clocks[w].counts[MAX_WARPS + c.barrier] <= c.phase) {
        size_t i;
        const char *name = barrier_name(c.barrier, &i);
        fault("a product reads address %u of shared memory before phase %u of barrier `%s`[%zu] was waited for", address,
              c.phase, name, i);
    }
    if (g.n_reading == 1 << 14) fault("the emulation has no room for more products that were not waited for");
    g.reading[g.n_reading++] = {n, self().n_closed};
    c.n_readers[w]++;
    return dynamic + (size_t)(address - DYNAMIC_AT) / 16 * 16;
}

// 16 numbers of a row of a matrix whose rows have no gaps, by its descriptor.
static void read_row(u64 matrix, int row, bool is_f16, float *to) {
    u32 start = (matrix & 0x3fff) << 4, columns = (matrix >> 16 & 0x3fff) << 4, rows = (matrix >> 32 & 0x3fff) << 4;
    // 128, 64 and 32 bytes.
    u32 mode = matrix >> 62, log = mode == 0 ? 0 : 4 - mode, span = 16u << log;
    if ((matrix >> 49 & 7) != 0) fault("a matrix with a base offset, which the emulation has not");
    if (mode != 0 && start % (8 * span) >= span)
        fault("a matrix at %u of shared memory, which does not begin in the first row of %u", start, 8 * span);
    for (u32 half = 0; half < 2; half++) {
        u32 address = start + row / 8 * rows + row % 8 * span + (mode == 0 ? half * columns : half * 16);
        const char *bytes = read_chunk(swizzled(address, log));
        for (int i = 0; i < 8; i++) {
            u16 number;
            memcpy(&number, bytes + 2 * i, 2);
            to[8 * half + i] = is_f16 ? half_to_float(number) : bits_to_float((u32)number << 16);
        }
    }
}

// The warp's 16 rows of the product. All rows of a count as read: which warp reads which is not documented.
static void compute(float (*results)[256], int n, u64 a, u64 b, bool is_f16) {
    static float rows[64][16], columns[16][256];
    for (int r = 0; r < 64; r++) read_row(a, r, is_f16, rows[r]);
    for (int c = 0; c < n; c++) {
        float column[16];
        read_row(b, c, is_f16, column);
        for (int k = 0; k < 16; k++) columns[k][c] = column[k];
    }
    for (int r = 0; r < 16; r++) {
        float *sums = results[r];
        for (int c = 0; c < n; c++) sums[c] = 0.0f;
        for (int k = 0; k < 16; k++) {
            float x = rows[warp_here() % 4 * 16 + r][k];
            for (int c = 0; c < n; c++) sums[c] += x * columns[k][c];
        }
    }
}

// A warp's operands are those of the others of its warpgroup.
static void compare(u32 number, const Operands &own) {
    int warpgroup = place.thread / 128;
    if (warpgroup * 128 + 128 > place.threads) fault("a product of a warpgroup that has not four warps");
    Operands &other = operands[warpgroup][number % N_OPERANDS];
    if (number >= n_operands[warpgroup]) {
        n_operands[warpgroup] = number + 1;
        other = own;
    } else if (number + N_OPERANDS >= n_operands[warpgroup] &&
               (other.a != own.a || other.b != own.b || other.shape != own.shape)) {
        fault("product %u of its warp is another than its warpgroup's", number);
    }
}

void multiply_tiles(float *sums, Touch &touch, int n, u64 a, u64 b, bool is_f16) {
    const u64 own[3] = {a, b, (u64)n << 1 | is_f16};
    const Words *of = gather(own, 3);
    for (int i = 0; i < 3; i++)
        if (of[0][i] != own[i]) fault("lanes of a warp pass different operands");
    Lane &lane = self();
    Group &g = groups[warp_here()];
    if (lane.n_fences < touch.n_fences || lane.n_fences == 0)
        fault("registers of a product were touched, and no fence came before it");
    u32 number = lane.n_products++;
    float (*results)[256] = g.results[number & 1];
    if (g.n_computed == number) {
        g.n_computed++;
        compare(number, {a, b, own[2]});
        compute(results, n, a, b, is_f16);
    }
    lane.n_open++;
    touch.group = lane.n_closed;
    touch.is_summed = true;
    int row = place.thread % 32 / 4, column = place.thread % 4 * 2;
    for (int i = 0; i < n / 2; i++) sums[i] += results[row + i / 2 % 2 * 8][i / 4 * 8 + column + i % 2];
}

} // namespace emu
