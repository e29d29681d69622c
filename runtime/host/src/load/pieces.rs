//! Where the bytes of a part of a matrix are in the file, piece by piece. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use llmrt_gguf::TensorInfo;
use llmrt_graph::rows::Part;

/// Where the bytes of a tensor are, from the first byte of its entry in the file on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Pieces {
    /// One after the other.
    Together,
    /// Runs of each row, or of the matrix as one row.
    Runs {
        /// Bytes of a row of the part.
        row: u64,
        /// Bytes from row to row in the file.
        step: u64,
        /// What each row has of the file's, in order.
        runs: Vec<Run>,
    },
}

/// Bytes that follow each other in the file and in the part.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Run {
    /// In a row of the file.
    from: u64,
    /// In a row of the part.
    at: u64,
    len: u64,
}

impl Pieces {
    /// The entry of a part of a tensor, and where its bytes are; `listed` are the rows or columns of a part that is cut by a list,
    /// in any order. `None` if they are not in the tensor, or no whole blocks.
    pub fn of(whole: &TensorInfo, part: Part<'_>, listed: Option<&[u32]>) -> Option<(TensorInfo, Pieces)> {
        let of_rows = part.is_of_rows();
        // The file's table has passed the whole: its rows have a size.
        let row = whole.nbytes / whole.ne[1].max(1);
        let length = whole.ne[usize::from(of_rows)];
        let (unit, elems) = match of_rows {
            true => (row, 1),
            false => (whole.dtype.block_bytes() as u64, whole.dtype.block_elems() as u64),
        };
        let ranges = match (part.range(length), listed) {
            (Some(range), _) => vec![range],
            (None, Some(list)) => ranges(list),
            (None, None) => return None,
        };
        let fits = |range: &Range<u64>| {
            let is_whole = range.start.is_multiple_of(elems) && range.end.is_multiple_of(elems);
            range.end <= length && (is_whole || !of_rows && range.end == length)
        };
        if !ranges.iter().all(fits) {
            return None;
        }
        // The entry begins with the first byte that the part has; runs count from there.
        let first = ranges.iter().map(|range| range.start / elems * unit).min().unwrap_or(0);
        let (mut n, mut at) = (0, 0);
        let mut run = |range: &Range<u64>| {
            let len = (range.end - range.start).div_ceil(elems) * unit;
            (n, at) = (n + range.end - range.start, at + len);
            Run { from: range.start / elems * unit - first, at: at - len, len }
        };
        let runs: Vec<Run> = ranges.iter().map(&mut run).collect();
        let ne = part.shape(whole.ne, n);
        let (step, nbytes) = if of_rows { (0, at) } else { (row, at * ne[1]) };
        let is_one = runs.len() <= 1 && (of_rows || row == at);
        let pieces = if is_one { Pieces::Together } else { Pieces::Runs { row: at, step, runs } };
        let offset = whole.offset + first;
        Some((TensorInfo { name: part.name(), ne, offset, nbytes, ..whole.clone() }, pieces))
    }

    /// Whether the bytes follow each other in the file.
    pub fn is_together(&self) -> bool {
        *self == Pieces::Together
    }

