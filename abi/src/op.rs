//! THE op table. Numbers are frozen and never reused; what an op means stands in `runtime/graph/src/ops/<name>.rs`.

macro_rules! params {
    ($($(#[doc = $doc:literal])* $name:ident $c_name:literal { $($(#[doc = $fdoc:literal])* $field:ident : $ty:ident,)* })*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, PartialEq, Debug, Default)]
            #[repr(C)]
            pub struct $name { $($(#[doc = $fdoc])* pub $field: $ty,)* }

            impl $name {
                /// Size across the ABI; every field has 4 bytes.
                pub const SIZE: usize = core::mem::size_of::<$name>();

                /// The bytes that cross the ABI, in native byte order.
                pub fn to_bytes(&self) -> [u8; Self::SIZE] {
                    let mut bytes = [0; Self::SIZE];
                    let mut words = bytes.chunks_exact_mut(4);
                    $(if let Some(word) = words.next() { word.copy_from_slice(&self.$field.to_ne_bytes()); })*
                    bytes
                }

                /// Reads the fields; missing ones are zero. `None` if a byte past the known fields is not zero:
                /// then an attribute newer than this code is in use and must not be ignored.
                pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                    if bytes.iter().skip(Self::SIZE).any(|&b| b != 0) {
                        return None;
                    }
                    let mut words = bytes.chunks_exact(4).map(|c| [c[0], c[1], c[2], c[3]]);
                    Some($name { $($field: $ty::from_ne_bytes(words.next().unwrap_or_default()),)* })
                }
            }
        )*

        /// Every params struct: C name, Rust doc, and (field, C type, doc) rows. The header is written from this.
        pub const PARAMS: &[ParamsInfo] = &[$(ParamsInfo {
            c_name: $c_name,
            doc: concat!($($doc),*),
            fields: &[$((stringify!($field), stringify!($ty), concat!($($fdoc),*)),)*],
        },)*];
    };
}

/// Description of one params struct, for the header.
pub struct ParamsInfo {
    /// Name in C.
    pub c_name: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// Field name, Rust type (`u32`, `i32`, `f32`), meaning.
    pub fields: &'static [(&'static str, &'static str, &'static str)],
}

params! {
    /// Attributes of `scale`: y = x·scale + bias.
    ScaleParams "llmrt_p_scale" {
        /// Factor.
        scale: f32,
        /// Added after the factor.
        bias: f32,
    }
    /// Attributes of `rms_norm` and `layer_norm`.
    NormParams "llmrt_p_norm" {
        /// Added to the mean square (variance) before the root.
        eps: f32,
    }
    /// Attributes of `rope`.
    RopeParams "llmrt_p_rope" {
        /// Leading elements of each head that are rotated; even.
        n_dims: u32,
        /// 0: pairs (2i, 2i+1); 2: pairs (i, i + n_dims/2), as GPT-NeoX.
        mode: u32,
        /// Context length of training, for YaRN's correction range.
        n_ctx_orig: u32,
        /// Base of the geometric series of frequencies.
        freq_base: f32,
        /// Positions are multiplied by this (1/factor of linear scaling).
        freq_scale: f32,
        /// YaRN: share of extrapolation; 0 switches YaRN off.
        ext_factor: f32,
        /// Factor on sine and cosine.
        attn_factor: f32,
        /// YaRN: rotations at which extrapolation is full.
        beta_fast: f32,
        /// YaRN: rotations at which interpolation is full.
        beta_slow: f32,
    }
    /// Attributes of `soft_max`: softmax(x·scale + mask).
    SoftMaxParams "llmrt_p_soft_max" {
        /// Factor on x.
        scale: f32,
    }
    /// Attributes of `attention`.
    AttentionParams "llmrt_p_attention" {
        /// KV heads; a multiple of them are query heads.
        n_kv_heads: u32,
        /// Tokens in one block of the cache.
        block_size: u32,
        /// Sliding window in tokens (the query included); 0: none.
        window: u32,
        /// Factor on q·k.
        scale: f32,
        /// Scores become softcap·tanh(score/softcap); 0: none.
        softcap: f32,
        /// ALiBi: largest bias; 0: none.
        max_bias: f32,
    }
    /// Attributes of `paged_mask`.
    PagedMaskParams "llmrt_p_paged_mask" {
        /// Tokens in one block of the cache.
        block_size: u32,
        /// Sliding window in tokens (the query included); 0: none.
        window: u32,
        /// Slots of the cache: dim 0 of the mask.
        n_slots: u32,
        /// Tokens of the step: dim 1 of the mask.
        n_tokens: u32,
    }
    /// Attributes of `glu`.
    GluParams "llmrt_p_glu" {
        /// Activation of the gate: 0 silu, 1 gelu (tanh form), 2 relu, 3 gelu (erf form), 4 sigmoid, 5 gelu (x·sigmoid(1.702x)).
        activation: u32,
        /// With one source: 0 when the first half is the gate, 1 when the second is.
        swapped: u32,
    }
    /// Attributes of `top_k`.
    TopKParams "llmrt_p_top_k" {
        /// How many indices of largest values are kept, largest first; ties keep the lower index first.
        k: u32,
    }
    /// Attributes of `moe_weights`.
    MoeWeightsParams "llmrt_p_moe_weights" {
        /// 0: softmax over all experts, then pick; 1: sigmoid, then pick; 2: pick, then softmax over the picked.
        gating: u32,
        /// 1: picked weights are divided by their sum, which counts as at least 2^-14.
        normalise: u32,
        /// Factor on the result; 0 means 1.
        scale: f32,
    }
    /// Attributes of `copy`.
    CopyParams "llmrt_p_copy" {
        /// The result's dtype number.
        dtype: u32,
    }
}

/// One row of the op table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpInfo {
    /// Number across the ABI.
    pub id: u32,
    /// File name in host, plugin and test.
    pub name: &'static str,
    /// Version of its meaning.
    pub version: u32,
    /// Fewest sources.
    pub min_src: u32,
    /// Most sources.
    pub max_src: u32,
    /// What it computes, one line.
    pub doc: &'static str,
}

