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

// Writes WIDTH neighbours of y, from y_at on, made of as many of a and b.
template <int WIDTH, class F>
DEVICE void combine(const Tensor &y, u64 y_at, const Tensor &a, u64 a_at, const Tensor &b, u64 b_at, F f) {
    float v[WIDTH], w[WIDTH];
    load_some<WIDTH>(v, a_at, a.nb[0], a.type);
    load_some<WIDTH>(w, b_at, b.nb[0], b.type);
    UNROLL for (int e = 0; e < WIDTH; e++) v[e] = f(v[e], w[e]);
    store_some<WIDTH>(v, y_at, y.nb[0], y.type);
}

// width: elements of a thread, 4 or 1; 4 where b is as long as y.
struct Binary {
    Tensor a, b, y;
    u32 op, width;
};

DEVICE float result_of(u32 op, float a, float b) {
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
    u64 y = address_of(p.y, i), a = address_of(p.a, i), b = address_of(p.b, j);
    auto f = [&](float v, float w) { return result_of(p.op, v, w); };
    if (p.width == 4) combine<4>(p.y, y, p.a, a, p.b, b, f);
    else combine<1>(p.y, y, p.a, a, p.b, b, f);
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
    u64 y = address_of(p.y, i), gate = address_of(p.x, g), up = address_of(p.other, u);
    auto f = [&](float v, float w) { return gated(p.unit, v, w); };
    if (p.width == 4) combine<4>(p.y, y, p.x, gate, p.other, up, f);
    else combine<1>(p.y, y, p.x, gate, p.other, up, f);
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
