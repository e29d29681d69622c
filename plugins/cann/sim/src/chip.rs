//! The chips that can be simulated, and how they differ: limits, dtypes, and which operators they have.

/// What differs between chips.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chip {
    /// The letter of [`Chip::has`].
    letter: char,
    /// Elements of BF16.
    pub bf16: bool,
    /// Elements of INT4.
    pub int4: bool,
    /// The layout FRACTAL_NZ.
    pub nz: bool,
    /// Matrix products of F32 without rounding to F16.
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

impl Chip {
    /// The chip of a name; an unknown one is as the 910B1.
    pub fn of(soc: &str) -> Chip {
        let name = soc.strip_prefix("Ascend").unwrap_or(soc);
        let a2 = Chip {
            letter: 'A',
            bf16: true,
            int4: true,
            nz: true,
            f32_products: true,
            peers: true,
            capture: true,
            streams: 1984,
            events: 65_536,
        };
        let older = Chip { bf16: false, int4: false, capture: false, ..a2 };
        let is_a2 =
            name.strip_prefix("910B").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        match name {
            _ if name.starts_with("310P") => {
                Chip { letter: 'P', f32_products: false, capture: true, streams: 1024, events: 1023, ..older }
            }
            _ if name.starts_with("310B") => {
                Chip { letter: 'b', f32_products: false, peers: false, streams: 512, ..older }
            }
            // A name without a digit after it is the first 910.
            _ if name.starts_with("910") && !is_a2 && !name.starts_with("910_93") => {
                Chip { letter: '9', nz: false, streams: 2048, events: 65_535, ..older }
            }
            _ => a2,
        }
    }

    /// The first 910.
    pub fn is_first_910(&self) -> bool {
        self.letter == '9'
    }

    /// Any 910.
    pub fn is_910(&self) -> bool {
        matches!(self.letter, '9' | 'A')
    }

    /// Whether the chip has an operator with this `chips`: P 310P by the vendor's table, p 310P in practice, b 310B.
    /// All are on A2 and A3. The first 910 is taken to have what the 310P has in practice: no table lists it.
    pub fn has(&self, chips: &str, documented: bool) -> bool {
        match self.letter {
            'A' => true,
            'P' => chips.contains('P') || (!documented && chips.contains('p')),
            '9' => !documented && chips.contains(['P', 'p']),
            letter => chips.contains(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_have_the_features_of_their_row() {
        let (a2, p310, b310) = (Chip::of("Ascend910B3"), Chip::of("Ascend310P3"), Chip::of("Ascend310B1"));
        assert!(a2.bf16 && !p310.bf16 && !Chip::of("Ascend910B").bf16);
        assert!(a2.has("", true) && !p310.has("", false) && !b310.has("Pp", false));
        assert!(p310.has("p", false) && !p310.has("p", true) && b310.has("Pb", true));
    }
}
