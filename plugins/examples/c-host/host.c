/* A host in one C file, from llmrt/plugin.h alone: loads a plugin, opens its first device, adds two vectors there.
 *
 *   c-host libllmrt_NAME.so
 *
 * Read it from the bottom: manifest, entry, init, device, buffer, supports, compute, result. What a host for daily use
 * does beyond this: docs/plugins/writing-a-host.md. Builds as C11 without warnings. */

#include "llmrt/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text of the ABI: pointer and length. */
#define STR(text) { (const uint8_t *)(text), sizeof(text) - 1 }
#define PRINTED(str) (int)(str).len, (const char *)(str).ptr

/* Whether a table, which may be older and shorter than this header, has a function. */
#define HAS(type, table, field) \
    (offsetof(type, field) + sizeof((table)->field) <= (table)->struct_size && (table)->field != NULL)

/* Ends the program: a sample has nothing to fall back to. */
static void stop(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* ---- errors: preset before each call, read after a failed one ---- */

static llmrt_error preset(void) {
    llmrt_error err;
    memset(&err, 0, sizeof err);
    err.struct_size = sizeof err;
    err.node_index = LLMRT_NO_TENSOR;
    return err;
}

static void check(const char *call, int32_t status, const llmrt_error *err) {
    if (status == LLMRT_STATUS_OK) return;
    fprintf(stderr, "%s returned status %d, scope %u: %.*s\n", call, (int)status, (unsigned)err->scope,
            (int)(err->msg_len < sizeof err->msg ? err->msg_len : sizeof err->msg), (const char *)err->msg);
    exit(1);
}

/* ---- what the host offers: the functions of llmrt_host_api, and a pool of one thread ---- */

static void host_log(void *ctx, uint32_t level, llmrt_str target, llmrt_str msg) {
    (void)ctx;
    if (level <= 2) fprintf(stderr, "%.*s: %.*s\n", PRINTED(target), PRINTED(msg));
}

static int32_t host_get_option(void *ctx, llmrt_str key, uint8_t *buf, uint64_t cap, uint64_t *len) {
    (void)ctx, (void)key, (void)buf, (void)cap, (void)len;
    return LLMRT_STATUS_UNSUPPORTED; /* no option is set */
}

static int32_t host_type_info(void *ctx, uint32_t dtype, llmrt_type_info *out) {
    const llmrt_str name = STR("F32");
    (void)ctx;
    if (dtype != LLMRT_TYPE_F32) return LLMRT_STATUS_UNSUPPORTED;
    out->id = dtype;
    out->block_elems = 1;
    out->block_bytes = 4;
    out->flags = 0;
    out->reserved = 0;
    out->name = name;
    return LLMRT_STATUS_OK;
}

static int32_t host_register_op(void *ctx, const llmrt_op_desc *desc, uint32_t *id) {
    static uint32_t next = 0x80000000u;
    (void)ctx, (void)desc;
    *id = next++;
    return LLMRT_STATUS_OK;
}

static int32_t host_find_op(void *ctx, llmrt_str name, uint32_t version, uint32_t *id) {
    (void)ctx, (void)name, (void)version, (void)id;
    return LLMRT_STATUS_UNSUPPORTED;
}

static uint32_t host_cancelled(void *ctx, uint64_t run_id) {
    (void)ctx, (void)run_id;
    return 0;
}

static uint32_t threads_n(void *ctx) {
    (void)ctx;
    return 1;
}

static int32_t threads_run(void *ctx, uint32_t n, void (*body)(void *arg, void *team, uint32_t i, uint32_t n),
                           void *arg) {
    if (n != 1 || body == NULL) return LLMRT_STATUS_INVALID;
    body(arg, ctx, 0, 1);
    return LLMRT_STATUS_OK;
}

static void threads_barrier(void *team) { (void)team; }

static const llmrt_host_threads host_threads = { sizeof host_threads, 0, NULL, threads_n, threads_run, threads_barrier };

static const void *host_get_extension(void *ctx, llmrt_str name, uint32_t version) {
    const llmrt_str threads = STR("llmrt.host.threads");
    (void)ctx;
    if (version != 1 || name.len != threads.len || memcmp(name.ptr, threads.ptr, threads.len) != 0) return NULL;
    return &host_threads;
}

static const llmrt_host_api host_api = {
    sizeof host_api, LLMRT_ABI_MINOR, NULL,
    host_log, host_get_option, host_type_info, host_register_op, host_find_op, host_cancelled, host_get_extension,
};

/* ---- the manifest: read from the file, before anything of it runs ---- */

/* `n` bytes at `offset` of a file of `size` bytes, or NULL. Every offset in the file may be wrong. */
static const void *bytes_at(const uint8_t *file, uint64_t size, uint64_t offset, uint64_t n) {
    return offset <= size && n <= size - offset ? file + offset : NULL;
}

/* The text of section .llmrtmf of an ELF file for 64 bits; `len` receives its length. NULL: not there. */
static const char *manifest(const uint8_t *file, uint64_t size, uint64_t *len) {
    Elf64_Ehdr head;
    Elf64_Shdr names, section;
    const void *at = bytes_at(file, size, 0, sizeof head);
    uint64_t i;
    if (at == NULL || memcmp(at, ELFMAG, SELFMAG) != 0 || file[EI_CLASS] != ELFCLASS64) return NULL;
    memcpy(&head, at, sizeof head);
    if (head.e_shentsize != sizeof section || head.e_shstrndx >= head.e_shnum) return NULL;
    /* Rows are `sizeof section` apart; their start is checked before it is multiplied past 64 bits: 16-bit indices. */
    if (head.e_shoff > size) return NULL;
    at = bytes_at(file, size, head.e_shoff + (uint64_t)head.e_shstrndx * sizeof names, sizeof names);
    if (at == NULL) return NULL;
    memcpy(&names, at, sizeof names);
    for (i = 0; i < head.e_shnum; i++) {
        static const char section_name[] = ".llmrtmf";
        at = bytes_at(file, size, head.e_shoff + i * sizeof section, sizeof section);
        if (at == NULL) return NULL;
        memcpy(&section, at, sizeof section);
        if (section.sh_name >= names.sh_size || names.sh_offset > size) continue;
        at = bytes_at(file, size, names.sh_offset + section.sh_name, sizeof section_name);
        if (at == NULL || memcmp(at, section_name, sizeof section_name) != 0) continue;
        at = bytes_at(file, size, section.sh_offset, section.sh_size);
        if (at == NULL) return NULL;
        *len = section.sh_size;
        while (*len > 0 && ((const char *)at)[*len - 1] == 0) *len -= 1; /* a C string ends in a zero byte */
        return (const char *)at;
    }
    return NULL;
}

static void print_manifest(const char *path) {
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = NULL;
    const char *text;
    uint64_t len = 0;
    long size = -1;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0) size = ftell(f);
    if (size > 0) bytes = malloc((size_t)size);
    if (bytes == NULL || fseek(f, 0, SEEK_SET) != 0 || fread(bytes, 1, (size_t)size, f) != (size_t)size)
        stop(path, "cannot be read");
    fclose(f);
    text = manifest(bytes, (uint64_t)size, &len);
    if (text == NULL) stop(path, "is no plugin: it has no section .llmrtmf");
    /* A host for daily use compares abi, cpu, pci and sonames with this machine here, and goes on only if they fit. */
    printf("manifest:\n%.*s", (int)len, text);
    free(bytes);
}

