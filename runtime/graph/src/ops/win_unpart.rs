//! y[c, i, j] = x[c, i mod window, j mod window, n·(j div window) + i div window], n = ceil(width / window), as ggml's
//! win_unpart: windows put together, what is past width and height dropped.
//!
//! Result: dtype of x (any plain one), [c, width, height].

use super::moves::{self, From};
use super::win_part::n_windows;
use super::{Inferred, Rules, case::Case, check, copy_cases, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::WinParams};

impl Graph {
    /// Windows `x` [c, window, window, n] as the image [c, width, height] that they were cut from.
    pub fn win_unpart(&mut self, x: Tensor, width: u32, height: u32) -> Tensor {
        let window = u32::try_from(self.ne(x)[1]).unwrap_or(0);
        self.push(Op::WinUnpart, &[Some(x)], &WinParams { window, width, height }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(WinParams::from_bytes(params))?;
    let x = moves::plain(src, 0, "x")?;
    let [w, width, height] = [p.window, p.width, p.height].map(u64::from);
    if w == 0 || x.ne[1..3] != [w, w] || Some(x.ne[3]) != n_windows(width, height, w) {
        return Err(format!("x {:?} are not the windows of {w} that cover {width} by {height}", x.ne));
    }
    Ok((x.dtype, [x.ne[0], width, height, 1]))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = WinParams::from_bytes(params).unwrap_or_default();
    let [w, width, height] = [p.window, p.width, p.height].map(u64::from);
    let x = check::arg(src, 0);
    let across = width.div_ceil(w);
    moves::gather([x.ne[0], width, height, 1], &[x], |[c, i, j, _]| {
        From::Source(0, [c, i % w, j % w, j / w * across + i / w])
    })
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (c, window, [width, height]) in [
        (6, 4, [8, 8]),
        (6, 4, [7, 9]),
        (3, 7, [14, 5]),
        (1, 1, [1, 1]),
        (5, 8, [2, 3]),
        (5, 1, [4, 3]),
        (1030, 2, [3, 2]),
        (6, 4, [0, 8]),
    ] {
        for dtype in copy_cases::PLAIN {
            cases.push(Case::new(
                format!("{width} by {height} of {dtype} windows of {window}"),
                |g, ints| {
                    let n = (width as u64).div_ceil(window) * (height as u64).div_ceil(window);
                    let x = copy_cases::operand(g, ints, dtype, dtype, &[c, window, window, n]);
                    g.win_unpart(x, width, height);
                },
            ));
        }
    }
    cases.push(Case::new("channels outermost in memory", |g, _| {
        let x = g.input("x", DType::F32, &[4, 4, 5, 4]);
        let x = g.permute(x, [2, 0, 1, 3]); // [5, 4, 4, 4]
        g.win_unpart(x, 8, 7);
    }));
    cases
}
