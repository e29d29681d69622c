// Norms: a block per row, or per group of channels.
#include "block.cuh"
#include "pack.cuh"

// What is normed: x, or x + added where there is a sum, which is written; plain: the norm before weight and bias, where
// it is read; packed: where y goes in 8 bits, too, of rows of whole groups, or 0.
struct Norm {
    Tensor x, added, sum, weight, bias, plain, y;
    u64 packed;
    u32 kind;
    float eps;
};
enum : u32 { RMS, LAYER, L2 };

DEVICE u64 row_of(const Tensor &t, const Index &row) { return address_of(t, 0, row.i[0], row.i[1], row.i[2]); }

KERNEL(row_norm, Norm, 256) {
    Index row = index_of(BLOCK_X, p.x.ne + 1);
    i64 n = p.x.ne[0], step = p.x.nb[0];
    u64 x = row_of(p.x, row), y = row_of(p.y, row);
    if (p.sum.address) {
        // Each thread reads later what it wrote here.
        u64 added = row_of(p.added, row), sum = row_of(p.sum, row);
        for (i64 i = THREAD; i < n; i += THREADS)
            at<float>(sum + i * p.sum.nb[0])[0] =
                at<const float>(x + i * step)[0] + at<const float>(added + i * p.added.nb[0])[0];
        x = sum;
        step = p.sum.nb[0];
    }
    float mean = 0.0f, sum = 0.0f;
    if (p.kind == LAYER) {
        for (i64 i = THREAD; i < n; i += THREADS) mean += at<const float>(x + i * step)[0];
        mean = block_sum(mean) / n;
    }
    for (i64 i = THREAD; i < n; i += THREADS) {
        float v = at<const float>(x + i * step)[0] - mean;
        sum += v * v;
    }
    sum = block_sum(sum);
    float scale = p.kind == L2 ? 1.0f / fmaxf(sqrtf(sum), p.eps) : 1.0f / sqrtf(sum / n + p.eps);
    for (i64 i = THREAD; i < n; i += THREADS) {
        float v = (at<const float>(x + i * step)[0] - mean) * scale;
        if (p.plain.address) at<float>(row_of(p.plain, row) + i * p.plain.nb[0])[0] = v;
        if (p.weight.address) v *= at<const float>(p.weight.address + i * p.weight.nb[0])[0];
        if (p.bias.address) v += at<const float>(p.bias.address + i * p.bias.nb[0])[0];
        at<float>(y + i * p.y.nb[0])[0] = v;
        // A group's numbers are those of a warp.
        if (p.packed) pack(v, p.packed + (BLOCK_X * n + i) / 32 * sizeof(Packed));
    }
}

struct Groups {
    Tensor x, y;
    i64 per_group;
    float eps;
};

// Element i of the group whose first channel is `first`.
DEVICE Index in_group(const Tensor &x, i64 i, i64 first, i64 image) {
    Index at = index_of(i, x.ne);
    at.i[2] += first;
    at.i[3] = image;
    return at;
}

// Groups of the channels in dim 2; the last one may have fewer.
KERNEL(group_norm, Groups, 256) {
    i64 n_groups = (p.x.ne[2] + p.per_group - 1) / p.per_group;
    i64 first = BLOCK_X % n_groups * p.per_group, image = BLOCK_X / n_groups;
    i64 channels = p.x.ne[2] - first < p.per_group ? p.x.ne[2] - first : p.per_group;
    i64 n = p.x.ne[0] * p.x.ne[1] * channels;
    float mean = 0.0f, sum = 0.0f;
    for (i64 i = THREAD; i < n; i += THREADS) mean += load(p.x, in_group(p.x, i, first, image));
    mean = block_sum(mean) / n;
    for (i64 i = THREAD; i < n; i += THREADS) {
        float v = load(p.x, in_group(p.x, i, first, image)) - mean;
        sum += v * v;
    }
    float scale = 1.0f / sqrtf(block_sum(sum) / n + p.eps);
    for (i64 i = THREAD; i < n; i += THREADS) {
        Index at = in_group(p.x, i, first, image);
        store(p.y, at, (load(p.x, at) - mean) * scale);
    }
}
