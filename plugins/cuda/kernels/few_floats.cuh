// Products with few columns of floats in whole pieces of 16 bytes, in the way of few.cuh: x becomes F32 in shared memory.
#pragma once
#include "few.cuh"

#ifdef __CUDACC__
#define PAIRS _Pragma("unroll 2")
#else
#define PAIRS
#endif

// Numbers of 16 bytes.
template <int TYPE> constexpr int PIECE = TYPE == F32 ? 4 : 8;
// Four of them, from number 4 f on.
template <int TYPE> DEVICE void floats_of(float *to, const Vector &piece, int f) {
    if constexpr (TYPE == F32) {
        for (int i = 0; i < 4; i++) to[i] = bits_to_float((u32)piece.w[i]);
    } else {
        for (int i = 0; i < 2; i++) {
            u32 pair = (u32)piece.w[2 * f + i];
            to[2 * i] = TYPE == F16 ? half_to_float((u16)pair) : bits_to_float(pair << 16);
            to[2 * i + 1] = TYPE == F16 ? half_to_float((u16)(pair >> 16)) : bits_to_float(pair & 0xffff0000u);
        }
    }
}

// Four numbers of x, from number 4 i on.
DEVICE Vector four_of(const Product &p, u64 from, int i, bool is_plain) {
    if (is_plain) return vector_at(from + 16 * i);
    Vector four;
    for (int k = 0; k < 4; k++)
        four.w[k] = (int)float_to_bits(load_number(from + (4 * i + k) * p.x.nb[0], p.x.type));
    return four;
}

// Numbers of a column of x in shared memory at a time: with more columns fewer, for 16 KiB.
template <int N> constexpr int FLOATS = 4096 / N;

// sums[r * N + j] = row r of weights, at rows[r], times column j of x, from that of c on; columns after `last` are it.
template <int TYPE, int N, int R>
DEVICE void multiply_floats(float (&sums)[R * N], const u64 (&rows)[R], const Product &p, const Column &c, int last) {
    constexpr int P = PIECE<TYPE>, FOURS = P / 4, C = FLOATS<N>, PLANE = C / P + (FOURS > 1 ? 1 : 0);
    // Four numbers at a time: the first four of all pieces, then the second.
    SHARED(Vector, numbers, N * FOURS * PLANE);
    int lane = lane_of(THREAD);
    i64 n_pieces = p.w.ne[0] / P;
    u64 x = address_of(p.x, 0, c.x[0], c.x[1], c.x[2]);
    bool is_plain = p.x.type == F32 && p.x.nb[0] == 4 && (x & 15) == 0 && (N == 1 || (p.x.nb[1] & 15) == 0);
    Vector raw[R];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int j = 0; j < N; j++) sums[r * N + j] = 0.0f;
        raw[r] = {};
        if (lane < n_pieces) raw[r] = vector_at(rows[r] + 16 * lane);
    }
    for (i64 first = 0; first < n_pieces; first += C / P) {
        int count = (int)at_most(n_pieces - first, C / P);
        if (first > 0) sync_block();
        UNROLL for (int j = 0; j < N; j++) {
            u64 from = x + (j < last ? j : last) * p.x.nb[1] + first * P * p.x.nb[0];
            PAIRS for (int k = 0; k < C / 4; k += 128) {
                int i = THREAD + k;
                if (i < count * FOURS) numbers[(j * FOURS + i % FOURS) * PLANE + i / FOURS] = four_of(p, from, i, is_plain);
            }
        }
        sync_block();
        ROLLED for (int n = lane; n < count; n += 32) {
            Vector now[R];
            UNROLL for (int r = 0; r < R; r++) {
                now[r] = raw[r];
                if (first + n + 32 < n_pieces) raw[r] = vector_at(rows[r] + 16 * (first + n + 32));
            }
            UNROLL for (int f = 0; f < FOURS; f++) {
                float w[R][4];
                UNROLL for (int r = 0; r < R; r++) floats_of<TYPE>(w[r], now[r], f);
                UNROLL for (int j = 0; j < N; j++) {
                    const Vector four = numbers[(j * FOURS + f) * PLANE + n];
                    UNROLL for (int r = 0; r < R; r++)
                        UNROLL for (int k = 0; k < 4; k++)
                            sums[r * N + j] = fmaf(w[r][k], bits_to_float((u32)four.w[k]), sums[r * N + j]);
                }
            }
        }
    }
}
