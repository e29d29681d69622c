//! Which ops a device runs for which types: the table a vendor publishes.

use llmrt_abi::{DType, Op};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// Cases of one op and type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// All.
    pub n_cases: usize,
    /// Those that the device accepts.
    pub n_supported: usize,
    /// Those of them that were run and wrong.
    pub n_failed: usize,
}

/// Op × type of the first operand.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Support {
    rows: BTreeMap<Op, BTreeMap<DType, Counts>>,
}

impl Support {
    /// Counts a case.
    pub fn add(&mut self, op: Op, dtype: DType, is_supported: bool, is_wrong: bool) {
        let counts = self.rows.entry(op).or_default().entry(dtype).or_default();
        counts.n_cases += 1;
        counts.n_supported += usize::from(is_supported);
        counts.n_failed += usize::from(is_wrong);
    }

    /// Counts of an op over all types.
    pub fn total(&self, op: Op) -> Counts {
        let cells = self.rows.get(&op).into_iter().flat_map(BTreeMap::values);
        cells.fold(Counts::default(), |sum, c| Counts {
            n_cases: sum.n_cases + c.n_cases,
            n_supported: sum.n_supported + c.n_supported,
            n_failed: sum.n_failed + c.n_failed,
        })
    }

    /// Types of an op of which some case is supported.
    pub fn types(&self, op: Op) -> Vec<DType> {
        let cells = self.rows.get(&op).into_iter().flatten();
        cells.filter(|(_, c)| c.n_supported > 0).map(|(t, _)| *t).collect()
    }

    /// A Markdown table: a row per op, a column per type that some op is supported for.
    pub fn markdown(&self) -> String {
        let columns: BTreeSet<DType> = self.rows.keys().flat_map(|&op| self.types(op)).collect();
        let head: Vec<&str> = columns.iter().map(|t| t.name()).collect();
        let mut text = format!("| op | {} |\n|---|{}\n", head.join(" | "), ":-:|".repeat(columns.len()));
        if columns.is_empty() {
            text = "The device runs no op.\n".into();
        }
        for (op, cells) in self.rows.iter().filter(|(op, _)| self.total(**op).n_supported > 0) {
            let cells: Vec<_> = columns.iter().map(|t| cells.get(t).map_or(String::new(), cell)).collect();
            text += &format!("| {op} | {} |\n", cells.join(" | "));
        }
        let none: Vec<_> = self.rows.keys().filter(|&&op| self.total(op).n_supported == 0).collect();
        if !none.is_empty() {
            let names: Vec<_> = none.iter().map(|op| op.name()).collect();
            text += &format!("\nNot run: {}.\n", names.join(", "));
        }
        text + LEGEND
    }

    /// The same as JSON: op → type → [supported, cases].
    pub fn json(&self) -> Json {
        let row = |cells: &BTreeMap<DType, Counts>| -> Json {
            let cell = |(t, c): (&DType, &Counts)| (t.name().to_string(), json!([c.n_supported, c.n_cases]));
            cells.iter().map(cell).collect::<Map<_, _>>().into()
        };
        self.rows.iter().map(|(op, cells)| (op.name().to_string(), row(cells))).collect::<Map<_, _>>().into()
    }
}

const LEGEND: &str = "
✓: all test cases of the op with a first operand of this type; n/m: n of m; –: none; ✗: some were wrong; empty: the
op has no case with this type.
";

fn cell(c: &Counts) -> String {
    match c {
        Counts { n_failed: n @ 1.., .. } => format!("✗ {n}/{}", c.n_cases),
        Counts { n_supported: 0, .. } => "–".into(),
        Counts { n_supported, n_cases, .. } if n_supported == n_cases => "✓".into(),
        Counts { n_supported, n_cases, .. } => format!("{n_supported}/{n_cases}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_all_part_none_or_wrong() {
        let mut s = Support::default();
        s.add(Op::Add, DType::F32, true, false);
        s.add(Op::Add, DType::F16, true, false);
        s.add(Op::Add, DType::F16, false, false);
        s.add(Op::Mul, DType::F32, true, true);
        s.add(Op::Mul, DType::F16, false, false);
        s.add(Op::Rope, DType::F32, false, false);
        let text = s.markdown();
        let table =
            "| op | F32 | F16 |\n|---|:-:|:-:|\n| add | ✓ | 1/2 |\n| mul | ✗ 1/1 | – |\n\nNot run: rope.\n";
        assert!(text.starts_with(table), "{text}");
        assert_eq!(s.json()["add"]["F16"], json!([1, 2]));
    }
}
