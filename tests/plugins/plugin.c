/* A plugin in plain C, written from the header alone: one device with host memory that adds F32 tensors.
 *
 * It is whole as it stands. The tests of the load checklist compile it again with one of the macros below
 * defined, and each gives it one fault. */

#include "llmrt/plugin.h"

#include <stdlib.h>
#include <string.h>

#ifndef NAME
#define NAME "ctest"
#endif
#ifndef MANIFEST
#define MANIFEST "abi=0\nname=" NAME "\nversion=1.0\n"
#endif
#ifndef MAGIC
#define MAGIC LLMRT_MAGIC
#endif
#ifndef MAJOR
#define MAJOR LLMRT_ABI_MAJOR
#endif
#ifndef MINOR
#define MINOR LLMRT_ABI_MINOR
#endif
#ifndef FINGERPRINT
#define FINGERPRINT LLMRT_FINGERPRINT
#endif
#ifndef TABLE_SIZE
#define TABLE_SIZE sizeof(llmrt_plugin)
#endif
#ifndef DEVICE_TABLE_SIZE
#define DEVICE_TABLE_SIZE sizeof(llmrt_device_vt)
#endif
#ifndef BUFFER_TABLE_SIZE
#define BUFFER_TABLE_SIZE sizeof(llmrt_buffer_vt)
#endif
#ifndef BACKEND_TABLE_SIZE
#define BACKEND_TABLE_SIZE sizeof(llmrt_backend_vt)
#endif
#ifndef INFO_SIZE
#define INFO_SIZE sizeof(llmrt_device_info)
#endif
#ifndef KV_BLOCK_SIZE
#define KV_BLOCK_SIZE 0
#endif
#ifndef BUILD_FLAGS
#define BUILD_FLAGS 0
#endif
#ifndef NEEDS
#define NEEDS 0
#endif
#ifndef TABLE_NAME
#define TABLE_NAME NAME
#endif
#ifndef INIT
#define INIT init
#endif
#ifndef COMPUTE
#define COMPUTE compute
#endif
#ifndef ALIGNMENT
#define ALIGNMENT 64
#endif
#ifndef PCI_ID
#define PCI_ID ""
#endif

#define STR(text) { (const uint8_t *)(text), sizeof(text) - 1 }

#ifndef NO_MANIFEST
LLMRT_MANIFEST(MANIFEST);
#endif

/* ---- errors ---- */

static int32_t fail(llmrt_error *err, int32_t code, uint32_t scope, const char *text) {
    if (err) {
        size_t n = strlen(text);
        err->code = code;
        err->scope = scope;
        err->node_index = LLMRT_NO_TENSOR;
        err->msg_len = (uint32_t)(n < sizeof err->msg ? n : sizeof err->msg);
        memcpy(err->msg, text, err->msg_len);
    }
    return code;
}

/* ---- memory ---- */

typedef struct { llmrt_buffer abi; uint8_t *bytes; } memory;

static uint8_t *at(llmrt_buffer *b, const llmrt_tensor *t) { return ((memory *)b)->bytes + t->offset; }

static void buffer_destroy(llmrt_buffer *b) {
    free(((memory *)b)->bytes);
    free(b);
}

static int32_t buffer_set(llmrt_buffer *b, const llmrt_tensor *t, const void *src, uint64_t off, uint64_t n,
                          llmrt_error *err) {
    (void)err;
#ifdef LOSES_A_BYTE
    if (n > 1) n -= 1;
#endif
    memcpy(at(b, t) + off, src, n);
    return LLMRT_STATUS_OK;
}

static int32_t buffer_get(llmrt_buffer *b, const llmrt_tensor *t, void *dst, uint64_t off, uint64_t n,
                          llmrt_error *err) {
    (void)err;
    memcpy(dst, at(b, t) + off, n);
    return LLMRT_STATUS_OK;
}

static int32_t buffer_fill(llmrt_buffer *b, uint64_t off, uint64_t n, uint8_t byte, llmrt_error *err) {
    (void)err;
    memset(((memory *)b)->bytes + off, byte, n);
    return LLMRT_STATUS_OK;
}

static const llmrt_buffer_vt buffer_vt = {
    .struct_size = BUFFER_TABLE_SIZE,
    .destroy = buffer_destroy,
    .set = buffer_set,
    .get = buffer_get,
    .fill = buffer_fill,
};

/* ---- a stream ---- */

static void backend_destroy(llmrt_backend *be) { free(be); }

static int32_t synchronize(llmrt_backend *be, llmrt_error *err) {
    (void)be, (void)err;
    return LLMRT_STATUS_OK;
}

static const llmrt_tensor *tensor(const llmrt_graph *g, uint32_t id) {
    return (const llmrt_tensor *)((const char *)g->tensors + (size_t)id * g->tensor_stride);
}

