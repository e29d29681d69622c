/* A plugin in C++, written from the header alone: add, mul, scale and mul_mat of F32 on a queue with a thread of its
 * own, events, and matrices that are sealed into another layout.
 *
 * It is whole as it stands. LLMRT_TEST_FAULT in the environment names one thing that it then does wrong; the tests of
 * `llmrt conform` expect each to be found. */

#include "llmrt/plugin.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#define STR(text) { reinterpret_cast<const uint8_t *>(text), sizeof(text) - 1 }

LLMRT_MANIFEST("abi=0\nname=faulty\nversion=1.0\n");

enum { OP_MUL_MAT = 3, OP_ADD = 5, OP_SUB = 6, OP_MUL = 7, OP_SCALE = 9 };

/* What conform computes to have a stream broken. */
enum { OP_BREAK_STREAM = 0x7ffffff1 };

static bool has(const char *fault) {
    static const char *chosen = std::getenv("LLMRT_TEST_FAULT");
    return chosen && std::strcmp(chosen, fault) == 0;
}

static int32_t fail(llmrt_error *err, int32_t code, const char *text, uint32_t node = LLMRT_NO_TENSOR,
                    uint32_t scope = LLMRT_SCOPE_CALL) {
    if (err) {
        size_t n = std::strlen(text);
        err->code = code;
        err->scope = scope;
        err->node_index = node;
        err->msg_len = static_cast<uint32_t>(n < sizeof err->msg ? n : sizeof err->msg);
        std::memcpy(err->msg, text, err->msg_len);
    }
    return code;
}

/* So that the compiler keeps what is never freed. */
static void *volatile lost;
static void leak(size_t n) { lost = std::malloc(n); }

/* ---- memory ---- */

static const uint64_t TOTAL = uint64_t(1) << 32;
static std::atomic<uint64_t> used{ 0 };

struct memory : llmrt_buffer {
    uint8_t *block, *bytes;
    uint64_t size;
    std::map<uint64_t, uint64_t> sealed; /* offset to bytes */
};

static const uint8_t KEY = 0x5a; /* a sealed byte is its own, xor this */

static memory *mem(llmrt_buffer *b) { return static_cast<memory *>(b); }
static uint8_t *at(const llmrt_tensor *t) { return mem(t->buffer)->bytes + t->offset; }

static void buffer_destroy(llmrt_buffer *b) {
    if (!has("leaks")) std::free(mem(b)->block);
    if (!has("leaks_on_the_device")) used -= mem(b)->size;
    if (has("leaks_a_little_per_buffer")) leak(16);
    delete mem(b);
}

/* Graphs that are queued or run, of all streams. */
static std::atomic<int> n_working{ 0 };

static int32_t buffer_set(llmrt_buffer *b, const llmrt_tensor *t, const void *src, uint64_t off, uint64_t n,
                          llmrt_error *err) {
    if (has("set_while_idle_only") && n_working) return fail(err, LLMRT_STATUS_INVALID, "set: a stream is busy");
    if (has("loses_odd_bytes") && off % 2 && n > 100) n -= 1;
    if (n) std::memcpy(mem(b)->bytes + t->offset + off, src, n);
    return LLMRT_STATUS_OK;
}

static int32_t buffer_get(llmrt_buffer *b, const llmrt_tensor *t, void *dst, uint64_t off, uint64_t n,
                          llmrt_error *) {
    const uint64_t start = t->offset + off;
    if (n) std::memcpy(dst, mem(b)->bytes + start, n);
    if (has("wrong_parts_after_seal") && n == 1 && off) return LLMRT_STATUS_OK;
    const bool slices_wrong = has("wrong_slices") && t->layout_id && !mem(b)->sealed.count(t->offset);
    for (auto [from, len] : mem(b)->sealed)
        for (uint64_t i = 0; !has("wrong_after_seal") && !slices_wrong && i < n; i++)
            if (start + i >= from && start + i < from + len) static_cast<uint8_t *>(dst)[i] ^= KEY;
    return LLMRT_STATUS_OK;
}

