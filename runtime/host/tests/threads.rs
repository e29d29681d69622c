//! The thread pool under load, panics, nesting, and at rest.

use llmrt_host::ThreadPool;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn pool(n: usize, spin_us: u64) -> Arc<ThreadPool> {
    ThreadPool::new(n, Duration::from_micros(spin_us))
}

/// Runs `rounds` teams of every size; in each, members add up their numbers between two barriers.
fn check(n_threads: usize, spin_us: u64, rounds: u64) {
    let pool = pool(n_threads, spin_us);
    for round in 0..rounds {
        let n = 1 + (round as usize % n_threads);
        let (sum, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
        pool.run(n, &|team| {
            assert_eq!(team.len(), n);
            sum.fetch_add(team.index() + 1, SeqCst);
            team.barrier();
            // Every member that passes the barrier sees what all did before it.
            seen.fetch_add((sum.load(SeqCst) == n * (n + 1) / 2) as usize, SeqCst);
            team.barrier();
            assert_eq!(seen.load(SeqCst), n);
        })
        .unwrap();
    }
}

#[test]
fn teams_of_every_size_pass_every_barrier_together() {
    check(4, 20, 3000);
}

#[test]
fn threads_that_sleep_at_once_pass_barriers_together() {
    check(4, 0, 1500);
}

#[test]
fn more_threads_than_cores_pass_barriers_together() {
    check(16, 5, 300);
}

#[test]
fn many_barriers_in_one_run_keep_their_order() {
    let pool = pool(4, 5);
    let counter = AtomicUsize::new(0);
    pool.run(4, &|team| {
        for round in 0..2000 {
            counter.fetch_add(1, SeqCst);
            team.barrier();
            assert_eq!(counter.load(SeqCst), (round + 1) * 4);
            team.barrier();
        }
    })
    .unwrap();
}

#[test]
fn runs_from_several_threads_take_turns() {
    let pool = pool(3, 20);
    let (inside, total) = (AtomicUsize::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.run(3, &|team| {
                        assert!(inside.fetch_add(1, SeqCst) < 3, "two runs at once");
                        team.barrier();
                        total.fetch_add(1, SeqCst);
                        team.barrier();
                        inside.fetch_sub(1, SeqCst);
                        team.barrier();
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(total.load(SeqCst), 6 * 200 * 3);
}

#[test]
fn a_run_inside_a_run_has_a_team_of_its_own() {
    let pool = pool(3, 20);
    let total = AtomicU64::new(0);
    pool.run(3, &|outer| {
        pool.run(3, &|inner| {
            inner.barrier();
            total.fetch_add(1, SeqCst);
        })
        .unwrap();
        outer.barrier();
    })
    .unwrap();
    assert_eq!(total.load(SeqCst), 9);
}

#[test]
fn a_panic_is_an_error_and_no_thread_waits_for_the_panicked_one() {
    let pool = pool(4, 20);
    for victim in 0..4 {
        for _ in 0..50 {
            let after = AtomicUsize::new(0);
            let result = pool.run(4, &|team| {
                team.barrier();
                if team.index() == victim {
                    panic!("kernel {victim} fell over");
                }
                team.barrier();
                after.fetch_add(1, SeqCst);
            });
            let text = result.unwrap_err().to_string();
            assert!(text.contains(&format!("kernel {victim} fell over")), "{text}");
            assert_eq!(after.load(SeqCst), 0, "no thread continues with half of the results");
        }
    }
    assert!(pool.run(4, &|team| team.barrier()).is_ok(), "the pool still works");
}

#[test]
fn a_member_that_leaves_early_blocks_no_other() {
    let pool = pool(4, 20);
    pool.run(4, &|team| {
        for _ in 0..=team.index() * 10 {
            team.barrier();
        }
    })
    .unwrap();
}

#[test]
fn a_team_is_never_larger_than_the_pool() {
    let pool = pool(2, 20);
    let members = AtomicUsize::new(0);
    pool.run(100, &|_| {
        members.fetch_add(1, SeqCst);
    })
    .unwrap();
    assert_eq!(members.load(SeqCst), 2);
    pool.grow(3);
    assert_eq!(pool.n_threads(), 3);
}

#[test]
fn an_idle_pool_uses_no_processor_time() {
    let pool = pool(4, 50);
    pool.run(4, &|team| team.barrier()).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let ticks = || -> u64 {
        // user and system time of this process's threads named llmrt-*, in clock ticks
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let stats = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("stat")).ok());
        let of_pool = stats.filter(|s| s.contains("(llmrt-"));
        of_pool
            .map(|s| {
                s.rsplit(')')
                    .next()
                    .unwrap()
                    .split(' ')
                    .skip(12)
                    .take(2)
                    .map(|n| n.parse::<u64>().unwrap_or(0))
                    .sum::<u64>()
            })
            .sum()
    };
    // Other tests of this process have pools too, so one quiet window of several is enough.
    let window = || {
        let before = ticks();
        std::thread::sleep(Duration::from_millis(150));
        ticks().saturating_sub(before)
    };
    let least = (0..40).map(|_| window()).find(|&used| used <= 3);
    assert!(least.is_some(), "idle threads kept using the processor");
}

#[test]
fn dropping_a_pool_ends_its_threads_soon() {
    let started = Instant::now();
    for _ in 0..20 {
        pool(4, 1000).run(4, &|team| team.barrier()).unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(20));
}