static const llmrt_node *node(const llmrt_graph *g, uint32_t i) {
    return (const llmrt_node *)((const char *)g->nodes + (size_t)i * g->node_stride);
}

static float *floats(const llmrt_tensor *t) { return (float *)(void *)at(t->buffer, t); }

static int32_t compute(llmrt_backend *be, const llmrt_graph *g, llmrt_error *err) {
    (void)be, (void)err;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const llmrt_node *n = node(g, i);
        const llmrt_tensor *dst = tensor(g, n->dst);
        if (n->op == LLMRT_OP_SCALE) {
            const float *x = floats(tensor(g, n->src[0])), scale = *(const float *)n->params;
            for (uint64_t k = 0; k < dst->nbytes / sizeof(float); k++) floats(dst)[k] = x[k] * scale;
            continue;
        }
        const float *a = floats(tensor(g, n->src[0])), *b = floats(tensor(g, n->src[1]));
        for (uint64_t k = 0; k < dst->nbytes / sizeof(float); k++) floats(dst)[k] = a[k] + b[k];
    }
    return LLMRT_STATUS_OK;
}

#ifdef BREAKS_LATER
static int32_t compute_breaks(llmrt_backend *be, const llmrt_graph *g, llmrt_error *err) {
    return g->n_nodes ? fail(err, LLMRT_STATUS_INTERNAL, LLMRT_SCOPE_PLUGIN, "lost my mind") : compute(be, g, err);
}
#endif

static const llmrt_backend_vt backend_vt = {
    .struct_size = BACKEND_TABLE_SIZE,
    .destroy = backend_destroy,
    .synchronize = synchronize,
    .compute = COMPUTE,
};

/* ---- the device ---- */

static int32_t dev_open(llmrt_device *dev, llmrt_error *err) {
    (void)dev, (void)err;
#ifdef WILL_NOT_OPEN
    return fail(err, LLMRT_STATUS_DEVICE_LOST, LLMRT_SCOPE_DEVICE, "the device is in use");
#else
    return LLMRT_STATUS_OK;
#endif
}

static void dev_close(llmrt_device *dev) { (void)dev; }

static int32_t dev_memory(llmrt_device *dev, uint64_t *free_bytes, uint64_t *total, llmrt_error *err) {
    (void)dev, (void)err;
    *free_bytes = *total = 1 << 20;
    return LLMRT_STATUS_OK;
}

static int is_plain(const llmrt_tensor *t) {
    uint64_t nb = 4;
    for (int d = 0; d < 4; nb *= (uint64_t)t->ne[d], d++)
        if (t->ne[d] != 1 && t->nb[d] != nb) return 0;
    return t->dtype == 0;
}

static int32_t dev_supports(llmrt_device *dev, const llmrt_graph *g, uint32_t first, uint32_t n,
                            llmrt_verdict *verdicts, llmrt_error *err) {
    (void)dev, (void)err;
    for (uint32_t i = 0; i < n; i++) {
        const llmrt_node *nd = node(g, first + i);
        uint8_t reason = LLMRT_REASON_OP;
        int yes = nd->op == 5 && nd->op_version == 1;
#ifdef SCALES
        /* As if it were written when `scale` had a factor and no bias yet. */
        if (nd->op == LLMRT_OP_SCALE) {
            yes = nd->op_version == 1 && nd->params_size >= sizeof(float);
            for (uint32_t b = sizeof(float); b < nd->params_size; b++)
                if (((const uint8_t *)nd->params)[b]) reason = LLMRT_REASON_PARAM;
            yes = yes && reason != LLMRT_REASON_PARAM;
        }
#endif
        for (uint32_t s = 0; yes && s < nd->n_src; s++)
            yes = is_plain(tensor(g, nd->src[s])) && tensor(g, nd->src[s])->nbytes == tensor(g, nd->dst)->nbytes;
        verdicts[i] = (llmrt_verdict){ .support = (uint8_t)yes, .reason = yes ? 0 : reason, .est_us = -1 };
#ifdef CHANGES_ITS_MIND
        static uint8_t n_calls;
        verdicts[i].support = n_calls++ & 1;
#endif
    }
    return LLMRT_STATUS_OK;
}

static int32_t dev_alloc(llmrt_device *dev, uint32_t bt, uint64_t size, uint32_t usage, llmrt_buffer **out,
                         llmrt_error *err) {
    (void)dev, (void)bt, (void)usage;
#ifdef GIVES_NOTHING
    (void)size, (void)err;
    *out = NULL;
    return LLMRT_STATUS_OK;
#else
    memory *m = malloc(sizeof *m);
    if (!m) return fail(err, LLMRT_STATUS_OOM_HOST, LLMRT_SCOPE_CALL, "no memory for a buffer");
    m->abi.vt = &buffer_vt;
    m->bytes = malloc(size);
    if (!m->bytes) {
        free(m);
        return fail(err, LLMRT_STATUS_OOM_DEVICE, LLMRT_SCOPE_CALL, "no memory for its bytes");
    }
    *out = &m->abi;
    return LLMRT_STATUS_OK;
#endif
}

