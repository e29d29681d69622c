//! Products of one column by several matrices of one type as one launch, such as those for q, k and v: kernels/mul_mat.cu.

use super::check::is_number;
use super::mul_mat::{WARPS, is_scattered, name_of_few, product, quantise, rows_of_a_warp};
use super::{fuse, source};
use crate::call::{Args, Call};
use llmrt_plugin::{NodeView, Op, Result};

/// Two or three products of one x as one launch after that which packs x. How many nodes; 0: none.
pub fn fused(call: &mut Call<'_>, nodes: &[NodeView<'_>]) -> Result<usize> {
    let n_alike = nodes.iter().take(3).take_while(|node| are_alike(&nodes[0], node)).count();
    // A gate and its up are left to the kernel that has the gated unit, too.
    let glu = nodes.iter().take(5).position(|node| node.op() == Some(Op::Glu));
    let n_alike = n_alike.min(glu.map_or(3, |glu| glu.saturating_sub(2)));
    for n in (2..=n_alike).rev() {
        if fuse::independent(&nodes[..n], |_, _| false)? {
            launch(call, &nodes[..n])?;
            return Ok(n);
        }
    }
    Ok(0)
}

/// Whether both are products of the same single column by kernels of one name.
fn are_alike(first: &NodeView<'_>, node: &NodeView<'_>) -> bool {
    let of = |node: &NodeView<'_>| {
        let (w, x) = (node.src(0)?, node.src(1)?);
        let is_column = node.op() == Some(Op::MulMat) && node.dst().ne()[1..] == [1; 3];
        is_column.then_some((name_of_few(&w).ok()?, x.id()))
    };
    of(node).is_some_and(|it| of(first) == Some(it))
}

fn launch(call: &mut Call<'_>, nodes: &[NodeView<'_>]) -> Result<()> {
    let (w, x) = (source(&nodes[0], 0)?, source(&nodes[0], 1)?);
    let packed = if is_number(&w) { 0 } else { quantise(call, &x)? };
    let rows = if is_scattered(&w)? { 1 } else { rows_of_a_warp(1) };
    let (mut args, mut ends) = (Args::default(), [0; 3]);
    for i in 0..3 {
        // In place of a third one is the last again, which no block has.
        let node = nodes.get(i).unwrap_or(&nodes[nodes.len() - 1]);
        args = args.then(product(node, packed)?);
        let n_blocks = nodes.get(i).map_or(0, |node| node.dst().ne()[0].div_ceil(rows * WARPS));
        ends[i] = n_blocks + if i > 0 { ends[i - 1] } else { 0 };
    }
    let name = format!("mul_mats_{}_1", name_of_few(&w)?);
    call.launch(("mul_mat", &name), [ends[2], 1, 1], WARPS * 32, args.count(ends[0]).count(ends[1]))
}
