//! THE dtype table: every tensor type that GGUF files use, with GGUF's own numbers.
//!
//! A block of `block_elems` elements occupies `block_bytes` bytes; a row is a whole number of blocks.

/// What a dtype's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DTypeKind {
    /// One IEEE or bfloat number per element.
    Float,
    /// One integer per element.
    Int,
    /// Blocks of small integers with shared scales.
    Quant,
}

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DTypeInfo {
    /// The number in files and across the ABI.
    pub id: u32,
    /// The name that users read, e.g. `Q4_K`.
    pub name: &'static str,
    /// Elements in a block; 1 for plain types.
    pub block_elems: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Float, int or quantised.
    pub kind: DTypeKind,
}

macro_rules! dtypes {
    ($($variant:ident = $id:literal, $elems:literal, $bytes:literal, $kind:ident;)*) => {
        /// A tensor element type. Numbers equal GGUF's and are never reused.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u32)]
        #[allow(non_camel_case_types, missing_docs)]
        pub enum DType { $($variant = $id,)* }

        impl DType {
            /// All types, in table order.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The type with this number, if it is a live one.
            pub const fn from_id(id: u32) -> Option<DType> {
                match id { $($id => Some(DType::$variant),)* _ => None }
            }

            /// The row of this type.
            pub const fn info(self) -> DTypeInfo {
                match self { $(DType::$variant => DTypeInfo {
                    id: $id, name: stringify!($variant), block_elems: $elems, block_bytes: $bytes,
                    kind: DTypeKind::$kind,
                },)* }
            }
        }
    };
}

dtypes! {
    F32 = 0, 1, 4, Float;
    F16 = 1, 1, 2, Float;
    Q4_0 = 2, 32, 18, Quant;
    Q4_1 = 3, 32, 20, Quant;
    Q5_0 = 6, 32, 22, Quant;
    Q5_1 = 7, 32, 24, Quant;
    Q8_0 = 8, 32, 34, Quant;
    Q8_1 = 9, 32, 36, Quant;
    Q2_K = 10, 256, 84, Quant;
    Q3_K = 11, 256, 110, Quant;
    Q4_K = 12, 256, 144, Quant;
    Q5_K = 13, 256, 176, Quant;
    Q6_K = 14, 256, 210, Quant;
    Q8_K = 15, 256, 292, Quant;
    IQ2_XXS = 16, 256, 66, Quant;
    IQ2_XS = 17, 256, 74, Quant;
    IQ3_XXS = 18, 256, 98, Quant;
    IQ1_S = 19, 256, 50, Quant;
    IQ4_NL = 20, 32, 18, Quant;
    IQ3_S = 21, 256, 110, Quant;
    IQ2_S = 22, 256, 82, Quant;
    IQ4_XS = 23, 256, 136, Quant;
    I8 = 24, 1, 1, Int;
    I16 = 25, 1, 2, Int;
    I32 = 26, 1, 4, Int;
    I64 = 27, 1, 8, Int;
    F64 = 28, 1, 8, Float;
    IQ1_M = 29, 256, 56, Quant;
    BF16 = 30, 1, 2, Float;
    TQ1_0 = 34, 256, 54, Quant;
    TQ2_0 = 35, 256, 66, Quant;
    MXFP4 = 39, 32, 17, Quant;
    NVFP4 = 40, 64, 36, Quant;
    Q1_0 = 41, 128, 18, Quant;
    Q2_0 = 42, 64, 18, Quant;
}

impl DType {
    /// The number in files and across the ABI.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The name that users read, e.g. `Q4_K`.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// Elements in a block; 1 for plain types.
    pub const fn block_elems(self) -> usize {
        self.info().block_elems as usize
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.info().block_bytes as usize
    }

    /// Whether elements share scales in blocks.
    pub const fn is_quantised(self) -> bool {
        matches!(self.info().kind, DTypeKind::Quant)
    }

    /// Bytes of a row of `n` elements; `None` if `n` is not whole blocks or the size overflows.
    pub const fn row_bytes(self, n: u64) -> Option<u64> {
        let info = self.info();
        if !n.is_multiple_of(info.block_elems as u64) {
            return None;
        }
        (n / info.block_elems as u64).checked_mul(info.block_bytes as u64)
    }

    /// The type with this name, in any case: `q4_k`, `Q4_K`.
    pub fn from_name(name: &str) -> Option<DType> {
        Self::ALL.iter().copied().find(|t| t.name().eq_ignore_ascii_case(name))
    }
}

impl core::fmt::Display for DType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_five_types_live_and_find_themselves_by_number_and_name() {
        assert_eq!(DType::ALL.len(), 35);
        for &t in DType::ALL {
            assert_eq!(DType::from_id(t.id()), Some(t));
            assert_eq!(DType::from_name(&t.name().to_ascii_lowercase()), Some(t));
        }
        assert_eq!(DType::from_id(4), None);
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(DType::Q4_0.row_bytes(64), Some(36));
        assert_eq!(DType::Q4_0.row_bytes(33), None);
        assert_eq!(DType::F64.row_bytes(u64::MAX), None);
    }
}
