//! y[c, t, s] = Σₖ kernel[k, c] · x[t + k, c, s]: each channel's last taps, the newest by the last of the kernel (ggml's
//! layout: x holds the taps before the first token, then the tokens, along dim 0).
//!
//! Result: F32 [n_inner, n_tokens, n_seqs] of x F32 [k - 1 + n_tokens, n_inner, n_seqs] and kernel F32 [k, n_inner].

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Causal convolution of every channel of `x` [n_taps - 1 + n_tokens, n_inner, n_seqs] with its own kernel of
    /// `kernel` [n_taps, n_inner]: [n_inner, n_tokens, n_seqs].
    pub fn ssm_conv(&mut self, x: Tensor, kernel: Tensor) -> Tensor {
        self.push(Op::SsmConv, &[Some(x), Some(kernel)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let (x, kernel) = (check::floats(src, 0, "x")?.ne, check::floats(src, 1, "kernel")?.ne);
    if kernel[2] != 1 || kernel[3] != 1 || x[3] != 1 {
        return Err(format!("x {x:?} and kernel {kernel:?}, expected three and two dims"));
    }
    if x[1] != kernel[1] {
        return Err(format!("x has {} channels, the kernel {}", x[1], kernel[1]));
    }
    match x[0].checked_add(1).and_then(|n| n.checked_sub(kernel[0])) {
        Some(n_tokens) => Ok((DType::F32, [x[1], n_tokens, x[2], 1])),
        None => Err(format!(
            "x has {} elements per channel, fewer than the {} taps before a token",
            x[0],
            kernel[0].saturating_sub(1)
        )),
    }
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (x, kernel) = (check::arg(src, 0), check::arg(src, 1));
    let [len, n_inner, n_seqs, _] = x.ne.map(|n| n as usize);
    let n_taps = kernel.ne[0] as usize;
    let n_tokens = len + 1 - n_taps;
    let mut y = vec![];
    for seq in 0..n_seqs {
        for token in 0..n_tokens {
            for channel in 0..n_inner {
                let taps = &x.row(seq * n_inner + channel)[token..token + n_taps];
                y.push(taps.iter().zip(kernel.row(channel)).map(|(x, k)| x * k).sum());
            }
        }
    }
    Value::f32([n_inner as u64, n_tokens as u64, n_seqs as u64, 1], y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for n_taps in [1, 2, 3, 4, 9] {
        for (n_inner, n_tokens, n_seqs) in [
            (1, 1, 1),
            (3, 2, 1),
            (16, 1, 4),
            (33, 7, 2),
            (256, 1, 1),
            (64, 64, 1),
            (48, 33, 3),
            (1536, 1, 2),
        ] {
            let name = format!("{n_taps} taps, {n_inner} channels, {n_seqs} × {n_tokens} tokens");
            cases.push(Case::new(name, |g, _| {
                let x = g.input("x", DType::F32, &[n_taps - 1 + n_tokens, n_inner, n_seqs]);
                let kernel = g.weight("kernel", DType::F32, &[n_taps, n_inner], Role::Matrix);
                g.ssm_conv(x, kernel);
            }));
        }
    }
    cases.push(Case::new("parts of a longer x", |g, _| {
        let x = g.input("x", DType::F32, &[40, 24, 5]);
        let part = g.slice(x, 0, 3, 20);
        let part = g.slice(part, 1, 2, 17);
        let part = g.slice(part, 2, 1, 3);
        let kernel = g.weight("kernel", DType::F32, &[8, 17], Role::Matrix);
        let taps = g.slice(kernel, 0, 2, 4);
        g.ssm_conv(part, taps);
    }));
    cases.push(Case::new("channels and sequences exchanged", |g, _| {
        let x = g.input("x", DType::F32, &[9, 3, 10]);
        let x = g.permute(x, [0, 2, 1, 3]);
        let kernel = g.weight("kernel", DType::F32, &[4, 10], Role::Matrix);
        g.ssm_conv(x, kernel);
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn the_last_tap_is_multiplied_with_the_newest_element() {
        let build = |g: &mut Graph| {
            let x = g.input("x", DType::F32, &[3, 2]);
            let kernel = g.input("kernel", DType::F32, &[2, 2]);
            g.ssm_conv(x, kernel)
        };
        let x = floats(&[1., 2., 3., 4., 5., 6.]);
        let kernel = floats(&[1., 10., 2., 100.]);
        check(build, &[("x", x), ("kernel", kernel)], &[21., 508., 32., 610.]);
    }
}
