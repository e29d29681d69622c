// The machine that runs emu.h: one block at a time, its threads as fibers on one thread of the host.
#include "machine.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace emu {

Place place;
static Kernel *kernels;

Kernel::Kernel(const char *name, u32 params_bytes, u32 max_threads, u32 chip, void (*run)(const void *))
    : name(name), params_bytes(params_bytes), max_threads(max_threads), chip(chip), run(run), next(kernels) {
    kernels = this;
}

// What a fiber does next.
enum State { READY, AT_WARP, AT_BARRIER, AT_PHASE, DONE };

// Eight halves on their way to shared memory.
struct Copy {
    u16 *to;
    Shadow *shadow;
    const char *name;
    size_t i;
    u16 halves[8];
    u32 group;
};
static const int MAX_COPIES = 96;

struct Fiber {
    State state;
    // Barriers passed, of the block and of the warp.
    u32 n_block, n_warp;
    // Groups of copies that were closed, and the copies that were not waited for.
    u32 n_groups;
    int n_copies;
    Copy copies[MAX_COPIES];
    // What it waits for at a phase.
    bool (*is_so)(const void *);
    const void *what;
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
};

// Values of a warp's lanes, of this exchange and the one before: a fast lane may be in the next already.
struct Warp {
    Words values[2][32];
    u32 n_arrived, n_exchanges;
};

static const int MAX_THREADS = 1024;
static const size_t STACK = 64 << 10;
static Fiber fibers[MAX_THREADS];
static Warp warps[MAX_THREADS / 32];
static char *stacks;
static Fiber home;
static const Kernel *kernel;
static const void *params;
static bool failed;
static char message[512];

#ifdef __x86_64__
// Saves what a function must keep, changes stacks, and restores the other's.
extern "C" void emu_switch(void **from, void *to);
asm(R"(
    .text
    .type emu_switch, @function
emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
static void change(Fiber &from, Fiber &to) { emu_switch(&from.sp, to.sp); }
#else
static void change(Fiber &from, Fiber &to) { swapcontext(&from.context, &to.context); }
#endif

static Fiber &self() { return fibers[place.thread]; }

static void yield(State state) {
    self().state = state;
    change(self(), home);
}

static void body() {
    kernel->run(params);
    if (self().n_copies > 0) fault("ends before its copies are there");
    end_thread();
    yield(DONE);
    abort();
}

static void prepare(int thread) {
    Fiber &fiber = fibers[thread];
    fiber.state = READY;
    fiber.n_block = fiber.n_warp = fiber.n_groups = 0;
    fiber.n_copies = 0;
    char *stack = stacks + thread * STACK;
#ifdef __x86_64__
    // As a call would leave it: the return address at 8 below a multiple of 16, and six registers.
    u64 *top = (u64 *)(stack + STACK) - 2;
    *top = (u64)body;
    fiber.sp = top - 6;
    memset(fiber.sp, 0, 48);
#else
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = 0;
    makecontext(&fiber.context, body, 0);
#endif
}

// Records what is wrong, if nothing was before.
static void note(const char *format, va_list args) {
    if (failed) return;
    failed = true;
    int n = snprintf(message, sizeof message, "%s, block %lld %lld %lld thread %d: ", kernel->name, place.block[0],
                     place.block[1], place.block[2], place.thread);
    vsnprintf(message + n, sizeof message - n, format, args);
}

void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    note(format, args);
    va_end(args);
}

void fault(const char *format, ...) {
    va_list args;
    va_start(args, format);
    note(format, args);
    va_end(args);
    yield(DONE);
    abort();
}

void wait_until(bool (*is_so)(const void *), const void *what) {
    if (is_so(what)) return;
    self().is_so = is_so;
    self().what = what;
    yield(AT_PHASE);
}

void barrier() {
    yield(AT_BARRIER);
    self().n_block++;
}

const Words *gather(const u64 *words, int n) {
    Warp &warp = warps[place.thread / 32];
    Words *values = warp.values[warp.n_exchanges & 1];
    memcpy(values[place.thread & 31], words, n * sizeof *words);
    if (++warp.n_arrived == 32) {
        warp.n_arrived = 0;
        warp.n_exchanges++;
        int first = place.thread / 32 * 32;
        for (int i = first; i < first + 32; i++)
            if (fibers[i].state == AT_WARP) fibers[i].state = READY;
    } else {
        yield(AT_WARP);
    }
    self().n_warp++;
    return values;
}

