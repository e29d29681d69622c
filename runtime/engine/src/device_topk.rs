//! The largest logits of each row, picked on the device that computed them: all that a step reads back where they decide
//! the next tokens. 128 rows of 151 936 logits are 78 MB; the 64 largest of each, with their ids, 66 kB.

use llmrt_graph::{Graph, Tensor};

/// Most logits of a row that are picked. A sampler that needs more gets the whole row.
pub const MAX_TOP_K: usize = 256;

/// [`crate::EngineOptions::keep_logits_from`] where nothing else is configured: 7 rows of 32 000 logits, 2 of 151 936. An
/// estimate: picking takes a sort, which was not timed beside the copy on any card.
pub const KEEP_LOGITS_FROM: u64 = 800_000;

/// What a step reads back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TopKRequest {
    /// How many of the largest logits each row's sampler needs; `None`: all of them.
    needs: Vec<Option<usize>>,
    /// How many of each row are picked; 0: none, all rows come back whole. A power of two, so that few graphs occur.
    pub n_picked: u32,
}

impl TopKRequest {
    /// Picks if that spares at least `keep_from` bytes of logits. Rows that need more than is picked stay whole.
    pub fn new(needs: Vec<Option<usize>>, n_vocab: u64, keep_from: u64) -> TopKRequest {
        let is_few = |n: &usize| *n <= MAX_TOP_K && (n.next_power_of_two() as u64) < n_vocab;
        let few = needs.iter().flatten().copied().filter(is_few);
        let n_picked = few.clone().max().map_or(0, |n| n.next_power_of_two() as u32);
        let spared = (few.count() as u64).saturating_mul(n_vocab).saturating_mul(4);
        TopKRequest { needs, n_picked: if spared >= keep_from { n_picked } else { 0 } }
    }

    /// Whether the picked logits of a row are not enough.
    pub fn is_whole(&self, row: usize) -> bool {
        self.needs.get(row).copied().flatten().is_none_or(|needed| needed > self.n_picked as usize)
    }
}

/// Results of a graph that picks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picked {
    /// I32, `k` for each row: which tokens, in the order of top_k.
    pub ids: Tensor,
    /// F32, `k` for each row: their logits.
    pub logits: Tensor,
    /// F32, one for each row: NaN if a logit is, which top_k passes over.
    pub sums: Tensor,
}

impl Picked {
    /// Adds what picks the `k` largest of each row of `logits` `[n_vocab, n_rows]`.
    pub fn new(g: &mut Graph, logits: Tensor, k: u32) -> Picked {
        let [n_vocab, n_rows, ..] = g.ne(logits);
        let ids = if k == 1 { g.argmax(logits) } else { g.top_k(logits, k) };
        let ids_of_row = g.reshape(ids, &[k.into(), n_rows]);
        let column = g.reshape(logits, &[1, n_vocab, n_rows]);
        let picked = g.get_rows(column, ids_of_row); // [1, k, n_rows]
        let sums = g.sum_rows(logits);
        Picked {
            ids: g.output(ids, "largest_ids"),
            logits: g.output(picked, "largest_logits"),
            sums: g.output(sums, "sum_logits"),
        }
    }

    /// All of them.
    pub fn tensors(&self) -> [Tensor; 3] {
        [self.ids, self.logits, self.sums]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs as words (`-`: all logits), and what is picked of 1000 logits where `keep_from` bytes are at stake; then
    /// which rows stay whole.
    fn check(needs: &str, keep_from: u64, expected: &str) {
        let needs: Vec<Option<usize>> = needs.split_whitespace().map(|n| n.parse().ok()).collect();
        let n_rows = needs.len();
        let request = TopKRequest::new(needs, 1000, keep_from);
        let whole: String = (0..n_rows).map(|i| if request.is_whole(i) { 'w' } else { '.' }).collect();
        assert_eq!(format!("{} {whole}", request.n_picked), expected);
    }

    #[test]
    fn as_many_are_picked_as_the_neediest_row_needs_rounded_up() {
        check("1 1", 0, "1 ..");
        check("1 40 7", 0, "64 ...");
        check("256", 0, "256 .");
    }

    #[test]
    fn rows_that_need_more_stay_whole_and_the_others_do_not() {
        check("- 40 257", 0, "64 w.w");
        check("- -", 0, "0 ww");
        check("999999999999 1", 0, "1 w.");
        check("", 0, "0 ");
    }

    #[test]
    fn nothing_is_picked_for_too_few_bytes() {
        check("1 1 -", 8000, "1 ..w");
        check("1 1 -", 8001, "0 www");
        check("1 1 1", u64::MAX, "0 www");
    }

    #[test]
    fn a_vocabulary_that_would_be_read_whole_is_read_as_it_is() {
        let picked = |n_vocab| TopKRequest::new(vec![Some(40)], n_vocab, 0).n_picked;
        assert_eq!([picked(64), picked(65)], [0, 64]);
    }
}
