//! What a step must do at least: bytes of weights to read, multiplications and additions.

use crate::model::OpenModel;
use llmrt_gguf::TensorInfo;

/// What a model's tensors mean for each step.
pub struct Work {
    /// Bytes of all weights.
    pub n_bytes: u64,
    /// All weights.
    pub n_params: u64,
    /// Bytes of weights that a step of one token reads: not the embeddings of other tokens nor the unused experts.
    pub n_read: u64,
    /// Multiplications that a token of a prompt takes in matrices, each with an addition: not in the output matrix, which
    /// only the last token goes through. Attention comes on top.
    pub n_mul_adds: u64,
}

impl Work {
    /// That of an opened model.
    pub fn of(model: &OpenModel) -> Work {
        let (file, metadata) = (&model.files.model, model.metadata());
        let arch = metadata.str("general.architecture").unwrap_or_default();
        let number = |key: &str| metadata.u64(&format!("{arch}.{key}")).unwrap_or(0);
        let experts = (number("expert_used_count"), number("expert_count").max(1));
        let is_tied = !file.tensors.iter().any(|t| t.name == "output.weight");
        let read = |t: &TensorInfo, n: u64| match t.name.as_str() {
            "token_embd.weight" if !is_tied => 0,
            name if name.contains("_exps.") => n / experts.1 * experts.0,
            _ => n,
        };
        let is_everyones = |t: &&TensorInfo| {
            t.ne[1] > 1 && !matches!(t.name.as_str(), "output.weight" | "token_embd.weight")
        };
        Work {
            n_bytes: file.nbytes(),
            n_params: file.tensors.iter().map(|t| t.n_elements()).sum(),
            n_read: file.tensors.iter().map(|t| read(t, t.nbytes)).sum(),
            n_mul_adds: file.tensors.iter().filter(is_everyones).map(|t| read(t, t.n_elements())).sum(),
        }
    }
}
