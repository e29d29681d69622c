//! Cases of `glu`: all forms, gate and up apart or in one row, dtypes, shapes, layouts.

use super::super::operand::{Layout, NUMBERS, prepared, rounding};
use super::{Activation, GPT_OSS};
use crate::graph::Graph;
use crate::ops::case::Case;
use crate::tensor::Shape;
use llmrt_abi::{DType, op::GluParams};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let all = Activation::ALL.map(|f| GluParams { activation: f as u32, ..Default::default() });
    let gpt_oss = GluParams { activation: GPT_OSS, swapped: 0, alpha: 1.702, limit: 7.0 };
    let cut_short = GluParams { alpha: -3.0, limit: 0.4, ..gpt_oss };
    for p in all.into_iter().chain([gpt_oss, cut_short]) {
        for dtype in NUMBERS {
            for ne in [[65, 3, 2, 1], [5, 7, 3, 2], [1, 1, 1, 1], [1030, 5, 1, 1], [4, 0, 1, 1], [0, 3, 1, 1]]
            {
                cases.push(case(p, Halves::Apart, dtype, ne, Layout::Dense));
                cases.push(case(p, Halves::GateFirst, dtype, ne, Layout::Dense));
                cases.push(case(p, Halves::UpFirst, dtype, ne, Layout::Dense));
            }
        }
    }
    for layout in Layout::STRIDED {
        for dtype in NUMBERS {
            for p in [all[0], gpt_oss] {
                for halves in [Halves::Apart, Halves::GateFirst, Halves::UpFirst] {
                    cases.push(case(p, halves, dtype, [33, 5, 3, 2], layout));
                }
            }
        }
    }
    cases.push(Case::new("parts of one row as gate and up", |g, _| {
        let both = g.input("both", DType::F32, &[50, 4]);
        let (gate, up) = (g.slice(both, 0, 3, 20), g.slice(both, 0, 29, 20));
        g.glu(Activation::Silu, gate, Some(up));
    }));
    cases
}

/// Where gate and up are.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Halves {
    Apart,
    GateFirst,
    UpFirst,
}

/// A result of shape `ne` of gates in -4..4 (where the forms differ) or -12..12 (past gpt-oss's limit).
fn case(p: GluParams, halves: Halves, dtype: DType, ne: Shape, layout: Layout) -> Case {
    let GluParams { activation, alpha, limit, .. } = p;
    let form = Activation::from_id(activation)
        .map_or_else(|| format!("gpt-oss, alpha {alpha}, limit {limit}"), |f| format!("{f:?}"));
    Case::new(format!("{form}, {halves:?}, {dtype} {ne:?}, {layout:?}"), |g, _| {
        let range = if activation == GPT_OSS { 12.0 } else { 4.0 };
        let operand =
            |g: &mut Graph, name, ne| prepared(g, name, dtype, ne, layout, |g, t| g.scale(t, range));
        if halves == Halves::Apart {
            let gate = operand(g, "gate", ne);
            let up = operand(g, "up", ne);
            g.glu_of(p, gate, Some(up));
        } else {
            let both = operand(g, "both", [2 * ne[0], ne[1], ne[2], ne[3]]);
            let swapped = (halves == Halves::UpFirst) as u32;
            g.glu_of(GluParams { swapped, ..p }, both, None);
        }
    })
    .nmse(rounding(dtype))
}
