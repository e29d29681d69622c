//! y[:, i] = table[:, ids[i]], zeros for ids outside; of plain tables and of sealed ones.

use super::check::{self, Answer, ensure};
use super::ids::{self, Ids};
use super::sealed::{self, Sealed};
use super::steps::{EXACT, has};
use super::{missing, weights};
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, nn.aclnnGatherV2, math.aclnnCast, math.aclnnMul, math.aclnnClamp)?;
    let (table, ids) = (check::given(node, 0)?, check::ints(node, 1)?);
    ensure(table.ne()[1] <= EXACT, Reason::Shape)?;
    let dtype = match table.dtype() {
        Some(DType::I32) => {
            check::whole_strides(&table)?;
            DType::I32
        }
        _ if weights::is_quantised(&table) => {
            has!(cann, math.aclnnFloor)?;
            ensure(table.ne()[2..] == [1, 1], Reason::Shape)?;
            DType::F32
        }
        _ => {
            check::floats(chip, node, 0)?;
            DType::F32
        }
    };
    ensure(table.ne()[2] * table.ne()[3] <= weights::MOST_BATCHES, Reason::Shape)?;
    let [k, b, c, _] = ids.ne();
    check::result(node, Some(dtype), [table.ne()[0], k, b, c])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (table, ids) = (node.src(0).ok_or_else(missing)?, node.src(1).ok_or_else(missing)?);
    let (y, ids) = (Operand::of(&node.dst())?, ids::of(call, &ids, table.ne()[1] as i64)?);
    if let Some(table) = Sealed::of(&table)? {
        let picked = call.temporary(ACL_FLOAT, &y.ne[..2])?;
        let rows = picked_rows(call, &table, &ids.index.flat(1))?;
        sealed::decode(call, &rows, &picked)?;
        return call.mul(&picked, &ids.valid.flat(1).with_dim(0), &y.flat(2));
    }
    let table = Operand::of(&table)?;
    let batches = (0..y.ne[3]).flat_map(|c| (0..y.ne[2]).map(move |b| (b, c)));
    for (b, c) in batches {
        let of = |t: &Operand, dim| t.slice(dim, b, 1).slice(dim + 1, c, 1).flat(dim);
        let ids = Ids { index: of(&ids.index, 1), valid: of(&ids.valid, 1) };
        call.scoped(|call| plain(call, &of(&table, 2), &ids, &of(&y, 2)))?;
    }
    Ok(())
}

/// Rows of a sealed weight.
fn picked_rows(call: &mut Call<'_>, table: &Sealed, index: &Operand) -> Result<Sealed> {
    let mut pick = |of: &Operand| {
        let picked = call.temporary(of.dtype, &[of.ne[0], index.ne[0]])?;
        call.gather(of, 1, index, &picked)?;
        Ok(picked)
    };
    Ok(Sealed { int4: table.int4, bytes: pick(&table.bytes)?, scales: pick(&table.scales)? })
}

/// [n, k] from [n, m].
fn plain(call: &mut Call<'_>, table: &Operand, ids: &Ids, y: &Operand) -> Result<()> {
    let picked = call.temporary(table.dtype, &y.ne)?;
    call.gather(table, 1, &ids.index, &picked)?;
    let picked = call.to(&picked, y.dtype)?;
    let valid = call.to(&ids.valid, y.dtype)?;
    call.mul(&picked, &valid.with_dim(0), y)
}
