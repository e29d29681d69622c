// Elements of any dtype without blocks that move, or stay, by where they are: a thread per element.
#include "device.cuh"

// bytes: of an element, 1, 2, 4 or 8. value: the element where none of x comes to stand.
struct Moved {
    Tensor x, indices, y;
    i64 bytes, window, dim;
    u64 value;
};

// Element y is that of x, or the value.
DEVICE void put(const Moved &p, u64 y, bool is_moved, u64 x) {
    switch (p.bytes) {
    case 1: at<u8>(y)[0] = is_moved ? at<const u8>(x)[0] : (u8)p.value; break;
    case 2: at<u16>(y)[0] = is_moved ? at<const u16>(x)[0] : (u16)p.value; break;
    case 4: at<u32>(y)[0] = is_moved ? at<const u32>(x)[0] : (u32)p.value; break;
    default: at<u64>(y)[0] = is_moved ? at<const u64>(x)[0] : p.value;
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
