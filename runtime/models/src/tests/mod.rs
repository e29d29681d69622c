//! Tiny models of every architecture, described as text; what they build, and what they refuse.

mod dense;
mod errors;
mod experts;
mod graphs;
mod hybrid;
mod neurons;
mod numbers;
mod outputs;
mod sparse;

use crate::{BatchShape, Model, Result, StepOutput, WindowBlocks};
use llmrt_abi::DType;
use llmrt_gguf::{Metadata, Value};
use llmrt_graph::{Shape, tensor::shape};
use std::collections::BTreeMap;

/// The tables of a model file.
#[derive(Clone)]
struct File {
    meta: Metadata,
    tensors: BTreeMap<String, (DType, Shape)>,
}

impl File {
    /// A file of 2 layers; lines are `key = value` under the architecture's prefix, or `tensor: dims`, where `blk.`
    /// stands for every layer.
    fn new(arch: &str, lines: &str) -> File {
        let mut file = File { meta: Metadata::new(), tensors: BTreeMap::new() };
        file.meta.set("general.architecture", arch);
        for line in [COMMON, lines].join("\n").lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.split_once(" = ") {
                Some((key, value)) => file.meta.set(format!("{arch}.{key}"), number(value)),
                None => file.put(line),
            }
        }
        file
    }

    fn put(&mut self, line: &str) {
        let (name, dims) = line.split_once(": ").unwrap_or((line, ""));
        let dims: Vec<u64> = dims.split(' ').filter_map(|d| d.parse().ok()).collect();
        match name.strip_prefix("blk.") {
            Some(rest) if !rest.starts_with(|c: char| c.is_ascii_digit()) => {
                for il in 0..2 {
                    self.tensors.insert(format!("blk.{il}.{rest}"), (DType::F32, shape(&dims)));
                }
            }
            _ => drop(self.tensors.insert(name.to_string(), (DType::F32, shape(&dims)))),
        }
    }

    /// With more lines of either kind, on a copy.
    fn with(&self, line: &str) -> File {
        let mut file = self.clone();
        match line.split_once(" = ") {
            Some((key, value)) => file.meta.set(key, number(value)),
            None => file.put(line),
        }
        file
    }

    fn with_flag(&self, key: &str) -> File {
        let mut file = self.clone();
        file.meta.set(key, true);
        file
    }

    fn without(&self, name: &str) -> File {
        let mut file = self.clone();
        let was_there = file.tensors.remove(name).is_some() | file.meta.remove(name).is_some();
        assert!(was_there, "{name} is neither tensor nor key");
        file
    }

    fn model(&self) -> Result<Model> {
        Model::new(&self.meta, |name| self.tensors.get(name).copied())
    }
}

fn number(text: &str) -> Value {
    match (text.parse::<u32>(), text.parse::<f32>()) {
        (Ok(n), _) => Value::U32(n),
        (_, Ok(x)) => Value::F32(x),
        _ => Value::String(text.to_string()),
    }
}

/// Keys and tensors that all have: rows of 16, 4 heads of 4.
const COMMON: &str = "
    block_count = 2
    embedding_length = 16
    context_length = 64
    vocab_size = 32
    feed_forward_length = 24
    attention.head_count = 4
    token_embd.weight: 16 32
    output_norm.weight: 16
    blk.attn_norm.weight: 16
    blk.attn_output.weight: 16 16
    blk.ffn_up.weight: 16 24
    blk.ffn_down.weight: 24 16";

const RMS: &str = "
    attention.layer_norm_rms_epsilon = 0.00001
    blk.ffn_norm.weight: 16";

/// 2 KV heads.
const QKV: &str = "
    attention.head_count_kv = 2
    blk.attn_q.weight: 16 16
    blk.attn_k.weight: 16 8
    blk.attn_v.weight: 16 8";

const FUSED_QKV: &str = "
    attention.head_count_kv = 1
    blk.attn_qkv.weight: 16 24";

const GATE: &str = "
    blk.ffn_gate.weight: 16 24";

const LAYER_NORM: &str = "
    attention.layer_norm_epsilon = 0.00001
    output_norm.bias: 16
    blk.attn_norm.bias: 16";

