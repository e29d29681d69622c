// Barriers in shared memory, and copies of tiles that they wait for: the half of hopper.h that comes before products.
#include "hopper.h"
#include "machine.h"
#include <stdio.h>

namespace emu {

Clock clocks[MAX_WARPS];
Chunk chunks[DYNAMIC_LIMIT / 16];
char dynamic[DYNAMIC_LIMIT];
u32 n_dynamic;

void Clock::join(const Clock &other) {
    for (int i = 0; i < MAX_WARPS + MAX_BARRIERS; i++)
        if (counts[i] < other.counts[i]) counts[i] = other.counts[i];
}

int warp_here() { return place.thread / 32; }

struct Mbarrier {
    const void *key;
    const char *name;
    size_t i;
    // Threads of a phase, those that have not arrived, bytes that were expected and did not come, phases that ended.
    u32 count, n_missing, phase;
    i64 n_bytes;
    // Copies of this phase on their way.
    u32 n_copies;
    int maker;
    u32 made_at;
    bool is_shown;
    // What arrivals of this phase have seen, and those of all that ended.
    Clock arriving, passed;
    // Threads that wait.
    u32 n_waiting;
};
static Mbarrier barriers[MAX_BARRIERS];
static u32 n_barriers;

// A map as the simulated driver writes it (../sim/src/api/maps.rs): swizzle is the logarithm of its chunks.
struct Map {
    u64 mark, address, ne[5], nb[4];
    u16 box[5];
    u8 rank, element, swizzle;
};
static const u64 MARK = 0x70616d2d74726d6cull;

// A copy on its way.
struct Fetch {
    Map map;
    u32 to, barrier, phase, n_bytes;
    int thread, at[4];
};
static const int MAX_FETCHES = 256;
static Fetch fetches[MAX_FETCHES];
static int n_fetches;

void begin_block() {
    memset(clocks, 0, sizeof clocks);
    for (int w = 0; w < MAX_WARPS; w++) clocks[w].counts[w] = 1;
    n_barriers = n_fetches = 0;
    memset(chunks, 0, n_dynamic / 16 * sizeof *chunks);
    memset(dynamic, 0xff, n_dynamic);
}

void pass_barrier() {
    if (place.threads > 32 * MAX_WARPS) return;
    Clock all = clocks[0];
    for (int w = 1; w < place.threads / 32; w++) all.join(clocks[w]);
    for (int w = 0; w < place.threads / 32; w++) {
        clocks[w] = all;
        clocks[w].counts[w]++;
    }
}

void end_block() {
    if (n_fetches == 0) return;
    place.thread = fetches[0].thread;
    fail("the block ends before %d of its copies are there", n_fetches);
}

const char *barrier_name(u32 barrier, size_t *i) {
    *i = barriers[barrier].i;
    return barriers[barrier].name;
}

u32 chunk_at(u32 address) {
    if (address < DYNAMIC_AT || address >= DYNAMIC_AT + n_dynamic)
        fault("address %u of shared memory, where the launch's is %u..%u", address, DYNAMIC_AT, DYNAMIC_AT + n_dynamic);
    return (address - DYNAMIC_AT) / 16;
}

u32 swizzled(u32 address, u32 log) { return address ^ (address >> 7 & ((1u << log) - 1)) << 4; }

u32 first_tile() {
    if (n_dynamic == 0) fault("the launch has no shared memory");
    return (DYNAMIC_AT + 1023) / 1024 * 1024;
}

void init_barrier(const void *key, const char *name, size_t i, u32 n_threads) {
    if (place.threads > 32 * MAX_WARPS) fault("the emulation has barriers for %d warps", MAX_WARPS);
    for (u32 b = 0; b < n_barriers; b++)
        if (barriers[b].key == key) fault("barrier `%s`[%zu] is made twice", name, i);
    if (n_barriers == MAX_BARRIERS) fault("the emulation has no more than %d barriers", MAX_BARRIERS);
    if (n_threads == 0 || n_threads >= 1 << 20) fault("barrier `%s`[%zu] for %u threads", name, i, n_threads);
    Mbarrier &b = barriers[n_barriers++];
    b = {};
    b.key = key, b.name = name, b.i = i;
    b.count = b.n_missing = n_threads;
    b.maker = place.thread;
    b.made_at = clocks[warp_here()].counts[warp_here()];
}

void show_barriers() {
    for (u32 b = 0; b < n_barriers; b++)
        if (barriers[b].maker == place.thread) barriers[b].is_shown = true;
}

// A barrier that was made, visibly to the thread.
static Mbarrier &find(const void *key, const char *name, size_t i) {
    for (u32 n = 0; n < n_barriers; n++) {
        Mbarrier &b = barriers[n];
        if (b.key != key) continue;
        int maker = b.maker / 32;
        if (b.maker != place.thread && clocks[warp_here()].counts[maker] < b.made_at)
            fault("barrier `%s`[%zu] is used while thread %d makes it", name, i, b.maker);
        return b;
    }
    fault("barrier `%s`[%zu] is used before it was made", name, i);
}

// Ends a phase if nothing is missing.
static void try_to_pass(Mbarrier &b) {
    if (b.n_missing > 0 || b.n_bytes != 0) return;
    if (b.n_copies > 0) {
        fail("phase %u of barrier `%s`[%zu] ends before %u of its copies are there: it expects too few bytes", b.phase,
             b.name, b.i, b.n_copies);
        return;
    }
    b.phase++;
    b.n_missing = b.count;
    b.passed.join(b.arriving);
    b.passed.counts[MAX_WARPS + (&b - barriers)] = b.phase;
    b.arriving = {};
}

void arrive(const void *key, const char *name, size_t i, u32 n_bytes) {
    Mbarrier &b = find(key, name, i);
    Clock &own = clocks[warp_here()];
    b.arriving.join(own);
    own.counts[warp_here()]++;
    b.n_bytes += n_bytes;
    if (b.n_bytes >= 1 << 20) fault("barrier `%s`[%zu] expects %lld bytes", name, i, b.n_bytes);
    b.n_missing--;
    try_to_pass(b);
}

// The parity of the phase that lasts, and of the one that is waited for.
struct Wait {
    Mbarrier *barrier;
    u32 parity;
};

void wait_for_phase(const void *key, const char *name, size_t i, u32 parity) {
    Wait wait = {&find(key, name, i), parity};
    if (parity > 1) fault("a wait for parity %u of barrier `%s`[%zu]", parity, name, i);
    wait.barrier->n_waiting++;
    wait_until([](const void *what) {
        const Wait &w = *(const Wait *)what;
        return (w.barrier->phase & 1) != w.parity;
    }, &wait);
    wait.barrier->n_waiting--;
    clocks[warp_here()].join(wait.barrier->passed);
}

bool explain(char *text, size_t n) {
    for (u32 i = 0; i < n_barriers; i++) {
        const Mbarrier &b = barriers[i];
        if (b.n_waiting == 0) continue;
        snprintf(text, n, "%u threads wait for barrier `%s`[%zu], whose phase %u lacks %u arrivals and %lld bytes", b.n_waiting,
                 b.name, b.i, b.phase, b.n_missing, b.n_bytes);
        return true;
    }
    return false;
}

// Records that a copy will write a chunk.
static void claim(u32 n, u32 barrier, u32 phase) {
    Chunk &c = chunks[n];
    u32 at = DYNAMIC_AT + 16 * n;
    if (c.state == Chunk::ON_THEIR_WAY) fault("a copy to address %u of shared memory, where another is on its way", at);
    const Clock &own = clocks[warp_here()];
    for (int w = 0; w < place.threads / 32; w++) {
        if (c.n_readers[w] > 0) fault("a copy to address %u of shared memory, which a product of warp %d reads", at, w);
        if (c.read_at[w] > own.counts[w])
            fault("a copy to address %u of shared memory, and no barrier shows that warp %d has read it", at, w);
    }
    c.state = Chunk::ON_THEIR_WAY;
    c.barrier = barrier;
    c.phase = phase;
}

void copy_tile(u32 to, const void *map, const int *at, const void *key, const char *name, size_t i) {
    const Map &m = *(const Map *)map;
    Mbarrier &b = find(key, name, i);
    if ((u64)map % 64 != 0 || m.mark != MARK) fault("a copy by what is no tensor map");
    if (m.rank != 4) fault("a copy of 4 dims by a map of %u", m.rank);
    if (!b.is_shown) fault("barrier `%s`[%zu] was not shown to copies", name, i);
    if (to % 128 != 0) fault("a tile at %u of shared memory, which is no multiple of 128", to);
    if (n_fetches == MAX_FETCHES) fault("more than %d copies on their way", MAX_FETCHES);
    Fetch f = {m, to, (u32)(&b - barriers), b.phase, m.element, place.thread, {}};
    for (int d = 0; d < 4; d++) {
        f.n_bytes *= m.box[d];
        f.at[d] = at[d];
    }
    for (u32 n = 0; n < f.n_bytes; n += 16) claim(chunk_at(swizzled(to + n, m.swizzle)), f.barrier, f.phase);
    b.n_copies++;
    fetches[n_fetches++] = f;
}

// Sixteen bytes of a tile's row, zeros where the tensor has none.
static bool fetch_chunk(const Fetch &f, const i64 *row, int i, char *to) {
    const Map &m = f.map;
    i64 first = f.at[0] + i / m.element, address = (i64)m.address + first * m.element;
    memset(to, 0, 16);
    for (int d = 1; d < 4; d++) {
        if (row[d] < 0 || row[d] >= (i64)m.ne[d]) return true;
        address += row[d] * (i64)m.nb[d - 1];
    }
    for (int n = 0; n < 16; n += m.element) {
        i64 number = first + n / m.element;
        if (number < 0 || number >= (i64)m.ne[0]) continue;
        Span span = span_of((u64)(address + n));
        if ((u64)(address + n) + m.element > span.high) {
            fail("a copy reads %llx, which is outside of an allocation", (u64)(address + n));
            return false;
        }
        memcpy(to + n, (const char *)(address + n + span.shift), m.element);
    }
    return true;
}

bool let_one_arrive() {
    if (n_fetches == 0) return false;
    const Fetch f = fetches[--n_fetches];
    const Map &m = f.map;
    Mbarrier &b = barriers[f.barrier];
    place.thread = f.thread;
    int width = m.box[0] * m.element;
    for (u32 n = 0; n < f.n_bytes; n += 16) {
        u32 number = n / width;
        i64 row[4] = {0, f.at[1] + number % m.box[1], f.at[2] + number / m.box[1] % m.box[2],
                      f.at[3] + number / m.box[1] / m.box[2]};
        u32 chunk = (swizzled(f.to + n, m.swizzle) - DYNAMIC_AT) / 16;
        if (!fetch_chunk(f, row, n % width, dynamic + 16 * chunk)) return true;
        chunks[chunk].state = Chunk::THERE;
    }
    b.n_copies--;
    b.n_bytes -= f.n_bytes;
    try_to_pass(b);
    return true;
}

} // namespace emu
