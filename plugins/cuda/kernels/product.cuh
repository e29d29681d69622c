// What products of weights with columns share: which matrix a column is multiplied with.
#pragma once
#include "pack.cuh"
#include "quant.cuh"

// packed: x in groups as above, of rows without gaps; 0: x is read as it is. ids at 0: none.
struct Product {
    Tensor w, x, y, ids;
    u64 packed;
};

// Where a column is: its matrix of w, its place in x and in y.
struct Column {
    u64 w;
    i64 x[3], y[3];
    bool is_outside;
};

// Column n of y, and the matrix that it is multiplied with: by the batch, or by the expert that ids name.
DEVICE Column column_of(const Product &p, i64 n) {
    Column c;
    c.is_outside = false;
    bool is_one_batch = (p.y.ne[2] | p.y.ne[3]) == 1;
    if (is_one_batch && p.ids.address == 0) {
        c.x[0] = c.y[0] = n, c.x[1] = c.y[1] = 0, c.x[2] = c.y[2] = 0;
        c.w = p.w.address;
        return c;
    }
    // There are fewer than 2^32 columns, and division of 64 bits takes long.
    u32 ne1 = (u32)p.y.ne[1], ne2 = (u32)p.y.ne[2], outer = (u32)n / ne1;
    u32 n1 = (u32)n % ne1, n2 = outer % ne2, n3 = outer / ne2;
    c.y[0] = n1, c.y[1] = n2, c.y[2] = n3;
    if (p.ids.address == 0) {
        c.x[0] = n1, c.x[1] = n2, c.x[2] = n3;
        u32 w2 = n2 / ((u32)p.x.ne[2] / (u32)p.w.ne[2]), w3 = n3 / ((u32)p.x.ne[3] / (u32)p.w.ne[3]);
        c.w = p.w.address + w2 * p.w.nb[2] + w3 * p.w.nb[3];
        return c;
    }
    i64 id = at<const i32>(address_of(p.ids, n1, n2, 0, 0))[0];
    c.is_outside = id < 0 || id >= p.w.ne[2];
    c.x[0] = n1 % (u32)p.x.ne[1], c.x[1] = n2, c.x[2] = 0;
    c.w = p.w.address + (c.is_outside ? 0 : id) * p.w.nb[2];
    return c;
}

DEVICE i64 row_of_x(const Product &p, const Column &c) { return (c.x[2] * p.x.ne[2] + c.x[1]) * p.x.ne[1] + c.x[0]; }

DEVICE void store_result(const Product &p, const Column &c, i64 row, float sum) {
    at<float>(address_of(p.y, row, c.y[0], c.y[1], c.y[2]))[0] = c.is_outside ? 0.0f : sum;
}

