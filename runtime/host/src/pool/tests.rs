//! Guarantees of pools: every address handed out is mapped, no overlap, no leaks, bounded waste.

use super::fake::Fake;
use super::*;
use llmrt_abi::Status;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn pool(device: &Fake, kind: PoolKind) -> Box<dyn Pool> {
    open(device.clone(), kind, 0).unwrap()
}

#[test]
fn a_device_with_virtual_memory_gets_vmm_and_one_without_gets_legacy() {
    let kind = |granularity, requested| {
        open(Fake::new(64 * MIB, granularity), requested, 0)
            .map(|pool| pool.stats().kind)
            .map_err(|e| e.to_string())
    };
    assert_eq!(kind(2 * MIB, PoolKind::Auto), Ok(PoolKind::Vmm));
    assert_eq!(kind(0, PoolKind::Auto), Ok(PoolKind::Legacy));
    assert_eq!(kind(2 * MIB, PoolKind::Legacy), Ok(PoolKind::Legacy));
    assert!(kind(0, PoolKind::Vmm).unwrap_err().contains("use `legacy`"));
}

#[test]
fn a_freed_block_is_handed_out_again_without_a_call_of_the_device() {
    for kind in [PoolKind::Legacy, PoolKind::Vmm] {
        let device = Fake::new(64 * MIB, 2 * MIB);
        let mut pool = pool(&device, kind);
        let first = pool.alloc(1000, 0).unwrap();
        pool.free(first.0, first.1).unwrap();
        assert_eq!(pool.alloc(1000, 0).unwrap(), first, "{kind}");
        assert_eq!(pool.stats().grows, 1, "{kind}");
    }
}

#[test]
fn legacy_takes_the_smallest_block_that_fits() {
    let device = Fake::new(64 * MIB, 0);
    let mut pool = pool(&device, PoolKind::Legacy);
    let blocks = [4000, 1000, 2000].map(|size| pool.alloc(size, 0).unwrap());
    blocks.iter().for_each(|b| pool.free(b.0, b.1).unwrap());
    assert_eq!(pool.alloc(900, 0).unwrap(), blocks[1]);
    assert_eq!(pool.alloc(900, 0).unwrap(), blocks[2]);
}

#[test]
fn a_full_device_gets_back_what_is_idle_before_an_allocation_fails() {
    let device = Fake::new(10 * MIB, 0);
    let mut pool = pool(&device, PoolKind::Legacy);
    let idle = pool.alloc(6 * MIB, 0).unwrap();
    pool.free(idle.0, idle.1).unwrap();
    let big = pool.alloc(9 * MIB, 0).unwrap();
    assert_eq!((device.taken(), pool.stats().evictions), (big.1, 1));
    let error = pool.alloc(4 * MIB, 0).unwrap_err();
    assert!(error.is_oom() && error.call().unwrap().bytes_requested >= 4 * MIB, "{error}");
    assert!(pool.alloc(64, 0).is_ok(), "a failure leaves the pool usable");
}

#[test]
fn more_blocks_than_slots_go_back_to_the_device() {
    let device = Fake::new(64 * MIB, 0);
    let mut pool = pool(&device, PoolKind::Legacy);
    let blocks: Vec<_> = (0..300).map(|_| pool.alloc(256, 0).unwrap()).collect();
    blocks.iter().for_each(|b| pool.free(b.0, b.1).unwrap());
    assert_eq!((pool.stats().evictions, pool.stats().in_use), (44, 0));
}

#[test]
fn memory_that_stays_idle_goes_back_and_memory_that_plans_hold_does_not() {
    for (kind, size) in [(PoolKind::Legacy, 100 * MIB), (PoolKind::Vmm, 8 * MIB)] {
        for pinned in [false, true] {
            let device = Fake::new(512 * MIB, 2 * MIB);
            let mut pool = pool(&device, kind);
            let big = pool.alloc(size, 0).unwrap();
            pool.free(big.0, big.1).unwrap();
            pool.pin(pinned);
            for _ in 0..64 {
                let small = pool.alloc(100, 0).unwrap();
                pool.free(small.0, small.1).unwrap();
                pool.trim();
            }
            let kept = device.taken() >= size;
            assert_eq!(kept, pinned || kind == PoolKind::Legacy && pool.stats().evictions == 0, "{kind}");
            assert!(pinned || kind == PoolKind::Legacy || device.taken() == 2 * MIB);
        }
    }
}

