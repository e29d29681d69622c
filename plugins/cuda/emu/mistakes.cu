// Kernels that are wrong, and one that is right: what the emulation must find, and must not. Tests of it only.
#include "tensor.cuh"

struct One {
    u64 address;
    i64 n;
};

KERNEL(reads_past_the_end, One, 64) {
    float x = at<const float>(p.address)[p.n + THREAD];
    if (x > 1e30f) at<float>(p.address)[0] = x;
}
KERNEL(writes_before_the_start, One, 32) { at<float>(p.address)[-1 - THREAD] = 0.0f; }
KERNEL(follows_no_address, One, 32) { at<float>(0x1234)[THREAD] = 0.0f; }
KERNEL(reads_at_an_odd_address, One, 32) {
    float x = at<const float>(p.address + 2)[0];
    if (x > 1e30f) at<float>(p.address)[0] = x;
}
KERNEL(reads_what_was_not_written, One, 32) {
    SHARED(float, room, 64);
    room[THREAD] = 1.0f;
    at<float>(p.address)[THREAD] = room[THREAD + 32];
}
KERNEL(leaves_a_barrier_out, One, 64) {
    SHARED(float, room, 64);
    room[THREAD] = 1.0f;
    at<float>(p.address)[THREAD] = room[63 - THREAD];
}
KERNEL(writes_where_another_writes, One, 64) {
    SHARED(float, room, 64);
    room[THREAD / 2] = 1.0f;
}
KERNEL(writes_while_another_reads, One, 64) {
    SHARED(float, room, 64);
    room[THREAD] = 1.0f;
    sync_block();
    float x = room[(THREAD + 1) % 64];
    room[THREAD] = x;
}
KERNEL(some_wait_at_a_barrier, One, 64) {
    if (THREAD < 32) sync_block();
}
KERNEL(a_lane_is_missing, One, 32) {
    if (THREAD < 31) at<float>(p.address)[THREAD] = shuffle_xor(1.0f, 1);
}
KERNEL(uses_too_much_shared_memory, One, 32) {
    SHARED(float, room, 1 << 16);
    room[THREAD] = 1.0f;
}
KERNEL(is_past_the_end_of_shared_memory, One, 64) {
    SHARED(float, room, 32);
    room[THREAD] = 1.0f;
}
#if CHIP >= 80
KERNEL(reads_before_its_copy_is_there, One, 32) {
    SHARED(u16, room, 256);
    copy_16(room, THREAD * 8, p.address, true);
    end_copies();
    at<float>(p.address)[THREAD] = room[THREAD * 8];
}
KERNEL(waits_for_an_older_copy, One, 32) {
    SHARED(u16, room, 512);
    copy_16(room, THREAD * 8, p.address, true);
    end_copies();
    copy_16(room, 256 + THREAD * 8, p.address, true);
    end_copies();
    wait_for_copies<1>();
    at<float>(p.address)[THREAD] = (float)(room[THREAD * 8] + room[256 + THREAD * 8]);
}
KERNEL(leaves_the_barrier_after_a_copy_out, One, 64) {
    SHARED(u16, room, 512);
    copy_16(room, THREAD * 8, p.address, true);
    end_copies();
    wait_for_copies<0>();
    at<float>(p.address)[THREAD] = room[(63 - THREAD) * 8];
}
KERNEL(leaves_before_its_copy_is_there, One, 32) {
    SHARED(u16, room, 256);
    copy_16(room, THREAD * 8, p.address, true);
    end_copies();
}
KERNEL(copies_from_between, One, 32) {
    SHARED(u16, room, 256);
    copy_16(room, THREAD * 8, p.address + 4, true);
}
#endif
KERNEL(loads_rows_from_between, One, 32) {
    SHARED(u16, room, 512);
    for (int i = 0; i < 16; i++) room[THREAD * 16 + i] = 0;
    u32 words[4];
    load_four(words, room, THREAD * 4);
    at<float>(p.address)[THREAD] = (float)words[0];
}
// y[i] = 63 - i by way of shared memory, warps and barriers; then what a warp voted and summed.
KERNEL(is_right, One, 64) {
    SHARED(float, room, 64);
    room[THREAD] = (float)THREAD;
    sync_block();
    float x = room[63 - THREAD];
    sync_block();
    room[THREAD] = x;
    at<float>(p.address)[THREAD] = room[THREAD];
    u32 even = ballot(THREAD % 2 == 0);
    float sum = warp_sum((float)lane_of(THREAD));
    float third = shuffle((float)THREAD, 3);
    if (THREAD == 63) {
        at<float>(p.address)[64] = (float)(even == 0x55555555u);
        at<float>(p.address)[65] = sum;
        at<float>(p.address)[66] = third;
        at<float>(p.address)[67] = (float)dot4(0x01ff0203, 0x02030405, 7);
    }
}
