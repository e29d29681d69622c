//! Tiny models with experts, and which experts a token goes through, computed by the references.

use super::{File, QKV, RMS, file};
use crate::BatchShape;
use crate::arch;
use crate::blocks::{Route, route};
use crate::builder::Builder;
use llmrt_abi::DType;
use llmrt_graph::ops::value::Value;
use llmrt_graph::reference::{self, Memory};
use llmrt_graph::tensor::{Shape, shape};

/// 4 experts, of which 2 are used, in all layers.
const EXPERTS: &str = "
    expert_count = 4
    expert_used_count = 2
    blk.ffn_gate_inp.weight: 16 4
    blk.ffn_up_exps.weight: 16 24 4
    blk.ffn_gate_exps.weight: 16 24 4
    blk.ffn_down_exps.weight: 24 16 4";

/// What all tokens go through.
const SHARED: &str = "
    expert_shared_feed_forward_length = 8
    blk.ffn_up_shexp.weight: 16 8
    blk.ffn_gate_shexp.weight: 16 8
    blk.ffn_down_shexp.weight: 8 16";

/// Norms of the heads of Q and K.
const NORMED: &str = "
    blk.attn_q_norm.weight: 4
    blk.attn_k_norm.weight: 4";

/// A file of each kind of experts; all leave the dense FFN that common tensors have unused.
pub(super) fn files() -> Vec<(&'static str, File)> {
    let kinds = [
        ("qwen2moe", [SHARED, "\nblk.ffn_gate_inp_shexp.weight: 16"].concat()),
        ("dots1", [NORMED, SHARED, "\nexpert_gating_func = 2\nblk.exp_probs_b.bias: 4"].concat()),
        (
            "maple",
            [NORMED, "\nswiglu_clamp_exp = 7.5\nattention.sliding_window = 8\nrope.dimension_count_swa = 2"]
                .concat(),
        ),
        (
            "gpt-oss",
            "attention.sliding_window = 8\nblk.post_attention_norm.weight: 16\nblk.attn_sinks.weight: 4
                blk.ffn_gate_inp.bias: 4\nblk.ffn_up_exps.bias: 24 4\nblk.ffn_gate_exps.bias: 24 4
                blk.ffn_down_exps.bias: 16 4"
                .to_string(),
        ),
        (
            "grovemoe",
            [
                NORMED,
                "\nexperts_per_group = 2\nexpert_chunk_feed_forward_length = 6\nexpert_group_scale = 0.05
                blk.ffn_up_chexps.weight: 16 6 2\nblk.ffn_gate_chexps.weight: 16 6 2
                blk.ffn_down_chexps.weight: 6 16 2",
            ]
            .concat(),
        ),
        (
            "laguna",
            [
                NORMED,
                SHARED,
                "\nattention.sliding_window = 8\nrope.freq_base_swa = 1000\nblk.attn_gate.weight: 16 4",
            ]
            .concat(),
        ),
        ("llama4", [SHARED.replace('8', "24"), "\nattention.sliding_window = 8192".into()].concat()),
        ("llada-moe", "blk.attn_q_norm.weight: 4\nblk.attn_k_norm.weight: 4".into()),
        ("rnd1", "blk.attn_q_norm.weight: 4\nblk.attn_k_norm.weight: 4".into()),
        ("smallthinker", "attention.sliding_window = 8".into()),
        (
            "arctic",
            "blk.ffn_norm_exps.weight: 16\nblk.ffn_up.weight: 16 16\nblk.ffn_gate.weight: 16 16
            blk.ffn_down.weight: 16 16"
                .into(),
        ),
    ];
    kinds
        .map(|(arch, lines)| (arch, File::new(arch, &[RMS, QKV, EXPERTS, "\n", &lines].concat())))
        .into_iter()
        .collect()
}

/// Tensors of the common ones that a kind of `files` does not use.
pub(super) fn unused(kind: &str) -> Option<Vec<&'static str>> {
    const DENSE: [&str; 4] =
        ["blk.0.ffn_down.weight", "blk.0.ffn_up.weight", "blk.1.ffn_down.weight", "blk.1.ffn_up.weight"];
    match kind {
        "arctic" => None,
        // Its norm before the FFN has another name.
        "gpt-oss" => Some(
            [DENSE[0], "blk.0.ffn_norm.weight", DENSE[1], DENSE[2], "blk.1.ffn_norm.weight", DENSE[3]]
                .to_vec(),
        ),
        _ => files().iter().any(|(name, _)| *name == kind).then(|| DENSE.to_vec()),
    }
}

/// Groups count by their two best experts: here a group with the best of all and a bad one is not chosen.
#[test]
fn tokens_go_through_experts_of_the_best_groups() {
    let logits = [9.0, -9.0, 2.0, 1.9, 1.0, 3.0, 0.0, 0.5];
    check("expert_used_count = 3", &logits, None, &[0, 5, 2]);
    let groups = "expert_used_count = 3\nexpert_group_count = 4\nexpert_group_used_count = 2";
    check(groups, &logits, None, &[5, 2, 3]);
    check(&groups.replace("used_count = 2", "used_count = 4"), &logits, None, &[0, 5, 2]);
}

#[test]
fn a_bias_changes_the_choice_and_not_the_weights() {
    let logits = [0.0, 1.0, 2.0, 3.0, -1.0, -1.0, -1.0, -1.0];
    let mut bias = [0.0; 8];
    bias[0] = 10.0;
    check("expert_used_count = 2", &logits, Some(&bias), &[0, 3]);
}

/// The experts of one token, and the sigmoids of their logits as weights.
fn check(lines: &str, logits: &[f32; 8], bias: Option<&[f32; 8]>, expected: &[i32]) {
    let lines = ["expert_count = 8", "expert_gating_func = 2"].into_iter().chain(lines.lines());
    let file = lines.fold(file("deepseek2"), |file, line| file.with(&format!("deepseek2.{line}")));
    let (name, arch) = arch::of(&file.meta).expect("an architecture");
    let config = arch.config(&file.meta, name).expect("a configuration");
    let cfg = config.moe.as_ref().expect("experts");
    let tensors = |name: &str| -> Option<(DType, Shape)> {
        (name == "exp_probs_b.bias" && bias.is_some()).then(|| (DType::F32, shape(&[8])))
    };
    let mut b = Builder::new(&config, &BatchShape::SMALLEST, &tensors);
    let of_token = b.g.input("logits", DType::F32, &[8, 1]);
    let Route { ids, weights } = route(&mut b, cfg, of_token).expect("a route");
    b.g.output(ids, "ids");
    b.g.output(weights, "weights");
    let g = b.g.finish().expect("a graph");

    let mut memory = Memory::new();
    memory.set(&g, of_token, &Value::f32(shape(&[8, 1]), logits.to_vec())).expect("logits");
    if let (Some(bias), Some(t)) = (bias, g.find("exp_probs_b.bias")) {
        memory.set(&g, t, &Value::f32(shape(&[8]), bias.to_vec())).expect("a bias");
    }
    reference::run(&g, &mut memory).expect("references run");
    assert_eq!(memory.get(&g, ids).expect("ids").ints(), expected);
    let sigmoid = |&id: &i32| 1.0 / (1.0 + (-logits[id as usize]).exp());
    let expected: Vec<f32> = expected.iter().map(sigmoid).collect();
    let weights = memory.get(&g, weights).expect("weights");
    for (found, expected) in weights.floats().iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
    }
}
