/* A plugin in one C file, from llmrt/plugin.h alone: a device that adds, multiplies and copies F32 tensors.
 *
 * Its "device" is this machine's memory and its threads, so everything below runs anywhere. Read it from the bottom:
 * the entry, the plugin, the device, what it supports, memory, the stream, the kernels. A driver for real hardware
 * replaces what the vendor's library does and keeps the rest. Builds as C11 and as C++17, without warnings. */

#include "llmrt/plugin.h"

#include <stdlib.h>
#include <string.h>

/* The host reads this from the file before anything of it runs. */
LLMRT_MANIFEST("abi=0\nname=c\nversion=0.1\n");

/* A text of the ABI: pointer and length. */
#define STR(text) { (const uint8_t *)(text), sizeof(text) - 1 }

/* What the host offers; set by `init`, valid until the end of `shutdown`. */
static const llmrt_host_api *host;
static const llmrt_host_threads *threads;

/* ---- errors: a code, how far the damage reaches, and a sentence ---- */

static int32_t fail_at(llmrt_error *err, int32_t code, uint32_t node, const char *text) {
    if (err) {
        size_t n = strlen(text);
        if (n > sizeof err->msg) n = sizeof err->msg;
        err->code = code;
        err->scope = LLMRT_SCOPE_CALL; /* nothing is broken: the next call may succeed */
        err->vendor_code = 0;
        err->node_index = node;
        err->msg_len = (uint32_t)n;
        err->bytes_requested = 0;
        err->bytes_available = 0;
        memcpy(err->msg, text, n);
    }
    return code;
}

static int32_t fail(llmrt_error *err, int32_t code, const char *text) {
    return fail_at(err, code, LLMRT_NO_TENSOR, text);
}

static int32_t out_of_memory(llmrt_error *err, uint64_t requested, uint64_t available) {
    fail(err, LLMRT_STATUS_OOM_DEVICE, "no room for a buffer");
    if (err) {
        err->bytes_requested = requested;
        err->bytes_available = available;
    }
    return LLMRT_STATUS_OOM_DEVICE;
}

/* ---- memory ---- */

/* Bytes of the device. A real driver queries the vendor's library. */
#define MEMORY (UINT64_C(4) << 30)
/* Where a buffer starts, and what offsets of tensors in it are multiples of. */
#define ALIGNMENT 64u

/* Bytes in use. Buffers come and go on any thread. */
static uint64_t used;

typedef struct {
    llmrt_buffer abi;  /* first, so that a pointer to it is a pointer to this */
    uint8_t *bytes;
    uint64_t counted;  /* of `used`; 0 for memory of the host */
    void *block;       /* to free; NULL for memory of the host */
    int read_only;
} memory;

static uint8_t *bytes_of(const llmrt_tensor *t) { return ((memory *)t->buffer)->bytes + t->offset; }

static void buffer_destroy(llmrt_buffer *buf) {
    memory *m = (memory *)buf;
    __atomic_fetch_sub(&used, m->counted, __ATOMIC_RELAXED);
    free(m->block);
    free(m);
}

/* The host has checked that bytes off..off+n are inside the tensor, and the tensor inside the buffer. */
static int32_t buffer_set(llmrt_buffer *buf, const llmrt_tensor *t, const void *src, uint64_t off, uint64_t n,
                          llmrt_error *err) {
    memory *m = (memory *)buf;
    if (m->read_only) return fail(err, LLMRT_STATUS_INVALID, "set: this memory of the host is read-only");
    if (n) memcpy(m->bytes + t->offset + off, src, n);
    return LLMRT_STATUS_OK;
}

static int32_t buffer_get(llmrt_buffer *buf, const llmrt_tensor *t, void *dst, uint64_t off, uint64_t n,
                          llmrt_error *err) {
    (void)err;
    if (n) memcpy(dst, ((memory *)buf)->bytes + t->offset + off, n);
    return LLMRT_STATUS_OK;
}

static int32_t buffer_fill(llmrt_buffer *buf, uint64_t off, uint64_t n, uint8_t byte, llmrt_error *err) {
    memory *m = (memory *)buf;
    if (m->read_only) return fail(err, LLMRT_STATUS_INVALID, "fill: this memory of the host is read-only");
    memset(m->bytes + off, byte, n);
    return LLMRT_STATUS_OK;
}

