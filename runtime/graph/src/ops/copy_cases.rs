//! Cases of `copy` and `cpy`: every pair of dtypes, in the forms that rows have.

use super::case::Case;
use super::operand::NUMBERS;
use crate::graph::Graph;
use crate::quant;
use crate::tensor::{Role, Tensor};
use llmrt_abi::{DType, dtype::DTypeKind};

/// Every plain dtype.
pub(super) const PLAIN: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8, DType::I16, DType::I32, DType::I64];

/// What a view does to rows.
#[derive(Clone, Copy, Debug)]
enum Form {
    Whole,
    Permuted,
    Sliced,
}

/// Operands for a function that converts a tensor to a dtype: all pairs of dtypes that convert.
pub(super) fn conversions(convert: fn(&mut Graph, Tensor, DType)) -> Vec<Case> {
    let mut cases = vec![];
    for from in PLAIN {
        for to in PLAIN {
            for (form, ne) in
                [(Form::Whole, [65, 3, 2]), (Form::Permuted, [5, 7, 3]), (Form::Sliced, [41, 5, 2])]
            {
                cases.push(Case::new(format!("{from} to {to}, {form:?} {ne:?}"), |g, ints| {
                    let x = operand(g, ints, from, to, &ne);
                    let x = formed(g, x, form, 1);
                    convert(g, x, to);
                }));
            }
        }
        cases.push(Case::new(format!("{from}, dims the other way round"), |g, ints| {
            let x = operand(g, ints, from, from, &[5, 4, 3, 2]);
            let x = g.permute(x, [3, 2, 1, 0]);
            convert(g, x, from);
        }));
        cases.push(Case::new(format!("{from}, a row of 3001"), |g, ints| {
            let x = operand(g, ints, from, DType::F32, &[3001]);
            convert(g, x, DType::F32);
        }));
        cases.push(Case::new(format!("{from}, nothing"), |g, _| {
            let x = g.input("x", from, &[4, 0]);
            convert(g, x, DType::F32);
        }));
    }
    cases.extend(from_quantised(convert));
    cases.extend(to_quantised(convert));
    cases
}

fn from_quantised(convert: fn(&mut Graph, Tensor, DType)) -> Vec<Case> {
    let mut cases = vec![];
    for &from in DType::ALL.iter().filter(|&&t| t.is_quantised() && quant::is_supported(t)) {
        for to in [DType::F32, DType::F16, DType::BF16, from] {
            for (form, ne) in
                [(Form::Whole, [512, 3, 2]), (Form::Permuted, [256, 3, 2]), (Form::Sliced, [768, 4, 1])]
            {
                cases.push(Case::new(format!("{from} to {to}, {form:?} {ne:?}"), |g, _| {
                    let x = g.state("x", from, &ne, Role::KCache);
                    let x = formed(g, x, form, 256);
                    convert(g, x, to);
                }));
            }
        }
    }
    for (from, to) in [(DType::Q8_0, DType::Q4_0), (DType::Q4_0, DType::Q8_0), (DType::Q4_K, DType::Q8_0)] {
        cases.push(
            Case::new(format!("{from} to {to}"), |g, _| {
                let x = g.state("x", from, &[2304, 3], Role::KCache);
                convert(g, x, to);
            })
            .nmse(5e-4),
        );
    }
    cases
}

fn to_quantised(convert: fn(&mut Graph, Tensor, DType)) -> Vec<Case> {
    let mut cases = vec![];
    for &to in DType::ALL.iter().filter(|&&t| t.is_quantised() && quant::can_encode(t)) {
        for from in NUMBERS {
            for (form, ne) in
                [(Form::Whole, [2304, 3, 1]), (Form::Permuted, [3, 256, 2]), (Form::Sliced, [768, 4, 1])]
            {
                let build = |g: &mut Graph, _: &mut _| {
                    let x = g.input("x", from, &ne);
                    let x = formed(g, x, form, 256);
                    convert(g, x, to);
                };
                cases.push(Case::new(format!("{from} to {to}, {form:?} {ne:?}"), build).nmse(5e-4));
            }
        }
    }
    cases
}

/// A view of `x`. What is sliced has a block or element before it and, in dim 1, after it.
fn formed(g: &mut Graph, x: Tensor, form: Form, block: u64) -> Tensor {
    let ne = g.ne(x);
    match form {
        Form::Whole => x,
        Form::Permuted if g.def(x).dtype.is_quantised() => g.permute(x, [0, 2, 1, 3]),
        Form::Permuted => g.permute(x, [1, 2, 0, 3]),
        Form::Sliced => {
            let x = g.slice(x, 0, block, ne[0] - block);
            g.slice(x, 1, 1, ne[1] - 2)
        }
    }
}

/// An operand of `from` whose elements are worth converting to `to`: large and small integers, within the range where
/// `to` is finite; floats that integer types cut off.
pub(super) fn operand(
    g: &mut Graph,
    ints: &mut Vec<(Tensor, Vec<i32>)>,
    from: DType,
    to: DType,
    ne: &[u64],
) -> Tensor {
    let is_int = |t: DType| t.info().kind == DTypeKind::Int;
    if is_int(from) {
        let x = g.input("x", from, ne);
        let n = ne.iter().product::<u64>() as usize;
        ints.push((x, integers(from, to).into_iter().cycle().take(n).collect()));
        return x;
    }
    if is_int(to) {
        let x = g.input("x", DType::F32, ne);
        let x = g.scale(x, 40_000.0);
        return if from == DType::F32 { x } else { g.cast(x, from) };
    }
    g.input("x", from, ne)
}

/// Integers that fit `from` and, as floats, `to`.
fn integers(from: DType, to: DType) -> Vec<i32> {
    let edges = [0, 1, -1, 77, -100, 127, -128, 128, -129, 4097, 32767, -32768, 70_001, i32::MAX, i32::MIN];
    let largest = match (from, to) {
        (DType::I8, _) => 127,
        (DType::I16, _) => 32767,
        (_, DType::F16) => 65_000,
        _ => i32::MAX,
    };
    edges.into_iter().filter(|&v| v <= largest && v >= -largest - 1).collect()
}
