//! Which experts a token goes through, computed by the references.

use super::file;
use crate::BatchShape;
use crate::arch;
use crate::blocks::{Route, route};
use crate::builder::Builder;
use llmrt_abi::DType;
use llmrt_graph::ops::value::Value;
use llmrt_graph::reference::{self, Memory};
use llmrt_graph::tensor::{Shape, shape};

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