/* Both tensors are contiguous and have the same bytes. */
static int32_t buffer_copy(llmrt_buffer *dst_buf, const llmrt_tensor *dst, llmrt_buffer *src_buf,
                           const llmrt_tensor *src, llmrt_error *err) {
    memory *to = (memory *)dst_buf;
    if (src_buf->vt != dst_buf->vt) return fail(err, LLMRT_STATUS_UNSUPPORTED, "copy: memory of another plugin");
    if (to->read_only) return fail(err, LLMRT_STATUS_INVALID, "copy: this memory of the host is read-only");
    memmove(to->bytes + dst->offset, ((memory *)src_buf)->bytes + src->offset, dst->nbytes);
    return LLMRT_STATUS_OK;
}

static void *buffer_host_ptr(llmrt_buffer *buf) {
    memory *m = (memory *)buf;
    return m->read_only ? NULL : m->bytes;
}

static const llmrt_buffer_vt buffer_vt = {
    sizeof(llmrt_buffer_vt), 0,
    buffer_destroy, buffer_set, buffer_get, buffer_fill, /* mandatory */
    NULL, /* seal: weights stay in GGUF's layout */
    buffer_copy, buffer_host_ptr,
};

/* ---- graphs: rows have a stride, because a newer host's rows may be longer ---- */

static const llmrt_tensor *tensor(const llmrt_graph *g, uint32_t id) {
    return (const llmrt_tensor *)(const void *)((const char *)g->tensors + (size_t)id * g->tensor_stride);
}

static const llmrt_node *node(const llmrt_graph *g, uint32_t i) {
    return (const llmrt_node *)(const void *)((const char *)g->nodes + (size_t)i * g->node_stride);
}

static const llmrt_tensor *source(const llmrt_graph *g, const llmrt_node *n, uint32_t i) {
    return tensor(g, n->src[i]);
}

/* ---- what the device supports: a yes is a promise, a no has a reason ---- */

/* A byte of params that is not zero past the fields of this file is an attribute newer than it. */
static int tail_is_zero(const llmrt_node *n, uint32_t known) {
    const uint8_t *params = (const uint8_t *)n->params;
    uint32_t i;
    for (i = known; i < n->params_size; i++)
        if (params[i] != 0) return 0;
    return 1;
}

/* F32, in GGUF's layout, with elements; strides are whole floats. */
static uint8_t refuse_floats(const llmrt_tensor *t, int dense_rows) {
    int d;
    if (t->dtype != LLMRT_TYPE_F32) return LLMRT_REASON_TYPE;
    if (t->layout_id != 0) return LLMRT_REASON_LAYOUT;
    for (d = 0; d < 4; d++) {
        if (t->ne[d] < 1) return LLMRT_REASON_SHAPE;
        if (t->nb[d] % sizeof(float) != 0) return LLMRT_REASON_STRIDE;
    }
    if (t->offset % sizeof(float) != 0) return LLMRT_REASON_STRIDE;
    if (dense_rows && t->ne[0] != 1 && t->nb[0] != sizeof(float)) return LLMRT_REASON_STRIDE;
    return LLMRT_REASON_NONE;
}

/* A result: F32 of this shape, without gaps. */
static uint8_t refuse_result(const llmrt_tensor *t, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    uint64_t nb = sizeof(float);
    uint8_t reason = refuse_floats(t, 1);
    int d;
    if (reason) return reason;
    if (t->ne[0] != ne0 || t->ne[1] != ne1 || t->ne[2] != ne2 || t->ne[3] != ne3) return LLMRT_REASON_SHAPE;
    for (d = 0; d < 4; nb *= (uint64_t)t->ne[d], d++)
        if (t->ne[d] != 1 && t->nb[d] != nb) return LLMRT_REASON_STRIDE;
    return LLMRT_REASON_NONE;
}

/* add, mul: b repeats along each dim of a. */
static uint8_t refuse_elementwise(const llmrt_tensor *a, const llmrt_tensor *b, const llmrt_tensor *dst) {
    uint8_t reason = refuse_floats(a, 1);
    int d;
    if (!reason) reason = refuse_floats(b, 1);
    if (reason) return reason;
    for (d = 0; d < 4; d++)
        if (a->ne[d] % b->ne[d] != 0) return LLMRT_REASON_SHAPE;
    return refuse_result(dst, a->ne[0], a->ne[1], a->ne[2], a->ne[3]);
}

/* mul_mat: w [k, m] and x [k, n] give [m, n]; dims 2 and 3 of w divide those of x. */
static uint8_t refuse_mul_mat(const llmrt_tensor *w, const llmrt_tensor *x, const llmrt_tensor *dst) {
    uint8_t reason = refuse_floats(w, 1);
    if (!reason) reason = refuse_floats(x, 1);
    if (reason) return reason;
    if (w->ne[0] != x->ne[0] || x->ne[2] % w->ne[2] != 0 || x->ne[3] % w->ne[3] != 0) return LLMRT_REASON_SHAPE;
    return refuse_result(dst, w->ne[1], x->ne[1], x->ne[2], x->ne[3]);
}