u64 exchange(u64 value, int from_lane) { return gather(&value, 1)[from_lane][0]; }

u32 vote(bool x) {
    u32 bits = 0;
    const u64 own = x;
    const Words *votes = gather(&own, 1);
    for (int lane = 0; lane < 32; lane++) bits |= (u32)(votes[lane][0] != 0) << lane;
    return bits;
}

// Runs the threads of a block to their end.
static void run_block() {
    for (int i = 0; i < place.threads; i++) prepare(i);
    for (int i = 0; i < place.threads / 32; i++) warps[i].n_arrived = warps[i].n_exchanges = 0;
    begin_block();
    begin_block_of_products();
    for (;;) {
        int n_done = 0, n_waiting = 0;
        bool any_moved = false;
        for (int first = 0; first < place.threads; first += 32) {
            bool moved = true;
            while (moved && !failed) {
                moved = false;
                for (int i = first; i < first + 32; i++) {
                    Fiber &fiber = fibers[i];
                    if (fiber.state == AT_PHASE && fiber.is_so(fiber.what)) fiber.state = READY;
                    if (fiber.state != READY || failed) continue;
                    moved = any_moved = true;
                    place.thread = i;
                    change(home, fibers[i]);
                }
            }
            if (failed) return;
            for (int i = first; i < first + 32; i++) {
                n_done += fibers[i].state == DONE;
                n_waiting += fibers[i].state == AT_BARRIER;
            }
        }
        if (n_done == place.threads) return end_block();
        if (n_waiting != place.threads) {
            if (any_moved || let_one_arrive()) continue;
            if (failed) return;
            failed = true;
            int n = snprintf(message, sizeof message, "%s: ", kernel->name);
            if (explain(message + n, sizeof message - n)) return;
            snprintf(message, sizeof message, "%s: of %d threads %d wait at a barrier, %d have ended, the others wait "
                     "for lanes of their warp that do not come", kernel->name, place.threads, n_waiting, n_done);
            return;
        }
        pass_barrier();
        for (int i = 0; i < place.threads; i++) fibers[i].state = READY;
    }
}

// Shared memory of the block that runs.
struct Kept {
    const void *key;
    size_t n_bytes;
    Area area;
};
static Kept kept[16];
static int n_kept;
static char shared_bytes[228 << 10];
static Shadow shadows[228 << 10];
static size_t n_shared, n_shadows;
static u32 shared_limit;

Area area(const void *key, size_t n, size_t size) {
    for (int i = 0; i < n_kept; i++)
        if (kept[i].key == key) return kept[i].area;
    size_t start = (n_shared + 15) / 16 * 16;
    if (start + n * size > shared_limit || n_kept == 16) fault("more than %u bytes of shared memory", shared_limit);
    if (start + n * size + n_dynamic > DYNAMIC_LIMIT) fault("more than %u bytes of shared memory", DYNAMIC_LIMIT);
    n_shared = start + n * size;
    Area area = {shared_bytes + start, shadows + n_shadows};
    n_shadows += n;
    memset(area.bytes, 0xff, n * size);
    for (size_t i = 0; i < n; i++) area.shadows[i] = {false, -1, -1, 0, 0, 0, 0};
    kept[n_kept++] = {key, n * size, area};
    return area;
}

// Whether there is no barrier between an access of another thread and now.
static bool is_race(i32 other, u32 n_block, u32 n_warp) {
    if (other < 0 || other == place.thread || n_block != self().n_block) return false;
    return other / 32 != place.thread / 32 || n_warp == self().n_warp;
}

void reads(Shadow &s, const char *name, size_t i) {
    if (s.is_awaited) fault("shared `%s`[%zu] is read before thread %d waited for its copy", name, i, s.writer);
    if (s.writer < 0) fault("shared `%s`[%zu] is read before it was written", name, i);
    if (is_race(s.writer, s.write_block, s.write_warp))
        fault("shared `%s`[%zu] is read while thread %d writes it", name, i, s.writer);
    s.reader = place.thread;
    s.read_block = self().n_block;
    s.read_warp = self().n_warp;
}

