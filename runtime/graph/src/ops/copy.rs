//! y = x without gaps, converted to another dtype, as ggml's dup and cont. Reads rows with gaps (permuted dim 0).
//!
//! Plain dtypes become each other: floats round to nearest; integers drop the fraction and saturate, NaN becomes 0 (in
//! ggml, on x86, both give the smallest integer).
//! Any float or quantised dtype becomes any that can be encoded. A quantised dtype becomes itself block by block.
//!
//! Result: the dtype of the params, the shape of x.

use super::{Inferred, Rules, case::Case, check, copy_cases, moves, value::Value};
use crate::graph::Graph;
use crate::quant;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, dtype::DTypeKind, op::CopyParams};

impl Graph {
    /// A contiguous copy.
    pub fn cont(&mut self, x: Tensor) -> Tensor {
        self.cast(x, self.def(x).dtype)
    }

    /// A contiguous copy in another dtype.
    pub fn cast(&mut self, x: Tensor, dtype: DType) -> Tensor {
        self.push(Op::Copy, &[Some(x)], &CopyParams { dtype: dtype.id() }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let id = check::params(CopyParams::from_bytes(params))?.dtype;
    let to = DType::from_id(id).ok_or_else(|| format!("dtype number {id} is unknown"))?;
    let x = moves::any(src, 0, "x")?;
    convertible(x.dtype, to)?;
    if x.ne[0] % to.block_elems() as u64 != 0 {
        return Err(format!("rows of {} are not whole blocks of {to}", x.ne[0]));
    }
    Ok((to, x.ne))
}

/// Whether elements of one dtype become those of another.
pub(super) fn convertible(from: DType, to: DType) -> Result<(), String> {
    let is_int = |t: DType| t.info().kind == DTypeKind::Int;
    let possible = match (is_int(from), is_int(to)) {
        (true, true) => true,
        (true, false) => !to.is_quantised(),
        (false, true) => !from.is_quantised(),
        (false, false) => from == to || (quant::is_supported(from) && quant::can_encode(to)),
    };
    possible.then_some(()).ok_or_else(|| format!("{from} cannot become {to}"))
}

/// The conversion itself is how a value is encoded.
fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    check::arg(src, 0).clone()
}

/// What becomes what, in the forms that rows have.
fn cases() -> Vec<Case> {
    copy_cases::conversions(|g, x, dtype| {
        g.cast(x, dtype);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::check;
    use crate::ops::value::Data;

    #[test]
    fn floats_become_integers_without_their_fraction_and_within_their_range() {
        for (to, expected) in [
            (DType::I8, [2., -2., 0., 127., -128.]),
            (DType::I16, [2., -2., 0., 300., -300.]),
            (DType::I64, [2., -2., 0., 300., -300.]),
        ] {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[5]);
                g.cast(x, to)
            };
            check(build, &[("x", Data::F32(vec![2.9, -2.9, f32::NAN, 300., -300.]))], &expected);
        }
    }

    #[test]
    fn a_copy_of_blocks_has_their_bytes() {
        let mut g = Graph::new();
        let x = g.input("x", DType::IQ2_XS, &[512, 2]);
        let y = g.cont(x);
        let mut memory = crate::reference::Memory::new();
        let bytes: Vec<u8> = (0..296u32).map(|i| (i * 7) as u8).collect();
        memory.set_bytes(x, bytes.clone());
        crate::reference::run(&g, &mut memory).unwrap();
        assert_eq!(memory.bytes(y).unwrap(), bytes);
    }
}
