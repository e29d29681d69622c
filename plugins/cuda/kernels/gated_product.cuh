// What kernels share that multiply two matrices of one shape with the same x, and write the gated unit of both.
#pragma once
#include "gate.cuh"
#include "product.cuh"

// gate: the product whose result goes through the activation; up_w: where the other matrix begins, laid out alike.
struct GatedProduct {
    Product gate;
    Tensor up, y;
    u64 up_w;
    Gate unit;
};

DEVICE u64 up_row(const GatedProduct &p, const Column &c, i64 row) {
    return p.up_w + (c.w - p.gate.w.address) + row * p.gate.w.nb[1];
}

DEVICE void store_gated(const GatedProduct &p, const Column &c, i64 row, float gate, float up) {
    if (c.is_outside) gate = up = 0.0f;
    at<float>(address_of(p.gate.y, row, c.y[0], c.y[1], c.y[2]))[0] = gate;
    at<float>(address_of(p.up, row, c.y[0], c.y[1], c.y[2]))[0] = up;
    at<float>(address_of(p.y, row, c.y[0], c.y[1], c.y[2]))[0] = gated(p.unit, gate, up);
}
