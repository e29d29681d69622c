//! What steps give besides logits, and which keys a token sees.

use super::{SHAPE, file};
use crate::{BatchShape, Error, Pooling, StepOutput};
use llmrt_abi::Op;
use llmrt_abi::op::AttentionParams;
use llmrt_graph::Graph;

fn step(kind: super::File, output: StepOutput) -> Result<(Graph, [u64; 2]), Error> {
    let step = kind.model()?.graph(&BatchShape { output, ..SHAPE })?;
    let [n, rows, ..] = step.graph.ne(step.logits);
    Ok((step.graph, [n, rows]))
}

#[test]
fn hidden_states_are_what_logits_are_made_of() {
    for kind in ["llama", "gemma2", "gpt2", "falcon", "hrm_text", "mamba2"] {
        let (logits, dims) = step(file(kind), StepOutput::Logits).unwrap();
        assert_eq!(dims, [32, 2], "{kind}");
        let (hidden, dims) = step(file(kind), StepOutput::Embeddings).unwrap();
        assert_eq!(dims, [16, 2], "{kind}");
        assert!(hidden.nodes.len() < logits.nodes.len(), "{kind}");
        assert_eq!(hidden.nodes[..], logits.nodes[..hidden.nodes.len()], "{kind}");
    }
}

#[test]
fn a_classifier_makes_scores() {
    let reranker = file("qwen3").with("cls.output.weight: 16 2");
    let mut reranker = reranker.with("qwen3.pooling_type = 4");
    reranker.meta.set("qwen3.classifier.output_labels", vec!["yes".to_string(), "no".to_string()]);
    let spec = reranker.model().unwrap().spec().clone();
    assert_eq!((spec.pooling, spec.output()), (Some(Pooling::Rank), StepOutput::Scores));
    let (g, dims) = step(reranker, StepOutput::Scores).unwrap();
    assert_eq!(dims, [2, 2]);
    assert_eq!(g.nodes.last().map(|node| node.op), Some(Op::SoftMax));

    let two = file("llama").with("cls.weight: 16 16").with("cls.bias: 16").with("cls.output.weight: 16 1");
    let (g, dims) = step(two.clone(), StepOutput::Scores).unwrap();
    assert_eq!((dims, g.nodes.iter().filter(|node| node.op == Op::Tanh).count()), ([1, 2], 1));
    assert!(two.model().unwrap().tensor_names().contains(&"cls.bias".to_string()));
    // One matrix may be all.
    assert_eq!(step(file("llama").with("cls.weight: 16 1"), StepOutput::Scores).unwrap().1, [1, 2]);
    let e = step(file("llama"), StepOutput::Scores).unwrap_err().to_string();
    assert!(e.contains("tensor `cls.output.weight` is missing"), "{e}");
}

#[test]
fn poolings_are_read_by_number() {
    let pooling = |value: &str| file("llama").with(&format!("llama.pooling_type = {value}")).model();
    let of = |value: &str| pooling(value).unwrap().spec().pooling;
    assert_eq!((of("0"), of("1"), of("4294967295")), (Some(Pooling::None), Some(Pooling::Mean), None));
    assert_eq!(file("llama").model().unwrap().spec().default_pooling(), Pooling::Last);
    let e = pooling("7").unwrap_err().to_string();
    assert_eq!(e, "metadata key `llama.pooling_type` is 7: expected 0 to 4, or -1 for none");
}

#[test]
fn a_classifier_may_take_the_mean_of_a_text() {
    let reranker = |more: &str| file("llama").with("cls.output.weight: 16 1").with(more);
    let attentions = |more: &str| {
        let (g, dims) = step(reranker(more), StepOutput::Scores).unwrap();
        assert_eq!(dims, [1, 2]);
        g.nodes.iter().filter(|node| node.op == Op::Attention).count()
    };
    assert_eq!(attentions("llama.classifier.pooling_type = 2"), 2, "one in each layer");
    assert_eq!(attentions("llama.classifier.pooling_type = 1"), 3);
    let mean = reranker("llama.classifier.pooling_type = 1");
    let states = mean.model().unwrap().spec().states();
    assert!(states.contains_key("blk.2.k_cache") && !states.contains_key("blk.2.v_cache"), "{states:?}");
    let logits = step(mean, StepOutput::Logits).unwrap().0;
    assert_eq!(logits.nodes.iter().filter(|node| node.op == Op::Attention).count(), 2);
    let e = reranker("llama.classifier.pooling_type = 5").model().unwrap_err().to_string();
    assert!(e.contains("`llama.classifier.pooling_type` is 5: expected 0 to 4"), "{e}");
}

#[test]
fn learned_positions_limit_texts() {
    let n = |kind: &str| file(kind).model().unwrap().spec().n_positions;
    assert_eq!((n("gpt2"), n("llama")), (Some(64), None));
}

/// The attributes of each attention.
fn attentions(kind: super::File) -> Vec<AttentionParams> {
    let g = kind.model().unwrap().graph(&SHAPE).unwrap().graph;
    let nodes = g.nodes.iter().filter(|node| node.op == Op::Attention);
    nodes.map(|node| AttentionParams::from_bytes(&node.params).unwrap()).collect()
}

#[test]
fn tokens_of_diffusion_models_see_later_ones() {
    let reaches = |kind: &str| attentions(file(kind)).iter().map(|p| p.bidirectional).collect::<Vec<_>>();
    assert_eq!(
        (reaches("llama"), reaches("llada-moe"), reaches("rnd1")),
        (vec![0, 0], vec![1, 1], vec![1, 1])
    );
    let mut both_ways = file("llama");
    both_ways.meta.set("llama.attention.causal", false);
    assert!(attentions(both_ways.clone()).iter().all(|p| p.bidirectional == 1));
    let spec = both_ways.model().unwrap().spec().clone();
    assert_eq!((spec.is_causal, spec.has_logits, spec.default_pooling()), (false, true, Pooling::Mean));
}

#[test]
fn layers_of_llama4_see_a_chunk() {
    let chunks = |file: super::File| attentions(file).iter().map(|p| (p.window, p.chunk)).collect::<Vec<_>>();
    assert_eq!(chunks(file("llama4")), [(0, 8192), (0, 8192)]);
    let pattern = file("llama4").with("llama4.attention.sliding_window_pattern = 2");
    assert_eq!(chunks(pattern.with("llama4.attention.sliding_window = 8")), [(0, 8), (0, 0)]);
    assert_eq!(chunks(file("llama4").with("llama4.attention.sliding_window = 0")), [(0, 0), (0, 0)]);
}
