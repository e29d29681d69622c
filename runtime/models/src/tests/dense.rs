//! What sets dense architectures apart: factors, layers that run again or lack a part, rotations, bounds.

use super::{File, SHAPE, file};
use llmrt_abi::{Op, op::RopeParams};
use llmrt_gguf::Array;
use llmrt_graph::Graph;

#[test]
fn nanbeige_runs_its_layers_again_with_caches_of_their_own() {
    let model = file("nanbeige").with("nanbeige.num_loops = 3").model().expect("a model");
    let blocks: Vec<usize> = model.config.layers.iter().map(|layer| layer.block).collect();
    assert_eq!(blocks, [0, 1, 0, 1, 0, 1]);
    let g = model.graph(&SHAPE).expect("a graph").graph;
    assert_eq!((count(&g, Op::Attention), count(&g, Op::RmsNorm)), (6, 6 * 2 + 3), "a norm after each run");
    assert!(g.find("blk.5.k_cache").is_some() && g.find("blk.2.attn_q.weight").is_none());
    let without = file("nanbeige").with("nanbeige.num_loops = 3").with_flag("nanbeige.skip_loop_final_norm");
    assert_eq!(count(&graph(&without), Op::RmsNorm), 6 * 2 + 1);
}

#[test]
fn loops_of_layers_have_a_limit() {
    let error = file("nanbeige").with("nanbeige.num_loops = 4000").model().err().map(|e| e.to_string());
    assert_eq!(error.as_deref(), Some("metadata key `nanbeige.num_loops` is 4000: expected 1 to 64"));
    let error = file("hrm_text").with("hrm_text.hrm.h_cycles = 64").model().err().map(|e| e.to_string());
    assert_eq!(
        error.as_deref(),
        Some("metadata key `hrm_text.block_count` is 2: expected 128 runs of 1 layers")
    );
}

#[test]
fn layers_of_deci_lack_attention_or_an_ffn() {
    let mut changed = file("deci");
    changed.meta.set("deci.attention.head_count", vec![4u32, 0]);
    changed.meta.set("deci.attention.head_count_kv", vec![0u32, 0]);
    changed.meta.set("deci.feed_forward_length", vec![0u32, 24]);
    let g = graph(&changed);
    assert_eq!((count(&g, Op::Attention), count(&g, Op::Glu), count(&g, Op::MulMat)), (0, 1, 1 + 3 + 1));
    assert!(g.find("blk.0.attn_output.weight").is_some() && g.find("blk.1.attn_output.weight").is_none());
}

#[test]
fn granites_factor_on_logits_divides_and_the_first_minicpm_have_theirs_without_keys() {
    let scales = |file: File| file.model().expect("a model").config.scales;
    let granite = scales(file("granite_swa").with("granite_swa.logit_scale = 4.0"));
    assert_eq!((granite.embedding, granite.residual, granite.logits), (1.0, 1.0, 0.25));
    let minicpm = scales(file("minicpm"));
    assert_eq!((minicpm.embedding, minicpm.residual, minicpm.logits), (12.0, 1.4 / 2f32.sqrt(), 16.0));
}

#[test]
fn sections_turn_by_one_position_in_text() {
    let mut changed = file("qwen2vl");
    changed.meta.set("qwen2vl.rope.dimension_sections", vec![1u32, 1, 0, 0]);
    let g = graph(&changed);
    let rope = g.nodes.iter().find(|node| node.op == Op::Rope).expect("a rotation");
    assert_eq!(RopeParams::from_bytes(&rope.params).map(|p| p.mode), Some(2));

    changed.meta.set("qwen2vl.rope.dimension_count", 4u32);
    changed.meta.set("qwen2vl.attention.key_length", 8u32);
    changed.meta.set("qwen2vl.rope.dimension_sections", vec![1u32, 1, 0, 6]);
    changed.meta.set("qwen2vl.rope.dimension_count", 8u32);
    assert_eq!(
        changed.model().err().map(|e| e.to_string()).as_deref(),
        Some(
            "metadata key `qwen2vl.rope.dimension_sections` is [1, 1, 0, 6]: expected 4 pairs in the first three sections"
        )
    );
}

#[test]
fn only_windowed_layers_of_cohere2_rotate_their_heads() {
    let g = graph(&file("cohere2"));
    let rotated = g.nodes.iter().filter(|node| node.op == Op::Rope).map(|node| g.def(node.dst).name.clone());
    assert_eq!(rotated.collect::<Vec<_>>(), ["Qcur-0", "Kcur-0"]);
}

#[test]
fn queries_of_mistral3_grow_past_the_context_of_training() {
    let g = graph(&file("mistral3"));
    assert!(g.find("Qcur_tempered-0").is_some());
    assert_eq!(count(&g, Op::Log), 2);
    let plain = graph(&file("mistral3").without("mistral3.attention.temperature_scale"));
    assert_eq!(count(&plain, Op::Log), 0);
}

#[test]
fn flags_are_one_for_each_layer() {
    let mut changed = file("granite_swa");
    changed.meta.set("granite_swa.attention.sliding_window_pattern", Array::Bool(vec![false, true]));
    changed.meta.set("granite_swa.attention.rope_pattern", vec![1u32, 0]);
    let layers = changed.model().expect("a model").config.layers;
    let found: Vec<_> = layers.iter().map(|layer| (layer.window, layer.has_rope)).collect();
    assert_eq!(found, [(0, true), (8, false)]);
    changed.meta.set("granite_swa.attention.rope_pattern", vec![1u32]);
    assert_eq!(
        changed.model().err().map(|e| e.to_string()).as_deref(),
        Some(
            "metadata key `granite_swa.attention.rope_pattern` is an array of 1: expected one for each of 2 layers"
        )
    );
}

#[test]
fn mpt_keeps_q_k_and_v_within_bounds() {
    let clamps = |file: File| count(&graph(&file), Op::Clamp);
    assert_eq!(clamps(file("mpt")), 2);
    assert_eq!(clamps(file("mpt").without("mpt.attention.clamp_kqv")), 0);
}

fn graph(file: &File) -> Graph {
    file.model().expect("a model").graph(&SHAPE).expect("a graph").graph
}

fn count(g: &Graph, op: Op) -> usize {
    g.nodes.iter().filter(|node| node.op == op).count()
}
