// Outer products of rows, a thread per number; triangular systems, a thread per right side.
#include "number.cuh"

struct OutProd {
    Tensor a, b, y;
};

KERNEL(out_prod, OutProd, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne);
    i64 i2 = i.i[2] / (p.y.ne[2] / p.a.ne[2]), i3 = i.i[3] / (p.y.ne[3] / p.a.ne[3]);
    u64 a = address_of(p.a, i.i[0], 0, i2, i3), b = address_of(p.b, i.i[1], 0, i.i[2], i.i[3]);
    float sum = 0.0f;
    for (i64 k = 0; k < p.a.ne[1]; k++)
        sum += load_number(a + k * p.a.nb[1], p.a.type) * load_number(b + k * p.b.nb[1], p.b.type);
    at<float>(address_of(p.y, i))[0] = sum;
}

// a y = b, a lower triangular: from the first unknown to the last. Rows of y are read by the thread that wrote them.
struct Triangle {
    Tensor a, b, y;
};

KERNEL(solve_tri, Triangle, 128) {
    i64 n = BLOCK_X * THREADS + THREAD, j = n % p.y.ne[0], batch = n / p.y.ne[0];
    i64 i2 = batch % p.y.ne[2], i3 = batch / p.y.ne[2];
    if (i3 >= p.y.ne[3]) return;
    for (i64 i = 0; i < p.y.ne[1]; i++) {
        float rest = at<const float>(address_of(p.b, j, i, i2, i3))[0];
        for (i64 t = 0; t < i; t++) {
            float known = at<const float>(address_of(p.y, j, t, i2, i3))[0];
            rest -= at<const float>(address_of(p.a, t, i, i2, i3))[0] * known;
        }
        at<float>(address_of(p.y, j, i, i2, i3))[0] = rest / at<const float>(address_of(p.a, i, i, i2, i3))[0];
    }
}
