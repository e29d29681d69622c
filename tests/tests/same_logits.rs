//! The logits of a sequence depend on its tokens alone: not on threads, instruction set, how its tokens are cut into
//! steps, or which other sequences are in a step. For every type of weights, bit for bit.

use llmrt_abi::DType;
use llmrt_cpu::simd::Isa;
use llmrt_engine::batch::Logits;
use llmrt_engine::{Engine, EngineOptions, SequenceId};
use llmrt_graph::quant::COMMON;
use llmrt_host::load::{LoadMode, LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use llmrt_tests::models::TinyLlama;
use std::path::Path;
use std::sync::Arc;

/// Rows of 256 and 512 elements suit every type; 300 tokens are no whole number of panels. One token is worth a team of
/// threads already.
const MODEL: TinyLlama = TinyLlama { n_layer: 2, n_embd: 256, n_vocab: 300, dtype: DType::F32 };

/// Sequences have the beginnings of these texts, of at most so many tokens.
const N_TEXTS: usize = 3;
const LENGTH: usize = 40;

/// Most tokens in a step.
const N_BATCH: usize = 64;

#[test]
fn logits_do_not_depend_on_threads_instruction_set_chunks_or_company() {
    let dir = tempfile::tempdir().unwrap();
    for dtype in COMMON {
        let model = TinyLlama { dtype, ..MODEL }.write(dir.path());
        check(&model, dtype);
    }
}

/// Every row of logits of `model`, however it comes about, is that of its text read alone and whole.
fn check(model: &Path, dtype: DType) {
    let mut expected: Option<Vec<Rows>> = None;
    for isa in Isa::available() {
        let host = host(isa);
        for n_threads in [1, 2, 3] {
            let what = format!("{dtype}, {}, {n_threads} threads", isa.name());
            let mut engine = engine(&host, model, n_threads);
            let whole: Vec<Rows> = (0..N_TEXTS).map(|text| whole(&mut engine, text)).collect();
            let expected = expected.get_or_insert_with(|| whole.clone());
            assert!(whole == *expected, "{what}: texts that are read alone and whole");
            mix(&mut engine, sizes(isa, n_threads), expected, &what);
        }
    }
}

/// Bits of logits after each token of a text.
type Rows = Vec<Vec<u32>>;

/// Tokens of steps: all sizes once, of the default instruction set.
fn sizes(isa: Isa, n_threads: usize) -> Vec<usize> {
    match (isa == Isa::best(), n_threads) {
        (true, 2) => (1..=N_BATCH).collect(),
        (true, _) => vec![1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64],
        _ => vec![1, 2, 5, 8, 16, 17, 37],
    }
}

/// Reads a text alone, in one step.
fn whole(engine: &mut Engine, text: usize) -> Rows {
    let id = engine.add((0..LENGTH).map(|i| token(text, i)).collect()).unwrap();
    let step = engine.step(Logits::All, LENGTH).unwrap();
    engine.remove(id).unwrap();
    step.logits.chunks_exact(MODEL.n_vocab as usize).map(bits).collect()
}

/// Makes a step of each of these sizes: of sequences that go on, by one token or by several, that wait, and that begin.
fn mix(engine: &mut Engine, sizes: Vec<usize>, expected: &[Rows], what: &str) {
    let mut random = Random(sizes.len() as u64);
    let mut live: Vec<(SequenceId, usize, usize)> = Vec::new();
    let mut n_begun = 0;
    for size in sizes {
        let mut left = size;
        for (id, text, n) in &mut live {
            let share = random.share().min(left).min(LENGTH - *n);
            let tokens: Vec<u32> = (*n..*n + share).map(|i| token(*text, i)).collect();
            engine.push_prompt(*id, &tokens).unwrap();
            (*n, left) = (*n + share, left - share);
        }
        while left > 0 {
            let (text, share) = (n_begun % N_TEXTS, random.share().clamp(1, left));
            let id = engine.add((0..share).map(|i| token(text, i)).collect()).unwrap();
            live.push((id, text, share));
            (n_begun, left) = (n_begun + 1, left - share);
        }

        let step = engine.step(Logits::All, size).unwrap();
        assert_eq!((step.n_tokens, step.rows.len()), (size, size), "{what}");
        let n_seqs = live.len();
        for (row, logits) in step.rows.iter().zip(step.logits.chunks_exact(MODEL.n_vocab as usize)) {
            let (_, text, _) = live.iter().find(|(id, ..)| *id == row.id).unwrap();
            let same = bits(logits) == expected[*text][row.position];
            assert!(same, "{what}: token {} in a step of {size}, {n_seqs} sequences", row.position);
        }
        live.retain(|(id, _, n)| *n < LENGTH || engine.remove(*id).is_err());
    }
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

fn token(text: usize, i: usize) -> u32 {
    3 + ((i * i * 7 + text * 31 + i) % 290) as u32
}

/// Numbers that look random, the same each time (an LCG of Knuth's).
struct Random(u64);

impl Random {
    /// Tokens that a sequence gets in a step: mostly one, often none, sometimes a chunk.
    fn share(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        match (self.0 >> 33) % 10 {
            0..=1 => 0,
            n @ 8..=9 => 2 + (self.0 >> 40) as usize % (n as usize * 2),
            _ => 1,
        }
    }
}

fn host(isa: Isa) -> Arc<Host> {
    let options = [("cpu.isa".to_string(), isa.name().to_string())].into();
    let host = Host::new(HostOptions { n_threads: Some(3), options, ..HostOptions::default() });
    host.register_builtin(llmrt_cpu::query).unwrap();
    let arch = host.device("cpu").unwrap().info().arch.clone();
    assert!(arch.ends_with(isa.name()), "{arch}, {} was requested", isa.name());
    host
}

fn engine(host: &Arc<Host>, model: &Path, n_threads: usize) -> Engine {
    let files = ModelFiles::open(model, &OpenOptions::default()).unwrap();
    let options = EngineOptions {
        n_ctx: N_BATCH,
        n_batch: N_BATCH,
        max_seqs: N_BATCH,
        k_type: DType::F16,
        v_type: DType::F16,
        n_threads,
        strict: true,
        split: Default::default(),
        ..EngineOptions::default()
    };
    let load = LoadOptions { mode: LoadMode::Mmap, check_tensors: true, progress: &mut |_| true };
    Engine::new(host, vec![host.device("cpu").unwrap()], files, load, options).unwrap()
}
