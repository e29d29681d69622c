// y = f(x), y = f(a, b) with b repeated, gated units, and waves of times, computed in F32: a thread per element, or per four that
// are neighbours in rows of whole fours.
#include "gate.cuh"
#include "number.cuh"

DEVICE float hardsigmoid(float x) { return fminf(fmaxf((x + 3.0f) / 6.0f, 0.0f), 1.0f); }

// Which function, by the op's number, and its params.
struct Function {
    u32 op;
    float a, b, c, d;
};

DEVICE float apply(const Function &f, float x) {
    switch (f.op) {
    case 9: return x * f.a + f.b;
    case 10: return silu(x);
    case 11: return gelu(x);
    case 12: return gelu_erf(x);
    case 13: return gelu_quick(x);
    case 14: return fmaxf(x, 0.0f);
    case 15: return tanhf(x);
    case 16: return sigmoid(x);
    case 40: return fabsf(x);
    case 41: return (x > 0.0f) - (x < 0.0f);
    case 42: return -x;
    case 43: return x > 0.0f;
    case 44: return x > 0.0f ? x : expm1f(x);
    case 45: return x * hardsigmoid(x);
    case 46: return hardsigmoid(x);
    case 47: return expf(x);
    case 48: return expm1f(x);
    case 49: return x > 20.0f ? x : log1pf(expf(x));
    case 50: return x > 0.0f ? f.b * x * x + f.c * x : (expm1f(fminf(x, f.d)) - x) * f.a + f.c * x;
    case 51: return floorf(x);
    case 52: return ceilf(x);
    case 53: return roundf(x);
    case 54: return truncf(x);
    case 55: return x * x;
    case 56: return sqrtf(x);
    case 57: return logf(x);
    case 58: return sinf(x);
    case 59: return cosf(x);
    case 60: return x > 0.0f ? x : f.a * x;
    case 61: return fmaxf(fminf(x, f.b), f.a);
    default: return x;
    }
}

struct Unary {
    Tensor x, y;
    Function f;
};

KERNEL(unary, Unary, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne);
    store(p.y, i, apply(p.f, load(p.x, i)));
}

// width: elements of a thread, 4 or 1; 4 where b is as long as y.
struct Binary {
    Tensor a, b, y;
    u32 op, width;
};

DEVICE float combined(u32 op, float a, float b) {
    switch (op) {
    case 6: return a - b;
    case 7: return a * b;
    case 8: return a / b;
    case 74: return powf(a, b);
    default: return a + b;
    }
}

KERNEL(binary, Binary, 256) {
    i64 n = (BLOCK_X * THREADS + THREAD) * p.width;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne), j;
    for (int d = 0; d < 4; d++) j.i[d] = p.b.ne[d] == p.y.ne[d] ? i.i[d] : i.i[d] % p.b.ne[d];
    if (p.width == 1) {
        store(p.y, i, combined(p.op, load(p.a, i), load(p.b, j)));
        return;
    }
    float a[4], b[4];
    load_four(a, address_of(p.a, i), p.a.nb[0], p.a.type);
    load_four(b, address_of(p.b, j), p.b.nb[0], p.b.type);
    UNROLL for (int e = 0; e < 4; e++) a[e] = combined(p.op, a[e], b[e]);
    store_four(a, address_of(p.y, i), p.y.nb[0], p.y.type);
}

// Element i of a row has its gate at gate + i and the other factor at up + i. width as above.
struct Gated {
    Tensor x, other, y;
    i64 gate, up;
    Gate unit;
    u32 width;
};

KERNEL(glu, Gated, 256) {
    i64 n = (BLOCK_X * THREADS + THREAD) * p.width;
    if (n >= n_elements(p.y)) return;
    Index i = index_of(n, p.y.ne), g = i, u = i;
    g.i[0] += p.gate;
    u.i[0] += p.up;
    if (p.width == 1) {
        store(p.y, i, gated(p.unit, load(p.x, g), load(p.other, u)));
        return;
    }
    float gate[4], up[4];
    load_four(gate, address_of(p.x, g), p.x.nb[0], p.x.type);
    load_four(up, address_of(p.other, u), p.other.nb[0], p.other.type);
    UNROLL for (int e = 0; e < 4; e++) gate[e] = gated(p.unit, gate[e], up[e]);
    store_four(gate, address_of(p.y, i), p.y.nb[0], p.y.type);
}

// Cosines, then sines, of times at frequencies from 1 down to 1 / max_period; an odd last number is 0.
struct Waves {
    Tensor t, y;
    float max_period;
};

KERNEL(timestep_embedding, Waves, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    i64 i = n % p.y.ne[0], time = n / p.y.ne[0], half = p.y.ne[0] / 2, j = i < half ? i : i - half;
    float t = at<const float>(p.t.address + time * p.t.nb[0])[0];
    float angle = t * expf(-logf(p.max_period) * (float)j / (float)half);
    at<float>(address_of(p.y, i, time, 0, 0))[0] = i >= 2 * half ? 0.0f : i < half ? cosf(angle) : sinf(angle);
}
