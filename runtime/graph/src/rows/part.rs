//! A part of a weight's rows or columns, and its name, from which it is found in the file.

use crate::tensor::Shape;
use std::ops::Range;

/// Parts begin at multiples of this, so that none is a sliver.
pub(super) const GRAIN: u64 = 32;

/// Along what a weight is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Dim 1; parts begin at multiples of the number.
    Rows(u64),
    /// Dim 0, between blocks; parts begin at multiples of the number.
    Columns(u64),
    /// Dim 1, by the list that the part's tensor has ([`crate::TensorDef::listed`]).
    ListedRows,
    /// Dim 0, by the same list.
    ListedColumns,
}

/// A part of a weight, as in its name: `NAME@2/4` has the third of four parts of the rows, `NAME@2/4:256` the same at
/// multiples of 256 rows, `NAME@2/4|256` columns; `NAME@2/4:#` and `NAME@2/4|#` have the rows and columns of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part<'a> {
    /// The weight in the file.
    pub whole: &'a str,
    /// Which part.
    pub index: usize,
    /// Of how many.
    pub n: usize,
    /// Along what.
    pub cut: Cut,
}

impl<'a> Part<'a> {
    /// Reads a name; `None` if it is that of a whole tensor.
    pub fn of_name(name: &'a str) -> Option<Part<'a>> {
        let (whole, part) = name.rsplit_once('@')?;
        let (index, rest) = part.split_once('/')?;
        let grain = |text: &str| text.parse().ok().filter(|grain| *grain > 0);
        let (n, cut) = match (rest.split_once(':'), rest.split_once('|')) {
            (Some((n, "#")), _) => (n, Cut::ListedRows),
            (_, Some((n, "#"))) => (n, Cut::ListedColumns),
            (Some((n, at)), _) => (n, Cut::Rows(grain(at)?)),
            (_, Some((n, at))) => (n, Cut::Columns(grain(at)?)),
            _ => (rest, Cut::Rows(GRAIN)),
        };
        let (index, n) = (index.parse().ok()?, n.parse().ok()?);
        (index < n).then_some(Part { whole, index, n, cut })
    }

    /// Its name.
    pub fn name(&self) -> String {
        let Part { whole, index, n, .. } = self;
        match self.cut {
            Cut::Rows(GRAIN) => format!("{whole}@{index}/{n}"),
            Cut::Rows(grain) => format!("{whole}@{index}/{n}:{grain}"),
            Cut::Columns(grain) => format!("{whole}@{index}/{n}|{grain}"),
            Cut::ListedRows => format!("{whole}@{index}/{n}:#"),
            Cut::ListedColumns => format!("{whole}@{index}/{n}|#"),
        }
    }

    /// Whether its rows or columns are those of a list.
    pub fn is_listed(&self) -> bool {
        matches!(self.cut, Cut::ListedRows | Cut::ListedColumns)
    }

    /// Whether it has rows, of all columns.
    pub fn is_of_rows(&self) -> bool {
        matches!(self.cut, Cut::Rows(_) | Cut::ListedRows)
    }

    /// Its rows or columns of `len`; `None` of a list.
    pub fn range(&self, len: u64) -> Option<Range<u64>> {
        let (Cut::Rows(grain) | Cut::Columns(grain)) = self.cut else { return None };
        let start = |i: usize| match i == self.n {
            true => len,
            false => len * i as u64 / self.n as u64 / grain * grain,
        };
        Some(start(self.index)..start(self.index + 1))
    }

    /// Its shape, of a whole of this one, with so many rows or columns.
    pub fn shape(&self, whole: Shape, len: u64) -> Shape {
        let [columns, rows, n2, n3] = whole;
        match self.is_of_rows() {
            true => [columns, len, n2, n3],
            false => [len, rows, n2, n3],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_dealt_out_in_order_and_none_is_left() {
        let check = |len, n, grain, expected: &str| {
            let part = |index| Part { whole: "w", index, n, cut: Cut::Rows(grain) }.range(len).unwrap();
            let rows: Vec<_> = (0..n).map(|i| format!("{:?}", part(i))).collect();
            assert_eq!(rows.join(" "), expected);
        };
        check(100, 1, 32, "0..100");
        check(128, 2, 32, "0..64 64..128");
        check(100, 3, 32, "0..32 32..64 64..100");
        check(97, 3, 32, "0..32 32..64 64..97");
        check(11008, 2, 256, "0..5376 5376..11008");
    }

    #[test]
    fn names_of_parts_are_read_back() {
        for cut in [Cut::Rows(32), Cut::Rows(256), Cut::Columns(32), Cut::ListedRows, Cut::ListedColumns] {
            let part = Part { whole: "blk.0.ffn_up.weight", index: 1, n: 2, cut };
            assert_eq!(Part::of_name(&part.name()), Some(part));
        }
        for name in ["w", "w@2/2", "w@x/2", "w@1", "w@0/2:0", "w@0/2|x", "w@0/2#"] {
            assert_eq!(Part::of_name(name), None, "{name}");
        }
    }
}