static int32_t buffer_fill(llmrt_buffer *b, uint64_t off, uint64_t n, uint8_t byte, llmrt_error *) {
    std::memset(mem(b)->bytes + off, byte, n + (has("fills_too_much") && off + n < mem(b)->size ? 1 : 0));
    return LLMRT_STATUS_OK;
}

static int32_t buffer_seal(llmrt_buffer *b, const llmrt_tensor *t, llmrt_layout *out, llmrt_error *err) {
    if (t->role != LLMRT_ROLE_MATRIX || t->dtype != 0) return fail(err, LLMRT_STATUS_UNSUPPORTED, "stays as it is");
    for (uint64_t i = 0; i < t->nbytes; i++) at(t)[i] ^= KEY;
    mem(b)->sealed[t->offset] = t->nbytes;
    if (has("seal_writes_past_the_end")) at(t)[t->nbytes] = 0;
    out->layout_id = 1;
    out->flags = LLMRT_LAYOUT_INVERTIBLE | LLMRT_LAYOUT_ROW_SLICEABLE;
    out->stored_bytes = has("stores_more") ? t->nbytes / 2 : has("stores_too_much") ? t->nbytes + 64 : t->nbytes;
    out->row_granularity = has("coarse_slices") ? 1000 : 1;
    out->name = STR("xor");
    return LLMRT_STATUS_OK;
}

static void *buffer_host_ptr(llmrt_buffer *b) { return mem(b)->bytes; }

/* Positional, as C++17 has no designators. */
static const llmrt_buffer_vt buffer_vt = { sizeof(llmrt_buffer_vt), 0, buffer_destroy, buffer_set, buffer_get,
                                           buffer_fill, buffer_seal, nullptr, buffer_host_ptr };

/* ---- events ---- */

struct point {
    std::mutex m;
    std::condition_variable changed;
    bool reached = false;
    void reach() {
        std::lock_guard<std::mutex> lock(m);
        reached = true;
        changed.notify_all();
    }
    bool wait(uint64_t ns) {
        std::unique_lock<std::mutex> lock(m);
        const uint64_t most = 3600ull * 1000000000ull;
        return changed.wait_for(lock, std::chrono::nanoseconds(ns < most ? ns : most), [this] { return reached; });
    }
};

struct event : llmrt_event {
    std::mutex m;
    std::shared_ptr<point> last;
    std::shared_ptr<point> get() {
        std::lock_guard<std::mutex> lock(m);
        return last;
    }
};

static event *ev(llmrt_event *e) { return static_cast<event *>(e); }
static void event_destroy(llmrt_event *e) {
    if (has("leaks_a_little_per_event")) leak(16);
    delete ev(e);
}

static int32_t event_wait_for(llmrt_event *e, uint64_t ns, llmrt_error *err) {
    auto last = ev(e)->get();
    return !last || last->wait(ns) ? static_cast<int32_t>(LLMRT_STATUS_OK)
                                   : fail(err, LLMRT_STATUS_NOT_READY, "not reached");
}

static int32_t event_query(llmrt_event *e, llmrt_error *err) { return event_wait_for(e, 0, err); }

static const llmrt_event_vt event_vt = { sizeof(llmrt_event_vt), 0, event_destroy, event_query, event_wait_for };

/* ---- a stream ---- */

struct backend : llmrt_backend {
    std::mutex m;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    bool busy = false, ends = false;
    std::atomic<bool> broken{ false };
    std::thread worker;
    void push(std::function<void()> work) {
        std::lock_guard<std::mutex> lock(m);
        queue.push_back(std::move(work));
        changed.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(m);
        changed.wait(lock, [this] { return queue.empty() && !busy; });
    }
    void serve() {
        std::unique_lock<std::mutex> lock(m);
        for (;;) {
            changed.wait(lock, [this] { return ends || !queue.empty(); });
            if (queue.empty()) return;
            auto work = std::move(queue.front());
            queue.pop_front();
            busy = true;
            lock.unlock();
            work();
            lock.lock();
            busy = false;
            changed.notify_all();
        }
    }
};

static backend *be(llmrt_backend *b) { return static_cast<backend *>(b); }

static void backend_destroy(llmrt_backend *b) {
    be(b)->wait();
    {
        std::lock_guard<std::mutex> lock(be(b)->m);
        be(b)->ends = true;
        be(b)->changed.notify_all();
    }
    be(b)->worker.join();
    if (has("leaks_a_little_per_stream")) leak(16);
    delete be(b);
}