    /// A number by which different places differ; 0: the bytes follow each other.
    pub fn id(&self) -> u64 {
        if self.is_together() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// The bytes of the file from the first to the last one of a part of `nbytes`, from the first byte of its entry on.
    pub fn extent(&self, nbytes: u64) -> u64 {
        let Pieces::Runs { row, step, runs } = self else { return nbytes };
        let n_rows = nbytes / (*row).max(1);
        let end = runs.iter().map(|run| run.from + run.len).max();
        end.map_or(0, |end| n_rows.saturating_sub(1) * step + end)
    }

    /// Where byte `at` of the part is in the file, and how many follow it there.
    pub fn at(&self, at: u64) -> (u64, u64) {
        let Pieces::Runs { row, step, runs } = self else { return (at, u64::MAX) };
        let row = (*row).max(1);
        let (nth, within) = (at / row, at % row);
        let i = runs.partition_point(|run| run.at <= within).saturating_sub(1);
        let Some(run) = runs.get(i) else { return (at, u64::MAX) };
        let skipped = within - run.at;
        (nth * step + run.from + skipped, run.len - skipped)
    }
}

/// Runs of numbers that follow each other.
fn ranges(list: &[u32]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for i in list.iter().map(|&i| u64::from(i)) {
        match ranges.last_mut().filter(|range| range.end == i) {
            Some(range) => range.end = i + 1,
            None => ranges.push(i..i + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_abi::DType;
    use llmrt_graph::rows::Cut;

    /// A matrix of Q4_0: 128 columns in 4 blocks of 18 bytes, 6 rows.
    fn whole() -> TensorInfo {
        TensorInfo {
            name: "w".into(),
            dtype: DType::Q4_0,
            ne: [128, 6, 1, 1],
            n_dims: 2,
            offset: 1000,
            nbytes: 6 * 72,
            file: 0,
        }
    }

    /// The file's bytes that a part of it has, as ranges.
    fn check(cut: Cut, listed: Option<&[u32]>, expected: &[(u64, u64)]) {
        let part = Part { whole: "w", index: 1, n: 2, cut };
        let (info, pieces) = Pieces::of(&whole(), part, listed).unwrap();
        let (mut found, mut at) = (Vec::<(u64, u64)>::new(), 0);
        while at < info.nbytes {
            let (from, len) = pieces.at(at);
            let len = len.min(info.nbytes - at);
            let start = info.offset - 1000 + from;
            match found.last_mut().filter(|last| last.1 == start) {
                Some(last) => last.1 += len,
                None => found.push((start, start + len)),
            }
            at += len;
        }
        assert_eq!(found, expected, "{cut:?} {listed:?}");
        assert_eq!(info.nbytes, info.dtype.row_bytes(info.ne[0]).unwrap() * info.ne[1], "{cut:?}");
        let (start, end) =
            (expected.iter().map(|range| range.0).min(), expected.iter().map(|range| range.1).max());
        let end = start.zip(end).map_or(0, |(start, end)| end - start);
        assert_eq!(pieces.extent(info.nbytes), end, "{cut:?}");
    }

    #[test]
    fn rows_of_a_part_follow_each_other() {
        check(Cut::Rows(1), None, &[(216, 432)]);
        check(Cut::ListedRows, Some(&[0, 1, 2, 3, 4, 5]), &[(0, 432)]);
        check(Cut::ListedRows, Some(&[2]), &[(144, 216)]);
    }

    #[test]
    fn listed_rows_are_gathered() {
        check(Cut::ListedRows, Some(&[0, 2, 3, 5]), &[(0, 72), (144, 288), (360, 432)]);
        check(Cut::ListedRows, Some(&[]), &[]);
        check(Cut::ListedRows, Some(&[4, 5, 2]), &[(288, 432), (144, 216)]);
    }

    #[test]
    fn columns_are_blocks_of_each_row() {
        let of_row = |ranges: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let row = |r: u64| ranges.iter().map(move |(from, to)| (72 * r + from, 72 * r + to));
            (0..6).flat_map(row).collect()
        };
        let block = |n: u32| 32 * n..32 * (n + 1);
        check(Cut::Columns(32), None, &of_row(&[(36, 72)]));
        let listed: Vec<u32> = block(1).collect();
        check(Cut::ListedColumns, Some(&listed), &of_row(&[(18, 36)]));
        let listed: Vec<u32> = block(1).chain(block(3)).collect();
        check(Cut::ListedColumns, Some(&listed), &of_row(&[(18, 36), (54, 72)]));
    }

    #[test]
    fn what_is_not_in_the_tensor_or_no_whole_block_is_refused() {
        let of = |cut, listed: Option<&[u32]>| {
            Pieces::of(&whole(), Part { whole: "w", index: 0, n: 2, cut }, listed)
        };
        assert_eq!(of(Cut::ListedRows, Some(&[6])), None);
        assert_eq!(of(Cut::ListedRows, None), None);
        assert_eq!(of(Cut::ListedColumns, Some(&[0, 1])), None);
        assert_eq!(of(Cut::ListedColumns, Some(&(128..160).collect::<Vec<_>>())), None);
    }
}
