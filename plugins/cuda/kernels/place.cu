// Numbers by where they are: masks, blocks and rows added, numbers at equal distances. A thread per number.
#include "number.cuh"

enum : u32 { DIAG_MASK, ACC, ADD_ID, ARANGE };

// n: DIAG_MASK n_past; ACC where b begins.
struct Placed {
    Tensor x, b, ids, y;
    i64 n[4];
    u32 kind;
    float value, step;
};

KERNEL(place, Placed, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne), j;
    if (p.kind == ARANGE) {
        store(p.y, i, p.value + p.step * i.i[0]);
        return;
    }
    float x = p.kind == DIAG_MASK && i.i[0] > p.n[0] + i.i[1] ? p.value : load(p.x, i);
    if (p.kind == ADD_ID) {
        i64 id = at<const i32>(address_of(p.ids, i.i[1], i.i[2], 0, 0))[0];
        if (id >= 0 && id < p.b.ne[1]) x += load_number(address_of(p.b, i.i[0], id, 0, 0), p.b.type);
    }
    if (p.kind == ACC) {
        bool inside = true;
        for (int d = 0; d < 4; d++) {
            j.i[d] = i.i[d] - p.n[d];
            inside = inside && j.i[d] >= 0 && j.i[d] < p.b.ne[d];
        }
        if (inside) x += load(p.b, j);
    }
    store(p.y, i, x);
}
