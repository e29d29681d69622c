// Sequences in a paged cache, and the parameters of both kinds of attention.
#pragma once
#include "alibi.cuh"
#include "number.cuh"

struct Paging {
    Tensor table, lens, starts;
    i64 block_size, window, n_slots;
};

// Tokens first.. of a sequence that are beside each other; sequence -1: of none.
struct Run {
    i64 sequence, first, n;
};

// Number n of the runs: tokens before the first sequence, each sequence, tokens after the last. It begins at `start`, where
// the one before ends. A start counts as no less than those before it and as no more than the number of tokens.
DEVICE Run run_of(const Paging &p, i64 n, i64 start, i64 n_tokens) {
    i64 n_seqs = p.table.ne[1], next = n > n_seqs ? n_tokens : at<const i32>(p.starts.address + n * p.starts.nb[0])[0];
    next = next > n_tokens ? n_tokens : next;
    next = next < start ? start : next;
    return {n > n_seqs ? -1 : n - 1, start, next - start};
}

// What a token sees: keys first..end of a sequence; sequence -1: the token is of none.
struct View {
    i64 sequence, position, first, end;
};

DEVICE View view_of(const Paging &p, i64 token, i64 n_tokens) {
    View v = {-1, 0, 0, 0};
    i64 start = 0;
    for (i64 i = 0; i <= p.table.ne[1]; i++) {
        Run run = run_of(p, i, start, n_tokens);
        start += run.n;
        if (run.sequence >= 0 && run.first <= token && token < start) {
            v.sequence = run.sequence;
            v.position = at<const i32>(p.lens.address + run.sequence * p.lens.nb[0])[0] - (start - token);
        }
    }
    if (v.sequence < 0) return v;
    i64 room = p.table.ne[0] * p.block_size;
    v.end = v.position + 1 < room ? v.position + 1 : room;
    v.first = p.window == 0 || v.position < p.window ? 0 : v.position - p.window + 1;
    return v;
}

// The slot of a key, if its block is in the table and in the cache; -1: it has none.
DEVICE i64 slot_of(const Paging &p, i64 sequence, i64 key) {
    i64 block = at<const i32>(address_of(p.table, key / p.block_size, sequence, 0, 0))[0];
    i64 slot = block * p.block_size + key % p.block_size;
    return block >= 0 && slot < p.n_slots ? slot : -1;
}

// parts: F32 [dim_v + 2, n_parts, n_heads, tokens of the grid], what each part of the keys gave, its maximum and its sum; 0:
// there is one part, and y is written. many: sequences with so many tokens are for tiles, the others are not; 0: there are no
// tiles.
struct Attention {
    Tensor q, k, v, y, sinks;
    Paging paging;
    u64 parts;
    i64 n_parts, n_kv_heads, dim_v, many;
    float scale, softcap, max_bias;
};
