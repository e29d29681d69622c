//! Weights of listed rows or columns, after some numbers of their lists have changed: they are written again where they are.

use super::bytes::Bytes;
use super::place::Item;
use super::storage::bring;
use super::weights::{Placed, WeightRequest, Weights};
use super::{Error, ModelFiles, Result};

/// What writing a weight again costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RewriteCost {
    /// Bytes of each changed row or column, where these alone are written.
    pub each: u64,
    /// Else bytes of the weight, which is written as a whole, since the device has it in another layout.
    pub whole: u64,
    /// Bytes of a row or column in the file.
    pub unit: u64,
}

impl std::ops::Add for RewriteCost {
    type Output = RewriteCost;

    fn add(self, b: RewriteCost) -> RewriteCost {
        RewriteCost { each: self.each + b.each, whole: self.whole + b.whole, unit: self.unit + b.unit }
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
        let is_together = request.ne[1] == n || request.ne[1] == 1;
        let unit = n_bytes / n.max(1);
        Ok(match placed.layout_id == 0 && is_together {
            true => RewriteCost { each: unit, whole: 0, unit },
            false => RewriteCost { each: 0, whole: n_bytes, unit },
        })
    }

    /// Writes a part again whose list is now that of `request`, after its numbers at `changed` have changed, and returns the bytes
    /// that were written. No work uses the weight meanwhile. After an error its bytes are any.
    pub fn rewrite(&self, files: &ModelFiles, request: &WeightRequest, changed: &[u32]) -> Result<u64> {
        let cost = self.rewrite_cost(request)?;
        let Placed { buffer, offset, layout_id, .. } = self.found(request)?;
        let (info, pieces) = request.find(files)?;
        let item = Item { request, info, pieces };
        let (bytes, mut scratch) = (Bytes { files, maps: &[] }, Vec::new());
        let desc = request.desc(*offset);
        let failed = |source| Error::tensor(request, source);
        if cost.whole == 0 {
            for &i in changed {
                let at = u64::from(i) * cost.each;
                let row = bytes.get_of(&item, at, cost.each, &mut scratch)?;
                buffer.set(&desc, row, at).map_err(failed)?;
            }
            return Ok(cost.of(changed.len() as u64));
        }
        buffer.unseal(&desc).map_err(failed)?;
        let (layout, problem) = bring(&item, buffer, *offset, &bytes, &mut scratch, &mut |_| Ok(()))?;
        match layout.id == *layout_id {
            true => Ok(cost.whole),
            false => Err(Error::OtherLayout {
                tensor: request.name.clone(),
                device: request.device.name().into(),
                problem: problem.unwrap_or_else(|| format!("layout {} after {layout_id}", layout.id)),
            }),
        }
    }

    fn found(&self, request: &WeightRequest) -> Result<&Placed> {
        let found = self.get(&request.name, request.row);
        found.ok_or_else(|| Error::MissingTensor { tensor: request.name.clone() })
    }
}