static std::atomic<bool> any_broken{ false };

/* The error of a stream that broke, from every call. */
static int32_t is_broken(llmrt_backend *b, llmrt_error *err) {
    if (has("breaks_all_streams") ? !any_broken : !be(b)->broken) return LLMRT_STATUS_OK;
    return fail(err, LLMRT_STATUS_INTERNAL, "the stream was broken", LLMRT_NO_TENSOR, LLMRT_SCOPE_STREAM);
}

static int32_t synchronize(llmrt_backend *b, llmrt_error *err) {
    if (!has("does_not_synchronize")) be(b)->wait();
    int32_t code = is_broken(b, err);
    if (has("forgets_errors")) be(b)->broken = false;
    return code;
}

static const llmrt_tensor *tensor(const llmrt_graph *g, uint32_t id) {
    return reinterpret_cast<const llmrt_tensor *>(reinterpret_cast<const char *>(g->tensors) +
                                                  size_t(id) * (has("ignores_stride") ? sizeof(llmrt_tensor) : g->tensor_stride));
}

static const llmrt_node *node(const llmrt_graph *g, uint32_t i) {
    return reinterpret_cast<const llmrt_node *>(reinterpret_cast<const char *>(g->nodes) +
                                                size_t(i) * g->node_stride);
}

static const llmrt_host_api *host;

static float element(const llmrt_tensor *t, uint64_t i) {
    uint8_t raw[4];
    std::memcpy(raw, at(t) + 4 * i, 4);
    if (t->layout_id == 1)
        for (uint8_t &byte : raw) byte ^= KEY;
    float x;
    std::memcpy(&x, raw, 4);
    return x;
}

static void compute_scale(const llmrt_graph *g, const llmrt_node *nd) {
    float p[2] = { 0, 0 };
    std::memcpy(p, nd->params, has("reads_past_params") || nd->params_size > 8 ? 8 : nd->params_size);
    const llmrt_tensor *a = tensor(g, nd->src[0]), *dst = tensor(g, nd->dst);
    float *y = reinterpret_cast<float *>(static_cast<void *>(at(dst)));
    for (uint64_t i = 0; i < dst->nbytes / 4; i++) y[i] = p[0] * element(a, i) + p[1];
}

static void compute_node(const llmrt_graph *g, const llmrt_node *nd) {
    if (nd->op == OP_SCALE) return compute_scale(g, nd);
    const llmrt_tensor *a = tensor(g, nd->src[0]), *b = tensor(g, nd->src[1]), *dst = tensor(g, nd->dst);
    float *y = reinterpret_cast<float *>(static_cast<void *>(at(dst)));
    const uint64_t n = dst->nbytes / 4;
    if (nd->op == OP_MUL_MAT) {
        const uint64_t k = uint64_t(a->ne[0]), m = uint64_t(a->ne[1]);
        for (uint64_t i = 0; i < n; i++) {
            double sum = 0;
            for (uint64_t j = 0; j < k; j++) sum += double(element(a, i % m * k + j)) * element(b, i / m * k + j);
            y[i] = float(sum);
        }
        if (has("wrong_value") && n) y[n - 1] = 1.5f * y[n - 1] + 0.5f;
    } else if (has("static_scratch") && nd->op == OP_MUL) {
        static float shared[1 << 12];
        for (uint64_t from = 0; from < n; from += 1 << 12) {
            const uint64_t most = n - from < 1 << 12 ? n - from : 1 << 12;
            for (uint64_t i = 0; i < most; i++) shared[i] = element(a, from + i) * element(b, from + i);
            std::this_thread::sleep_for(std::chrono::microseconds(100));
            std::memcpy(y + from, shared, most * 4);
        }
    } else {
        for (uint64_t i = 0; i < n; i++)
            y[i] = nd->op == OP_ADD ? element(a, i) + element(b, i) : element(a, i) * element(b, i);
    }
    if (has("writes_past_the_end") && nd->op == OP_MUL) y[n] = 0;
    if (has("writes_its_source") && nd->op == OP_MUL && n) reinterpret_cast<float *>(static_cast<void *>(at(b)))[0] = 0;
    static uint32_t calls;
    if (has("differs_by_run") && nd->op == OP_MUL && n) y[0] *= 1 + 1e-6f * float(calls++ % 2);
}

