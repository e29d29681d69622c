// What the parts of the machine share: threads that wait for something, and which warp has seen what others did.
//
// Warps have clocks, with a count for each warp and for each barrier in shared memory. What a warp did before its count went up
// is visible to warps that have at least that count of it: by a barrier of the block, or of shared memory. A barrier's count are its
// phases that ended, and copies belong to one.
#pragma once
#include "emu.h"

namespace emu {

static const int MAX_WARPS = 16, MAX_BARRIERS = 32;
static const u32 DYNAMIC_LIMIT = 227 << 10;
struct Clock {
    u32 counts[MAX_WARPS + MAX_BARRIERS];
    void join(const Clock &);
};
extern Clock clocks[MAX_WARPS];
// The running thread's warp.
int warp_here();

// Ends the kernel with an error, also outside of its threads; a thread goes on to where it stops next.
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Stops the running thread until this is so.
void wait_until(bool (*is_so)(const void *), const void *what);

// Sixteen bytes of a launch's dynamic shared memory: on their way there, and which phase of a barrier shows that they
// came. Of each warp: products that read them and were not waited for, and its count when the last of them was waited for.
struct Chunk {
    enum { NEVER, ON_THEIR_WAY, THERE } state;
    u32 barrier, phase;
    u16 n_readers[MAX_WARPS];
    u32 read_at[MAX_WARPS];
};
extern Chunk chunks[DYNAMIC_LIMIT / 16];
extern char dynamic[DYNAMIC_LIMIT];
// Bytes of it, and where shared memory begins to be it: at a multiple of 16, as it is promised, and of no more.
extern u32 n_dynamic;
static const u32 DYNAMIC_AT = 1024 + 48;
// The number of the chunk at an address; faults if that is outside.
u32 chunk_at(u32 address);
const char *barrier_name(u32 barrier, size_t *i);
// Where 16 bytes are stored that are meant for an address: their number among 2^log changes with the number of their 128 bytes.
u32 swizzled(u32 address, u32 log);

// For emu.cpp: a block begins, of copies and of products; all threads are at its barrier; a thread ends; a block ends.
void begin_block();
void begin_block_of_products();
void pass_barrier();
void end_thread();
void end_block();
// Lets one copy arrive, the latest first, when nothing else moves. False: there is none.
bool let_one_arrive();
// What the first barrier that is waited for lacks; false: none is.
bool explain(char *text, size_t n);

} // namespace emu
