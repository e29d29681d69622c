// A plugin in C++ under llmrt/guard.hpp: one device with host memory that runs no op, and throws where a macro of the
// tests selects.

#include "llmrt/guard.hpp"

#include <new>
#include <stdexcept>
#include <vector>

LLMRT_MANIFEST("abi=0\nname=throws\nversion=1.0\n");

#define STR(text) { reinterpret_cast<const uint8_t *>(text), sizeof(text) - 1 }

namespace {

#ifndef THROWN
#define THROWN std::runtime_error("the driver lost its card")
#endif

void maybe_throw(bool here) {
    if (here) throw THROWN;
}

#ifdef IN_COMPUTE
constexpr bool in_compute = true;
#else
constexpr bool in_compute = false;
#endif
#ifdef IN_SUPPORTS
constexpr bool in_supports = true;
#else
constexpr bool in_supports = false;
#endif
#ifdef IN_ALLOC
constexpr bool in_alloc = true;
#else
constexpr bool in_alloc = false;
#endif
#ifdef IN_ALLOC_SIZE
constexpr bool in_alloc_size = true;
#else
constexpr bool in_alloc_size = false;
#endif
#ifdef IN_INIT
constexpr bool in_init = true;
#else
constexpr bool in_init = false;
#endif

struct memory {
    llmrt_buffer abi;
    std::vector<uint8_t> bytes;
};

memory *of(llmrt_buffer *buf) { return reinterpret_cast<memory *>(buf); }

void buffer_destroy(llmrt_buffer *buf) { delete of(buf); }

int32_t buffer_set(llmrt_buffer *buf, const llmrt_tensor *t, const void *src, uint64_t off, uint64_t n, llmrt_error *) {
    std::memcpy(of(buf)->bytes.data() + t->offset + off, src, n);
    return LLMRT_STATUS_OK;
}

int32_t buffer_get(llmrt_buffer *buf, const llmrt_tensor *t, void *dst, uint64_t off, uint64_t n, llmrt_error *) {
    std::memcpy(dst, of(buf)->bytes.data() + t->offset + off, n);
    return LLMRT_STATUS_OK;
}

int32_t buffer_fill(llmrt_buffer *buf, uint64_t off, uint64_t n, uint8_t byte, llmrt_error *) {
    std::memset(of(buf)->bytes.data() + off, byte, n);
    return LLMRT_STATUS_OK;
}

const llmrt_buffer_vt buffer_vt = {
    sizeof(llmrt_buffer_vt), 0,
    llmrt::guard<buffer_destroy>, llmrt::guard<buffer_set>, llmrt::guard<buffer_get>, llmrt::guard<buffer_fill>,
    nullptr, nullptr, nullptr,
};

void backend_destroy(llmrt_backend *be) { delete be; }

int32_t backend_synchronize(llmrt_backend *, llmrt_error *) { return LLMRT_STATUS_OK; }

int32_t backend_compute(llmrt_backend *, const llmrt_graph *g, llmrt_error *) {
    maybe_throw(in_compute && g->n_nodes > 0);
    return LLMRT_STATUS_OK;
}

const llmrt_backend_vt backend_vt = {
    sizeof(llmrt_backend_vt), 0,
    llmrt::guard<backend_destroy>, llmrt::guard<backend_synchronize>, llmrt::guard<backend_compute>,
    nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
};

int32_t device_open(llmrt_device *, llmrt_error *) { return LLMRT_STATUS_OK; }

void device_close(llmrt_device *) {}

int32_t device_memory(llmrt_device *, uint64_t *free_bytes, uint64_t *total, llmrt_error *) {
    *free_bytes = *total = 1 << 20;
    return LLMRT_STATUS_OK;
}

int32_t device_supports(llmrt_device *, const llmrt_graph *, uint32_t, uint32_t n, llmrt_verdict *verdicts, llmrt_error *) {
    maybe_throw(in_supports);
    for (uint32_t i = 0; i < n; i++) verdicts[i] = { 0, LLMRT_REASON_OP, 0, -1.0f, 0 };
    return LLMRT_STATUS_OK;
}

int32_t device_buffer_alloc(llmrt_device *, uint32_t, uint64_t size, uint32_t, llmrt_buffer **out, llmrt_error *) {
    // The load checklist's self-test takes 64 bytes.
    maybe_throw(in_alloc && size > 64);
    *out = &(new memory{ { &buffer_vt, nullptr }, std::vector<uint8_t>(size) })->abi;
    return LLMRT_STATUS_OK;
}

int32_t device_backend_create(llmrt_device *, const llmrt_backend_params *, llmrt_backend **out, llmrt_error *) {
    *out = new llmrt_backend{ &backend_vt, nullptr };
    return LLMRT_STATUS_OK;
}

uint64_t device_alloc_size(llmrt_device *, uint32_t, const llmrt_tensor *t) {
    maybe_throw(in_alloc_size);
    return t->nbytes;
}

const llmrt_device_vt device_vt = {
    sizeof(llmrt_device_vt), 0,
    llmrt::guard<device_open>, llmrt::guard<device_close>, llmrt::guard<device_memory>, llmrt::guard<device_supports>,
    llmrt::guard<device_buffer_alloc>, llmrt::guard<device_backend_create>, llmrt::guard<device_alloc_size>,
    nullptr, nullptr, nullptr,
};

const llmrt_buffer_type buffer_type = { sizeof(llmrt_buffer_type), 0, LLMRT_BUFFER_HOST, 0, 64, 0, STR("memory") };

const llmrt_device_info device_info = {
    sizeof(llmrt_device_info), LLMRT_DEVICE_ACCEL, 0, STR("0"), STR("throws"), STR("c++"), STR(""), {},
    1 << 20, 1, sizeof(llmrt_buffer_type), &buffer_type, 0, 0,
};

llmrt_device device = { &device_vt, &device_info, nullptr };
llmrt_device *const devices[] = { &device };

int32_t plugin_init(const llmrt_host_api *, llmrt_device *const **out, uint32_t *n, llmrt_error *) {
    maybe_throw(in_init);
    *out = devices;
    *n = 1;
    return LLMRT_STATUS_OK;
}

void plugin_shutdown() {}

const llmrt_plugin plugin = {
    LLMRT_MAGIC, sizeof(llmrt_plugin), LLMRT_ABI_MAJOR, LLMRT_ABI_MINOR, LLMRT_FINGERPRINT, 0, 0, 0,
    STR("throws"), STR("1.0"), STR("tests"), llmrt::guard<plugin_init>, llmrt::guard<plugin_shutdown>, nullptr,
};

} // namespace

const llmrt_plugin *llmrt_plugin_query_v0(uint32_t) { return &plugin; }
