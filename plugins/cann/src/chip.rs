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
    /// Operators of the library that have no kernels for the chip; they are as if the library lacked them.
    pub lacks: &'static [&'static str],
    /// Elements of BF16.
    pub bf16: bool,
    /// Matrix products of F32 may keep F32 arithmetic: `IsInputSupportFp32` of matmul_util.cpp (ops-nn, 8.5 to 9.1).
    pub f32_products: bool,
    /// Kernels recorded once and launched together.
    pub graphs: bool,
    /// Copies between cards without the host.
    pub peers: bool,
    /// Copies from one card to all others are a collective of their own (HcclBroadcast's page).
    pub broadcast: bool,
    /// Memory is HBM, and not DDR.
    pub hbm: bool,
}

/// Kernels that CANN 8.1 has for A2 and A3 only (`aic-ascend…-ops-info.json` of the chips). On a 310P the products with weights of
/// few bits take NZ layouts alone, which are not made here.
const OF_A2: [&str; 6] = [
    "aclnnRotaryPositionEmbedding",
    "aclnnFusedInferAttentionScoreV2",
    "aclnnGroupedMatmulV4",
    "aclnnMoeGatingTopKSoftmax",
    "aclnnWeightQuantBatchMatmulV2",
    "aclnnWeightQuantBatchMatmulV3",
];

const NOT_ON_310B: [&str; 15] = with(&[
    "aclnnRmsNorm",
    "aclnnSwiGlu",
    "aclnnGeGluV3",
    "aclnnIncreFlashAttentionV4",
    "aclnnRoll",
    "aclnnTrunc",
    "aclnnIm2col",
    "aclnnInplaceScatterUpdate",
    "aclnnTransMatmulWeight",
]);

const NOT_ON_A910: [&str; 11] = with(&[
    "aclnnSwiGlu",
    "aclnnGeGluV3",
    "aclnnIncreFlashAttentionV4",
    "aclnnIm2col",
    "aclnnTransMatmulWeight",
]);

/// These and [`OF_A2`].
const fn with<const N: usize>(names: &[&'static str]) -> [&'static str; N] {
    assert!(N == OF_A2.len() + names.len());
    let mut all = [""; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < OF_A2.len() { OF_A2[i] } else { names[i - OF_A2.len()] };
        i += 1;
    }
    all
}

/// The row of a chip.
pub fn chip(soc: &str) -> Chip {
    let family = family(soc);
    let full = Chip {
        family,
        lacks: &[],
        bf16: true,
        f32_products: true,
        graphs: true,
        peers: true,
        broadcast: true,
        hbm: true,
    };
    let older = Chip { bf16: false, f32_products: false, graphs: false, ..full };
    match family {
        Family::A2 | Family::A3 | Family::Newer => full,
        Family::P310 => Chip { lacks: &OF_A2, peers: false, broadcast: false, hbm: false, ..older },
        Family::B310 => Chip { lacks: &NOT_ON_310B, peers: false, hbm: false, ..older },
        Family::A910 => Chip { lacks: &NOT_ON_A910, ..older },
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
        assert!(!chip("Ascend310P3").bf16 && !chip("Ascend910A").f32_products);
        assert!(
            chip("Ascend310B1").lacks.contains(&"aclnnRmsNorm") && chip("Ascend910_9391").lacks.is_empty()
        );
    }
}
