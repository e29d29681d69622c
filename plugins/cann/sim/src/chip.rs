//! The chips that can be simulated, and how they differ: limits, dtypes, and which operators they have.
//!
//! Sources: the pages of operators of 9.0 (ops-nn, ops-math, ops-cv: "supported products"), and the kernels that CANN 8.1 has for
//! a chip (`aic-ascend…-ops-info.json`), which are more than the pages list.

/// What differs between chips.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chip {
    /// Which column of the operators' table is the chip's.
    column: Column,
    /// Elements of BF16.
    pub bf16: bool,
    /// Elements of INT4.
    pub int4: bool,
    /// The layout FRACTAL_NZ.
    pub nz: bool,
    /// Matrix products of F32 without rounding to F16: `IsInputSupportFp32` of matmul_util.cpp (ops-nn, 8.5 to 9.1).
    pub f32_products: bool,
    /// Cards can reach each other.
    pub peers: bool,
    /// Kernels can be captured.
    pub capture: bool,
    /// Streams of a card.
    pub streams: usize,
    /// Events of a card.
    pub events: usize,
}

/// Chips with the same operators.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Column {
    /// 910B with a digit, 910_93: A2, A3.
    A2,
    /// 310P.
    P,
    /// 310B.
    B,
    /// The first 910.
    N,
}

impl Chip {
    /// The chip of a name; an unknown one is as the 910B1.
    pub fn of(soc: &str) -> Chip {
        let name = soc.strip_prefix("Ascend").unwrap_or(soc);
        let a2 = Chip {
            column: Column::A2,
            bf16: true,
            int4: true,
            nz: true,
            f32_products: true,
            peers: true,
            capture: true,
            streams: 1984,
            events: 65_536,
        };
        let older = Chip { bf16: false, int4: false, capture: false, f32_products: false, ..a2 };
        let is_a2 =
            name.strip_prefix("910B").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        match name {
            _ if name.starts_with("310P") => {
                Chip { column: Column::P, capture: true, streams: 1024, events: 1023, ..older }
            }
            _ if name.starts_with("310B") => {
                Chip { column: Column::B, nz: false, peers: false, streams: 512, ..older }
            }
            // A name without a digit after it is the first 910.
            _ if name.starts_with("910") && !is_a2 && !name.starts_with("910_93") => {
                Chip { column: Column::N, nz: false, streams: 2048, events: 65_535, ..older }
            }
            _ => a2,
        }
    }

    /// A2 and A3.
    pub fn is_a2(&self) -> bool {
        self.column == Column::A2
    }

    /// The first 910.
    pub fn is_first_910(&self) -> bool {
        self.column == Column::N
    }

    /// Memory is HBM, or else DDR.
    pub fn has_hbm(&self) -> bool {
        matches!(self.column, Column::A2 | Column::N)
    }

    /// 310P.
    pub fn is_310p(&self) -> bool {
        self.column == Column::P
    }

    /// 310B.
    pub fn is_310b(&self) -> bool {
        self.column == Column::B
    }

    /// Whether the chip has an operator with this `chips`: P 310P, B 310B, N the first 910; capital where the operator's page
    /// lists the chip, small where only the kernels are there. All are on A2 and A3.
    pub fn has(&self, chips: &str, documented: bool) -> bool {
        let letter = match self.column {
            Column::A2 => return true,
            Column::P => 'P',
            Column::B => 'B',
            Column::N => 'N',
        };
        chips.contains(letter) || (!documented && chips.contains(letter.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_have_the_features_of_their_row() {
        let (a2, p310, b310) = (Chip::of("Ascend910B3"), Chip::of("Ascend310P3"), Chip::of("Ascend310B1"));
        let first = Chip::of("Ascend910B");
        assert!(a2.bf16 && !p310.bf16 && !first.bf16);
        assert!(a2.f32_products && !first.f32_products && first.is_first_910());
        assert!(a2.has("", true) && !p310.has("", false) && !b310.has("Pp", false));
        assert!(
            p310.has("p", false) && !p310.has("p", true) && b310.has("PB", true) && !first.has("PB", false)
        );
    }
}
