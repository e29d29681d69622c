//! y[:, j, t] = w[:, :, ids[j, t]] · x[:, j mod n_x, t]: each token's chosen experts; zeros for an id outside.
//!
//! The ids stay on the card. Formats that the vendor's operator for experts takes go to it. Of others, a few rows have
//! their experts' matrices gathered; many rows go through all experts, of which each row's own results are picked.

use super::check::{self, Answer, ensure};
use super::grouped::Groups;
use super::ids::{self, Ids};
use super::missing;
use super::sealed;
use super::source;
use super::steps::{EXACT, has};
use super::weights::{self, Weights};
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{DType, Error, NodeView, Reason, Result};

/// Elements of gathered matrices, or of results of all experts, at a time.
const MAX_ELEMENTS: i64 = 1 << 26;

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    ids::can_read(cann)?;
    has!(cann, math.aclnnSub, math.aclnnAbs, math.aclnnReduceSum, math.aclnnFloor)?;
    has!(cann, nn.aclnnGatherV2, math.aclnnArange, math.aclnnAdd)?;
    let (w, x) = (check::given(node, 0)?, check::floats(chip, node, 1)?);
    let ids = check::ints(node, 2)?;
    weights::supports(cann, chip, &w)?;
    let ([k, m, n_expert, n3], [used, tokens, ..]) = (w.ne(), ids.ne());
    ensure(n3 == 1 && k > 0 && n_expert > 0 && ids.ne()[2..] == [1, 1], Reason::Shape)?;
    let x_fits = x.ne()[0] == k && (x.ne()[1] == 1 || x.ne()[1] == used) && x.ne()[2..] == [tokens, 1];
    ensure(x_fits && used * tokens * n_expert <= EXACT && n_expert <= weights::MAX_BATCHES, Reason::Shape)?;
    check::result(node, Some(DType::F32), [m, used, tokens, 1])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (w, ids) = (node.src(0).ok_or_else(missing)?, node.src(2).ok_or_else(missing)?);
    let n_expert = w.ne()[2] as i64;
    let (x, y) = (source(node, 1)?.flat(3), Operand::of(&node.dst())?.flat(3));
    let [m, used, tokens] = [0, 1, 2].map(|d| y.ne[d]);
    let (n_x, experts) = (x.ne[1], Experts { w: Weights::of(&w)?, k: x.ne[0], m, n: n_expert });
    experts.groups().prepare(call)?;
    let ids = ids::of(call, &ids, n_expert)?;
    let operands = Operands { ids, x, y };
    let groups = experts.groups();
    if groups.fit(call) {
        let per_token = (experts.k + m + n_expert) * used;
        if call.attempt(|call| {
            operands.in_pieces(call, per_token, |call, part| groups.times(call, &part.x, &part.ids, &part.y))
        })? {
            return Ok(());
        }
    }
    // Gathering reads a matrix, writes it, and reads it again.
    match used * tokens * 3 <= n_expert || n_expert == 1 {
        true => operands.in_pieces(call, experts.k * m * used, |call, part| experts.gathered(call, part)),
        false => operands.in_pieces(call, m * n_x * n_expert, |call, part| experts.all(call, part)),
    }
}

/// What the node multiplies with experts' matrices.
struct Operands {
    ids: Ids,
    /// [k, 1 or used, tokens].
    x: Operand,
    /// [m, used, tokens].
    y: Operand,
}

impl Operands {
    /// Some tokens at a time, so that intermediate results of `per_token` elements stay small.
    fn in_pieces(
        &self,
        call: &mut Call<'_>,
        per_token: i64,
        times: impl Fn(&mut Call<'_>, &Operands) -> Result<()>,
    ) -> Result<()> {
        let tokens = self.y.ne[2];
        let at_a_time = (MAX_ELEMENTS / per_token).clamp(1, tokens);
        for start in (0..tokens).step_by(at_a_time as usize) {
            let n = at_a_time.min(tokens - start);
            let piece = |t: &Operand, dim| t.slice(dim, start, n);
            let (index, valid) = (piece(&self.ids.index, 1).flat(2), piece(&self.ids.valid, 1).flat(2));
            let part = Operands { ids: Ids { index, valid }, x: piece(&self.x, 2), y: piece(&self.y, 2) };
            call.scoped(|call| times(call, &part))?;
        }
        Ok(())
    }
}

/// Matrices [k, m, n].
struct Experts {
    w: Weights,
    k: i64,
    m: i64,
    n: i64,
}

impl Experts {
    fn groups(&self) -> Groups<'_> {
        Groups { w: &self.w, k: self.k, m: self.m, n: self.n }
    }

