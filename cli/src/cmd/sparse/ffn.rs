//! A model's feed-forward layers by its tables: how many neurons, of how many bytes.

use crate::error::Result;
use crate::model::OpenModel;
use llmrt_abi::DType;
use llmrt_gguf::TensorInfo;

/// One layer's matrices.
pub struct Layer<'a> {
    /// [n_embd, n_ff].
    pub up: &'a TensorInfo,
    /// [n_embd, n_ff], if there is a gate.
    pub gate: Option<&'a TensorInfo>,
    /// [n_ff, n_embd], or transposed.
    pub down: &'a TensorInfo,
    /// Whether `down` has a row for each neuron.
    pub is_transposed: bool,
    /// Bytes of the predictor that is in the model's file.
    pub predictor_bytes: u64,
}

impl Layer<'_> {
    /// Neurons.
    pub fn n_ff(&self) -> usize {
        self.up.ne[1] as usize
    }

    /// Bytes of up, gate and down.
    pub fn bytes(&self) -> u64 {
        self.up.nbytes + self.gate.map_or(0, |gate| gate.nbytes) + self.down.nbytes
    }

    /// How many neurons stay together, since they have blocks of the last matrix in common.
    pub fn block(&self) -> usize {
        if self.is_transposed { 1 } else { self.down.dtype.block_elems() }
    }

    /// Bytes of a neuron, rounded up.
    pub fn neuron_bytes(&self) -> u64 {
        self.bytes().div_ceil(self.up.ne[1])
    }
}

/// The layers of a model, all of which must have such matrices.
pub fn layers(model: &OpenModel) -> Result<Vec<Layer<'_>>> {
    let metadata = model.metadata();
    let arch = metadata.require_str("general.architecture").map_err(|e| model.error(e))?;
    let n_layers = metadata.require_u32(&format!("{arch}.block_count")).map_err(|e| model.error(e))?;
    (0..n_layers).map(|i| layer(model, i)).collect()
}

fn layer(model: &OpenModel, i: u32) -> Result<Layer<'_>> {
    let find = |part: &str| model.files.model.tensor(&format!("blk.{i}.{part}.weight"));
    let (down, is_transposed) = match find("ffn_down_t") {
        Some(down) => (Some(down), true),
        None => (find("ffn_down"), false),
    };
    let (Some(up), Some(down)) = (find("ffn_up"), down) else {
        let problem = "has no ffn_up and ffn_down: only models with a plain feed-forward part in every layer can be divided by neurons";
        return Err(model.error(format_args!("layer {i} {problem}")));
    };
    let gate = find("ffn_gate");
    let [n_embd, n_ff, ..] = up.ne;
    let expected = if is_transposed { [n_embd, n_ff, 1, 1] } else { [n_ff, n_embd, 1, 1] };
    let is_wrong = up.ne[2..] != [1; 2] || down.ne != expected || gate.is_some_and(|gate| gate.ne != up.ne);
    if is_wrong {
        let dims = gate.iter().chain([&up, &down]).map(|t| format!("{} {:?}", t.name, t.shape().dims()));
        let found: Vec<_> = dims.collect();
        return Err(model.error(format_args!("layer {i}: dims do not fit: {}", found.join(", "))));
    }
    let predictor_bytes = [find("fc1"), find("fc2")].into_iter().flatten().map(|t| t.nbytes).sum();
    Ok(Layer { up, gate, down, is_transposed, predictor_bytes })
}

/// Whether rows of a tensor are looked up alone. The embeddings of tokens may be the output matrix as well.
pub fn is_looked_up(model: &OpenModel, name: &str) -> bool {
    let is_tied = model.files.model.tensor("output.weight").is_none();
    name.starts_with("position_embd") || (name.starts_with("token_embd") && !is_tied)
}

/// Bytes that a device holds before any neuron: all but tables in which rows are looked up and the layers' neurons.
pub fn dense_bytes(model: &OpenModel) -> u64 {
    let is_dense = |t: &&TensorInfo| {
        let is_looked_up = is_looked_up(model, &t.name) || t.name.starts_with("rope_freqs");
        let is_neuron =
            ["ffn_up.", "ffn_gate.", "ffn_down.", "ffn_down_t."].iter().any(|part| t.name.contains(part));
        !is_looked_up && !is_neuron
    };
    model.files.model.tensors.iter().filter(is_dense).map(|t| t.nbytes).sum()
}

/// Bytes of keys and values of this type for this many positions.
pub fn kv_bytes(model: &OpenModel, n_ctx: u64, kv_type: DType) -> u64 {
    let width = |t: &TensorInfo| match t.name.rsplit('.').nth(1) {
        Some("attn_k" | "attn_v") if t.name.ends_with(".weight") => t.ne[1],
        Some("attn_qkv") if t.name.ends_with(".weight") => t.ne[1].saturating_sub(t.ne[0]),
        _ => 0,
    };
    let bytes = |t: &TensorInfo| kv_type.row_bytes(width(t)).unwrap_or(u64::MAX);
    model.files.model.tensors.iter().map(bytes).fold(0, u64::saturating_add).saturating_mul(n_ctx)
}
