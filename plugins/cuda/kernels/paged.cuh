// Sequences in a paged cache, and the parameters of both kinds of attention.
#pragma once
#include "alibi.cuh"
#include "number.cuh"

// block_log: of a block size that is a power of two; -1: of others.
struct Paging {
    Tensor table, lens, starts;
    i64 block_size, block_log, window, n_slots;
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

// By lanes of a warp: they look at starts in turn. A token's sequence ends where the first start past it is.
DEVICE View view_of(const Paging &p, i64 token, i64 n_tokens) {
    i64 n_starts = p.table.ne[1] + 1, number = n_starts, end = n_tokens;
    for (i64 first = 0; first < n_starts && number == n_starts; first += 32) {
        i64 i = first + lane_of(THREAD);
        int start = i < n_starts ? at<const i32>(p.starts.address + i * p.starts.nb[0])[0] : 0x7fffffff;
        u32 past = ballot(start > token);
        if (past == 0) continue;
        number = first + first_one(past);
        start = shuffle(start, first_one(past));
        end = start < n_tokens ? start : n_tokens;
    }
    View v = {-1, 0, 0, 0};
    if (number == 0 || number >= n_starts) return v;
    v.sequence = number - 1;
    v.position = at<const i32>(p.lens.address + v.sequence * p.lens.nb[0])[0] - (end - token);
    i64 room = p.table.ne[0] * p.block_size;
    v.end = v.position + 1 < room ? v.position + 1 : room;
    v.first = p.window == 0 || v.position < p.window ? 0 : v.position - p.window + 1;
    return v;
}

// Where a key is: number n of its sequence's blocks, and there. Positions have 31 bits.
struct Spot {
    u32 n, rest;
};

DEVICE Spot spot_of(const Paging &p, i64 key) {
    u32 size = (u32)p.block_size, n = p.block_log < 0 ? (u32)key / size : (u32)key >> p.block_log;
    return {n, (u32)key - n * size};
}
DEVICE int block_of(const Paging &p, i64 sequence, const Spot &spot) {
    return at<const i32>(address_of(p.table, spot.n, sequence, 0, 0))[0];
}
// The slot, if the block is in the cache; -1: there is none.
DEVICE i64 slot_in(const Paging &p, int block, const Spot &spot) {
    i64 slot = block * p.block_size + spot.rest;
    return block >= 0 && slot < p.n_slots ? slot : -1;
}
DEVICE i64 slot_of(const Paging &p, i64 sequence, i64 key) {
    Spot spot = spot_of(p, key);
    return slot_in(p, block_of(p, sequence, spot), spot);
}

// parts: F32 [dim_v, n_parts, n_heads, tokens of the grid], what each part of the keys gave, then [2, n_parts, n_heads, tokens],
// its maximum, -inf where it saw nothing, and its sum; 0: there is one part, and y is written. many: sequences with so many
// tokens are for tiles, the others are not; 0: there are no tiles. group: heads that share a KV head, in shares of up to
// per_share, of which a block has one.
struct Attention {
    Tensor q, k, v, y, sinks;
    Paging paging;
    u64 parts;
    i64 n_parts, n_kv_heads, dim_v, many, group, shares, per_share;
    float scale, softcap, max_bias;
};