static int claims(const llmrt_graph *g, const llmrt_node *nd, uint8_t *reason);

static int32_t compute(llmrt_backend *b, const llmrt_graph *g, llmrt_error *err) {
    if (int32_t code = is_broken(b, err)) return code;
    static std::atomic<bool> was_cancelled{ false };
    if (host->cancelled(host->ctx, g->run_id)) was_cancelled = true;
    if (has("cancels_neighbours") && host->cancelled(host->ctx, g->run_id - 1)) was_cancelled = true;
    if (has("stays_cancelled") || has("cancels_neighbours") ? was_cancelled.load() : host->cancelled(host->ctx, g->run_id) != 0)
        return fail(err, LLMRT_STATUS_CANCELLED, "cancelled", LLMRT_NO_TENSOR,
                    has("cancel_breaks_stream") ? LLMRT_SCOPE_STREAM : LLMRT_SCOPE_CALL);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        uint8_t reason;
        const llmrt_node *nd = node(g, i);
        if (nd->op == OP_BREAK_STREAM) {
            be(b)->push([b] { be(b)->broken = any_broken = true; });
            return LLMRT_STATUS_OK;
        }
        if (!claims(g, nd, &reason) || nd->op == OP_SUB)
            return fail(err, LLMRT_STATUS_UNSUPPORTED, "not one of add, mul, mul_mat", i);
        if (nd->op == OP_MUL) {
            if (has("throws")) throw std::runtime_error("no guard around this");
            if (has("asserts")) std::fputs("driver.cpp:7: assertion failed: index out of bounds\n", stderr), std::abort();
            if (has("hangs")) for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
            if (has("prints")) std::puts("hello from the driver"), std::fflush(stdout);
            if (has("exits")) std::_Exit(0);
        }
        if (has("leaks_in_compute")) leak(16);
        if (has("leaks_device_memory_in_compute")) used += 256;
        if (has("leaks_pages_in_compute") && nd->op == OP_MUL) leak(1 << 18), std::memset(lost, 1, 1 << 18);
        if (nd->op == OP_MUL_MAT && has("aborts")) std::abort();
        if (nd->op == OP_MUL_MAT && has("segfaults")) std::raise(SIGSEGV);
    }
    n_working++;
    be(b)->push([g] {
        for (uint32_t i = 0; i < g->n_nodes; i++) compute_node(g, node(g, i));
        n_working--;
    });
    return LLMRT_STATUS_OK;
}

static int32_t event_record(llmrt_backend *b, llmrt_event *e, llmrt_error *err) {
    if (int32_t code = is_broken(b, err)) return has("forgets_in_record") ? static_cast<int32_t>(LLMRT_STATUS_OK) : code;
    auto p = std::make_shared<point>();
    {
        std::lock_guard<std::mutex> lock(ev(e)->m);
        ev(e)->last = p;
    }
    if (has("event_too_early")) p->reach();
    be(b)->push([p] { p->reach(); });
    return LLMRT_STATUS_OK;
}

static int32_t event_wait(llmrt_backend *b, llmrt_event *e, llmrt_error *err) {
    if (int32_t code = is_broken(b, err)) return code;
    auto last = ev(e)->get();
    if (last && !has("event_ignored")) be(b)->push([last] { last->wait(UINT64_MAX); });
    return LLMRT_STATUS_OK;
}

static const llmrt_backend_vt backend_vt = {
    sizeof(llmrt_backend_vt), 0, backend_destroy, synchronize, compute, nullptr, nullptr, nullptr,
    event_record, event_wait, nullptr, nullptr, nullptr, nullptr, nullptr,
};

/* ---- the device ---- */

static int32_t dev_open(llmrt_device *, llmrt_error *) { return LLMRT_STATUS_OK; }
static void dev_close(llmrt_device *) {}

static int32_t dev_memory(llmrt_device *, uint64_t *free_bytes, uint64_t *total, llmrt_error *) {
    *total = TOTAL;
    *free_bytes = has("memory_stands_still") ? TOTAL : has("more_free_than_total") ? TOTAL + used : TOTAL - used;
    return LLMRT_STATUS_OK;
}

