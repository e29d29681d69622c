//! Model files whose tables contradict themselves: keys that are missing, of another type, zero or huge, arrays too short,
//! tensors that are missing or of other dims. Every architecture gives a model or an error that names what is wrong, and
//! takes little memory beyond the file's.

mod contradictions {
    pub mod allocated;
    pub mod tables;
}

use contradictions::allocated::peak;
use contradictions::tables::{Tables, models};
use llmrt_abi::DType;
use llmrt_models::{BatchShape, Error, Model, StepOutput, WindowBlocks};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many files are made of each model.
const N_FILES: u64 = 1000;

/// So many of them at least must be refused: most changes contradict something.
const MIN_REFUSED: usize = N_FILES as usize / 3;

/// Bytes that a model and its graphs may take, whatever the tables contain.
const MAX_BYTES: usize = 32 << 20;

#[test]
fn tables_that_contradict_themselves_give_a_model_or_an_error_that_names_what_is_wrong() {
    let models = models();
    let failures: Vec<String> = std::thread::scope(|scope| {
        let halves = models.chunks(models.len().div_ceil(2));
        let runs: Vec<_> =
            halves.map(|half| scope.spawn(move || half.iter().flat_map(failures).collect())).collect();
        runs.into_iter()
            .flat_map(|run| run.join().unwrap_or_else(|_| vec!["a thread ended".into()]))
            .collect()
    });
    let first = failures.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {} models times {N_FILES}:\n{first}", failures.len(), models.len());
}

/// What is wrong with the answers to files made of these tables.
fn failures(tables: &Tables) -> Vec<String> {
    if let Err(error) = build(tables) {
        return vec![format!("{}: {error}", tables.name)];
    }
    let mut n_refused = 0;
    let mut failure = |seed| {
        let (mutated, changes) = tables.mutated(seed);
        let (result, bytes) = peak(|| catch_unwind(AssertUnwindSafe(|| build(&mutated))));
        n_refused += usize::from(matches!(result, Ok(Err(_))));
        let failure = match result {
            Err(_) => "a panic".into(),
            Ok(Err(error)) if !names_what_is_wrong(&error, &changes.join(" ")) => error.to_string(),
            Ok(_) if bytes > MAX_BYTES => format!("{bytes} bytes"),
            Ok(_) => return None,
        };
        Some(format!("{}, seed {seed}, {changes:?}: {failure}", tables.name))
    };
    let mut failures: Vec<String> = (0..N_FILES).filter_map(&mut failure).collect();
    if n_refused < MIN_REFUSED {
        failures.push(format!("{}: {n_refused} of {N_FILES} files are refused", tables.name));
    }
    failures
}

/// A model, and its graphs for a token and for a few of two sequences.
fn build(tables: &Tables) -> Result<(), Error> {
    let mut model = Model::new(&tables.metadata, |name| tables.find(name))?;
    let few = BatchShape {
        n_encoder_tokens: 0,
        max_encoder_tokens: 0,
        n_tokens: 7,
        n_seqs: 2,
        n_outputs: 3,
        output: StepOutput::Logits,
        max_blocks: 4,
        n_blocks: 9,
        windows: WindowBlocks::All,
        block_size: 16,
        n_state_slots: 4,
        k_type: DType::F16,
        v_type: DType::F16,
    };
    model.graph(&few)?;
    model.whole_graph(&few)?;
    if model.drafts() {
        model.graph(&BatchShape { n_tokens: 2, n_outputs: 2, output: StepOutput::Drafts, ..few })?;
    }
    model.set_context(u64::MAX);
    model.graph(&BatchShape { n_tokens: 1, n_outputs: 1, ..few })?;
    model.unused_tensors(tables.tensors.keys().map(String::as_str)).map(drop)
}

/// Key or tensor, what was found, and what would do. Ops refuse nothing but tensors of types that they cannot read.
fn names_what_is_wrong(error: &Error, changes: &str) -> bool {
    let text = error.to_string();
    match error {
        Error::BadValue { key, found, expected } => {
            ![key, found, expected].iter().any(|part| part.is_empty())
        }
        Error::TensorDims { found, expected, .. } => found != expected,
        Error::Metadata(_) => text.contains('`'),
        Error::UnknownArchitecture { .. } | Error::PartOfModel { .. } | Error::MissingTensor { .. } => true,
        Error::Graph(_) => changes.contains("type of tensor"),
        Error::BadBatch { .. }
        | Error::CacheType { .. }
        | Error::NoZeros { .. }
        | Error::NoPredictors { .. }
        | Error::NoThresholds => false,
    }
}
