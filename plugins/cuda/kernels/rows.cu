// Rows picked, written and copied, from one dtype to another.
#include "quant.cuh"
#include "write.cuh"

struct Pick {
    Tensor table, ids, y;
};

// The row that y's row (i1, i2, i3) is picked from; -1: none.
DEVICE i64 picked(const Pick &p, const Index &i) {
    i64 id = at<const i32>(address_of(p.ids, i.i[1], i.i[2], i.i[3], 0))[0];
    return id >= 0 && id < p.table.ne[1] ? id : -1;
}

// A thread per number.
KERNEL(get_rows, Pick, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne);
    i64 id = picked(p, i);
    u64 from = address_of(p.table, i.i[0], id, i.i[2], i.i[3]);
    if (p.table.type == I32) at<i32>(address_of(p.y, i))[0] = id < 0 ? 0 : at<const i32>(from)[0];
    else at<float>(address_of(p.y, i))[0] = id < 0 ? 0.0f : load_number(from, p.table.type);
}

// A thread per group of 32.
KERNEL(get_rows_packed, Pick, 128) {
    i64 n = BLOCK_X * THREADS + THREAD, groups = p.y.ne[0] / 32;
    if (n >= n_elements(p.y) / 32) return;
    Index row = index_of(n / groups, p.y.ne + 1), i;
    i.i[0] = n % groups * 32, i.i[1] = row.i[0], i.i[2] = row.i[1], i.i[3] = row.i[2];
    i64 id = picked(p, i);
    Group g;
    if (id >= 0) g = group_at(p.table.type, address_of(p.table, 0, id, i.i[2], i.i[3]), n % groups);
    for (int j = 0; j < 32; j++) {
        at<float>(address_of(p.y, i))[0] = id < 0 ? 0.0f : value_of(g, j);
        i.i[0]++;
    }
}

// 32 numbers as a block of Q8_0.
DEVICE void store_q8_0(u64 block, const float *x) {
    float most = 0.0f;
    for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(x[i]));
    float d = most / 127.0f, inverse = d > 0.0f ? 1.0f / d : 0.0f;
    at<u16>(block)[0] = float_to_half(d);
    for (int i = 0; i < 32; i++) at<i8>(block + 2)[i] = (i8)(int)rintf(x[i] * inverse);
}

// Number i of row r; where rows are heads by tokens, number i % ne[0] of head i / ne[0] of token r.
DEVICE u64 given(const Write &p, i64 i, i64 r, i64 i2, i64 i3) {
    bool plain = p.rows.ne[0] == p.cache.ne[0] && p.rows.ne[1] == p.ids.ne[0] && p.rows.ne[2] == p.cache.ne[2];
    if (plain) return address_of(p.rows, i, r, i2, i3);
    return address_of(p.rows, i % p.rows.ne[0], i / p.rows.ne[0], r, 0);
}

// A block per row: of rows with one id only the last is written.
KERNEL(set_rows, Write, 128) {
    i64 n = p.cache.ne[0], n_rows = p.ids.ne[0];
    i64 r = BLOCK_X % n_rows, i2 = BLOCK_X / n_rows % p.cache.ne[2], i3 = BLOCK_X / n_rows / p.cache.ne[2];
    i64 id = target_of_block(p, r, i2, i3);
    if (id < 0) return;
    if (p.cache.type == Q8_0) {
        for (i64 first = 32 * THREAD; first < n; first += 32 * THREADS) {
            float x[32];
            for (int i = 0; i < 32; i++) x[i] = load_number(given(p, first + i, r, i2, i3), p.rows.type);
            store_q8_0(address_of(p.cache, first / 32, id, i2, i3), x);
        }
        return;
    }
    for (i64 i = THREAD; i < n; i += THREADS) {
        float x = load_number(given(p, i, r, i2, i3), p.rows.type);
        store_number(address_of(p.cache, i, id, i2, i3), p.cache.type, x);
    }
}

struct Move {
    Tensor x, y;
};

// A thread per number; elements in order, whatever the shapes are.
KERNEL(copy, Move, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    store(p.y, index_of(n, p.y.ne), load(p.x, index_of(n, p.x.ne)));
}

enum : int { I8 = 24, I16 = 25, F64 = 28 };

