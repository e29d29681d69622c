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

KERNEL(argmax, Reduce, 256) {
    SHARED(float, values, 256);
    SHARED(i64, places, 256);
    Index row = index_of(BLOCK_X, p.x.ne + 1);
    i64 n = p.x.ne[0], place = THREAD;
    u64 x = address_of(p.x, 0, row.i[0], row.i[1], row.i[2]);
    float most = place < n ? at<const float>(x + place * p.x.nb[0])[0] : 0.0f;
    for (i64 i = THREAD + THREADS; i < n; i += THREADS) {
        float v = at<const float>(x + i * p.x.nb[0])[0];
        if (is_larger(v, i, most, place)) most = v, place = i;
    }
    values[THREAD] = most;
    places[THREAD] = place;
    sync_block();
    if (THREAD > 0) return;
    for (int t = 1; t < THREADS && t < n; t++)
        if (is_larger(values[t], places[t], most, place)) most = values[t], place = places[t];
    at<i32>(address_of(p.y, row.i[0], row.i[1], row.i[2], 0))[0] = (i32)place;
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
