/* The plugin of plugin.c with two custom ops: tests.affine (y = x·scale + 1 on F32, params: float scale), which the
 * device runs for vectors only, and tests.pinned, which has no reference. */

#define NAME "customop"
#define llmrt_plugin_query_v0 query_without_ops
#include "plugin.c"
#undef llmrt_plugin_query_v0

static uint32_t affine, pinned;

static int32_t infer(const llmrt_graph *g, uint32_t i, llmrt_tensor *dst) {
    const llmrt_node *n = node(g, i);
    const llmrt_tensor *x = tensor(g, n->src[0]);
    if (x->dtype != LLMRT_TYPE_F32 || n->params_size < sizeof(float)) return LLMRT_STATUS_UNSUPPORTED;
    dst->dtype = LLMRT_TYPE_F32;
    memcpy(dst->ne, x->ne, sizeof dst->ne);
    return LLMRT_STATUS_OK;
}

static void apply(const llmrt_graph *g, const llmrt_node *n, const float *x, float *y, float bias) {
    const llmrt_tensor *dst = tensor(g, n->dst);
    float scale;
    memcpy(&scale, n->params, sizeof scale);
    for (uint64_t k = 0; k < dst->nbytes / sizeof(float); k++) y[k] = x[k] * scale + bias;
}

static int32_t reference(const llmrt_graph *g, uint32_t i, const void *const *src, void *dst) {
    apply(g, node(g, i), (const float *)src[0], (float *)dst, 1);
    return LLMRT_STATUS_OK;
}

static int32_t op_supports(llmrt_device *dev, const llmrt_graph *g, uint32_t first, uint32_t n, llmrt_verdict *verdicts,
                           llmrt_error *err) {
    int32_t status = dev_supports(dev, g, first, n, verdicts, err);
    for (uint32_t i = 0; i < n; i++) {
        const llmrt_node *nd = node(g, first + i);
        if (nd->op != affine) continue;
        int is_vector = tensor(g, nd->src[0])->ne[1] == 1;
        verdicts[i].support = (uint8_t)is_vector;
        verdicts[i].reason = is_vector ? LLMRT_REASON_NONE : LLMRT_REASON_SHAPE;
    }
    return status;
}

static int32_t op_compute(llmrt_backend *be, const llmrt_graph *g, llmrt_error *err) {
    const llmrt_node *n = g->n_nodes ? node(g, 0) : NULL;
    if (!n || n->op != affine) return compute(be, g, err);
    apply(g, n, floats(tensor(g, n->src[0])), floats(tensor(g, n->dst)), 1);
    return LLMRT_STATUS_OK;
}

static const llmrt_backend_vt op_backend_vt = {
    .struct_size = sizeof(llmrt_backend_vt),
    .destroy = backend_destroy,
    .synchronize = synchronize,
    .compute = op_compute,
};

static int32_t op_backend(llmrt_device *dev, const llmrt_backend_params *params, llmrt_backend **out, llmrt_error *err) {
    int32_t status = dev_backend(dev, params, out, err);
    if (status == LLMRT_STATUS_OK) (*out)->vt = &op_backend_vt;
    return status;
}

static llmrt_device_vt op_device_vt;

static int32_t op_init(const llmrt_host_api *host, llmrt_device *const **out, uint32_t *n, llmrt_error *err) {
    llmrt_op_desc desc = {
        .struct_size = sizeof desc,
        .version = 1,
        .min_src = 1,
        .max_src = 1,
        .name = STR("tests.affine"),
        .schema = STR("scale: f32"),
        .infer = infer,
        .reference = reference,
    };
    const llmrt_str pinned_name = STR("tests.pinned"), bad_name = STR("affine");
    uint32_t id;
    int32_t status = host->register_op(host->ctx, &desc, &affine);
    if (status != LLMRT_STATUS_OK) return fail(err, status, LLMRT_SCOPE_CALL, "tests.affine");
    /* Twice, and with a name that is none: refused. */
    if (host->register_op(host->ctx, &desc, &id) == LLMRT_STATUS_OK) return fail(err, LLMRT_STATUS_INTERNAL, 0, "twice");
    desc.name = bad_name;
    if (host->register_op(host->ctx, &desc, &id) == LLMRT_STATUS_OK) return fail(err, LLMRT_STATUS_INTERNAL, 0, "name");
    desc.name = pinned_name;
    desc.reference = NULL;
    status = host->register_op(host->ctx, &desc, &pinned);
    if (status != LLMRT_STATUS_OK) return fail(err, status, LLMRT_SCOPE_CALL, "tests.pinned");
    if (host->find_op(host->ctx, pinned_name, 1, &id) != LLMRT_STATUS_OK || id != pinned)
        return fail(err, LLMRT_STATUS_INTERNAL, 0, "find_op");
#ifdef INIT_FAILS
    return fail(err, LLMRT_STATUS_INTERNAL, LLMRT_SCOPE_CALL, "no device after all");
#endif
    op_device_vt = device_vt;
    op_device_vt.supports = op_supports;
    op_device_vt.backend_create = op_backend;
    device.vt = &op_device_vt;
    return init(host, out, n, err);
}

static llmrt_plugin op_table;

LLMRT_EXPORT const llmrt_plugin *llmrt_plugin_query_v0(uint32_t host_minor);

const llmrt_plugin *llmrt_plugin_query_v0(uint32_t host_minor) {
    (void)host_minor;
    op_table = table;
    op_table.init = op_init;
    return &op_table;
}
