//! y[slot, token] = 0 where the token's query may see the key in that slot of the paged cache, -inf elsewhere.

use super::check::{self, Answer, ensure};
use super::paging::{self, Paging, Reach, Sizes};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::PagedMaskParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(PagedMaskParams::from_bytes(node.params_bytes()))?;
    ensure(p.block_size > 0, Reason::Param)?;
    paging::supports(node, 0)?;
    check::result(node, DType::F32, [p.n_slots as usize, p.n_tokens as usize, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(PagedMaskParams::from_bytes);
    let (n_slots, n_tokens) = (p.n_slots as usize, p.n_tokens as usize);
    let sizes = Sizes { block_size: p.block_size, n_slots, n_tokens };
    let reach = Reach { window: p.window, chunk: p.chunk, bidirectional: p.bidirectional != 0 };
    let paging = Paging::new(a, 0, sizes, reach, &mut w.scratch.starts);
    for ([token, ..], y) in out.rows() {
        let y = y.floats();
        y.fill(f32::NEG_INFINITY);
        for seq in (0..paging.lens.len()).filter(|&seq| paging.queries(seq).contains(&token)) {
            let visible = paging.visible(seq, token);
            // Positions past the table have no slot; stopping there bounds the walk.
            let end = visible.end.min(paging.table.ne[0].saturating_mul(paging.block_size));
            (visible.start..end).filter_map(|key| paging.slot(seq, key)).for_each(|slot| y[slot] = 0.0);
        }
    }
}
