//! The logits of a sequence depend on its tokens alone: not on threads, instruction set, how its tokens are cut into
//! steps, how large the blocks of its cache are, or which other sequences are in a step. For every type of weights, bit for bit.

use llmrt_abi::DType;
use llmrt_cpu::simd::Isa;
use llmrt_engine::core::{Runner, StepInputs};
use llmrt_engine::options::BLOCK_SIZE;
use llmrt_engine::{Batch, DeviceRunner, EngineOptions, OutputRow, PagedArrays, SequenceId};
use llmrt_graph::quant::COMMON;
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use llmrt_models::{SparseMode, SparseOptions, StepOutput};
use llmrt_tests::fixtures::{fixture, fixtures};
use llmrt_tests::models::TinyLlama;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Rows of 256 and 512 elements suit every type; 300 tokens are no whole number of panels. One token is worth a team of
/// threads already.
const MODEL: TinyLlama = TinyLlama { n_layer: 2, n_embd: 256, n_vocab: 300, dtype: DType::F32 };

/// Sequences have the beginnings of these texts, of at most so many tokens.
const N_TEXTS: usize = 3;
const LENGTH: usize = 40;

/// Most tokens in a step.
const N_BATCH: usize = 64;

/// Held by each test, since hosts of one process share a plugin and with it the instruction set.
static PLUGIN: Mutex<()> = Mutex::new(());

#[test]
fn logits_do_not_depend_on_threads_instruction_set_chunks_or_company() {
    let _plugin = PLUGIN.lock();
    let dir = tempfile::tempdir().unwrap();
    for dtype in COMMON {
        let model = TinyLlama { dtype, ..MODEL }.write(dir.path());
        check(&model, dtype);
    }
}

/// Neurons that an activation makes zero are left out, and no bit changes.
#[test]
fn neurons_that_give_zeros_are_left_out_without_a_trace() {
    let _plugin = PLUGIN.lock();
    let dir = tempfile::tempdir().unwrap();
    let activations = ["relu", "relu2", "drelu"].into_iter().cycle();
    for (dtype, activation) in COMMON.into_iter().zip(activations) {
        let model = TinyLlama { dtype, ..MODEL }.write(dir.path());
        let sparse = |host: &Arc<Host>, mode, n_threads| {
            let overrides = vec![format!("llama.hidden_activation=str:{activation}")];
            let open = OpenOptions { overrides, ..OpenOptions::default() };
            let sparse = SparseOptions { mode, ..SparseOptions::default() };
            subject(host, &model, &open, sparse, n_threads, BLOCK_SIZE)
        };
        let expected: Vec<Rows> = {
            let mut off = sparse(&host(Isa::best()), SparseMode::Off, 2);
            (0..N_TEXTS).map(|text| whole(&mut off, text)).collect()
        };
        for isa in Isa::available() {
            let host = host(isa);
            for n_threads in [1, 2, 3] {
                let what = format!("{dtype}, {activation}, {}, {n_threads} threads", isa.name());
                let mut exact = sparse(&host, SparseMode::Exact, n_threads);
                mix(&mut exact, vec![1, 2, 5, 8, 16, 17, 37, 64], &expected, &what);
            }
        }
    }
}

/// Files of PowerInfer, whose neurons are rows of every matrix and have predictors; networks without a gate of other files.
#[test]
fn neurons_of_files_by_others_are_left_out_without_a_trace() {
    let _plugin = PLUGIN.lock();
    let files = |folder: &str, names: &[&str]| -> Vec<PathBuf> {
        let dir = fixtures(folder);
        names.iter().filter_map(|name| fixture(dir.as_ref()?, &format!("{name}.gguf"))).collect()
    };
    let with_predictors = ["llama", "bamboo", "falcon", "opt", "llama.q4_0", "opt.q4_0"]
        .map(|name| format!("{name}.powerinfer"));
    let with_predictors = files("powerinfer", &with_predictors.each_ref().map(String::as_str));
    let others = files("archs", &["arcee-dense", "nemotron-dense"]);
    assert!(fixtures("powerinfer").is_none() || with_predictors.len() == 6);
    assert!(fixtures("archs").is_none() || others.len() == 2);
    let (predict, exact) = ((SparseMode::Predict, SparseMode::Predict), (SparseMode::Exact, SparseMode::Off));
    let all = with_predictors.iter().flat_map(|file| [(file, predict), (file, exact)]);
    for (file, (mode, whole_mode)) in all.chain(others.iter().map(|file| (file, exact))) {
        let of = |host: &Arc<Host>, mode, n_threads| {
            let sparse = SparseOptions { mode, ..SparseOptions::default() };
            subject(host, file, &OpenOptions::default(), sparse, n_threads, BLOCK_SIZE)
        };
        let expected: Vec<Rows> = {
            let mut alone = of(&host(Isa::best()), whole_mode, 2);
            (0..N_TEXTS).map(|text| whole(&mut alone, text)).collect()
        };
        for isa in Isa::available() {
            let host = host(isa);
            for n_threads in [1, 3] {
                let what = format!("{}, {mode:?}, {}, {n_threads} threads", file.display(), isa.name());
                mix(&mut of(&host, mode, n_threads), vec![1, 2, 5, 8, 16, 17, 37, 64], &expected, &what);
            }
        }
    }
}

