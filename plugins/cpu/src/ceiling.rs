//! The roofline of this machine: peak bandwidth of memory reads and peak multiply-adds per second, measured with the
//! simplest loops. Kernels are judged by their share of these.

use crate::buffer::HostBuffer;
use crate::ops::product::AHEAD;
use crate::ops::sample::Sample;
use crate::simd::{Isa, Simd, array, dispatch, dispatch_also, prefetch};
use llmrt_plugin::{Buffer, Result};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Operations of all threads together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Operations {
    /// Multiplications and additions of f32, in 10⁹ per second.
    pub f32_gflop_s: f64,
    /// Multiplications and additions of 8-bit integers, in 10⁹ per second.
    pub int8_gop_s: f64,
}

/// Bytes that all threads together read from memory, in 10⁹ per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reads {
    /// In the best round, of half a gibibyte.
    pub best_gb_s: f64,
    /// Over a second: what memory gave at that time, as others may use it too.
    pub mean_gb_s: f64,
}

/// Bytes of a round of reading: far more than caches hold.
const STREAMED: usize = 512 << 20;

/// How long rounds of one measurement are repeated; of operations the best one counts, as only noise makes others slower.
const MEASURED: Duration = Duration::from_millis(1000);

/// Turns of a multiply-add loop in a round: some milliseconds.
const TURNS: usize = 16 << 20;

/// Products in a round of [`dot_speed`]: some tenths of a millisecond.
const QUICK_TURNS: usize = 8;

/// Measures operations with this many threads side by side, a second for each kind.
pub fn operations(isa: Isa, n_threads: usize) -> Operations {
    let n_threads = n_threads.max(1);
    Operations {
        f32_gflop_s: each(n_threads, || multiply_add(isa, TURNS)),
        int8_gop_s: each(n_threads, || dot(isa, TURNS)),
    }
}

/// Measures reading for a second: threads side by side, each again and again its part of memory in large pages, where the
/// system has them. Fails where memory cannot be mapped.
pub fn reads(isa: Isa, n_threads: usize) -> Result<Reads> {
    let memory = HostBuffer::alloc(STREAMED as u64, isa)?;
    // Untouched pages would all be the same page of zeros.
    memory.fill(0, STREAMED as u64, 1)?;
    // SAFETY: the buffer has as many bytes, outlives their use and is not written any more.
    let bytes = unsafe { std::slice::from_raw_parts(memory.address(), STREAMED) };
    let mut parts = bytes.chunks(STREAMED.div_ceil(n_threads.max(1)).next_multiple_of(64));
    let own = parts.next().unwrap_or_default();
    // The same threads in all rounds: new ones may begin on one core.
    let (round, is_over) = (Barrier::new(1 + parts.len()), AtomicBool::new(false));
    let (best_gb_s, mean_gb_s) = std::thread::scope(|scope| {
        for part in parts {
            let (round, is_over) = (&round, &is_over);
            scope.spawn(move || {
                round.wait();
                while !is_over.load(Ordering::Relaxed) {
                    black_box(read(isa, part));
                    round.wait();
                    round.wait();
                }
            });
        }
        let rates = rates(|| {
            round.wait();
            black_box(read(isa, own));
            round.wait();
            STREAMED as f64
        });
        is_over.store(true, Ordering::Relaxed);
        round.wait();
        rates
    });
    Ok(Reads { best_gb_s, mean_gb_s })
}

/// Operations of this thread per second, in 10⁹, in a product of Q4_0 weights with many columns, within some milliseconds:
/// enough to compare two instruction sets on a clock that each of them sets.
pub fn dot_speed(isa: Isa) -> f64 {
    let mut sample = Sample::new();
    let mut rate = || {
        let begun = Instant::now();
        let n: f64 = (0..QUICK_TURNS).map(|_| sample.multiply(isa)).sum();
        n / begun.elapsed().as_secs_f64() / 1e9
    };
    // The first rounds change the clock.
    (0..8).map(|_| rate()).skip(2).fold(0.0, f64::max)
}

/// The sum of the best rates that threads side by side reach, in 10⁹ per second: each has a core of its own, and the
/// rounds in which another program took it do not count.
fn each(n_threads: usize, work: impl Fn() -> f64 + Sync) -> f64 {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(|| rates(&work).0)).collect();
        threads.into_iter().map(|t| t.join().unwrap_or(0.0)).sum()
    })
}

