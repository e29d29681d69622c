//! y = the router's weights of each token's chosen experts: softmax or sigmoid of the logits, picked by ids,
//! divided by their sum (at least 2⁻¹⁴) if the params set it, times a factor.
//!
//! Result: F32 [1, n_used, n_tokens] of logits F32 [n_expert, n_tokens] and ids I32 [n_used, n_tokens].

use super::{Inferred, Rules, activations::sigmoid, case::Case, check, soft_max::soft_max_row, value::Value};
use crate::graph::{Graph, Node};
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::MoeWeightsParams};

impl Graph {
    /// Weights [1, n_used, n_tokens] of the experts `ids` [n_used, n_tokens], from `logits` [n_expert, n_tokens].
    pub fn moe_weights(&mut self, logits: Tensor, ids: Tensor, params: &MoeWeightsParams) -> Tensor {
        self.push(Op::MoeWeights, &[Some(logits), Some(ids)], &params.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: Some(decompose), cases };

const SOFT_MAX_THEN_PICK: u32 = 0;
const SIGMOID_THEN_PICK: u32 = 1;
const PICK_THEN_SOFT_MAX: u32 = 2;

/// The smallest normal F16, 2⁻¹⁴: what a sum is at least before it divides.
const SMALLEST_SUM: f32 = 6.103_515_6e-5;

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(MoeWeightsParams::from_bytes(params))?;
    if p.gating > PICK_THEN_SOFT_MAX || p.normalise > 1 {
        return Err(format!("gating {} with normalise {} is unknown", p.gating, p.normalise));
    }
    let logits = check::floats(src, 0, "logits")?;
    let ids = check::ints(src, 1, "ids")?;
    if logits.ne[2..] != [1, 1] || ids.ne[2..] != [1, 1] || logits.ne[1] != ids.ne[1] {
        return Err(format!("logits {:?} and ids {:?} are of different tokens", logits.ne, ids.ne));
    }
    Ok((DType::F32, [1, ids.ne[0], ids.ne[1], 1]))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = MoeWeightsParams::from_bytes(params).unwrap_or_default();
    let (logits, ids) = (check::arg(src, 0), check::arg(src, 1));
    let mut y = Vec::with_capacity(ids.ints().len());
    for (token, ids) in ids.ints().chunks_exact(ids.ne[0] as usize).enumerate() {
        let mut probs = logits.row(token).to_vec();
        match p.gating {
            SOFT_MAX_THEN_PICK => soft_max_row(&mut probs, None),
            SIGMOID_THEN_PICK => probs.iter_mut().for_each(|v| *v = sigmoid(*v)),
            _ => {}
        }
        let pick = |&id: &i32| usize::try_from(id).ok().and_then(|id| probs.get(id)).copied().unwrap_or(0.0);
        let mut picked: Vec<f32> = ids.iter().map(pick).collect();
        if p.gating == PICK_THEN_SOFT_MAX {
            soft_max_row(&mut picked, None);
        }
        let sum = picked.iter().sum::<f32>().max(SMALLEST_SUM);
        let divisor = if p.normalise == 1 { sum } else { 1.0 };
        y.extend(picked.iter().map(|w| w / divisor * factor(&p)));
    }
    Value::f32([1, ids.ne[0], ids.ne[1], 1], y)
}

fn factor(p: &MoeWeightsParams) -> f32 {
    if p.scale == 0.0 { 1.0 } else { p.scale }
}

/// Gating, a gather of single elements as rows of one, a sum, a division, a factor.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let p = MoeWeightsParams::from_bytes(&node.params)?;
    let (logits, ids) = (node.src[0]?, node.src[1]?);
    let ([n_expert, n_tokens, ..], n_used) = (g.ne(logits), g.ne(ids)[0]);

    let probs = match p.gating {
        SOFT_MAX_THEN_PICK => g.soft_max(logits, None, 1.0),
        SIGMOID_THEN_PICK => g.sigmoid(logits),
        _ if g.def(logits).is_contiguous() => logits,
        _ => g.cont(logits),
    };
    let columns = g.reshape(probs, &[1, n_expert, n_tokens]);
    let picked = g.get_rows(columns, ids); // [1, n_used, n_tokens]
    let mut weights = g.reshape(picked, &[n_used, n_tokens]);
    if p.gating == PICK_THEN_SOFT_MAX {
        weights = g.soft_max(weights, None, 1.0);
    }
    if p.normalise == 1 {
        let sum = g.sum_rows(weights); // [1, n_tokens]
        // max(sum, s) = max(sum - s, 0) + s
        let above = g.scale_bias(sum, 1.0, -SMALLEST_SUM);
        let above = g.relu(above);
        let sum = g.scale_bias(above, 1.0, SMALLEST_SUM);
        weights = g.div(weights, sum);
    }
    if factor(&p) != 1.0 {
        weights = g.scale(weights, factor(&p));
    }
    Some(g.reshape(weights, &[1, n_used, n_tokens]))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for gating in [SOFT_MAX_THEN_PICK, SIGMOID_THEN_PICK, PICK_THEN_SOFT_MAX] {
        for (normalise, scale) in [(0, 0.0), (1, 0.0), (1, 2.5), (0, 0.5)] {
            let p = MoeWeightsParams { gating, normalise, scale };
            cases.push(Case::new(
                format!("gating {gating}, normalise {normalise}, scale {scale}"),
                |g, ints| {
                    let logits = g.input("logits", DType::F32, &[8, 3]);
                    let ids = g.input("ids", DType::I32, &[2, 3]);
                    ints.push((ids, vec![7, 0, 3, 4, 5, 1]));
                    g.moe_weights(logits, ids, &p);
                },
            ));
        }
        cases.push(Case::new(format!("gating {gating}, all experts of one token"), |g, ints| {
            let logits = g.input("logits", DType::F32, &[5, 1]);
            let ids = g.input("ids", DType::I32, &[5, 1]);
            ints.push((ids, vec![4, 3, 2, 1, 0]));
            g.moe_weights(logits, ids, &MoeWeightsParams { gating, normalise: 1, scale: 1.0 });
        }));
    }
    cases.push(Case::new("sigmoids so small that the sum is raised", |g, ints| {
        let logits = g.input("logits", DType::F32, &[4, 2]);
        let logits = g.scale_bias(logits, 1.0, -20.0);
        let ids = g.input("ids", DType::I32, &[2, 2]);
        ints.push((ids, vec![0, 1, 3, 2]));
        g.moe_weights(logits, ids, &MoeWeightsParams { gating: 1, normalise: 1, scale: 0.0 });
    }));
    cases
}
