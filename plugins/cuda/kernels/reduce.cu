// Rows made smaller: a block per row.
#include "number.cuh"

struct Reduce {
    Tensor x, y;
    u32 kind;
};
enum : u32 { SUM_ROWS, MEAN, CUMSUM };

// The sum over all threads of a block, for each of them.
DEVICE double block_sum(double x) {
    SHARED(double, parts, 256);
    sync_block();
    parts[THREAD] = x;
    sync_block();
    double sum = 0.0;
    for (int i = 0; i < THREADS; i++) sum += parts[i];
    return sum;
}

KERNEL(reduce, Reduce, 256) {
    Index row = index_of(BLOCK_X, p.x.ne + 1);
    i64 n = p.x.ne[0];
    u64 x = address_of(p.x, 0, row.i[0], row.i[1], row.i[2]);
    if (p.kind == CUMSUM) {
        u64 y = address_of(p.y, 0, row.i[0], row.i[1], row.i[2]);
        float sum = 0.0f;
        for (i64 i = 0; i < n && THREAD == 0; i++) {
            sum += at<const float>(x + i * p.x.nb[0])[0];
            at<float>(y + i * p.y.nb[0])[0] = sum;
        }
        return;
    }
    double sum = 0.0;
    for (i64 i = THREAD; i < n; i += THREADS) sum += at<const float>(x + i * p.x.nb[0])[0];
    sum = block_sum(sum);
    if (THREAD == 0)
        at<float>(address_of(p.y, 0, row.i[0], row.i[1], row.i[2]))[0] = (float)(p.kind == MEAN ? sum / n : sum);
}

// Whether number a, at place i, is larger than b, at place j: of equals the first is, any number is larger than NaN.
DEVICE bool is_larger(float a, i64 i, float b, i64 j) {
    if (a == b || (a != a && b != b)) return i < j;
    return a > b || b != b;
}

// The largest number that a thread, or several, found, and its place.
struct Found {
    float value;
    i64 place;
};
DEVICE Found larger(const Found &a, const Found &b) { return is_larger(b.value, b.place, a.value, a.place) ? b : a; }

// The largest of a warp's. Places are below 2^31.
DEVICE Found warp_largest(Found found) {
    for (int lanes = 16; lanes > 0; lanes >>= 1) {
        Found other = {shuffle_xor(found.value, lanes), shuffle_xor((int)found.place, lanes)};
        found = larger(found, other);
    }
    return found;
}

// Threads past the row's end have its first number.
KERNEL(argmax, Reduce, 1024) {
    SHARED(float, values, 32);
    SHARED(int, places, 32);
    Index row = index_of(BLOCK_X, p.x.ne + 1);
    i64 n = p.x.ne[0], step = p.x.nb[0];
    u64 x = address_of(p.x, 0, row.i[0], row.i[1], row.i[2]);
    Found found = {at<const float>(x)[0], 0};
    for (i64 first = THREAD; first < n; first += 8 * THREADS) {
        float v[8];
        UNROLL for (int j = 0; j < 8; j++) {
            i64 i = first + j * THREADS;
            v[j] = at<const float>(x + (i < n ? i : 0) * step)[0];
        }
        UNROLL for (int j = 0; j < 8; j++) {
            i64 i = first + j * THREADS;
            found = larger(found, Found{v[j], i < n ? i : 0});
        }
    }
    found = warp_largest(found);
    if (lane_of(THREAD) == 0) values[warp_of(THREAD)] = found.value, places[warp_of(THREAD)] = (int)found.place;
    sync_block();
    if (warp_of(THREAD) > 0) return;
    int from = lane_of(THREAD) < THREADS / 32 ? lane_of(THREAD) : 0;
    found = warp_largest(Found{values[from], places[from]});
    if (THREAD == 0) at<i32>(address_of(p.y, row.i[0], row.i[1], row.i[2], 0))[0] = (i32)found.place;
}

// Everything, as one number: one block.
KERNEL(sum_all, Reduce, 256) {
    double sum = 0.0;
    for (i64 n = THREAD; n < n_elements(p.x); n += THREADS) sum += load(p.x, index_of(n, p.x.ne));
    sum = block_sum(sum);
    if (THREAD == 0) store_number(p.y.address, p.y.type, (float)sum);
}

struct Pair {
    Tensor a, b, y;
};

// How many integers of two tensors are equal: one block.
KERNEL(count_equal, Pair, 256) {
    SHARED(i64, parts, 256);
    i64 n_equal = 0;
    for (i64 n = THREAD; n < n_elements(p.a); n += THREADS) {
        Index i = index_of(n, p.a.ne);
        n_equal += at<const i32>(address_of(p.a, i))[0] == at<const i32>(address_of(p.b, i))[0];
    }
    parts[THREAD] = n_equal;
    sync_block();
    if (THREAD > 0) return;
    for (int i = 1; i < THREADS; i++) n_equal += parts[i];
    at<i64>(p.y.address)[0] = n_equal;
}