static int is_plain(const llmrt_tensor *t) {
    uint64_t nb = 4;
    for (int d = 0; d < 4; d++) {
        if (t->nb[d] != nb || t->ne[d] < 0) return 0;
        if (__builtin_mul_overflow(nb, uint64_t(t->ne[d]), &nb)) return 0;
    }
    return t->dtype == 0;
}

static int claims(const llmrt_graph *g, const llmrt_node *nd, uint8_t *reason) {
    *reason = LLMRT_REASON_OP;
    if (nd->op == OP_BREAK_STREAM) return 0;
    const int retracts = has("retracts") && nd->op == OP_SUB;
    if (nd->op != OP_ADD && nd->op != OP_MUL && nd->op != OP_MUL_MAT && nd->op != OP_SCALE && !retracts) return 0;
    *reason = LLMRT_REASON_VERSION;
    if (nd->op_version != 1) return 0;
    *reason = LLMRT_REASON_PARAM;
    const uint32_t known = nd->op == OP_SCALE ? 8 : 0;
    if (has("requires_whole_params") && nd->params_size < known) return 0;
    if (has("reads_past_params") && known && static_cast<const float *>(nd->params)[1] != static_cast<const float *>(nd->params)[1]) return 0;
    for (uint32_t i = known; i < nd->params_size && !has("ignores_tail"); i++)
        if (static_cast<const uint8_t *>(nd->params)[i]) return 0;
    *reason = LLMRT_REASON_SHAPE;
    const uint32_t n_src = nd->op == OP_SCALE ? 1 : 2;
    if (nd->n_src < n_src) return 0;
    for (uint32_t i = 0; i < n_src; i++)
        if (nd->src[i] == LLMRT_NO_TENSOR) return 0;
    *reason = LLMRT_REASON_PARAM;
    if (has("counts_absent_sources") && nd->n_src != n_src) return 0;
    for (uint32_t i = n_src; i < nd->n_src && !has("ignores_sources"); i++)
        if (nd->src[i] != LLMRT_NO_TENSOR) return 0;
    *reason = LLMRT_REASON_SHAPE;
    const llmrt_tensor *a = tensor(g, nd->src[0]), *b = tensor(g, nd->src[n_src - 1]), *dst = tensor(g, nd->dst);
    if (nd->op == OP_MUL_MAT) {
        if (a->ne[0] != b->ne[0] || dst->ne[0] != a->ne[1] || dst->ne[1] != b->ne[1]) return 0;
        for (const llmrt_tensor *t : { a, b, dst })
            if (t->ne[2] != 1 || t->ne[3] != 1) return 0;
    } else {
        for (int d = 0; d < 4; d++)
            if (a->ne[d] != b->ne[d] || a->ne[d] != dst->ne[d]) return 0;
    }
    *reason = LLMRT_REASON_STRIDE;
    if (a->dtype || b->dtype || dst->dtype) *reason = LLMRT_REASON_TYPE;
    if (!is_plain(a) || !is_plain(b) || !is_plain(dst)) return 0;
    *reason = LLMRT_REASON_LAYOUT;
    if (has("ignores_layout")) return *reason = 0, 1;
    if (b->layout_id || dst->layout_id || a->layout_id > (nd->op == OP_MUL_MAT)) return 0;
    *reason = 0;
    return 1;
}

static int32_t dev_supports(llmrt_device *, const llmrt_graph *g, uint32_t first, uint32_t n,
                            llmrt_verdict *verdicts, llmrt_error *) {
    for (uint32_t i = 0; i < n; i++) {
        uint8_t reason;
        int yes = claims(g, node(g, first + i), &reason);
        static uint32_t n_calls;
        if (has("changes_its_mind") && node(g, first + i)->op == OP_MUL && yes && n_calls++ % 5 == 4)
            yes = 0, reason = LLMRT_REASON_MEMORY;
        if (has("requires_a_graph_of_one_node") && n > 1 && yes) yes = 0, reason = LLMRT_REASON_MEMORY;
        verdicts[i] = llmrt_verdict{ uint8_t(yes), reason, 0, -1.0f, 0 };
    }
    return LLMRT_STATUS_OK;
}

