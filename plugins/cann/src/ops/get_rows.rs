//! y[:, i] = table[:, ids[i]], zeros for ids outside; of plain tables and of sealed ones.

use super::check::{self, Answer, ensure};
use super::ids::{self, Ids};
use super::packed::Packed;
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
    ids::can_read(cann)?;
    has!(cann, nn.aclnnGatherV2)?;
    let (table, ids) = (check::given(node, 0)?, check::ints(node, 1)?);
    ensure((1..=EXACT).contains(&table.ne()[1]), Reason::Shape)?;
    let dtype = match table.dtype() {
        Some(DType::I32) => {
            check::whole_strides(&table)?;
            DType::I32
        }
        _ if weights::is_quantised(&table) => {
            weights::can_decode(cann, &table)?;
            DType::F32
        }
        _ => {
            check::floats(chip, node, 0)?;
            DType::F32
        }
    };
    ensure(table.ne()[2] * table.ne()[3] <= weights::MAX_BATCHES, Reason::Shape)?;
    let [k, b, c, _] = ids.ne();
    check::result(node, Some(dtype), [table.ne()[0], k, b, c])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (table, ids) = (node.src(0).ok_or_else(missing)?, node.src(1).ok_or_else(missing)?);
    let (y, ids) = (Operand::of(&node.dst())?, ids::of(call, &ids, table.ne()[1] as i64)?);
    let (sealed, packed) = (Sealed::of(&table)?, Packed::of(&table)?);
    let [n, n2] = [1, 2].map(|d| table.ne()[d] as i64);
    let batches = (0..y.ne[3]).flat_map(|c| (0..y.ne[2]).map(move |b| (b, c)));
    for (b, c) in batches {
        let of = |t: &Operand, dim| t.slice(dim, b, 1).slice(dim + 1, c, 1).flat(dim);
        let (ids, y) = (Ids { index: of(&ids.index, 1), valid: of(&ids.valid, 1) }, of(&y, 2));
        let first = (c * n2 + b) * n;
        call.scoped(|call| match (&sealed, &packed) {
            (Some(table), _) => {
                let rows = table.part(first, n).picked_rows(call, &ids.index)?;
                let picked = call.temporary(ACL_FLOAT, &y.ne)?;
                sealed::decode(call, &rows, &picked)?;
                call.mul(&picked, &ids.valid.with_dim(0), &y)
            }
            (_, Some(table)) => {
                let bytes = call.picked(&table.part(first, n).bytes, 1, &ids.index)?;
                let picked = call.temporary(ACL_FLOAT, &y.ne)?;
                table.with(bytes).decode(call, &picked)?;
                call.mul(&picked, &ids.valid.with_dim(0), &y)
            }
            _ => plain(call, &of(&Operand::of(&table)?, 2), &ids, &y),
        })?;
    }
    Ok(())
}

/// [n, k] from [n, m].
fn plain(call: &mut Call<'_>, table: &Operand, ids: &Ids, y: &Operand) -> Result<()> {
    let picked = call.temporary(table.dtype, &y.ne)?;
    call.gather(table, 1, &ids.index, &picked)?;
    let picked = call.to(&picked, y.dtype)?;
    let valid = call.to(&ids.valid, y.dtype)?;
    call.mul(&picked, &valid.with_dim(0), y)
}