static int32_t dev_backend(llmrt_device *dev, const llmrt_backend_params *params, llmrt_backend **out,
                           llmrt_error *err) {
    (void)dev, (void)params;
    llmrt_backend *be = malloc(sizeof *be);
    if (!be) return fail(err, LLMRT_STATUS_OOM_HOST, LLMRT_SCOPE_CALL, "no memory for a stream");
    be->vt = &backend_vt;
    *out = be;
    return LLMRT_STATUS_OK;
}

#ifdef POISON
/* What is stored where a full table has functions, past the end of a shorter one. */
static uint64_t alloc_size_poison(llmrt_device *dev, uint32_t bt, const llmrt_tensor *t) {
    (void)dev, (void)bt, (void)t;
    abort();
}
#endif

static const llmrt_device_vt device_vt = {
    .struct_size = DEVICE_TABLE_SIZE,
    .open = dev_open,
    .close = dev_close,
    .memory = dev_memory,
#ifndef NO_SUPPORTS
    .supports = dev_supports,
#endif
    .buffer_alloc = dev_alloc,
    .backend_create = dev_backend,
#ifdef POISON
    .alloc_size = alloc_size_poison,
#endif
};

#ifdef EXTENDED
/* A table of a later minor: functions after those of this header. */
static struct { llmrt_device_vt known; void (*newer[4])(void); } extended_vt;
#endif

static const llmrt_buffer_type buffer_types[] = {
    { .struct_size = sizeof(llmrt_buffer_type), .kind = LLMRT_BUFFER_DEVICE, .alignment = ALIGNMENT, .name = STR("ram") },
};

static const llmrt_device_info device_info = {
    .struct_size = INFO_SIZE,
    .kind = LLMRT_DEVICE_ACCEL,
    .name = STR("0"),
    .description = STR("adds in C"),
    .pci_id = STR(PCI_ID),
    .memory_total = 1 << 20,
    .n_buffer_types = 1,
    .bt_stride = sizeof(llmrt_buffer_type),
    .buffer_types = buffer_types,
    .kv_block_size = KV_BLOCK_SIZE,
};

static llmrt_device device = { .vt = &device_vt, .info = &device_info };

/* ---- the plugin ---- */

#ifdef TWINS
static llmrt_device *devices[] = { &device, &device };
#else
static llmrt_device *devices[] = { &device };
#endif

static int32_t init(const llmrt_host_api *host, llmrt_device *const **out, uint32_t *n, llmrt_error *err) {
    (void)host, (void)err;
#ifdef EXTENDED
    extended_vt.known = device_vt;
    extended_vt.known.struct_size = sizeof extended_vt;
    device.vt = &extended_vt.known;
#endif
    *out = devices;
    *n = sizeof devices / sizeof *devices;
    return LLMRT_STATUS_OK;
}

#ifdef INIT_PANICS
/* What a guard around C++ or Rust code answers after it caught a panic. */
static int32_t init_panics(const llmrt_host_api *host, llmrt_device *const **out, uint32_t *n, llmrt_error *err) {
    (void)host, (void)out, (void)n;
    return fail(err, LLMRT_STATUS_INTERNAL, LLMRT_SCOPE_PLUGIN, "panic: the driver is older than its library");
}
#endif

static void plugin_shutdown(void) {}

#ifdef USES_HOST_SYMBOL
extern void llmrt_host_log(const char *text);
void (*host_log)(const char *text) = llmrt_host_log;
#endif

static const llmrt_plugin table = {
    .magic = MAGIC,
    .struct_size = TABLE_SIZE,
    .abi_major = MAJOR,
    .abi_minor = MINOR,
    .fingerprint = FINGERPRINT,
    .build_flags = BUILD_FLAGS,
    .needs_host = NEEDS,
    .name = STR(TABLE_NAME),
    .version = STR("1.0"),
    .vendor = STR("tests"),
    .init = INIT,
    .shutdown = plugin_shutdown,
};

#ifdef NO_ENTRY
const llmrt_plugin *other_entry(uint32_t host_minor) {
#else
const llmrt_plugin *llmrt_plugin_query_v0(uint32_t host_minor) {
#endif
    (void)host_minor;
#ifdef NEEDS_MINOR
    if (host_minor < NEEDS_MINOR) return NULL;
#endif
#ifdef REFUSES_HOST
    (void)table;
    return NULL;
#else
    return &table;
#endif
}