void writes(Shadow &s, const char *name, size_t i) {
    if (s.is_awaited) fault("shared `%s`[%zu] is written before thread %d waited for its copy", name, i, s.writer);
    if (is_race(s.writer, s.write_block, s.write_warp))
        fault("shared `%s`[%zu] is written while thread %d writes it", name, i, s.writer);
    if (is_race(s.reader, s.read_block, s.read_warp))
        fault("shared `%s`[%zu] is written while thread %d reads it", name, i, s.reader);
    s.writer = place.thread;
    s.write_block = self().n_block;
    s.write_warp = self().n_warp;
}

void begin_copy(u16 *to, Shadow *shadow, const char *name, size_t i, const u16 *halves) {
    Fiber &fiber = self();
    if (fiber.n_copies == MAX_COPIES) fault("more than %d copies that were not waited for", MAX_COPIES);
    Copy &copy = fiber.copies[fiber.n_copies++];
    copy = {to, shadow, name, i, {}, fiber.n_groups};
    memcpy(copy.halves, halves, sizeof copy.halves);
    for (int j = 0; j < 8; j++) {
        writes(shadow[j], name, i + j);
        shadow[j].is_awaited = true;
    }
}

void end_copies() { self().n_groups++; }

void wait_for_copies(u32 n) {
    Fiber &fiber = self();
    int n_left = 0;
    for (int c = 0; c < fiber.n_copies; c++) {
        Copy &copy = fiber.copies[c];
        if (copy.group + n >= fiber.n_groups) {
            fiber.copies[n_left++] = copy;
            continue;
        }
        memcpy(copy.to, copy.halves, sizeof copy.halves);
        for (int j = 0; j < 8; j++) {
            copy.shadow[j].is_awaited = false;
            writes(copy.shadow[j], copy.name, copy.i + j);
        }
    }
    fiber.n_copies = n_left;
}

// The simulated driver's allocation that has an address; 0: there is none.
typedef int (*Lookup)(void *context, u64 address, Span *span);
static Lookup lookup;
static void *lookup_context;
static Span last[4];
static int n_last;

Span span_of(u64 address) {
    for (Span &span : last)
        if (span.low <= address && address < span.high) return span;
    Span span;
    if (!lookup(lookup_context, address, &span)) return {0, 0, 0};
    return last[n_last++ & 3] = span;
}

float half_to_float(u16 h) {
    _Float16 x;
    memcpy(&x, &h, 2);
    return (float)x;
}

u16 float_to_half(float f) {
    _Float16 x = (_Float16)f;
    u16 h;
    memcpy(&h, &x, 2);
    return h;
}

extern "C" {

// The first kernel of the list.
const Kernel *llmrt_emu_kernels() { return kernels; }

// Runs a kernel over a grid, with room for shared memory that it declares, and what the launch adds. 0, or 1 with a message.
int llmrt_emu_run(const Kernel *k, const void *p, const u32 *grid, u32 threads, u32 limit, u32 dynamic, Lookup find,
                  void *context, const char **text) {
    if (!stacks) {
        void *memory = mmap(0, MAX_THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            *text = "no memory for fibers";
            return 1;
        }
        stacks = (char *)memory;
    }
    kernel = k, params = p, lookup = find, lookup_context = context, shared_limit = limit;
    n_dynamic = dynamic < DYNAMIC_LIMIT ? (dynamic + 15) / 16 * 16 : DYNAMIC_LIMIT;
    failed = false;
    memset(last, 0, sizeof last);
    place.threads = (int)threads;
    for (int d = 0; d < 3; d++) place.blocks[d] = grid[d];
    for (u64 n = 0; n < (u64)grid[0] * grid[1] * grid[2] && !failed; n++) {
        place.block[0] = n % grid[0];
        place.block[1] = n / grid[0] % grid[1];
        place.block[2] = n / grid[0] / grid[1];
        n_kept = 0;
        n_shared = n_shadows = 0;
        run_block();
    }
    *text = message;
    return failed;
}
}

} // namespace emu
