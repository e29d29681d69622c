//! Weights of listed rows or columns, after some numbers of their lists have changed: they are written again where they are.

use super::bytes::Bytes;
use super::place::Item;
use super::storage::{bring, upload};
use super::weights::{Placed, WeightRequest, Weights};
use super::{Error, ModelFiles, Result};
use llmrt_graph::rows::Part;

/// What writing a weight again costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RewriteCost {
    /// Bytes of each changed row or column, where these alone are written.
    pub each: u64,
    /// Else bytes of the weight, which is written as a whole, since the device has it in another layout.
    pub whole: u64,
}

impl std::ops::Add for RewriteCost {
    type Output = RewriteCost;

    fn add(self, b: RewriteCost) -> RewriteCost {
        RewriteCost { each: self.each + b.each, whole: self.whole + b.whole }
    }
}

impl RewriteCost {
    /// Bytes for so many changes.
    pub fn of(self, n_changed: u64) -> u64 {
        self.whole.saturating_add(self.each.saturating_mul(n_changed))
    }
}

impl Weights {
    /// What changes of a part's list cost.
    pub fn rewrite_cost(&self, request: &WeightRequest) -> Result<RewriteCost> {
        let placed = self.found(request)?;
        let n_rows: u64 = request.ne[1..].iter().product();
        let n_bytes = request.dtype.row_bytes(request.ne[0]).unwrap_or(0) * n_rows;
        let n = request.listed.as_ref().map_or(0, |list| list.len() as u64);
        // Rows, or numbers of a vector: of each change the bytes are together.
        let is_of_rows = Part::of_name(&request.name).is_some_and(|part| part.is_of_rows());
        let is_together = is_of_rows || n_rows == 1;
        Ok(match placed.layout_id == 0 && is_together {
            true => RewriteCost { each: n_bytes / n.max(1), whole: 0 },
            false => RewriteCost { each: 0, whole: n_bytes },
        })
    }

    /// Writes a part again whose list is now that of `request`, after its numbers at `changed` have changed, and returns the bytes
    /// that were written. No work uses the weight meanwhile. After an error its bytes are any.
    pub fn rewrite(&self, files: &ModelFiles, request: &WeightRequest, changed: &[u32]) -> Result<u64> {
        let cost = self.rewrite_cost(request)?;
        let Placed { buffer, offset, layout_id, is_sealed, .. } = self.found(request)?;
        let (info, pieces) = request.find(files)?;
        let item = Item { request, info, pieces };
        let (bytes, mut scratch) = (Bytes { files, maps: &[] }, Vec::new());
        let desc = request.desc(*offset);
        let failed = |source| Error::tensor(request, source);
        buffer.unseal(&desc).map_err(failed)?;
        let (mut layout, mut problem) = (0, None);
        if cost.whole > 0 && *is_sealed {
            let brought = bring(&item, buffer, *offset, &bytes, &mut scratch, &mut |_| Ok(()))?;
            (layout, problem) = (brought.0.id, brought.1);
        } else if cost.whole > 0 {
            upload(&item, buffer, *offset, &bytes, &mut scratch, &mut |_| Ok(()))?;
        } else {
            for &i in changed {
                let at = u64::from(i) * cost.each;
                let row = bytes.get_of(&item, at, cost.each, &mut scratch)?;
                buffer.set(&desc, row, at).map_err(failed)?;
            }
            if *is_sealed {
                layout = buffer.seal(&desc).map_err(failed)?.id;
            }
        }
        match layout == *layout_id {
            true => Ok(cost.of(changed.len() as u64)),
            false => Err(Error::OtherLayout {
                tensor: request.name.clone(),
                device: request.device.name().into(),
                problem: problem.unwrap_or_else(|| format!("layout {layout} after {layout_id}")),
            }),
        }
    }

    fn found(&self, request: &WeightRequest) -> Result<&Placed> {
        let found = self.get(&request.name, request.row);
        found.ok_or_else(|| Error::MissingTensor { tensor: request.name.clone() })
    }
}
