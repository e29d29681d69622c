// Gated units: y = activation(gate) · up, and what activations are made of.
#pragma once
#include "device.cuh"

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
// (1 + tanh(u)) / 2 is sigmoid(2u), without a difference of two numbers near 1. At -inf the limit, 0.
DEVICE float gelu(float x) {
    return x < -3.402823466e38f ? 0.0f : x / (1.0f + expf(-1.5957691216f * (x + 0.044715f * x * x * x)));
}
DEVICE float gelu_erf(float x) { return 0.5f * x * (1.0f + erff(x * 0.7071067812f)); }
DEVICE float gelu_quick(float x) { return x / (1.0f + expf(-1.702f * x)); }
DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }

// By the op's number of the activation; alpha and limit are gpt-oss's.
struct Gate {
    u32 activation;
    float alpha, limit;
};

DEVICE float gated(const Gate &p, float gate, float up) {
    switch (p.activation) {
    case 0: return silu(gate) * up;
    case 1: return gelu(gate) * up;
    case 2: return fmaxf(gate, 0.0f) * up;
    case 3: return gelu_erf(gate) * up;
    case 4: return sigmoid(gate) * up;
    case 5: return gelu_quick(gate) * up;
    default:
        gate = fminf(gate, p.limit);
        up = fmaxf(fminf(up, p.limit), -p.limit);
        return gate / (1.0f + expf(-p.alpha * gate)) * (up + 1.0f);
    }
}