/* ---- the entry ---- */

static const llmrt_plugin *query(const char *path) {
    const llmrt_plugin *(*entry)(uint32_t) = NULL;
    const llmrt_plugin *plugin;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol;
    if (library == NULL) stop(path, dlerror());
    symbol = dlsym(library, "llmrt_plugin_query_v0");
    if (symbol == NULL) stop(path, "does not export llmrt_plugin_query_v0");
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from a data pointer to a function pointer */
    plugin = entry(LLMRT_ABI_MINOR);
    if (plugin == NULL) stop(path, "cannot serve this host");
    if (plugin->magic != LLMRT_MAGIC || plugin->abi_major != LLMRT_ABI_MAJOR) stop(path, "has another ABI");
    if (plugin->fingerprint != LLMRT_FINGERPRINT) stop(path, "was built with other struct layouts");
    if (plugin->needs_host & ~(uint64_t)LLMRT_NEEDS_THREADS) stop(path, "needs a feature that this host lacks");
    if (!HAS(llmrt_plugin, plugin, init) || !HAS(llmrt_plugin, plugin, shutdown)) stop(path, "lacks init or shutdown");
    return plugin;
}

/* ---- one addition ---- */

#define N 4

/* An F32 vector of N elements at `offset` of a buffer (NULL during `supports`), as row `id` of a graph. */
static llmrt_tensor vector(uint32_t id, llmrt_buffer *buffer, uint64_t offset) {
    const llmrt_str name = STR("vector");
    llmrt_tensor t;
    int d;
    memset(&t, 0, sizeof t);
    t.id = id;
    t.dtype = LLMRT_TYPE_F32;
    t.n_dims = 1;
    for (d = 0; d < 4; d++) {
        t.ne[d] = d == 0 ? N : 1;
        t.nb[d] = d == 0 ? sizeof(float) : N * sizeof(float);
    }
    t.buffer = buffer;
    t.offset = buffer == NULL ? 0 : offset;
    t.nbytes = N * sizeof(float);
    t.view_src = LLMRT_NO_TENSOR;
    t.name = name;
    return t;
}

static llmrt_graph graph_of(const llmrt_tensor *tensors, uint32_t n_tensors, const llmrt_node *node) {
    static uint64_t next = 1;
    llmrt_graph g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    g.tensor_stride = sizeof *tensors;
    g.node_stride = sizeof *node;
    g.n_tensors = n_tensors;
    g.n_nodes = 1;
    g.uid = g.binding_gen = g.run_id = next++; /* a new graph every time; equal numbers would promise equal graphs */
    g.tensors = tensors;
    g.nodes = node;
    return g;
}

