//! cache[:, ids[i]] = rows[:, i], converted, in place; ids outside write nothing; of rows for one id the last stays.
//!
//! The library writes rows of one id in any order and faults on an id outside. So every row that is not to be written
//! becomes one that changes nothing: rows for one id all get the values of the last, and rows for ids outside get id 0
//! with the values that row 0 will have: those of the last row for it, or those it has.

use super::check::{self, Answer, ensure};
use super::ids;
use super::steps::{EXACT, has};
use super::weights::MAX_BATCHES;
use super::{missing, source};
use crate::call::{Call, Key, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{DType, NodeView, Reason, Result, TensorView};

/// Rows at a time: every row is compared with every other.
const MAX_ROWS: usize = 8192;

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnMuls, math.aclnnAdds, math.aclnnInplaceFillScalar)?;
    has!(cann, nn.aclnnInplaceIndexCopy, nn.aclnnGatherV2, math.aclnnArgMax, math.aclnnAbs, math.aclnnClamp)?;
    has!(cann, math.aclnnInplaceCopy, math.aclnnArange, math.aclnnSub, math.aclnnMul, math.aclnnCast)?;
    let (cache, rows, ids) = (check::given(node, 0)?, check::floats(chip, node, 1)?, check::ints(node, 2)?);
    let float = matches!(cache.dtype(), Some(DType::F32 | DType::F16));
    ensure(float || (chip.bf16 && cache.dtype() == Some(DType::BF16)), Reason::Type)?;
    check::whole_strides(&cache)?;
    let ([n, slots, b, c], [r, ids_b, ids_c, _]) = (cache.ne(), ids.ne());
    ensure(slots <= EXACT && r <= MAX_ROWS && b * c <= MAX_BATCHES, Reason::Shape)?;
    ensure(ids_b > 0 && ids_c > 0 && b % ids_b == 0 && c % ids_c == 0, Reason::Shape)?;
    let in_rows = rows.ne() == [n, r, b, c];
    ensure(in_rows || is_heads(&rows, n, r), Reason::Shape)
}

/// [head_dim, n_heads, r] whose heads follow each other without gaps in a row.
fn is_heads(rows: &TensorView<'_>, n: usize, r: usize) -> bool {
    let ([d, heads, tokens, more], nb) = (rows.ne(), rows.nb());
    d * heads == n && tokens == r && more == 1 && (heads == 1 || nb[1] == nb[0] * d)
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (cache, rows) = (source(node, 0)?, source(node, 1)?);
    let ids = node.src(2).ok_or_else(missing)?;
    let [r, ids_b, ids_c, _] = ids.ne().map(|n| n as i64);
    if r == 0 {
        return Ok(());
    }
    let [n, slots, b, c] = [0, 1, 2, 3].map(|d| cache.ne[d]);
    let rows = if rows.ne == [n, r, b, c] { rows } else { join_heads(&rows, n) };
    let targets: Vec<Targets> = (0..ids_b * ids_c)
        .map(|i| Targets::of(call, &ids, slots, i % ids_b, i / ids_b))
        .collect::<Result<_>>()?;
    for (ib, ic) in (0..c).flat_map(|ic| (0..b).map(move |ib| (ib, ic))) {
        let of = |t: &Operand| t.slice(2, ib, 1).slice(3, ic, 1).flat(2);
        let targets = &targets[(ic % ids_c * ids_b + ib % ids_b) as usize];
        call.scoped(|call| write(call, &of(&cache), &of(&rows), targets))?;
    }
    Ok(())
}

/// Heads as rows [n, r, 1, 1].
fn join_heads(rows: &Operand, n: i64) -> Operand {
    let (r, stride) = (rows.ne[2], rows.stride[2]);
    Operand { ne: vec![n, r, 1, 1], stride: vec![rows.stride[0], stride, 0, 0], ..rows.clone() }
}

/// Where rows go, and which row's values they get.
struct Targets {
    /// I32 [r]: the row of the cache.
    slot: Operand,
    /// I32 [r]: the row; r stands for what row 0 of the cache is now.
    from: Operand,
}

impl Targets {
    fn of(call: &mut Call<'_>, t: &TensorView<'_>, n_slots: i64, b: i64, c: i64) -> Result<Targets> {
        let r = t.ne()[0] as i64;
        let ids = Operand::of(t)?.slice(1, b, 1).slice(2, c, 1).flat(1);
        let key = |what| {
            let numbers = [n_slots, b, c].map(i64::to_ne_bytes).concat();
            Key(what, vec![t.id()], numbers)
        };
        let from = call.shared(key("rows' sources"), ACL_INT32, &[r], |call, from| {
            let (slot, valid) = slots(call, &ids, n_slots)?;
            last_of_each(call, &slot, &valid, from)
        })?;
        let slot = call.shared(key("rows' slots"), ACL_INT32, &[r], |call, slot| {
            let (exact, _) = slots(call, &ids, n_slots)?;
            call.convert(&exact, slot)
        })?;
        Ok(Targets { slot, from })
    }
}

/// F32: the ids, 0 for those outside; and 1 where they are inside, else 0.
fn slots(call: &mut Call<'_>, ids: &Operand, n_slots: i64) -> Result<(Operand, Operand)> {
    let (slot, valid) = (call.cast(ids, ACL_FLOAT)?, call.temporary(ACL_FLOAT, &ids.ne)?);
    ids::in_range(call, &slot, n_slots, &valid)?;
    call.mul(&slot, &valid, &slot)?;
    Ok((slot, valid))
}

/// For each row the last valid one with the same slot, or r: the place of the largest of
/// same(i, j) · valid(j) · (j + 1) over j, followed by ½.
fn last_of_each(call: &mut Call<'_>, slot: &Operand, valid: &Operand, from: &Operand) -> Result<()> {
    let r = slot.ne[0];
    let rank = call.temporary(ACL_FLOAT, &[r])?;
    call.count(1.0, 1.0, &rank)?;
    call.mul(&rank, valid, &rank)?;
    let scores = call.temporary(ACL_FLOAT, &[r + 1, r])?;
    let same = scores.slice(0, 0, r);
    call.sub(slot, &slot.with_dim(0), &same)?;
    call.abs(&same, &same)?;
    call.clamp(&same, 0.0, 1.0, &same)?;
    call.affine(&same, -1.0, 1.0, &same)?;
    call.mul(&same, &rank, &same)?;
    call.fill(&scores.slice(0, r, 1), 0.5)?;
    call.arg_max(&scores, 0, &from.with_dim(0))
}

/// Rows [n, r] into the cache [n, slots].
fn write(call: &mut Call<'_>, cache: &Operand, rows: &Operand, targets: &Targets) -> Result<()> {
    let (n, r) = (cache.ne[0], rows.ne[1]);
    let all = call.temporary(cache.dtype, &[n, r + 1])?;
    call.copy(rows, &all.slice(1, 0, r))?;
    call.copy(&cache.slice(1, 0, 1), &all.slice(1, r, 1))?;
    let chosen = call.temporary(cache.dtype, &[n, r])?;
    call.gather(&all, 1, &targets.from, &chosen)?;
    let (cache, slot, chosen) = (call.tensor(cache)?, call.tensor(&targets.slot)?, call.tensor(&chosen)?);
    run!(call, nn.aclnnInplaceIndexCopy(cache, 0, slot, chosen))
}
