use super::*;
use std::cell::Cell;
use std::rc::Rc;

/// Searches memory of which `used(i)` bytes are in use after `i` repetitions; 20 of them are a round at first.
fn search_in(used: impl Fn(u64) -> Option<u64> + 'static) -> Verdict {
    let done = Rc::new(Cell::new(0));
    let seen = done.clone();
    let meter = Meter::new("memory", (0, false), move || used(seen.get()));
    search(vec![meter], 20, "repetitions", &mut || {
        done.set(done.get() + 1);
        Ok(())
    })
}

/// A leak is found, and its report has these words.
fn check(used: impl Fn(u64) -> u64 + 'static, words: &str) {
    let found = format!("{:?}", search_in(move |i| Some(used(i))));
    assert!(found.contains("leak: memory grew") && found.contains(words), "{found}; expected: {words}");
}

/// No leak is found.
fn check_none(used: impl Fn(u64) -> u64 + 'static) {
    assert_eq!(search_in(move |i| Some(used(i))), Ok(()));
}

#[test]
fn a_leak_of_a_few_bytes_is_found() {
    check(|i| 32 * i, "in 7 of 7 rounds, usually by 20480 bytes in 640 repetitions, 32 each");
    check(|i| 9 * i, "9 each");
}

#[test]
fn a_large_leak_needs_no_longer_rounds() {
    check(|i| i << 20, "usually by 20971520 bytes in 20 repetitions");
}

#[test]
fn a_leak_is_found_whenever_memory_is_given_back_once() {
    for bytes in [600, 992, 5000, 1 << 20] {
        for at in 0..=140 + 1120 + 4480 {
            check(move |i| (1 << 20) + 32 * i - if i > at { bytes } else { 0 }, "32 each");
        }
    }
    check(|i| (1 << 20) + 32 * i - if i > 2000 { 1 << 20 } else { 0 }, "in 6 of 7 rounds");
}

#[test]
fn a_leak_is_found_beside_memory_that_is_allocated_once() {
    check(|i| 32 * i + if i > 2000 { 4 << 20 } else { 0 }, "32 each");
}

#[test]
fn memory_that_is_allocated_once_is_no_leak() {
    check_none(|_| 5 << 20);
    for at in 0..200 {
        check_none(move |i| if i > at { 9 << 20 } else { 0 });
        check_none(move |i| if i > at { 0 } else { 9 << 20 });
    }
}

#[test]
fn memory_that_is_allocated_late_and_now_and_then_is_no_leak() {
    check_none(|i| [10, 30, 50, 70, 110].iter().filter(|&&at| i > at).count() as u64 * 4096);
    check_none(|i| u64::from(i.max(1).ilog2()) << 16);
}

#[test]
fn caches_that_fill_up_over_some_rounds_are_no_leak() {
    for n in [10, 50, 100, 140, 300, 1000] {
        check_none(move |i| 32 * i.min(n));
    }
}

#[test]
fn one_large_allocation_while_a_cache_fills_up_is_no_leak() {
    check_none(|i| 32 * i.min(150) + if i > 50 { 9 << 20 } else { 0 });
}

#[test]
fn memory_that_comes_and_goes_is_no_leak() {
    check_none(|i| i / 20 % 4 * 4096);
    check_none(|i| i * 7919 % 65536);
}

#[test]
fn a_little_growth_is_no_leak() {
    check_none(|i| 8 * i);
}

#[test]
fn a_meter_without_figures_finds_nothing() {
    assert_eq!(search_in(|_| None), Ok(()));
    assert_eq!(search_in(|i| (i < 300).then_some(32 * i)), Ok(()));
}