DEVICE bool is_int(i64 type) { return type == I8 || type == I16 || type == I32 || type == I64; }
DEVICE i64 load_int(u64 address, i64 type) {
    switch (type) {
    case I8: return at<const i8>(address)[0];
    case I16: return at<const i16>(address)[0];
    case I32: return at<const i32>(address)[0];
    default: return at<const i64>(address)[0];
    }
}
// What is too large becomes the largest or the smallest.
DEVICE void store_int(u64 address, i64 type, i64 v) {
    i64 most = type == I8 ? 0x7f : type == I16 ? 0x7fff : type == I32 ? 0x7fffffff : 0x7fffffffffffffffll;
    v = v > most ? most : v < -most - 1 ? -most - 1 : v;
    switch (type) {
    case I8: at<i8>(address)[0] = (i8)v; break;
    case I16: at<i16>(address)[0] = (i16)v; break;
    case I32: at<i32>(address)[0] = (i32)v; break;
    default: at<i64>(address)[0] = v;
    }
}
// Without the fraction; NaN becomes 0.
DEVICE i64 to_int(double v) {
    if (v != v) return 0;
    if (v >= 9223372036854775808.0) return 0x7fffffffffffffffll;
    return v < -9223372036854775808.0 ? -0x7fffffffffffffffll - 1 : (i64)v;
}

// As above, between all dtypes without blocks.
KERNEL(convert, Move, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    u64 x = address_of(p.x, index_of(n, p.x.ne)), y = address_of(p.y, index_of(n, p.y.ne));
    if (is_int(p.x.type) && is_int(p.y.type)) {
        store_int(y, p.y.type, load_int(x, p.x.type));
        return;
    }
    double v;
    if (is_int(p.x.type)) v = (double)load_int(x, p.x.type);
    else v = p.x.type == F64 ? at<const double>(x)[0] : (double)load_number(x, p.x.type);
    if (is_int(p.y.type)) store_int(y, p.y.type, to_int(v));
    else if (p.y.type == F64) at<double>(y)[0] = v;
    else store_number(y, p.y.type, (float)v);
}

// From packed numbers to floats, a thread per group of 32.
KERNEL(unpack, Move, 128) {
    i64 n = BLOCK_X * THREADS + THREAD, groups = p.x.ne[0] / 32;
    if (n >= n_elements(p.x) / 32) return;
    Index row = index_of(n / groups, p.x.ne + 1);
    Group g = group_at(p.x.type, address_of(p.x, 0, row.i[0], row.i[1], row.i[2]), n % groups);
    for (int i = 0; i < 32; i++) store(p.y, index_of(n * 32 + i, p.y.ne), value_of(g, i));
}

// From floats to Q8_0, a thread per block.
KERNEL(pack_q8_0, Move, 128) {
    i64 n = BLOCK_X * THREADS + THREAD, groups = p.y.ne[0] / 32;
    if (n >= n_elements(p.y) / 32) return;
    float x[32];
    for (int i = 0; i < 32; i++) x[i] = load(p.x, index_of(n * 32 + i, p.x.ne));
    Index row = index_of(n / groups, p.y.ne + 1);
    store_q8_0(address_of(p.y, n % groups, row.i[0], row.i[1], row.i[2]), x);
}

// Units of `bytes` as they are: dims count units.
struct MoveBytes {
    Tensor x, y;
    i64 bytes;
};

KERNEL(copy_bytes, MoveBytes, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    u64 to = address_of(p.y, index_of(n, p.y.ne)), from = address_of(p.x, index_of(n, p.x.ne));
    if (p.bytes == 4) at<u32>(to)[0] = at<const u32>(from)[0];
    else if (p.bytes == 8) at<u64>(to)[0] = at<const u64>(from)[0];
    else
        for (i64 i = 0; i < p.bytes; i++) at<u8>(to)[i] = at<const u8>(from)[i];
}

// Which source an element of y comes from, by one dim.
struct Join {
    Tensor a, b, y;
    i64 dim, bytes;
};

KERNEL(concat, Join, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne);
    u64 to = address_of(p.y, i);
    bool first = i.i[p.dim] < p.a.ne[p.dim];
    if (!first) i.i[p.dim] -= p.a.ne[p.dim];
    u64 from = address_of(first ? p.a : p.b, i);
    for (i64 j = 0; j < p.bytes; j++) at<u8>(to)[j] = at<const u8>(from)[j];
}

// x again and again; with `each` the elements of dim `dim` that often in a row.
struct Again {
    Tensor x, y;
    i64 bytes, dim, each;
};

KERNEL(repeat, Again, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne);
    u64 to = address_of(p.y, i);
    if (p.each > 0) i.i[p.dim] /= p.each;
    for (int d = 0; d < 4; d++) i.i[d] %= p.x.ne[d];
    u64 from = address_of(p.x, i);
    for (i64 j = 0; j < p.bytes; j++) at<u8>(to)[j] = at<const u8>(from)[j];
}