/* copy, F32 to F32: any strides in, no gaps out. */
static uint8_t refuse_copy(const llmrt_tensor *x, const llmrt_tensor *dst) {
    uint8_t reason = refuse_floats(x, 0);
    if (reason) return reason;
    return refuse_result(dst, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
}

/* Why the device does not run a node; LLMRT_REASON_NONE if it does. */
static uint8_t refuse(const llmrt_graph *g, const llmrt_node *n) {
    const llmrt_tensor *dst = tensor(g, n->dst);
    uint32_t n_src = n->op == LLMRT_OP_COPY ? 1 : 2, known = n->op == LLMRT_OP_COPY ? sizeof(llmrt_p_copy) : 0, i;
    switch (n->op) {
    case LLMRT_OP_ADD: case LLMRT_OP_MUL: case LLMRT_OP_MUL_MAT: case LLMRT_OP_COPY: break;
    default: return LLMRT_REASON_OP; /* an op newer than this file arrives here too */
    }
    if (n->op_version != 1) return LLMRT_REASON_VERSION;
    if (n->n_src < n_src) return LLMRT_REASON_OP;
    for (i = 0; i < n_src; i++)
        if (n->src[i] == LLMRT_NO_TENSOR) return LLMRT_REASON_OP;
    for (; i < n->n_src; i++) /* a source newer than this file */
        if (n->src[i] != LLMRT_NO_TENSOR) return LLMRT_REASON_PARAM;
    if (!tail_is_zero(n, known)) return LLMRT_REASON_PARAM;
    switch (n->op) {
    case LLMRT_OP_MUL_MAT: return refuse_mul_mat(source(g, n, 0), source(g, n, 1), dst);
    case LLMRT_OP_COPY: return refuse_copy(source(g, n, 0), dst);
    default: return refuse_elementwise(source(g, n, 0), source(g, n, 1), dst);
    }
}

/* ---- kernels ---- */

/* One op on its memory; threads of the host's pool share its rows. */
typedef struct {
    uint32_t op;
    const llmrt_tensor *a, *b, *dst;
} work;

static uint8_t *element(const llmrt_tensor *t, const uint64_t at[4]) {
    return bytes_of(t) + at[0] * t->nb[0] + at[1] * t->nb[1] + at[2] * t->nb[2] + at[3] * t->nb[3];
}

static uint64_t dim(const llmrt_tensor *t, int d) { return (uint64_t)t->ne[d]; }

static void elementwise_row(const work *w, float *y, const uint64_t at[4]) {
    const uint64_t b_at[4] = { 0, at[1] % dim(w->b, 1), at[2] % dim(w->b, 2), at[3] % dim(w->b, 3) };
    const float *a = (const float *)(const void *)element(w->a, at);
    const float *b = (const float *)(const void *)element(w->b, b_at);
    uint64_t n = dim(w->dst, 0), period = dim(w->b, 0), i, j = 0;
    for (i = 0; i < n; i++) {
        y[i] = w->op == LLMRT_OP_ADD ? a[i] + b[j] : a[i] * b[j];
        if (++j == period) j = 0;
    }
}

static void mul_mat_row(const work *w, float *y, const uint64_t at[4]) {
    const uint64_t repeat2 = dim(w->b, 2) / dim(w->a, 2), repeat3 = dim(w->b, 3) / dim(w->a, 3);
    const float *x = (const float *)(const void *)element(w->b, at);
    uint64_t i, k, n = dim(w->a, 0);
    for (i = 0; i < dim(w->dst, 0); i++) {
        const uint64_t w_at[4] = { 0, i, at[2] / repeat2, at[3] / repeat3 };
        const float *row = (const float *)(const void *)element(w->a, w_at);
        double sum = 0;
        for (k = 0; k < n; k++) sum += (double)row[k] * x[k];
        y[i] = (float)sum;
    }
}

static void copy_row(const work *w, float *y, const uint64_t at[4]) {
    const uint8_t *from = element(w->a, at);
    uint64_t i;
    for (i = 0; i < dim(w->dst, 0); i++) memcpy(&y[i], from + i * w->a->nb[0], sizeof(float));
}

/* Rows i, i + n, i + 2n … of the result. */
static void share(void *arg, void *team, uint32_t i, uint32_t n) {
    const work *w = (const work *)arg;
    const uint64_t d1 = dim(w->dst, 1), d2 = dim(w->dst, 2), n_rows = d1 * d2 * dim(w->dst, 3);
    uint64_t row;
    (void)team;
    for (row = i; row < n_rows; row += n) {
        const uint64_t at[4] = { 0, row % d1, row / d1 % d2, row / d1 / d2 };
        float *y = (float *)(void *)element(w->dst, at);
        switch (w->op) {
        case LLMRT_OP_MUL_MAT: mul_mat_row(w, y, at); break;
        case LLMRT_OP_COPY: copy_row(w, y, at); break;
        default: elementwise_row(w, y, at);
        }
    }
}

/* ---- a stream; this one runs everything at once ---- */

typedef struct {
    llmrt_backend abi;
    uint32_t n_threads;
} stream;

static void backend_destroy(llmrt_backend *be) { free(be); }

static int32_t backend_synchronize(llmrt_backend *be, llmrt_error *err) {
    (void)be, (void)err;
    return LLMRT_STATUS_OK;
}

static int32_t backend_compute(llmrt_backend *be, const llmrt_graph *g, llmrt_error *err) {
    uint32_t n_threads = ((stream *)be)->n_threads, i;
    /* Nothing runs unless everything can. */
    for (i = 0; i < g->n_nodes; i++)
        if (refuse(g, node(g, i)))
            return fail_at(err, LLMRT_STATUS_UNSUPPORTED, i, "compute: a node that `supports` refuses");
    for (i = 0; i < g->n_nodes; i++) {
        const llmrt_node *n = node(g, i);
        work w;
        if (host->cancelled(host->ctx, g->run_id)) return fail_at(err, LLMRT_STATUS_CANCELLED, i, "cancelled");
        w.op = n->op;
        w.a = source(g, n, 0);
        w.b = n->op == LLMRT_OP_COPY ? NULL : source(g, n, 1);
        w.dst = tensor(g, n->dst);
        if (threads == NULL || n_threads < 2 || w.dst->nbytes < 4096)
            share(&w, NULL, 0, 1);
        else if (threads->run(threads->ctx, n_threads, share, &w) != LLMRT_STATUS_OK)
            return fail_at(err, LLMRT_STATUS_INTERNAL, i, "the host's threads did not run");
    }
    return LLMRT_STATUS_OK;
}

static const llmrt_backend_vt backend_vt = {
    sizeof(llmrt_backend_vt), 0,
    backend_destroy, backend_synchronize, backend_compute, /* mandatory */
    NULL, NULL, NULL,             /* set_async, get_async, copy_async: the host synchronises and copies */
    NULL, NULL,                   /* event_record, event_wait */
    NULL, NULL, NULL, NULL, NULL, /* plan_create, plan_update, plan_compute, plan_destroy; native_handle */
};

/* ---- the device ---- */

static int32_t device_open(llmrt_device *dev, llmrt_error *err) {
    (void)dev, (void)err; /* here a driver creates its context */
    return LLMRT_STATUS_OK;
}

static void device_close(llmrt_device *dev) { (void)dev; }

static int32_t device_memory(llmrt_device *dev, uint64_t *free_bytes, uint64_t *total, llmrt_error *err) {
    (void)dev, (void)err;
    *free_bytes = MEMORY - __atomic_load_n(&used, __ATOMIC_RELAXED);
    *total = MEMORY;
    return LLMRT_STATUS_OK;
}

static int32_t device_supports(llmrt_device *dev, const llmrt_graph *g, uint32_t first, uint32_t n,
                               llmrt_verdict *verdicts, llmrt_error *err) {
    uint32_t i;
    (void)dev, (void)err;
    for (i = 0; i < n; i++) {
        uint8_t reason = refuse(g, node(g, first + i));
        verdicts[i] = reason ? llmrt_verdict_no(reason) : llmrt_verdict_YES;
    }
    return LLMRT_STATUS_OK;
}

/* Wraps memory in a buffer; NULL when the host's memory is full. */
static memory *new_memory(uint8_t *bytes, void *block, uint64_t counted, int read_only) {
    memory *m = (memory *)malloc(sizeof *m);
    if (m == NULL) return NULL;
    m->abi.vt = &buffer_vt;
    m->abi.imp = NULL;
    m->bytes = bytes;
    m->block = block;
    m->counted = counted;
    m->read_only = read_only;
    return m;
}

static int32_t device_buffer_alloc(llmrt_device *dev, uint32_t bt, uint64_t size, uint32_t usage, llmrt_buffer **out,
                                   llmrt_error *err) {
    uint64_t before = __atomic_fetch_add(&used, size <= MEMORY ? size : 0, __ATOMIC_RELAXED);
    void *block = NULL;
    memory *m = NULL;
    (void)dev, (void)bt, (void)usage;
    if (size > MEMORY) return out_of_memory(err, size, MEMORY - before);
    if (before <= MEMORY - size) block = malloc((size_t)size + ALIGNMENT - 1);
    if (block != NULL) {
        uint64_t past = (uint64_t)(uintptr_t)block % ALIGNMENT;
        m = new_memory((uint8_t *)block + (past ? ALIGNMENT - past : 0), block, size, 0);
    }
    if (m == NULL) {
        free(block);
        __atomic_fetch_sub(&used, size, __ATOMIC_RELAXED);
        return out_of_memory(err, size, before < MEMORY ? MEMORY - before : 0);
    }
    *out = &m->abi;
    return LLMRT_STATUS_OK;
}

/* Weights of a mapped file are used where they are. */
static int32_t device_import_host(llmrt_device *dev, void *ptr, uint64_t n, uint32_t flags, llmrt_buffer **out,
                                  llmrt_error *err) {
    memory *m = new_memory((uint8_t *)ptr, NULL, 0, (flags & LLMRT_IMPORT_READ_ONLY) != 0);
    (void)dev, (void)n;
    if (m == NULL) return fail(err, LLMRT_STATUS_OOM_HOST, "no memory for a buffer");
    *out = &m->abi;
    return LLMRT_STATUS_OK;
}

static int32_t device_backend_create(llmrt_device *dev, const llmrt_backend_params *params, llmrt_backend **out,
                                     llmrt_error *err) {
    uint32_t most = threads ? threads->n_threads(threads->ctx) : 1;
    stream *s = (stream *)malloc(sizeof *s);
    (void)dev;
    if (s == NULL) return fail(err, LLMRT_STATUS_OOM_HOST, "no memory for a stream");
    s->abi.vt = &backend_vt;
    s->abi.imp = NULL;
    s->n_threads = params->n_threads == 0 || params->n_threads > most ? most : params->n_threads;
    *out = &s->abi;
    return LLMRT_STATUS_OK;
}

static const llmrt_device_vt device_vt = {
    sizeof(llmrt_device_vt), 0,
    device_open, device_close, device_memory, device_supports, device_buffer_alloc, device_backend_create,
    NULL, /* alloc_size: a tensor takes its own bytes */
    NULL, /* accepts: only its own buffers */
    NULL, /* event_create */
    device_import_host,
};

static const llmrt_buffer_type buffer_types[] = { {
    sizeof(llmrt_buffer_type), 0,
    LLMRT_BUFFER_HOST, LLMRT_BT_HOST_PTR | LLMRT_BT_CONCURRENT_SET,
    ALIGNMENT, 0, /* no buffer is too large in itself */
    STR("memory"),
} };

static const llmrt_device_info device_info = {
    sizeof(llmrt_device_info),
    LLMRT_DEVICE_ACCEL,
    LLMRT_CAP_HOST_READ,
    STR("0"), STR("F32 sums and products in plain C"), STR("c"),
    STR(""), { 0 }, /* PCI address and uuid: by which the host finds that two plugins offer the same card */
    MEMORY,
    1, sizeof(llmrt_buffer_type), buffer_types,
    0, 0, /* kv_block_size: any */
};

static llmrt_device device = { &device_vt, &device_info, NULL };
static llmrt_device *const devices[] = { &device };

/* ---- the plugin ---- */

static int32_t plugin_init(const llmrt_host_api *api, llmrt_device *const **out, uint32_t *n, llmrt_error *err) {
    const llmrt_str threads_name = STR("llmrt.host.threads"), target = STR("c"), text = STR("one device");
    (void)err; /* a driver finds its devices here, and creates nothing on them */
    host = api;
    threads = (const llmrt_host_threads *)api->get_extension(api->ctx, threads_name, 1);
    api->log(api->ctx, 4, target, text);
    *out = devices;
    *n = 1;
    return LLMRT_STATUS_OK;
}

static void plugin_shutdown(void) {
    host = NULL;
    threads = NULL;
}

static const llmrt_plugin plugin = {
    LLMRT_MAGIC, sizeof(llmrt_plugin), LLMRT_ABI_MAJOR, LLMRT_ABI_MINOR, LLMRT_FINGERPRINT,
    0, 0, 0, /* build flags, reserved, what it needs of the host */
    STR("c"), STR("0.1"), STR("llmrt"),
    plugin_init, plugin_shutdown,
    NULL, /* get_extension */
};

const llmrt_plugin *llmrt_plugin_query_v0(uint32_t host_minor) {
    (void)host_minor;
    return &plugin;
}
