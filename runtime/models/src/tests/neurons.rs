//! Models most of whose neurons give zeros: which products their FFNs are made of, and what is refused.

use super::{File, SHAPE, file};
use crate::{Error, Model, SparseMode, SparseOptions};
use llmrt_abi::{Op, op::PickParams, op::ThresholdParams};
use llmrt_graph::Role;

/// A Llama in a file of PowerInfer.
fn powerinfer() -> File {
    let file = file("llama").with("blk.ffn_down_t.weight: 16 24").with("powerinfer.sparse_threshold = 0.25");
    file.with("blk.fc1.weight: 16 5").with("blk.fc2.weight: 5 24")
}

fn relu() -> File {
    file("llama").with("llama.hidden_activation = relu")
}

fn with(file: &File, mode: SparseMode, threshold: Option<f32>) -> Result<Model, Error> {
    file.model()?.with_neurons(SparseOptions { mode, threshold, ..SparseOptions::default() })
}

/// The rules (threshold, strict) of the sparse products of the first layer, in order, and whether its last matrix has the role for zeros.
fn rules(model: &Model) -> (Vec<(f32, u32)>, bool) {
    let g = model.graph(&SHAPE).unwrap().graph;
    let last = g.nodes.iter().position(|node| node.dst == g.find("l_out-0").unwrap()).unwrap();
    let sparse = g.nodes[..last].iter().filter(|node| node.op == Op::MulMatSparse);
    let rules = sparse.map(|node| PickParams::from_bytes(&node.params).unwrap());
    let is_for_zeros =
        g.tensors.iter().any(|t| t.role == Role::MatrixOfZeros || t.name == "blk.0.ffn_down_t.weight");
    (rules.map(|p| (p.threshold, p.strict)).collect(), is_for_zeros)
}

#[test]
fn gates_that_are_not_positive_leave_their_rows_out() {
    assert_eq!(rules(&relu().model().unwrap()), (vec![(0.0, 1)], true));
    assert_eq!(rules(&with(&relu(), SparseMode::Exact, None).unwrap()), (vec![(0.0, 1)], true));
    assert_eq!(rules(&with(&relu(), SparseMode::Off, None).unwrap()), (vec![], false));
    assert_eq!(rules(&file("llama").model().unwrap()), (vec![], false));
}

#[test]
fn predictors_leave_rows_of_gates_out_from_the_threshold_of_user_or_file_on() {
    assert_eq!(rules(&powerinfer().model().unwrap()), (vec![(0.25, 0), (0.0, 1)], true));
    let higher = with(&powerinfer(), SparseMode::Auto, Some(0.5)).unwrap();
    assert_eq!(rules(&higher), (vec![(0.5, 0), (0.0, 1)], true));
    let exact = with(&powerinfer(), SparseMode::Exact, Some(0.5)).unwrap();
    assert_eq!(rules(&exact), (vec![(0.0, 1)], true));
    assert!(!exact.tensor_names().iter().any(|name| name.contains("fc1")), "{:?}", exact.tensor_names());
    assert_eq!(rules(&with(&powerinfer(), SparseMode::Off, None).unwrap()).0, vec![]);
}

#[test]
fn opt_takes_the_row_two_after_its_position_and_has_no_epsilon() {
    let lines = "attention.head_count_kv = 4\nposition_embd.weight: 16 64\nblk.ffn_norm.weight: 16\nblk.ffn_up.bias: 24
        blk.attn_q.weight: 16 16\nblk.attn_k.weight: 16 16\nblk.attn_v.weight: 16 16";
    let model = File::new("opt", lines).model().unwrap();
    assert_eq!(model.config.norm_eps, 0.0);
    let g = model.graph(&SHAPE).unwrap().graph;
    let table = g.tensors.iter().find(|t| t.view.is_some() && t.ne[..2] == [16, 62]).unwrap();
    assert_eq!(table.view.unwrap(), (g.find("position_embd.weight").unwrap(), 2 * 16 * 4));
}

#[test]
fn modes_that_a_file_rules_out_are_errors_with_a_remedy() {
    let text = |file: &File, mode| with(file, mode, None).unwrap_err().to_string();
    for mode in [SparseMode::Exact, SparseMode::Predict] {
        let text = text(&file("llama"), mode);
        assert!(text.contains("hidden_activation") && text.contains("--sparse off"), "{text}");
    }
    let text = text(&relu(), SparseMode::Predict);
    assert!(text.contains("fc1") && text.contains("--sparse exact"), "{text}");
    let unknown = file("llama").with("llama.hidden_activation = swish").model().unwrap_err().to_string();
    assert!(unknown.contains("llama.hidden_activation") && unknown.contains("drelu"), "{unknown}");
    let nan = file("llama").with("powerinfer.sparse_threshold = NaN").model().unwrap_err().to_string();
    assert!(nan.contains("powerinfer.sparse_threshold"), "{nan}");
    let misshapen = powerinfer().with("blk.fc2.weight: 4 24").model().unwrap_err();
    assert!(matches!(misshapen, Error::TensorDims { .. }), "{misshapen}");
}

/// Name, threshold and role of the weights of products whose small inputs count as zeros.
fn thresholds(model: &Model) -> Vec<(String, f32, Role)> {
    let g = model.graph(&SHAPE).unwrap().graph;
    let products = g.nodes.iter().filter(|node| node.op == Op::MulMat);
    let found = products.filter_map(|node| {
        let (w, x) = (node.src[0]?, node.src[1]?);
        let source = g.nodes.iter().find(|of_x| of_x.dst == x && of_x.op == Op::Threshold)?;
        let threshold = ThresholdParams::from_bytes(&source.params)?.threshold;
        Some((g.def(w).name.clone(), threshold, g.def(w).role))
    });
    found.collect()
}

#[test]
fn small_inputs_of_matrices_with_a_threshold_count_as_zeros() {
    let of = |threshold, thresholds: &[(&str, f32)]| {
        let thresholds = thresholds.iter().map(|(name, t)| (name.to_string(), *t)).collect();
        let options = SparseOptions { mode: SparseMode::Magnitude, threshold, thresholds };
        file("llama").model().unwrap().with_neurons(options)
    };
    let some = of(None, &[("blk.0.ffn_up", 0.5), ("blk.1.attn_q", 0.25), ("blk.0.attn_k", 0.0)]).unwrap();
    let expected = [
        ("blk.0.ffn_up.weight", 0.5, Role::MatrixOfZeros),
        ("blk.1.attn_q.weight", 0.25, Role::MatrixOfZeros),
    ];
    assert_eq!(thresholds(&some), expected.map(|(name, t, role)| (name.to_string(), t, role)));
    let all = thresholds(&of(Some(0.1), &[]).unwrap());
    assert_eq!(
        all.iter().filter(|(name, t, _)| name.starts_with("blk.0.") && *t == 0.1).count(),
        7,
        "{all:?}"
    );
    assert!(!all.iter().any(|(name, ..)| name.starts_with("output") || name.starts_with("token_embd")));
    let e = of(None, &[]).unwrap_err();
    assert!(e.to_string().contains("llmrt sparse thresholds"), "{e}");
}
