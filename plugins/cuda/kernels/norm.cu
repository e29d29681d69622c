// Norms of rows: a block per row.
#include "number.cuh"

struct Norm {
    Tensor x, weight, bias, y;
    u32 kind;
    float eps;
};
enum : u32 { RMS, LAYER, L2 };

// The sum over all threads of a block of up to 256, for each of them.
DEVICE float block_sum(float x) {
    SHARED(float, parts, 8);
    x = warp_sum(x);
    sync_block();
    if (lane_of(THREAD) == 0) parts[warp_of(THREAD)] = x;
    sync_block();
    float sum = 0.0f;
    for (int i = 0; i < THREADS / 32; i++) sum += parts[i];
    return sum;
}

KERNEL(row_norm, Norm, 256) {
    Index row = index_of(BLOCK_X, p.x.ne + 1);
    i64 n = p.x.ne[0];
    u64 x = address_of(p.x, 0, row.i[0], row.i[1], row.i[2]), y = address_of(p.y, 0, row.i[0], row.i[1], row.i[2]);
    float mean = 0.0f, sum = 0.0f;
    if (p.kind == LAYER) {
        for (i64 i = THREAD; i < n; i += THREADS) mean += load_number(x + i * p.x.nb[0], p.x.type);
        mean = block_sum(mean) / n;
    }
    for (i64 i = THREAD; i < n; i += THREADS) {
        float v = load_number(x + i * p.x.nb[0], p.x.type) - mean;
        sum += v * v;
    }
    sum = block_sum(sum);
    float scale = p.kind == L2 ? 1.0f / fmaxf(sqrtf(sum), p.eps) : 1.0f / sqrtf(sum / n + p.eps);
    for (i64 i = THREAD; i < n; i += THREADS) {
        float v = (load_number(x + i * p.x.nb[0], p.x.type) - mean) * scale;
        if (p.weight.address) v *= at<const float>(p.weight.address + i * p.weight.nb[0])[0];
        if (p.bias.address) v += at<const float>(p.bias.address + i * p.bias.nb[0])[0];
        store_number(y + i * p.y.nb[0], p.y.type, v);
    }
}
