/* The plugin of plugin.c with one fault, chosen by the option `fault`; what the checking layer must catch. */

#define NAME "misbehaves"
#define llmrt_plugin_query_v0 query_without_faults
#include "plugin.c"
#undef llmrt_plugin_query_v0

#include <pthread.h>

static const llmrt_host_api *host;
static char fault[32];

static int is(const char *name) { return strcmp(fault, name) == 0; }

/* ---- faulty functions; each does what the good one does unless its fault is chosen ---- */

static int32_t bad_get(llmrt_buffer *b, const llmrt_tensor *t, void *dst, uint64_t off, uint64_t n, llmrt_error *err) {
    int32_t status = buffer_get(b, t, dst, off, n, err);
    if (is("get writes past")) ((uint8_t *)dst)[n] = 0;
    return status;
}

static const llmrt_buffer_vt other_vt;

static int32_t bad_set(llmrt_buffer *b, const llmrt_tensor *t, const void *src, uint64_t off, uint64_t n, llmrt_error *err) {
    if (is("table changes") && n == 5) b->vt = &other_vt;
    if (is("error past its end") && n == 5) {
        memset(err + 1, 0, 8);
        return fail(err, LLMRT_STATUS_INTERNAL, LLMRT_SCOPE_CALL, "no");
    }
    if (is("message past its end") && n == 5) {
        fail(err, LLMRT_STATUS_INTERNAL, LLMRT_SCOPE_CALL, "no");
        err->msg_len = 1000;
        return LLMRT_STATUS_INTERNAL;
    }
    if (is("unknown status") && n == 5) return 1234;
    return buffer_set(b, t, src, off, n, err);
}

static int32_t bad_seal(llmrt_buffer *b, const llmrt_tensor *t, llmrt_layout *layout, llmrt_error *err) {
    (void)b, (void)err;
    layout->layout_id = 7;
    layout->flags = is("layout") ? LLMRT_LAYOUT_INVERTIBLE | LLMRT_LAYOUT_OPAQUE : LLMRT_LAYOUT_OPAQUE;
    layout->stored_bytes = t->nbytes;
    return LLMRT_STATUS_OK;
}

static const llmrt_buffer_vt bad_buffer_vt = {
    .struct_size = sizeof(llmrt_buffer_vt),
    .destroy = buffer_destroy,
    .set = bad_set,
    .get = bad_get,
    .fill = buffer_fill,
    .seal = bad_seal,
};

static int32_t bad_alloc(llmrt_device *dev, uint32_t bt, uint64_t size, uint32_t usage, llmrt_buffer **out, llmrt_error *err) {
    static llmrt_buffer *last;
    if (is("one buffer twice") && last && size == 4096) {
        *out = last;
        return LLMRT_STATUS_OK;
    }
    int32_t status = dev_alloc(dev, bt, size, usage, out, err);
    if (status == LLMRT_STATUS_OK) {
        (*out)->vt = &bad_buffer_vt;
        if (size == 4096) last = *out;
    }
    return status;
}

static int32_t bad_memory(llmrt_device *dev, uint64_t *free_bytes, uint64_t *total, llmrt_error *err) {
    static uint64_t n_calls;
    int32_t status = dev_memory(dev, free_bytes, total, err);
    if (is("more free than there is")) *free_bytes = *total + 1;
    if (is("leak")) *free_bytes -= 4096 * n_calls++;
    return status;
}

static int32_t bad_supports(llmrt_device *dev, const llmrt_graph *g, uint32_t first, uint32_t n, llmrt_verdict *verdicts,
                            llmrt_error *err) {
    static uint64_t n_calls;
    int32_t status = dev_supports(dev, g, first, n, verdicts, err);
    if (is("verdict")) verdicts[0].support = 7;
    if (is("no reason")) verdicts[0].support = verdicts[0].reason = 0;
    if (is("verdict past the end")) verdicts[n].support = 1;
    if (is("changes its mind")) verdicts[0].workspace = n_calls++;
    return status;
}

