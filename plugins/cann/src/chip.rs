//! Chips and what they can do, by the name the runtime gives: rows, not build flags.

/// A family of chips with the same abilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Ascend910B1 to B4: Atlas 800 A2, 300I A2.
    A2,
    /// Ascend910_93xx.
    A3,
    /// Ascend310P1 to P7: Atlas 300I Duo and Pro.
    P310,
    /// Ascend310B1 to B4: Atlas 200I A2, OrangePi AIpro.
    B310,
    /// The first Ascend910, of which one is called 910B without a digit.
    A910,
    /// A chip newer than this code: treated as A2.
    Newer,
}

/// A chip's capabilities that llmrt uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chip {
    /// Its family.
    pub family: Family,
    /// Elements of BF16.
    pub bf16: bool,
    /// Matrix products with 4-bit weights that have a scale per 32 elements.
    pub int4_groups: bool,
    /// The same with 8-bit weights.
    pub int8_groups: bool,
    /// Attention over a paged cache in one operator.
    pub fused_attention: bool,
    /// Attention of one query per sequence over a paged cache, of as many heads as the query has.
    pub incre_attention: bool,
    /// Matrix products of F32 may keep F32 arithmetic.
    pub f32_products: bool,
    /// Kernels recorded once and launched together.
    pub graphs: bool,
    /// Copies between cards without the host.
    pub peers: bool,
    /// Memory is HBM, and not DDR.
    pub hbm: bool,
}

/// The row of a chip.
pub fn chip(soc: &str) -> Chip {
    let family = family(soc);
    let full = Chip {
        family,
        bf16: true,
        int4_groups: true,
        int8_groups: true,
        fused_attention: true,
        incre_attention: true,
        f32_products: true,
        graphs: true,
        peers: true,
        hbm: true,
    };
    match family {
        Family::A2 | Family::A3 | Family::Newer => full,
        Family::P310 => Chip {
            bf16: false,
            int4_groups: false,
            int8_groups: false,
            fused_attention: false,
            f32_products: false,
            graphs: false,
            peers: false,
            hbm: false,
            ..full
        },
        Family::B310 => Chip { peers: false, incre_attention: false, ..chip("Ascend310P3") }.of(family),
        Family::A910 => Chip {
            bf16: false,
            int4_groups: false,
            int8_groups: false,
            fused_attention: false,
            incre_attention: false,
            graphs: false,
            ..full
        },
    }
}

impl Chip {
    fn of(self, family: Family) -> Chip {
        Chip { family, ..self }
    }
}

fn family(soc: &str) -> Family {
    let Some(name) = soc.strip_prefix("Ascend") else { return Family::Newer };
    let digit_after = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    match () {
        () if digit_after("910B") => Family::A2,
        () if name.starts_with("910_93") => Family::A3,
        () if name.starts_with("310P") => Family::P310,
        () if name.starts_with("310B") => Family::B310,
        () if name.starts_with("910") => Family::A910,
        () => Family::Newer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_alike_are_different_chips() {
        for (soc, expected) in [
            ("Ascend910B3", Family::A2),
            ("Ascend910B", Family::A910),
            ("Ascend910ProB", Family::A910),
            ("Ascend910A", Family::A910),
            ("Ascend910_9362", Family::A3),
            ("Ascend310P3", Family::P310),
            ("Ascend310B4", Family::B310),
            ("Ascend950PR", Family::Newer),
            ("", Family::Newer),
        ] {
            assert_eq!(family(soc), expected, "{soc}");
        }
        assert!(!chip("Ascend310P3").bf16 && !chip("Ascend310P3").int4_groups);
        assert_eq!(chip("Ascend310B1").family, Family::B310);
    }
}
