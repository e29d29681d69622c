//! Every architecture's graph, as text.

use super::{SHAPE, files};
use llmrt_graph::{Graph, Kind};
use std::fmt::Write;

#[test]
fn llama_builds_the_graph_of_its_paper() {
    check("llama", include_str!("golden/llama.txt"));
}

#[test]
fn mixtral_routes_tokens_to_experts() {
    check("llama-moe", include_str!("golden/llama-moe.txt"));
}

#[test]
fn qwen2_adds_biases_to_q_k_and_v() {
    check("qwen2", include_str!("golden/qwen2.txt"));
}

#[test]
fn qwen3_norms_heads_before_it_rotates_them() {
    check("qwen3", include_str!("golden/qwen3.txt"));
}

#[test]
fn phi3_cuts_fused_projections() {
    check("phi3", include_str!("golden/phi3.txt"));
}

#[test]
fn gemma2_norms_on_both_sides_and_caps_logits() {
    check("gemma2", include_str!("golden/gemma2.txt"));
}

#[test]
fn gemma3_norms_heads_too() {
    check("gemma3", include_str!("golden/gemma3.txt"));
}

#[test]
fn deepseek2_caches_latent_rows_and_routes_after_a_dense_layer() {
    check("deepseek2", include_str!("golden/deepseek2.txt"));
}

#[test]
fn mamba2_reads_one_state_and_writes_another() {
    check("mamba2", include_str!("golden/mamba2.txt"));
}

#[test]
fn gpt2_adds_learned_positions() {
    check("gpt2", include_str!("golden/gpt2.txt"));
}

#[test]
fn falcon_runs_attention_and_ffn_side_by_side() {
    check("falcon", include_str!("golden/falcon.txt"));
}

#[test]
fn equal_shapes_give_equal_graphs() {
    for (kind, file) in files() {
        let model = file.model().expect(kind);
        let (a, b) = (model.graph(&SHAPE).expect(kind), model.graph(&SHAPE).expect(kind));
        assert_eq!(a.graph.uid(), b.graph.uid(), "{kind}");
    }
}

#[test]
fn weights_of_a_graph_are_the_tensors_of_the_model() {
    for (kind, file) in files() {
        let model = file.model().expect(kind);
        let graph = model.graph(&SHAPE).expect(kind).graph;
        let weights = graph.tensors.iter().filter(|t| t.kind == Kind::Weight);
        assert_eq!(
            weights.map(|t| &t.name).collect::<Vec<_>>(),
            model.tensor_names().iter().collect::<Vec<_>>()
        );
        let found = model.unused_tensors(file.tensors.keys().map(String::as_str)).expect(kind);
        assert_eq!(found, unused(kind), "{kind}");
    }
}

/// Tensors that all files of the tests have and this architecture does not use.
fn unused(kind: &str) -> Vec<&'static str> {
    match kind {
        "mamba2" => vec![
            "blk.0.attn_output.weight",
            "blk.0.ffn_down.weight",
            "blk.0.ffn_up.weight",
            "blk.1.attn_output.weight",
            "blk.1.ffn_down.weight",
            "blk.1.ffn_up.weight",
        ],
        "olmo2" => vec!["blk.0.attn_norm.weight", "blk.1.attn_norm.weight"],
        "talkie" | "hrm_text" => {
            vec!["blk.0.attn_norm.weight", "blk.1.attn_norm.weight", "output_norm.weight"]
        }
        "deepseek2" => vec!["blk.1.ffn_down.weight", "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"],
        "llama-moe" => {
            vec![
                "blk.0.ffn_down.weight",
                "blk.0.ffn_up.weight",
                "blk.1.ffn_down.weight",
                "blk.1.ffn_up.weight",
            ]
        }
        _ => super::experts::unused(kind).unwrap_or_default(),
    }
}

/// One line for each node, compared with the file in `golden/`.
fn check(kind: &str, golden: &str) {
    let model = super::file(kind).model().expect("the file makes a model");
    let graph = model.graph(&SHAPE).expect("the model makes a graph");
    assert_eq!(graph.graph.ne(graph.logits), [32, 2, 1, 1]);
    let text = text(&graph.graph);
    assert!(text == golden, "the graph of {kind} is now:\n{text}");
}

fn text(g: &Graph) -> String {
    let mut text = String::new();
    for node in &g.nodes {
        let src: Vec<_> = node.src.iter().flatten().map(|&t| g.def(t).name.as_str()).collect();
        let dst = g.def(node.dst);
        let dims = &dst.ne[..dst.n_dims()];
        let _ = writeln!(text, "{} {dims:?} = {}({})", dst.name, node.op, src.join(", "));
    }
    text
}