    /// Every expert for every row of x; then row (j, t) picks result id · n_rows + its own row.
    fn all(&self, call: &mut Call<'_>, part: &Operands) -> Result<()> {
        let Operands { ids, x, y } = part;
        let (m, n_x, tokens) = (self.m, x.ne[1], x.ne[2]);
        let n_rows = n_x * tokens;
        let x = call.dense(x, x.dtype)?.reshape(&[self.k, n_rows]);
        let results = call.temporary(ACL_FLOAT, &[m, n_rows, self.n])?;
        for e in 0..self.n {
            let result = results.slice(2, e, 1).flat(2);
            call.scoped(|call| self.one(e).times(call, &x, &result))?;
        }
        let place = call.cast(&ids.index, ACL_FLOAT)?;
        call.scale(&place, n_rows as f32, &place)?;
        let rows = call.temporary(ACL_FLOAT, &[tokens])?;
        call.count(0.0, n_x as f32, &rows)?;
        call.add(&place, &rows.with_dim(0), &place)?;
        if n_x > 1 {
            let within = call.temporary(ACL_FLOAT, &[n_x])?;
            call.count(0.0, 1.0, &within)?;
            call.add(&place, &within, &place)?;
        }
        let place = call.cast(&place.reshape(&[place.n_elements()]), ACL_INT32)?;
        let picked = call.temporary(ACL_FLOAT, &[m, place.ne[0]])?;
        call.gather(&results.reshape(&[m, n_rows * self.n]), 1, &place, &picked)?;
        call.mul(&picked.reshape(&y.ne), &ids.valid.with_dim(0), y)
    }

    /// Expert `e`.
    fn one(&self, e: i64) -> Weights {
        match &self.w {
            Weights::Plain(w) => Weights::Plain(w.slice(2, e, 1).flat(2)),
            quantised => quantised.rows(e * self.m, self.m),
        }
    }

    /// The chosen matrices beside each other, each times its row.
    fn gathered(&self, call: &mut Call<'_>, part: &Operands) -> Result<()> {
        let Operands { ids, x, y } = part;
        let (used, tokens) = (y.ne[1], y.ne[2]);
        let n = used * tokens;
        let index = call.dense(&ids.index, ACL_INT32)?.reshape(&[n]);
        let results = call.temporary(ACL_FLOAT, &[self.m, used, tokens])?;
        match &self.w {
            Weights::Plain(w) => {
                let chosen = call.temporary(w.dtype, &[self.k, self.m, n])?;
                call.gather(&w.flat(3), 2, &index, &chosen)?;
                self.times(call, &chosen, x, &results)?;
            }
            // Experts are in no blocks.
            Weights::Nz(_) => return Err(Error::unsupported("experts in blocks")),
            Weights::Packed(w) => {
                let chosen = w.with(self.rows(call, &w.bytes, &index)?);
                let plain = call.temporary(ACL_FLOAT, &[self.k, self.m * n])?;
                chosen.decode(call, &plain)?;
                self.times(call, &plain.reshape(&[self.k, self.m, n]), x, &results)?;
            }
            Weights::Sealed(w) => {
                let chosen = w.picked(call, &index)?;
                if Weights::Sealed(chosen.clone()).goes_in_groups(call) {
                    for (i, (t, j)) in (0..tokens).flat_map(|t| (0..used).map(move |j| (t, j))).enumerate() {
                        let row = x.slice(2, t, 1).slice(1, j % x.ne[1], 1).flat(2);
                        let result = results.slice(2, t, 1).slice(1, j, 1).flat(2);
                        let expert = chosen.part(i as i64 * self.m, self.m);
                        call.scoped(|call| Weights::Sealed(expert).times(call, &row, &result))?;
                    }
                } else {
                    let plain = call.temporary(ACL_FLOAT16, &[self.k, self.m * n])?;
                    sealed::decode(call, &chosen, &plain)?;
                    self.times(call, &plain.reshape(&[self.k, self.m, n]), x, &results)?;
                }
            }
        }
        call.mul(&results, &ids.valid.with_dim(0), y)
    }

    /// Rows [n, m · chosen] of the chosen experts, of [n, m · experts].
    fn rows(&self, call: &mut Call<'_>, of: &Operand, index: &Operand) -> Result<Operand> {
        let row = of.ne[0] * self.m;
        let picked = call.temporary(of.dtype, &[row, index.ne[0]])?;
        call.gather(&of.reshape(&[row, self.n]), 1, index, &picked)?;
        Ok(picked.reshape(&[of.ne[0], self.m * index.ne[0]]))
    }

    /// y [m, used, tokens] from w [k, m, used · tokens] and x [k, 1 or used, tokens].
    fn times(&self, call: &mut Call<'_>, w: &Operand, x: &Operand, y: &Operand) -> Result<()> {
        let w = w.reshape(&[self.k, self.m, y.ne[1], y.ne[2]]);
        let x = call.dense(x, ACL_FLOAT)?.with_dim(1);
        let y = y.with_dim(1);
        let placed = call.place(&y, ACL_FLOAT)?;
        call.product(&w, &x, &placed)?;
        call.store(&placed, &y)
    }
}
