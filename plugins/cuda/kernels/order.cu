// Rows put in order: runs of up to 1024 numbers first, then neighbouring runs are merged until one is left. A number's
// place is how many come before it; equals keep their order, NaN comes last.
#include "device.cuh"

#define RUN 1024

// from, to: the indices of a row in the order so far, I32 [n] for each row; 0: y, past whose end they are dropped.
struct Order {
    Tensor x, y;
    u64 from, to;
    i64 width;
    u32 descending;
};

// Whether number a, at place i, comes before number b, at place j.
DEVICE bool comes_before(const Order &p, float a, i64 i, float b, i64 j) {
    if (a != b && a == a && b == b) return p.descending ? a > b : a < b;
    if ((a == a) != (b == b)) return a == a;
    return i < j;
}

DEVICE u64 row_of(const Tensor &t, i64 row) {
    Index i = index_of(row, t.ne + 1);
    return address_of(t, 0, i.i[0], i.i[1], i.i[2]);
}

DEVICE void keep(const Order &p, i64 row, i64 place, i64 index) {
    if (p.to) at<i32>(p.to + row * p.x.ne[0] * 4)[place] = (i32)index;
    else if (place < p.y.ne[0]) at<i32>(row_of(p.y, row) + place * p.y.nb[0])[0] = (i32)index;
}

// A block per run and row.
KERNEL(order_runs, Order, 256) {
    SHARED(float, run, RUN);
    i64 n_runs = (p.x.ne[0] + RUN - 1) / RUN, first = BLOCK_X % n_runs * RUN, row = BLOCK_X / n_runs;
    int n = p.x.ne[0] - first < RUN ? (int)(p.x.ne[0] - first) : RUN;
    u64 x = row_of(p.x, row);
    for (int i = THREAD; i < n; i += THREADS) run[i] = at<const float>(x + (first + i) * p.x.nb[0])[0];
    sync_block();
    for (int i = THREAD; i < n; i += THREADS) {
        float v = run[i];
        int place = 0;
        for (int j = 0; j < n; j++) place += comes_before(p, run[j], j, v, i);
        keep(p, row, first + place, first + i);
    }
}

// Runs of `width` become runs of twice that: a thread per number looks for its place in the other run.
KERNEL(order_merge, Order, 256) {
    i64 n = p.x.ne[0], blocks = (n + THREADS - 1) / THREADS, row = BLOCK_X / blocks;
    i64 i = BLOCK_X % blocks * THREADS + THREAD;
    if (i >= n) return;
    global<const i32> order = at<const i32>(p.from + row * n * 4);
    u64 x = row_of(p.x, row);
    i64 index = order[i], run = i / p.width, other = (run ^ 1) * p.width, end = other + p.width;
    float v = at<const float>(x + index * p.x.nb[0])[0];
    i64 low = other < n ? other : n, high = end < n ? end : n, start = low;
    while (low < high) {
        i64 middle = (low + high) / 2, j = order[middle];
        if (comes_before(p, at<const float>(x + j * p.x.nb[0])[0], j, v, index)) low = middle + 1;
        else high = middle;
    }
    i64 begins = (run & ~(i64)1) * p.width;
    keep(p, row, begins + i - run * p.width + (low - start), index);
}
