//! Gate, up and activation of few columns as one launch: kernels/mul_mat_gated.cu and kernels/mul_mat_eight.cu.

use super::check::is_number;
use super::mul_mat::{self, WARPS, at_once, blocks, name_of_few, quantise};
use super::{fuse, source};
use crate::call::{Args, Call, address};
use crate::layout::kernel_type;
use llmrt_plugin::abi::op::GluParams;
use llmrt_plugin::{NodeView, Op, Result, TensorView};

/// Two products of one x and the gated unit of both, or a product whose rows are gates and ups and the unit of it, as one
/// launch after that which packs x. How many nodes; 0: none.
pub fn fused(call: &mut Call<'_>, nodes: &[NodeView<'_>]) -> Result<usize> {
    let Some(unit) = Unit::of(nodes) else { return Ok(0) };
    if !unit.is_safe()? {
        return Ok(0);
    }
    unit.launch(call)?;
    Ok(unit.products.len() + 1)
}

struct Unit<'a> {
    /// One or two, in their order.
    products: &'a [NodeView<'a>],
    glu: NodeView<'a>,
    /// Rows of the gate, which product and from where, and of up.
    gate: (usize, usize),
    up: (usize, usize),
}

impl<'a> Unit<'a> {
    fn of(nodes: &'a [NodeView<'a>]) -> Option<Unit<'a>> {
        let n = nodes.iter().take(3).position(|node| node.op() == Some(Op::Glu)).filter(|n| *n > 0)?;
        let (products, glu) = (&nodes[..n], nodes[n]);
        let is_product = |node: &NodeView<'_>| matches!(node.op(), Some(Op::MulMat | Op::MulMatId));
        if !products.iter().all(|node| is_product(node) && mul_mat::has_few(node))
            || (n == 2 && !is_pair(&products[0], &products[1])?)
        {
            return None;
        }
        let product_of =
            |i| products.iter().position(|node| glu.src(i).is_some_and(|t| t.id() == node.dst().id()));
        let (gate, up) = match (n, glu.src(1)) {
            (2, Some(_)) => ((product_of(0)?, 0), (product_of(1)?, 0)),
            (1, None) => {
                let half = glu.dst().ne()[0];
                let is_swapped = GluParams::from_bytes(glu.params_bytes())?.swapped == 1;
                let i = product_of(0)?;
                if is_swapped { ((i, half), (i, 0)) } else { ((i, 0), (i, half)) }
            }
            _ => return None,
        };
        (n == 1 || gate.0 != up.0).then_some(Unit { products, glu, gate, up })
    }

    /// Whether what the kernel writes is none of what it, or the packing of x before it, reads as another node's result.
    fn is_safe(&self) -> Result<bool> {
        let y = self.glu.dst();
        let mut safe = true;
        for (i, node) in self.products.iter().enumerate() {
            let (result, x) = (node.dst(), source(node, 1)?);
            // Packed, x is read before anything is written; but what the first product writes, the second would read.
            let reads_x = is_number(&source(node, 0)?);
            safe &= fuse::apart(&result, &x)? || !(reads_x || i + 1 < self.products.len());
            safe &= fuse::apart(&y, &x)? || !reads_x;
            safe &= match self.products.len() {
                // One thread has a gate, its up, and what comes of them.
                2 => fuse::apart_or_same(&y, &result)?,
                _ => fuse::apart(&y, &result)?,
            };
            for other in self.products {
                for t in [other.src(0), other.src(2)].into_iter().flatten() {
                    safe &= fuse::apart(&result, &t)? && fuse::apart(&y, &t)?;
                }
            }
        }
        if let [a, b] = self.products {
            safe &= fuse::apart(&a.dst(), &b.dst())?;
            // By themselves they would be added up in two orders.
            safe &= mul_mat::is_scattered(&source(a, 0)?)? == mul_mat::is_scattered(&source(b, 0)?)?;
        }
        Ok(safe)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<()> {
        let node = &self.products[self.gate.0];
        let (w, x, y) = (source(node, 0)?, source(node, 1)?, self.glu.dst());
        let [m, n, ..] = y.ne();
        let is_packed = !is_number(&w);
        let packed = if is_packed { quantise(call, &x)? } else { 0 };
        let is_scattered = mul_mat::is_scattered(&w)?;
        let at_once = if !is_scattered && node.src(2).is_none() { at_once(n) } else { 1 };
        let result = |(i, first): (usize, usize)| part(&self.products[i].dst(), 0, first, m);
        let up_w = source(&self.products[self.up.0], 0)?;
        let up_w = address(&up_w)? + (self.up.1 * up_w.nb()[1]) as u64;
        let p = GluParams::from_bytes(self.glu.params_bytes()).unwrap_or_default();
        let args = part(&w, 1, self.gate.1, m)?.tensor(&x)?.then(result(self.gate)?);
        let args = args.optional(node.src(2))?.address(packed).then(result(self.up)?).tensor(&y)?;
        let args = args.address(up_w).int(p.activation).float(p.alpha).float(p.limit);
        let name = format!("gated_{}_{at_once}", name_of_few(&w)?);
        // A warp takes as many rows of both as it would of one.
        let rows = if is_scattered { 1 } else { mul_mat::rows_of_a_warp(at_once) / 2 };
        let [batches, groups] = blocks(y.ne(), at_once);
        let grid = [m.div_ceil(rows * WARPS), batches, groups];
        let family = mul_mat::family_of_few(&w, at_once).unwrap_or("mul_mat_gated");
        call.launch((family, &name), grid, WARPS * 32, args)
    }
}

/// Whether two products are of matrices laid out alike, with the same x and, for experts, the same ids. `None`: a source
/// is missing.
fn is_pair(a: &NodeView<'_>, b: &NodeView<'_>) -> Option<bool> {
    let (v, w) = (a.src(0)?, b.src(0)?);
    let is_alike = kernel_type(&v) == kernel_type(&w) && v.ne() == w.ne() && v.nb() == w.nb();
    let id = |t: Option<TensorView<'_>>| t.map(|t| t.id());
    let is_same = id(a.src(1)) == id(b.src(1)) && id(a.src(2)) == id(b.src(2));
    Some(a.op() == b.op() && is_alike && is_same)
}

/// `struct Tensor` of the kernels: `n` of dim `d` from `first` on.
fn part(t: &TensorView<'_>, d: usize, first: usize, n: usize) -> Result<Args> {
    let (mut ne, nb) = (t.ne(), t.nb());
    ne[d] = n;
    let at = address(t)? + (first * nb[d]) as u64;
    Ok(ne.into_iter().chain(nb).fold(Args::default().address(at), Args::count).count(kernel_type(t) as usize))
}