static int32_t bad_compute(llmrt_backend *be, const llmrt_graph *g, llmrt_error *err) {
    if (is("refuses without a node") && g->n_nodes) return LLMRT_STATUS_UNSUPPORTED;
    if (is("not ready") && g->n_nodes) return LLMRT_STATUS_NOT_READY;
    return compute(be, g, err);
}

static const llmrt_backend_vt bad_backend_vt = {
    .struct_size = sizeof(llmrt_backend_vt),
    .destroy = backend_destroy,
    .synchronize = synchronize,
    .compute = bad_compute,
};

static int32_t bad_backend(llmrt_device *dev, const llmrt_backend_params *params, llmrt_backend **out, llmrt_error *err) {
    int32_t status = dev_backend(dev, params, out, err);
    if (status == LLMRT_STATUS_OK) (*out)->vt = &bad_backend_vt;
    return status;
}

static uint64_t bad_alloc_size(llmrt_device *dev, uint32_t bt, const llmrt_tensor *t) {
    (void)dev, (void)bt;
    return is("too small") ? t->nbytes - 1 : t->nbytes;
}

/* ---- misuse of the host ---- */

static void body(void *arg, void *team, uint32_t i, uint32_t n) { (void)arg, (void)team, (void)i, (void)n; }

static int32_t run_bodies(uint32_t n) {
    const llmrt_str name = STR("llmrt.host.threads");
    const llmrt_host_threads *threads = host->get_extension(host->ctx, name, 1);
    return threads->run(threads->ctx, n, body, NULL);
}

static void *own_thread(void *arg) {
    *(int32_t *)arg = run_bodies(1);
    return NULL;
}

static int32_t bad_open(llmrt_device *dev, llmrt_error *err) {
    const llmrt_str target = STR("misbehaves"), latin1 = STR("caf\xe9"), name = STR("late.op");
    pthread_t thread;
    int32_t answer = 0;
    uint32_t id;
    uint64_t len;
    if (is("log level")) host->log(host->ctx, 9, target, target);
    if (is("log text")) host->log(host->ctx, 1, target, latin1);
    if (is("option without length")) host->get_option(host->ctx, target, NULL, 0, NULL);
    if (is("option without room")) host->get_option(host->ctx, target, NULL, 64, &len);
    if (is("op outside init")) {
        llmrt_op_desc desc = { .struct_size = sizeof desc, .version = 1, .name = name };
        host->register_op(host->ctx, &desc, &id);
    }
    if (is("too many threads")) run_bodies(1000);
    if (is("own thread")) {
        pthread_create(&thread, NULL, own_thread, &answer);
        pthread_join(thread, NULL);
        if (answer == LLMRT_STATUS_OK) abort();
    }
    return dev_open(dev, err);
}

static llmrt_device_vt bad_device_vt;

static int32_t bad_init(const llmrt_host_api *api, llmrt_device *const **out, uint32_t *n, llmrt_error *err) {
    const llmrt_str key = STR("fault");
    uint64_t len = 0;
    host = api;
    memset(fault, 0, sizeof fault);
    api->get_option(api->ctx, key, (uint8_t *)fault, sizeof fault - 1, &len);
    bad_device_vt = device_vt;
    bad_device_vt.open = bad_open;
    bad_device_vt.memory = bad_memory;
    bad_device_vt.supports = bad_supports;
    bad_device_vt.buffer_alloc = bad_alloc;
    bad_device_vt.backend_create = bad_backend;
    bad_device_vt.alloc_size = bad_alloc_size;
    device.vt = &bad_device_vt;
    return init(api, out, n, err);
}

static llmrt_plugin bad_table;

LLMRT_EXPORT const llmrt_plugin *llmrt_plugin_query_v0(uint32_t host_minor);

const llmrt_plugin *llmrt_plugin_query_v0(uint32_t host_minor) {
    (void)host_minor;
    bad_table = table;
    bad_table.init = bad_init;
    return &bad_table;
}
