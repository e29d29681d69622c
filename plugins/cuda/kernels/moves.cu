// Elements of any dtype that move, or stay, by where they are: a thread per element, or per block of packed numbers,
// which always come from somewhere.
#include "device.cuh"

// bytes: of an element. value: the element where none of x comes to stand.
struct Moved {
    Tensor x, indices, y;
    i64 bytes, window, dim;
    u64 value;
};

// Element y is that of x, or the value.
template <class P> DEVICE void put(const P &p, u64 y, bool is_moved, u64 x) {
    switch (p.bytes) {
    case 1: at<u8>(y)[0] = is_moved ? at<const u8>(x)[0] : (u8)p.value; break;
    case 2: at<u16>(y)[0] = is_moved ? at<const u16>(x)[0] : (u16)p.value; break;
    case 4: at<u32>(y)[0] = is_moved ? at<const u32>(x)[0] : (u32)p.value; break;
    case 8: at<u64>(y)[0] = is_moved ? at<const u64>(x)[0] : p.value; break;
    default:
        for (i64 i = 0; i < p.bytes; i++) at<u8>(y)[i] = at<const u8>(x)[i];
    }
}

// Windows of x [c, width, height], row of windows after row of windows.
KERNEL(win_part, Moved, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne);
    i64 across = (p.x.ne[1] + p.window - 1) / p.window;
    i64 i1 = i.i[3] % across * p.window + i.i[1], i2 = i.i[3] / across * p.window + i.i[2];
    put(p, address_of(p.y, i), i1 < p.x.ne[1] && i2 < p.x.ne[2], address_of(p.x, i.i[0], i1, i2, 0));
}

// The image that windows were cut from.
KERNEL(win_unpart, Moved, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne);
    i64 across = (p.y.ne[1] + p.window - 1) / p.window, w = p.window;
    i64 window = i.i[2] / w * across + i.i[1] / w;
    put(p, address_of(p.y, i), true, address_of(p.x, i.i[0], i.i[1] % w, i.i[2] % w, window));
}

// The value where the index in one dim is among the indices.
KERNEL(index_fill, Moved, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne);
    bool is_moved = true;
    for (i64 j = 0; j < p.indices.ne[0] && is_moved; j++)
        is_moved = at<const i32>(p.indices.address + j * p.indices.nb[0])[0] != i.i[p.dim];
    put(p, address_of(p.y, i), is_moved, address_of(p.x, i));
}

enum : u32 { FILL, TRI, DIAG, ROLL, PAD, SET };

// n: TRI which; ROLL shifts; PAD elements before, then the mode; SET where b begins.
struct Rearranged {
    Tensor x, b, y;
    i64 n[5], bytes;
    u64 value;
    u32 kind;
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

KERNEL(rearrange, Rearranged, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne), j = i;
    bool keeps = p.kind != FILL, is_of_b = p.kind == SET;
    i64 i0 = i.i[0], i1 = i.i[1];
    switch (p.kind) {
    case TRI: keeps = p.n[0] == 0 ? i0 >= i1 : p.n[0] == 1 ? i0 > i1 : p.n[0] == 2 ? i0 <= i1 : i0 < i1; break;
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
    case SET:
        for (int d = 0; d < 4; d++) {
            j.i[d] = i.i[d] - p.n[d];
            is_of_b = is_of_b && j.i[d] >= 0 && j.i[d] < p.b.ne[d];
        }
        break;
    }
    u64 from = is_of_b ? address_of(p.b, j) : address_of(p.x, p.kind == SET ? i : j);
    put(p, address_of(p.y, i), keeps, from);
}
