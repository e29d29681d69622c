// Rows that are written over those of a cache, by ids.
#pragma once
#include "number.cuh"

struct Write {
    Tensor cache, rows, ids;
};

// The id of row i of a batch.
DEVICE i64 id_of(const Write &p, i64 i, i64 i2, i64 i3) {
    u64 address = address_of(p.ids, i, i2 % p.ids.ne[1], i3 % p.ids.ne[2], 0);
    return p.ids.type == I64 ? at<const i64>(address)[0] : at<const i32>(address)[0];
}

// The row of the cache that row i becomes; -1: none, for its id is outside, or a later row has it.
DEVICE i64 target_of(const Write &p, i64 i, i64 i2, i64 i3) {
    i64 id = id_of(p, i, i2, i3);
    if (id < 0 || id >= p.cache.ne[1]) return -1;
    for (i64 later = i + 1; later < p.ids.ne[0]; later++)
        if (id_of(p, later, i2, i3) == id) return -1;
    return id;
}

// The same for a block of up to 32 warps, whose threads look for a later row together.
DEVICE i64 target_of_block(const Write &p, i64 i, i64 i2, i64 i3) {
    SHARED(u32, later_ones, 32);
    i64 id = id_of(p, i, i2, i3);
    if (id < 0 || id >= p.cache.ne[1]) return -1;
    bool has_later = false;
    for (i64 later = i + 1 + THREAD; later < p.ids.ne[0]; later += THREADS)
        has_later = has_later || id_of(p, later, i2, i3) == id;
    u32 of_warp = ballot(has_later);
    if (lane_of(THREAD) == 0) later_ones[warp_of(THREAD)] = of_warp;
    sync_block();
    u32 all = 0;
    for (int warp = 0; warp < THREADS / 32; warp++) all |= later_ones[warp];
    return all != 0 ? -1 : id;
}