/// A file of every kind of model there is.
fn files() -> Vec<(&'static str, File)> {
    let kinds = [
        ("llama", [RMS, QKV, GATE].concat() + "\noutput.weight: 16 32\nrope_freqs.weight: 2"),
        (
            "llama-moe",
            [RMS, QKV].concat()
                + "\nexpert_count = 4\nexpert_used_count = 2\nblk.ffn_gate_inp.weight: 16 4
                    blk.ffn_up_exps.weight: 16 24 4\nblk.ffn_gate_exps.weight: 16 24 4
                    blk.ffn_down_exps.weight: 24 16 4\nblk.ffn_down_exps.scale: 4",
        ),
        (
            "qwen2",
            [RMS, QKV, GATE].concat() + "\nblk.attn_q.bias: 16\nblk.attn_k.bias: 8\nblk.attn_v.bias: 8",
        ),
        ("qwen3", [RMS, QKV, GATE].concat() + "\nblk.attn_q_norm.weight: 4\nblk.attn_k_norm.weight: 4"),
        (
            "deepseek2",
            [RMS, GATE].concat()
                + "\nattention.head_count_kv = 1\nattention.key_length = 8\nattention.value_length = 6
                    attention.q_lora_rank = 5\nattention.kv_lora_rank = 6\nattention.key_length_mla = 5
                    attention.value_length_mla = 4\nrope.dimension_count = 2
                    leading_dense_block_count = 1\nexpert_count = 4\nexpert_used_count = 2
                    expert_feed_forward_length = 10\nexpert_shared_count = 2\nexpert_gating_func = 2
                    blk.attn_q_a.weight: 16 5\nblk.attn_q_a_norm.weight: 5\nblk.attn_q_b.weight: 5 20
                    blk.attn_kv_a_mqa.weight: 16 8\nblk.attn_kv_a_norm.weight: 6
                    blk.attn_k_b.weight: 3 6 4\nblk.attn_v_b.weight: 6 4 4
                    blk.1.ffn_gate_inp.weight: 16 4\nblk.1.exp_probs_b.bias: 4
                    blk.1.ffn_up_exps.weight: 16 10 4\nblk.1.ffn_gate_exps.weight: 16 10 4
                    blk.1.ffn_down_exps.weight: 10 16 4\nblk.1.ffn_up_shexp.weight: 16 20
                    blk.1.ffn_gate_shexp.weight: 16 20\nblk.1.ffn_down_shexp.weight: 20 16",
        ),
        (
            "mamba2",
            "attention.layer_norm_rms_epsilon = 0.00001\nattention.head_count = 0\nfeed_forward_length = 0
                ssm.conv_kernel = 4\nssm.inner_size = 12\nssm.state_size = 5\nssm.time_step_rank = 6
                ssm.group_count = 2\nblk.ssm_in.weight: 16 50\nblk.ssm_conv1d.weight: 4 32
                blk.ssm_conv1d.bias: 32\nblk.ssm_dt.bias: 6\nblk.ssm_a: 1 6\nblk.ssm_d: 1 6
                blk.ssm_norm.weight: 6 2\nblk.ssm_out.weight: 12 16"
                .to_string(),
        ),
        (
            "phi3",
            [RMS, FUSED_QKV].concat()
                + "\nblk.ffn_up.weight: 16 48\noutput.weight: 16 32
                    rope_factors_long.weight: 2\nrope_factors_short.weight: 2
                    attention.sliding_window = 8",
        ),
        (
            "gemma2",
            [RMS, QKV, GATE].concat()
                + "\nblk.post_attention_norm.weight: 16\nblk.post_ffw_norm.weight: 16
                    attention.sliding_window = 8",
        ),
        (
            "gemma3",
            [RMS, QKV, GATE].concat()
                + "\nblk.attn_q_norm.weight: 4\nblk.attn_k_norm.weight: 4
                    blk.post_attention_norm.weight: 16\nblk.post_ffw_norm.weight: 16
                    attention.sliding_window = 8\nattention.sliding_window_pattern = 2
                    rope.freq_base = 1000000\nrope.scaling.factor = 8",
        ),
        (
            "gpt2",
            [LAYER_NORM].concat()
                + "\nposition_embd.weight: 16 64\nblk.attn_qkv.weight: 16 48\nblk.attn_qkv.bias: 48
                    blk.attn_output.bias: 16\nblk.ffn_norm.weight: 16\nblk.ffn_norm.bias: 16
                    blk.ffn_up.bias: 24\nblk.ffn_down.bias: 16",
        ),
        (
            "falcon",
            [LAYER_NORM, FUSED_QKV].concat() + "\nblk.attn_norm_2.weight: 16\nblk.attn_norm_2.bias: 16",
        ),
        ("deci", [RMS, QKV, GATE].concat()),
        ("granite_swa", [RMS, QKV, GATE].concat() + "\nattention.sliding_window = 8\nblk.attn_sinks.weight: 4"),
        ("minicpm", [RMS, QKV, GATE].concat()),
        ("mistral3", [RMS, QKV, GATE].concat() + "\nattention.temperature_scale = 0.1"),
        ("nanbeige", [RMS, QKV, GATE].concat() + "\nnum_loops = 1"),
        ("qwen2vl", [RMS, QKV, GATE].concat()),
        (
            "cohere2",
            [LAYER_NORM, QKV, GATE].concat()
                + "\nlogit_scale = 0.5\nattention.sliding_window = 8\nattention.sliding_window_pattern = 2",
        ),
        ("stablelm", [LAYER_NORM, QKV, GATE].concat() + "\nblk.attn_q_norm.weight: 4 4\nblk.attn_k_norm.weight: 4 2"),
        (
            "mpt",
            [LAYER_NORM, FUSED_QKV].concat()
                + "\nattention.clamp_kqv = 1.0\nattention.max_alibi_bias = 8.0\nblk.attn_q_norm.weight: 16
                    blk.attn_k_norm.weight: 4\nblk.ffn_norm.weight: 16\nblk.ffn.act.scales: 24",
        ),
        (
            "olmo2",
            "attention.layer_norm_rms_epsilon = 0.00001".to_string()
                + QKV
                + GATE
                + "\nblk.attn_q_norm.weight: 16\nblk.attn_k_norm.weight: 8
                    blk.post_attention_norm.weight: 16\nblk.post_ffw_norm.weight: 16",
        ),
        (
            "minicpm3",
            [RMS, GATE].concat()
                + "\nattention.key_length = 5\nattention.value_length = 4\nattention.q_lora_rank = 5
                    attention.kv_lora_rank = 6\nrope.dimension_count = 2
                    blk.attn_q_a.weight: 16 5\nblk.attn_q_a_norm.weight: 5\nblk.attn_q_b.weight: 5 20
                    blk.attn_kv_a_mqa.weight: 16 8\nblk.attn_kv_a_norm.weight: 6\nblk.attn_kv_b.weight: 6 28",
        ),
        (
            "talkie",
            "attention.layer_norm_rms_epsilon = 0.00001\noutput.weight: 16 32\nblk.attn_q_norm.weight: 1 4
                blk.layer_output_scale.weight: 1"
                .to_string()
                + QKV
                + GATE,
        ),
        (
            "hrm_text",
            "attention.layer_norm_rms_epsilon = 0.00001\nhrm.layers_per_stack = 1\nhrm.h_cycles = 1\nhrm.l_cycles = 1
                hrm.z_l_init: 16\nblk.attn_gate.weight: 16 16"
                .to_string()
                + QKV
                + GATE,
        ),
    ];
    kinds
        .map(|(kind, lines)| (kind, File::new(kind.split('-').next().unwrap_or(kind), &lines)))
        .into_iter()
        .chain(experts::files())
        .collect()
}

fn file(kind: &str) -> File {
    let found = files().into_iter().find(|(name, _)| *name == kind);
    found.unwrap_or_else(|| panic!("no file of kind {kind}")).1
}

/// 3 tokens of 2 sequences, logits of 2.
const SHAPE: BatchShape = BatchShape {
    n_tokens: 3,
    n_encoder_tokens: 0,
    max_encoder_tokens: 0,
    n_seqs: 2,
    n_outputs: 2,
    output: StepOutput::Logits,
    max_blocks: 4,
    n_blocks: 6,
    windows: WindowBlocks::All,
    block_size: 8,
    n_state_slots: 6,
    k_type: DType::F32,
    v_type: DType::F32,
};
