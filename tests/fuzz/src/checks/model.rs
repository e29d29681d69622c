//! Model metadata and tensor tables: a graph or a refusal, for any batch.

use crate::{Target, accepted, samples};
use llmrt_abi::DType;
use llmrt_gguf::Gguf;
use llmrt_models::{BatchShape, Model, StepOutput, WindowBlocks};

/// Model metadata and tensor tables, up to the graph.
pub const TARGET: Target = Target { name: "model", check, seeds };

/// The tables alone are given, as if their file went on for a terabyte.
pub fn check(data: &[u8]) {
    if let Ok(gguf) = Gguf::parse(data, data.len() as u64 + (1 << 40)) {
        builds(&gguf);
    }
}

/// Builds a model and its graphs for a token, for a few of two sequences, and for none.
pub fn builds(gguf: &Gguf) {
    let find = |name: &str| gguf.tensor(name).map(|t| (t.dtype, t.ne));
    let Some(mut model) = accepted(Model::new(&gguf.metadata, find)) else { return };
    let few = BatchShape {
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
        v_type: DType::Q8_0,
    };
    accepted(model.graph(&few));
    accepted(model.graph(&BatchShape { n_tokens: 0, ..few }));
    model.set_context(u64::MAX);
    accepted(model.graph(&BatchShape {
        n_tokens: 1,
        n_outputs: 1,
        k_type: DType::F32,
        v_type: DType::F32,
        ..few
    }));
}

fn seeds() -> Vec<Vec<u8>> {
    samples::ARCHS.iter().map(|arch| samples::model(arch).0).collect()
}
