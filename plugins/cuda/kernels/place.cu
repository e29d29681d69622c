// Numbers by where they are: masks, triangles, diagonals, shifts, padding, blocks put into others. A thread per number.
#include "number.cuh"

enum : u32 { DIAG_MASK, TRI, DIAG, ROLL, PAD, SET, ACC, ADD_ID, ARANGE };

// n: DIAG_MASK n_past; TRI which; ROLL shifts; PAD elements before, then the mode; SET and ACC where b begins.
struct Placed {
    Tensor x, b, ids, y;
    i64 n[5];
    u32 kind;
    float value, step;
};

// Where element i of a padded dim comes from; -1: from nowhere.
DEVICE i64 padded(i64 mode, i64 i, i64 before, i64 n) {
    i64 j = i - before;
    if (j >= 0 && j < n) return j;
    if (mode == 0) return -1;
    if (mode == 1) return j < 0 ? -j : 2 * (n - 1) - j;
    j %= n;
    return j < 0 ? j + n : j;
}

KERNEL(place, Placed, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne), j = i;
    bool keeps = true;
    i64 i0 = i.i[0], i1 = i.i[1];
    switch (p.kind) {
    case DIAG_MASK: keeps = i0 <= p.n[0] + i1; break;
    case TRI:
        keeps = p.n[0] == 0 ? i0 >= i1 : p.n[0] == 1 ? i0 > i1 : p.n[0] == 2 ? i0 <= i1 : i0 < i1;
        break;
    case DIAG:
        keeps = i0 == i1;
        j.i[1] = 0;
        break;
    case ROLL:
        for (int d = 0; d < 4; d++) {
            j.i[d] = (i.i[d] - p.n[d]) % p.x.ne[d];
            if (j.i[d] < 0) j.i[d] += p.x.ne[d];
        }
        break;
    case PAD:
        for (int d = 0; d < 4; d++) {
            j.i[d] = padded(p.n[4], i.i[d], p.n[d], p.x.ne[d]);
            keeps = keeps && j.i[d] >= 0;
        }
        break;
    case ARANGE: store(p.y, i, p.value + p.step * i0); return;
    }
    float x = keeps ? load(p.x, j) : p.value;
    if (p.kind == ADD_ID) {
        i64 id = at<const i32>(address_of(p.ids, i1, i.i[2], 0, 0))[0];
        if (id >= 0 && id < p.b.ne[1]) x += load_number(address_of(p.b, i0, id, 0, 0), p.b.type);
    }
    if (p.kind == SET || p.kind == ACC) {
        bool inside = true;
        for (int d = 0; d < 4; d++) {
            j.i[d] = i.i[d] - p.n[d];
            inside = inside && j.i[d] >= 0 && j.i[d] < p.b.ne[d];
        }
        if (inside) x = load(p.b, j) + (p.kind == ACC ? x : 0.0f);
    }
    store(p.y, i, x);
}
