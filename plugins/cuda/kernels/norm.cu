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

// Numbers of a row that a thread has at once: WIDTH neighbours, as many again WIDTH * THREADS further on, and so on. All of them
// are loaded before the first is used.
#define PART 8

// Number w of piece j of the part that starts at `start`.
template <int WIDTH> DEVICE i64 place_in(i64 start, int j) { return start + WIDTH * (THREAD + j * THREADS); }

// Past the row's end 0.
template <int WIDTH> DEVICE void load_part(float *v, u64 row, i64 step, i64 start, i64 n) {
    UNROLL for (int j = 0; j < PART / WIDTH; j++) {
        i64 i = place_in<WIDTH>(start, j);
        UNROLL for (int w = 0; w < WIDTH; w++) v[j * WIDTH + w] = 0.0f;
        if (i < n) load_some<WIDTH>(v + j * WIDTH, row + i * step, step, F32);
    }
}
template <int WIDTH> DEVICE void store_part(const float *v, u64 row, i64 step, i64 start, i64 n) {
    UNROLL for (int j = 0; j < PART / WIDTH; j++) {
        i64 i = place_in<WIDTH>(start, j);
        if (i < n) store_some<WIDTH>(v + j * WIDTH, row + i * step, step, F32);
    }
}

// What a row is multiplied with and what is added to it, where there is any.
template <int WIDTH> DEVICE void load_affine(float *weight, float *bias, const Norm &p, i64 start) {
    if (p.weight.address) load_part<WIDTH>(weight, p.weight.address, p.weight.nb[0], start, p.x.ne[0]);
    if (p.bias.address) load_part<WIDTH>(bias, p.bias.address, p.bias.nb[0], start, p.x.ne[0]);
}

template <int WIDTH> DEVICE void norm_of_row(const Norm &p) {
    Index row = index_of(BLOCK_X, p.x.ne + 1);
    i64 n = p.x.ne[0], part = PART * THREADS;
    u64 x = row_of(p.x, row), sums = p.sum.address ? row_of(p.sum, row) : 0;
    // Where a thread finds x, or what it wrote of the sum, again.
    u64 from = sums ? sums : x;
    i64 step = sums ? p.sum.nb[0] : p.x.nb[0];
    // A row of one part stays in registers, others are read again.
    bool is_one = n <= part;
    float v[PART], weight[PART], bias[PART], total = 0.0f, mean = 0.0f;
    for (i64 start = 0; start < n; start += part) {
        load_part<WIDTH>(v, x, p.x.nb[0], start, n);
        if (sums) {
            float added[PART];
            load_part<WIDTH>(added, row_of(p.added, row), p.added.nb[0], start, n);
            UNROLL for (int e = 0; e < PART; e++) v[e] += added[e];
            store_part<WIDTH>(v, sums, p.sum.nb[0], start, n);
        }
        if (is_one) load_affine<WIDTH>(weight, bias, p, start);
        UNROLL for (int e = 0; e < PART; e++) total += p.kind == LAYER ? v[e] : v[e] * v[e];
    }
    total = block_sum(total);
    if (p.kind == LAYER) {
        mean = total / n;
        total = 0.0f;
        for (i64 start = 0; start < n; start += part) {
            if (!is_one) load_part<WIDTH>(v, from, step, start, n);
            UNROLL for (int e = 0; e < PART; e++) {
                float off = v[e] - mean;
                if (place_in<WIDTH>(start, e / WIDTH) < n) total += off * off;
            }
        }
        total = block_sum(total);
    }
    float scale = p.kind == L2 ? 1.0f / fmaxf(sqrtf(total), p.eps) : 1.0f / sqrtf(total / n + p.eps);
    for (i64 start = 0; start < n; start += part) {
        if (!is_one) {
            load_part<WIDTH>(v, from, step, start, n);
            load_affine<WIDTH>(weight, bias, p, start);
        }
        UNROLL for (int e = 0; e < PART; e++) v[e] = (v[e] - mean) * scale;
        if (p.plain.address) store_part<WIDTH>(v, row_of(p.plain, row), p.plain.nb[0], start, n);
        UNROLL for (int e = 0; e < PART; e++) {
            if (p.weight.address) v[e] *= weight[e];
            if (p.bias.address) v[e] += bias[e];
        }
        store_part<WIDTH>(v, row_of(p.y, row), p.y.nb[0], start, n);
        // Rows that are packed have whole groups.
        if (p.packed == 0 || WIDTH == 1) continue;
        UNROLL for (int j = 0; j < PART / WIDTH; j++) {
            i64 i = place_in<WIDTH>(start, j);
            pack_four(v + j * WIDTH, i < n ? p.packed + (BLOCK_X * n + i) / 32 * sizeof(Packed) : 0);
        }
    }
}

KERNEL(row_norm, Norm, 1024) {
    if (p.x.ne[0] % 4 == 0) norm_of_row<4>(p);
    else norm_of_row<1>(p);
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