/// Inputs that count as zeros because they are small are a matter of each token alone.
#[test]
fn small_inputs_are_left_out_whatever_else_is_computed() {
    let _plugin = PLUGIN.lock();
    let dir = tempfile::tempdir().unwrap();
    for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::Q6_K] {
        let model = TinyLlama { dtype, ..MODEL }.write(dir.path());
        let of = |host: &Arc<Host>, threshold, n_threads| {
            let (mode, threshold) = (SparseMode::Magnitude, Some(threshold));
            let sparse = SparseOptions { mode, threshold, ..SparseOptions::default() };
            subject(host, &model, &OpenOptions::default(), sparse, n_threads, BLOCK_SIZE)
        };
        let rows = |threshold| -> Vec<Rows> {
            let mut subject = of(&host(Isa::best()), threshold, 2);
            (0..N_TEXTS).map(|text| whole(&mut subject, text)).collect()
        };
        let all: Vec<Rows> = {
            let mut off = runner(&host(Isa::best()), &model, 2);
            (0..N_TEXTS).map(|text| whole(&mut off, text)).collect()
        };
        assert!(rows(1e-30) == all, "{dtype}: a threshold that no input is below");
        let expected = rows(0.6);
        assert!(expected != all, "{dtype}: a threshold that inputs are below");
        for isa in Isa::available() {
            let host = host(isa);
            for n_threads in [1, 3] {
                let what = format!("{dtype}, {}, {n_threads} threads", isa.name());
                mix(&mut of(&host, 0.6, n_threads), vec![1, 2, 3, 5, 8, 17, 37, 64], &expected, &what);
            }
        }
    }
}

/// Every row of logits of `model`, however it comes about, is that of its text read alone and whole.
fn check(model: &Path, dtype: DType) {
    let mut expected: Option<Vec<Rows>> = None;
    for isa in Isa::available() {
        let host = host(isa);
        for n_threads in [1, 2, 3] {
            let what = format!("{dtype}, {}, {n_threads} threads", isa.name());
            let mut runner = runner(&host, model, n_threads);
            let whole: Vec<Rows> = (0..N_TEXTS).map(|text| whole(&mut runner, text)).collect();
            let expected = expected.get_or_insert_with(|| whole.clone());
            assert!(whole == *expected, "{what}: texts that are read alone and whole");
            mix(&mut runner, sizes(isa, n_threads), expected, &what);
        }
    }
    let host = host(Isa::best());
    for block_size in [1, 8, 64] {
        let mut subject = runner_of(&host, model, 2, block_size);
        let what = format!("{dtype}, blocks of {block_size}");
        mix(&mut subject, vec![1, 2, 5, 16, 17, 37, 64], expected.as_deref().unwrap_or_default(), &what);
    }
}

/// A runner, the size of its cache's blocks, and of its vocabulary.
struct Subject(DeviceRunner, usize, usize);

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

/// Computes a text alone, in one step.
fn whole(runner: &mut Subject, text: usize) -> Rows {
    step(runner, &[Part { seq: 0, text, first: 0, n: LENGTH }])
}