#[test]
fn vmm_is_a_stack_and_reports_use_in_another_order() {
    let device = Fake::new(64 * MIB, 2 * MIB);
    let mut pool = pool(&device, PoolKind::Vmm);
    let (a, b) = (pool.alloc(100, 0).unwrap(), pool.alloc(100, 4096).unwrap());
    assert_eq!((a.0 % 128, b.0 % 4096), (0, 0));
    let error = pool.free(a.0, a.1).unwrap_err().to_string();
    assert!(error.contains("the last allocation is"), "{error}");
    pool.free(b.0, b.1).unwrap();
    pool.free(a.0, a.1).unwrap();
    assert!(pool.free(a.0, a.1).is_err());
}

#[test]
fn what_is_freed_twice_is_reported_once() {
    for kind in [PoolKind::Legacy, PoolKind::Vmm] {
        let scratch = Scratch::with(pool(&Fake::new(64 * MIB, 2 * MIB), kind));
        let piece = plugin_allocs(&scratch, 100).unwrap();
        (0..2).for_each(|_| plugin_frees(&scratch, piece));
        let error = scratch.after_compute().unwrap_err().to_string();
        assert!(error.contains("where nothing is in use"), "{kind}: {error}");
        assert_eq!((scratch.after_compute(), scratch.stats().in_use), (Ok(()), 0), "{kind}");
    }
}

#[test]
fn an_allocation_that_is_set_to_fail_fails_and_the_next_one_does_not() {
    for kind in [PoolKind::Legacy, PoolKind::Vmm] {
        let scratch = Scratch::with(pool(&Fake::new(64 * MIB, 2 * MIB), kind));
        assert!(plugin_allocs(&scratch, 100).is_ok());
        scratch.fail_at(2);
        assert!(plugin_allocs(&scratch, 100).is_ok());
        let in_use = scratch.stats().in_use;
        assert_eq!(plugin_allocs(&scratch, 100), Err(Status::OomDevice.code()), "{kind}");
        assert_eq!((scratch.stats().in_use, scratch.stats().allocs), (in_use, 3), "{kind}");
        assert!(plugin_allocs(&scratch, 100).is_ok());
        scratch.fail_at(1);
        scratch.fail_at(0);
        assert!(plugin_allocs(&scratch, 100).is_ok(), "{kind}: it was taken back");
    }
}

/// As a plugin does it; the status if it is an error.
fn plugin_allocs(scratch: &Scratch, size: u64) -> Result<(u64, u64), i32> {
    let (mut addr, mut actual) = (0, 0);
    // SAFETY: the pool lives; the outputs are ours.
    let status = unsafe {
        let raw = &*scratch.as_ptr();
        raw.alloc.unwrap()(raw.ctx, size, 64, &mut addr, &mut actual)
    };
    if status == 0 { Ok((addr, actual)) } else { Err(status) }
}

fn plugin_frees(scratch: &Scratch, (addr, actual): (u64, u64)) {
    // SAFETY: the pool lives.
    unsafe {
        let raw = &*scratch.as_ptr();
        raw.free.unwrap()(raw.ctx, addr, actual)
    }
}

#[test]
fn absurd_sizes_are_refused() {
    for kind in [PoolKind::Legacy, PoolKind::Vmm] {
        let device = Fake::new(64 * MIB, 2 * MIB);
        let mut pool = pool(&device, kind);
        for (size, align) in [(u64::MAX, 1), (u64::MAX - 200, 128), (1 << 60, 1 << 40)] {
            assert!(pool.alloc(size, align).is_err(), "{kind}: {size} by {align}");
        }
        assert_eq!(pool.stats().in_use, 0);
    }
}

proptest! {
    #[test]
    fn pieces_have_memory_do_not_overlap_and_all_goes_back(
        kind in prop::sample::select(&[PoolKind::Legacy, PoolKind::Vmm]),
        steps in prop::collection::vec((0u64..3 * MIB, prop::bool::ANY), 1..80),
    ) {
        let device = Fake::new(64 * MIB, 2 * MIB);
        {
            let mut pool = pool(&device, kind);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (size, frees) in steps {
                match frees {
                    true => if let Some((addr, n)) = live.pop() { pool.free(addr, n).unwrap() },
                    false => if let Ok((addr, n)) = pool.alloc(size, 128) {
                        prop_assert!(n >= size && addr % 128 == 0 && device.is_there(addr, n));
                        prop_assert!(live.iter().all(|(a, m)| addr + n <= *a || a + m <= addr));
                        live.push((addr, n));
                    },
                }
                pool.trim();
                let stats = pool.stats();
                prop_assert_eq!(stats.in_use, live.iter().map(|(_, n)| n).sum::<u64>());
                prop_assert_eq!(stats.mapped, device.taken());
                prop_assert!(stats.peak >= stats.in_use);
            }
        }
        prop_assert!(device.is_clean());
    }
}