macro_rules! ops {
    ($($variant:ident = $id:literal, $name:literal, $min:literal ..= $max:literal, $doc:literal;)*) => {
        /// An operation of the graph.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u32)]
        pub enum Op { $(#[doc = $doc] $variant = $id,)* }

        impl Op {
            /// All ops, in table order.
            pub const ALL: &'static [Op] = &[$(Op::$variant,)*];

            /// The op with this number, if this build knows it.
            pub const fn from_id(id: u32) -> Option<Op> {
                match id { $($id => Some(Op::$variant),)* _ => None }
            }

            /// The row of this op.
            pub const fn info(self) -> OpInfo {
                match self { $(Op::$variant => OpInfo {
                    id: $id, name: $name, version: 1, min_src: $min, max_src: $max, doc: $doc,
                },)* }
            }
        }
    };
}

ops! {
    GetRows = 1, "get_rows", 2..=2, "rows of a table [n, m], picked by i32 ids; converted to F32";
    SetRows = 2, "set_rows", 3..=3, "cache, rows, ids: writes row i at row ids[i] of the cache, converting; of rows with one id the last stays, ids outside are skipped; the result is the cache";
    MulMat = 3, "mul_mat", 2..=2, "w [k, m] and x [k, n] give [m, n]; dims 2 and 3 of w broadcast";
    MulMatId = 4, "mul_mat_id", 3..=3, "w [k, m, n_expert], x [k, 1 or n_used, n_tokens], ids [n_used, n_tokens] give [m, n_used, n_tokens]";
    Add = 5, "add", 2..=2, "a + b; b broadcasts";
    Sub = 6, "sub", 2..=2, "a - b; b broadcasts";
    Mul = 7, "mul", 2..=2, "a * b; b broadcasts";
    Div = 8, "div", 2..=2, "a / b; b broadcasts";
    Scale = 9, "scale", 1..=1, "x * scale + bias";
    Silu = 10, "silu", 1..=1, "x * sigmoid(x)";
    Gelu = 11, "gelu", 1..=1, "gelu in its tanh form";
    GeluErf = 12, "gelu_erf", 1..=1, "gelu with the error function";
    GeluQuick = 13, "gelu_quick", 1..=1, "x * sigmoid(1.702 x)";
    Relu = 14, "relu", 1..=1, "max(x, 0)";
    Tanh = 15, "tanh", 1..=1, "hyperbolic tangent";
    Sigmoid = 16, "sigmoid", 1..=1, "1 / (1 + exp(-x))";
    RmsNorm = 20, "rms_norm", 1..=2, "x * rsqrt(mean(x^2) + eps), times a weight if given";
    LayerNorm = 21, "layer_norm", 1..=3, "(x - mean) * rsqrt(variance + eps), times a weight, plus a bias";
    Rope = 22, "rope", 2..=3, "rotary position embedding of x [head_dim, n_heads, n_tokens]; frequency factors optional";
    SoftMax = 23, "soft_max", 1..=2, "softmax(x * scale + mask) over rows";
    Attention = 24, "attention", 6..=7, "q, K cache, V cache, block table, sequence lengths, query starts (each at least the one before), sinks: causal attention over a paged cache";
    PagedMask = 25, "paged_mask", 3..=3, "block table, sequence lengths, query starts: 0 where a query may see a slot of the cache, -inf elsewhere";
    Glu = 26, "glu", 1..=2, "activation(gate) * up; one source holds both halves";
    TopK = 27, "top_k", 1..=1, "i32 indices of the k largest values of each row, largest first";
    MoeWeights = 28, "moe_weights", 2..=2, "router logits [n_expert, n_tokens], ids [n_used, n_tokens]: weights [1, n_used, n_tokens]";
    SumRows = 29, "sum_rows", 1..=1, "sum of each row";
    Copy = 30, "copy", 1..=1, "a contiguous copy, converted to the result's dtype";
}

impl Op {
    /// The number across the ABI.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The name, which is also the file name everywhere.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The op with this name.
    pub fn from_name(name: &str) -> Option<Op> {
        Self::ALL.iter().copied().find(|op| op.name() == name)
    }
}

impl core::fmt::Display for Op {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique() {
        for (i, a) in Op::ALL.iter().enumerate() {
            assert_eq!(Op::from_id(a.id()), Some(*a));
            assert_eq!(Op::from_name(a.name()), Some(*a));
            assert!(Op::ALL[..i].iter().all(|b| b.id() != a.id() && b.name() != a.name()));
        }
    }

    #[test]
    fn params_read_back_and_refuse_a_non_zero_tail() {
        let p = ScaleParams { scale: 2.5, bias: -1.0 };
        assert_eq!(ScaleParams::from_bytes(&p.to_bytes()), Some(p));
        assert_eq!(ScaleParams::from_bytes(&p.to_bytes()[..4]), Some(ScaleParams { scale: 2.5, bias: 0.0 }));
        let longer = [&p.to_bytes()[..], &[0, 0, 0, 0]].concat();
        assert_eq!(ScaleParams::from_bytes(&longer), Some(p));
        let newer = [&p.to_bytes()[..], &[0, 1, 0, 0]].concat();
        assert_eq!(ScaleParams::from_bytes(&newer), None);
    }
}