/// Makes a step of each of these sizes: of sequences that go on, by one token or by several, that wait, and that begin.
fn mix(runner: &mut Subject, sizes: Vec<usize>, expected: &[Rows], what: &str) {
    let mut random = Random(sizes.len() as u64);
    // Which sequences there are, and how far.
    let mut live: Vec<Part> = Vec::new();
    let mut n_begun = 0;
    for size in sizes {
        let mut left = size;
        let mut parts = Vec::new();
        for part in &mut live {
            let n = random.share().min(left).min(LENGTH - part.first);
            parts.push(Part { n, ..*part });
            (part.first, left) = (part.first + n, left - n);
        }
        while left > 0 {
            let (text, n) = (n_begun % N_TEXTS, random.share().clamp(1, left).min(LENGTH));
            let seq = (0..N_BATCH).find(|seq| live.iter().all(|part| part.seq != *seq)).unwrap();
            parts.push(Part { seq, text, first: 0, n });
            live.push(Part { seq, text, first: n, n: 0 });
            (n_begun, left) = (n_begun + 1, left - n);
        }
        parts.retain(|part| part.n > 0);
        let mut rows = step(runner, &parts).into_iter();
        let n_seqs = parts.len();
        for (part, position) in
            parts.iter().flat_map(|part| (part.first..part.first + part.n).map(move |i| (part, i)))
        {
            let same = rows.next().as_ref() == Some(&expected[part.text][position]);
            assert!(same, "{what}: token {position} in a step of {size}, {n_seqs} sequences");
        }
        assert_eq!(rows.next(), None, "{what}");
        live.retain(|part| part.first < LENGTH);
    }
}

/// Tokens of a text that a sequence computes.
#[derive(Clone, Copy)]
struct Part {
    seq: usize,
    text: usize,
    first: usize,
    n: usize,
}

/// The logits after each token of a step. Each sequence has blocks of its own, whatever else there is.
fn step(runner: &mut Subject, parts: &[Part]) -> Rows {
    let Subject(runner, block_size, n_vocab) = runner;
    let max_blocks = N_BATCH / *block_size;
    let mut paged = PagedArrays { n_blocks: N_BATCH * max_blocks, ..PagedArrays::default() };
    let mut batch = Batch { query_starts: vec![0], max_blocks, ..Batch::default() };
    for part in parts {
        let (id, end) = (SequenceId(part.seq as u64), part.first + part.n);
        for position in part.first..end {
            batch.output_ids.push(batch.tokens.len() as i32);
            batch.rows.push(OutputRow { id, position });
            batch.tokens.push(token(part.text, position, *n_vocab) as i32);
            batch.positions.push(position as i32);
            paged.slots.push((part.seq * N_BATCH + position) as i32);
        }
        let first_block = (part.seq * max_blocks) as i32;
        paged.block_table.extend(first_block..first_block + max_blocks as i32);
        batch.seq_lens.push(end as i32);
        batch.query_starts.push(batch.tokens.len() as i32);
        batch.ids.push(id);
    }
    batch.paged.push(paged);
    let needs = vec![None; batch.rows.len()];
    Runner::forward(runner, &StepInputs { batch: &batch, output: StepOutput::Logits, needs }).unwrap();
    let rows = runner.rows().unwrap();
    rows.logits.chunks_exact(*n_vocab).map(bits).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

fn token(text: usize, i: usize, n_vocab: usize) -> usize {
    3 + (i * i * 7 + text * 31 + i) % (n_vocab - 10)
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

fn runner(host: &Arc<Host>, model: &Path, n_threads: usize) -> Subject {
    runner_of(host, model, n_threads, BLOCK_SIZE)
}

fn runner_of(host: &Arc<Host>, model: &Path, n_threads: usize, block_size: usize) -> Subject {
    subject(host, model, &OpenOptions::default(), SparseOptions::default(), n_threads, block_size)
}

fn subject(
    host: &Arc<Host>,
    model: &Path,
    open: &OpenOptions,
    sparse: SparseOptions,
    n_threads: usize,
    block_size: usize,
) -> Subject {
    let files = ModelFiles::open(model, open).unwrap();
    let options = EngineOptions {
        n_ctx: N_BATCH,
        n_batch: N_BATCH,
        block_size: Some(block_size),
        max_seqs: N_BATCH,
        k_type: DType::F16,
        v_type: DType::F16,
        n_threads,
        strict: true,
        split: Default::default(),
        sparse,
        ..EngineOptions::default()
    };
    let load = LoadOptions { check_tensors: true, ..LoadOptions::default() };
    let runner = DeviceRunner::new(host, vec![host.device("cpu").unwrap()], files, load, options).unwrap();
    let n_vocab = runner.model().config.n_vocab as usize;
    Subject(runner, block_size, n_vocab)
}