/// The best and the mean rate of rounds, in 10⁹ per second.
fn rates(mut round: impl FnMut() -> f64) -> (f64, f64) {
    let (mut best, mut sum, mut time, started) = (0.0, 0.0, 0.0, Instant::now());
    while started.elapsed() < MEASURED {
        let begun = Instant::now();
        let done = round();
        let taken = begun.elapsed().as_secs_f64();
        best = f64::max(best, done / taken / 1e9);
        (sum, time) = (sum + done, time + taken);
    }
    (best, sum / time / 1e9)
}

dispatch! {
    /// All bytes, folded into one number.
    pub fn read(part: &[u8]) -> u8 = read_impl;
    /// Multiply-adds of f32 in registers; how many operations that were.
    pub fn multiply_add(turns: usize) -> f64 = multiply_add_impl;
}

dispatch_also! {
    AvxVnni "avxvnni,avx2,fma,f16c",
    Avx512Vnni | Avx512Bf16 "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c";
    /// Dot products of bytes in the L1 cache; how many operations that were.
    pub fn dot(turns: usize) -> f64 = dot_impl;
}

#[inline(always)]
fn read_impl<S: Simd>(s: S, part: &[u8]) -> u8 {
    let mut sums = [s.splat_i(0); 4];
    let (lines, rest) = part.as_chunks::<64>();
    let (fours, last) = lines.as_chunks::<4>();
    for four in fours {
        for i in 0..4 {
            prefetch(four[i].as_ptr().wrapping_add(AHEAD));
            sums[i] = s.xor(sums[i], s.load_b(&four[i]));
        }
    }
    for line in last {
        sums[0] = s.xor(sums[0], s.load_b(line));
    }
    let mut bytes = [0; 64];
    s.store_b(s.xor(s.xor(sums[0], sums[1]), s.xor(sums[2], sums[3])), &mut bytes);
    bytes.iter().chain(rest).fold(0, |a, b| a ^ b)
}

#[inline(always)]
fn multiply_add_impl<S: Simd>(s: S, turns: usize) -> f64 {
    if S::WIDE { multiply_add_n::<S, 12>(s, turns) } else { multiply_add_n::<S, 5>(s, turns) }
}

/// `N` sums that do not wait for each other.
#[inline(always)]
fn multiply_add_n<S: Simd, const N: usize>(s: S, turns: usize) -> f64 {
    let (a, b) = (s.splat(black_box(0.999)), s.splat(black_box(0.001)));
    let mut sums: [S::F; N] = array(|i| s.splat(i as f32));
    let n_rounds = turns / N;
    for _ in 0..n_rounds {
        for i in 0..N {
            sums[i] = s.fma(sums[i], a, b);
        }
    }
    let total: f32 = sums.iter().map(|&v| s.sum(v)).sum();
    black_box(total);
    (n_rounds * N * 16 * 2) as f64
}

#[inline(always)]
fn dot_impl<S: Simd>(s: S, turns: usize) -> f64 {
    if S::WIDE { dot_n::<S, 12>(s, turns) } else { dot_n::<S, 4>(s, turns) }
}

/// Products in one run: as many as those of 4-bit weights.
const RUN: usize = 8;

/// `N` runs side by side.
#[inline(always)]
fn dot_n<S: Simd, const N: usize>(s: S, turns: usize) -> f64 {
    let bytes: [[u8; 64]; 16] = black_box(array(|i| [i as u8; 64]));
    let mut sums: [S::I; N] = array(|i| s.splat_i(i as i32));
    let n_rounds = turns / (N * RUN);
    for _ in 0..n_rounds {
        let mut runs: [S::Run; N] = array(|i| s.begin(sums[i]));
        for u in &black_box(&bytes)[..RUN] {
            let u = s.load_b(u);
            for i in 0..N {
                runs[i] = s.dot4(runs[i], u, s.load_b(&bytes[i]));
            }
        }
        sums = array(|i| s.end(runs[i], sums[i]));
    }
    let mut total = [0; 64];
    for sum in sums {
        s.store_b(sum, &mut total);
        black_box(total);
    }
    (n_rounds * N * RUN * 64 * 2) as f64
}