static int32_t dev_alloc(llmrt_device *, uint32_t, uint64_t size, uint32_t, llmrt_buffer **out, llmrt_error *err) {
    const uint64_t most = TOTAL - used;
    if (size > most) {
        fail(err, LLMRT_STATUS_OOM_DEVICE, "more than there is", has("names_a_node") ? 0 : LLMRT_NO_TENSOR);
        if (err && !has("forgets_bytes")) err->bytes_requested = size, err->bytes_available = most;
        return LLMRT_STATUS_OOM_DEVICE;
    }
    memory *m = new memory;
    m->vt = &buffer_vt;
    m->imp = nullptr;
    m->size = size;
    used += size;
    m->block = static_cast<uint8_t *>(std::aligned_alloc(64, (size + 255) / 64 * 64));
    m->bytes = m->block + (has("misaligned") ? 8 : 0);
    *out = m;
    return LLMRT_STATUS_OK;
}

static int32_t dev_backend(llmrt_device *, const llmrt_backend_params *, llmrt_backend **out, llmrt_error *) {
    backend *b = new backend;
    b->vt = &backend_vt;
    b->worker = std::thread([b] { b->serve(); });
    *out = b;
    return LLMRT_STATUS_OK;
}

static int32_t dev_event(llmrt_device *, uint32_t, llmrt_event **out, llmrt_error *) {
    event *e = new event;
    e->vt = &event_vt;
    *out = e;
    return LLMRT_STATUS_OK;
}

static const llmrt_device_vt device_vt = {
    sizeof(llmrt_device_vt), 0, dev_open, dev_close, dev_memory, dev_supports, dev_alloc, dev_backend,
    nullptr, nullptr, dev_event, nullptr,
};

static const llmrt_buffer_type buffer_types[] = {
    { sizeof(llmrt_buffer_type), 0, LLMRT_BUFFER_HOST, LLMRT_BT_HOST_PTR, 64, 0, STR("ram") },
};

static const llmrt_device_info device_info = {
    sizeof(llmrt_device_info), LLMRT_DEVICE_ACCEL, LLMRT_CAP_ASYNC | LLMRT_CAP_EVENTS, STR("0"),
    STR("adds and multiplies in C++"), STR("test"), STR(""), {}, TOTAL, 1, sizeof(llmrt_buffer_type), buffer_types,
    0, 0,
};

static llmrt_device device = { &device_vt, &device_info, nullptr };
static llmrt_device *devices[] = { &device };

/* ---- the plugin ---- */

static int32_t init(const llmrt_host_api *api, llmrt_device *const **out, uint32_t *n, llmrt_error *err) {
    host = api;
    char note[64], copy[64];
    uint64_t len = 0;
    const llmrt_str key = STR("faulty.note");
    if (!api->get_option(api->ctx, key, reinterpret_cast<uint8_t *>(note), sizeof note, &len))
        std::memcpy(copy, note, has("trusts_option_length") || len < sizeof copy ? len : sizeof copy), lost = copy;
    static int n_inits;
    if (n_inits++ && has("starts_once")) return fail(err, LLMRT_STATUS_INTERNAL, "started before");
    if (has("crashes_at_exit")) std::atexit([] { std::abort(); });
    if (has("catches_signals")) std::signal(SIGUSR2, [](int) {});
    *out = devices;
    *n = has("finds_no_device") ? 0 : 1;
    return LLMRT_STATUS_OK;
}

static void plugin_shutdown(void) {}

static const void *get_extension(llmrt_str, uint32_t) {
    static const int anything = 0;
    return has("has_every_extension") ? &anything : nullptr;
}

static const llmrt_plugin table = {
    LLMRT_MAGIC, sizeof(llmrt_plugin), LLMRT_ABI_MAJOR, LLMRT_ABI_MINOR, LLMRT_FINGERPRINT, 0, 0, 0,
    STR("faulty"), STR("1.0"), STR("tests"), init, plugin_shutdown, get_extension,
};

extern "C" const llmrt_plugin *llmrt_plugin_query_v0(uint32_t) { return &table; }