static void add(llmrt_device *dev) {
    static const float a[N] = { 1, 2, 3, 4 }, b[N] = { 10, 20, 30, 40 };
    static const uint32_t sources[] = { 0, 1 };
    const llmrt_buffer_type *type = &dev->info->buffer_types[0]; /* index 0 is the default for tensors */
    /* Tensors start at multiples of the alignment, which is a power of two. */
    const uint64_t step = (N * sizeof(float) + type->alignment - 1) / type->alignment * type->alignment;
    float sum[N];
    llmrt_error err = preset();
    llmrt_tensor tensors[3], alone;
    llmrt_node node;
    llmrt_graph graph;
    llmrt_verdict verdict = llmrt_verdict_no(LLMRT_REASON_OP);
    llmrt_backend_params params;
    llmrt_buffer *buffer = NULL;
    llmrt_backend *stream = NULL;
    uint64_t free_bytes = 0, total = 0;
    uint32_t i;

    /* 1. Is the node supported? Before there is memory. */
    memset(&node, 0, sizeof node);
    node.op = LLMRT_OP_ADD;
    node.op_version = 1;
    node.dst = 2;
    node.src = sources;
    node.n_src = 2;
    for (i = 0; i < 3; i++) tensors[i] = vector(i, NULL, 0);
    graph = graph_of(tensors, 3, &node);
    check("supports", dev->vt->supports(dev, &graph, 0, 1, &verdict, &err), &err);
    if (verdict.support == 0) {
        printf("add is refused, reason %u\n", (unsigned)verdict.reason);
        return;
    }

    /* 2. Memory, and the operands in it. */
    check("memory", dev->vt->memory(dev, &free_bytes, &total, &err), &err);
    check("buffer_alloc", dev->vt->buffer_alloc(dev, 0, 3 * step, LLMRT_USAGE_COMPUTE, &buffer, &err), &err);
    if (!HAS(llmrt_buffer_vt, buffer->vt, destroy) || !HAS(llmrt_buffer_vt, buffer->vt, set)
        || !HAS(llmrt_buffer_vt, buffer->vt, get))
        stop("buffer_alloc", "the buffer lacks a mandatory function");
    for (i = 0; i < 2; i++) {
        alone = vector(0, buffer, i * step); /* a tensor without a graph: id 0, no view */
        check("set", buffer->vt->set(buffer, &alone, i == 0 ? a : b, 0, sizeof sum, &err), &err);
    }

    /* 3. A stream computes; the graph stays as it is until the stream is synchronised. */
    memset(&params, 0, sizeof params);
    params.struct_size = sizeof params;
    check("backend_create", dev->vt->backend_create(dev, &params, &stream, &err), &err);
    if (!HAS(llmrt_backend_vt, stream->vt, destroy) || !HAS(llmrt_backend_vt, stream->vt, synchronize)
        || !HAS(llmrt_backend_vt, stream->vt, compute))
        stop("backend_create", "the stream lacks a mandatory function");
    for (i = 0; i < 3; i++) tensors[i] = vector(i, buffer, i * step);
    graph = graph_of(tensors, 3, &node);
    check("compute", stream->vt->compute(stream, &graph, &err), &err);
    check("synchronize", stream->vt->synchronize(stream, &err), &err);

    /* 4. The result. */
    alone = vector(0, buffer, 2 * step);
    check("get", buffer->vt->get(buffer, &alone, sum, 0, sizeof sum, &err), &err);
    printf("add:");
    for (i = 0; i < N; i++) printf(" %g", (double)sum[i]);
    printf("\n");

    /* 5. Everything goes in the reverse order. */
    stream->vt->destroy(stream);
    buffer->vt->destroy(buffer);
}

int main(int argc, char **argv) {
    const llmrt_plugin *plugin;
    llmrt_device *const *devices = NULL;
    llmrt_error err = preset();
    uint32_t n = 0;
    if (argc != 2) stop("usage", "c-host libllmrt_NAME.so");
    print_manifest(argv[1]);
    plugin = query(argv[1]);
    printf("plugin: %.*s %.*s\n", PRINTED(plugin->name), PRINTED(plugin->version));
    check("init", plugin->init(&host_api, &devices, &n, &err), &err);
    printf("devices: %u\n", (unsigned)n);
    if (n > 0) {
        llmrt_device *dev = devices[0];
        const llmrt_device_vt *vt = dev->vt;
        if (!HAS(llmrt_device_vt, vt, open) || !HAS(llmrt_device_vt, vt, close) || !HAS(llmrt_device_vt, vt, memory)
            || !HAS(llmrt_device_vt, vt, supports) || !HAS(llmrt_device_vt, vt, buffer_alloc)
            || !HAS(llmrt_device_vt, vt, backend_create))
            stop(argv[1], "the device lacks a mandatory function");
        printf("device: %.*s\n", PRINTED(dev->info->name));
        check("open", vt->open(dev, &err), &err);
        add(dev);
        vt->close(dev);
    }
    plugin->shutdown();
    return 0;
}
