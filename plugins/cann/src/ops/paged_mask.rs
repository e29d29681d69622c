//! y[slot, token] = 0 where the token may see the key in that slot of the paged cache, -inf elsewhere.
//!
//! Slot (offset, block) is seen if some entry of the token's row of the block table names the block, and the position
//! (offset, entry) is seen: a product over entries for each token, of zeros and ones.

use super::check::{self, Answer, ensure};
use super::paging::{self, Paging};
use super::steps::has;
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::PagedMaskParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

/// Entries times blocks times tokens.
const MAX_ELEMENTS: usize = 1 << 26;

pub fn supports(cann: &Cann, _chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, nn.aclnnMatmul, math.aclnnLog, math.aclnnAbs)?;
    let p = check::params(PagedMaskParams::from_bytes(node.params_bytes()))?;
    let (n_slots, n_tokens, block_size) = (p.n_slots as usize, p.n_tokens as usize, p.block_size as usize);
    ensure(p.bidirectional == 0 && p.chunk == 0, Reason::Param)?;
    ensure(block_size > 0 && n_slots % block_size.max(1) == 0, Reason::Param)?;
    paging::supports(cann, node, 0, n_slots, block_size)?;
    let entries = check::given(node, 0)?.ne()[0];
    let size = entries.saturating_mul(n_slots / block_size).saturating_mul(n_tokens);
    ensure(size <= MAX_ELEMENTS && n_slots.saturating_mul(n_tokens) <= MAX_ELEMENTS, Reason::Shape)?;
    check::result(node, Some(DType::F32), [n_slots, n_tokens, 1, 1])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = PagedMaskParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (n_slots, n_tokens, block_size) =
        (i64::from(p.n_slots), i64::from(p.n_tokens), i64::from(p.block_size));
    let n_blocks = n_slots / block_size;
    let paging = Paging::of(node, 0, n_tokens, block_size, n_blocks, p.window)?;
    let (sees, table) = (paging.sees(call)?, paging.blocks_of_tokens(call)?);
    let entries = paging.max_blocks();

    let numbers = call.temporary(ACL_FLOAT, &[n_blocks])?;
    call.count(0.0, 1.0, &numbers)?;
    let table = call.cast(&table, ACL_FLOAT)?;
    let names = call.temporary(ACL_FLOAT, &[entries, n_blocks, n_tokens])?;
    call.sub(&table.with_dim(1), &numbers.with_dim(0), &names)?;
    call.abs(&names, &names)?;
    call.clamp(&names, 0.0, 1.0, &names)?;
    call.affine(&names, -1.0, 1.0, &names)?;

    // [block_size, n_blocks, n_tokens] = Σ over entries
    let sees = sees.reshape(&[block_size, entries, n_tokens]).permute(&[1, 0, 2]);
    let seen = call.temporary(ACL_FLOAT, &[block_size, n_blocks, n_tokens])?;
    call.product(&sees, &names, &seen)?;
    call.clamp(&seen, 0.0, 1.0, &seen)?;
    // ln 1 = 0, ln 0 = -inf
    call.log(&seen.reshape(&[n_slots, n_tokens]), &Operand::of(&node.dst())?.flat(2))
}
