//! THE op table. Numbers are frozen and never reused; the meaning of an op is defined in `runtime/graph/src/ops/<name>.rs`
//! and published in `docs/reference/ops.md`.

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
    /// Attributes of `rms_norm`, `layer_norm` and `l2_norm`.
    NormParams "llmrt_p_norm" {
        /// Added to the mean square (variance) before the root.
        eps: f32,
    }
    /// Attributes of `rope`.
    RopeParams "llmrt_p_rope" {
        /// Elements of each head that are rotated; even. Mode 24: half of them.
        n_dims: u32,
        /// 0: pairs (2i, 2i+1); 2: pairs (i, i + n_dims/2), as GPT-NeoX; 8: as 2 with four positions per token, pairs in
        /// sections; 24: vision, 40: as 8 with interleaved sections.
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
        /// Modes of several positions per token: pairs that turn by position 0 (time).
        section0: u32,
        /// Pairs that turn by position 1 (height).
        section1: u32,
        /// Pairs that turn by position 2 (width).
        section2: u32,
        /// Pairs that turn by position 3 (extra).
        section3: u32,
        /// 1: turns the other way, which undoes the op.
        back: u32,
        /// First rotated element of each head; even.
        offset: u32,
    }
    /// Attributes of `soft_max`: softmax(x·scale + slope·mask).
    SoftMaxParams "llmrt_p_soft_max" {
        /// Factor on x.
        scale: f32,
        /// ALiBi: largest bias, from which each head's slope on the mask follows; 0: slopes are 1.
        max_bias: f32,
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
        /// 1: queries see keys after their own position, too, up to the sequence's length; a window then reaches half its size
        /// to either side.
        bidirectional: u32,
        /// Positions of a chunk: queries see keys of their own chunk only; 0: none.
        chunk: u32,
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
        /// 1: queries see keys after their own position, too, up to the sequence's length; a window then reaches half its size
        /// to either side.
        bidirectional: u32,
        /// Positions of a chunk: queries see keys of their own chunk only; 0: none.
        chunk: u32,
    }
    /// Attributes of `paged_scores`.
    PagedScoresParams "llmrt_p_paged_scores" {
        /// Tokens in one block of the cache.
        block_size: u32,
        /// Positions for each key: key i is at position (i + 1)·stride - 1; 0 means 1.
        stride: u32,
        /// 1: a score for each head; 0: their weighted sum.
        by_head: u32,
    }
    /// Attributes of `sparse_attention`.
    SparseAttentionParams "llmrt_p_sparse_attention" {
        /// KV heads; a multiple of them are query heads.
        n_kv_heads: u32,
        /// Tokens in one block of the cache.
        block_size: u32,
        /// Factor on q·k.
        scale: f32,
    }
    /// Attributes of `glu`.
    GluParams "llmrt_p_glu" {
        /// Activation of the gate: 0 silu, 1 gelu (tanh form), 2 relu, 3 gelu (erf form), 4 sigmoid, 5 gelu (x·sigmoid(1.702x)), 6 gpt-oss.
        activation: u32,
        /// With one source: 0 when the first half is the gate, 1 when the second is.
        swapped: u32,
        /// gpt-oss: factor in the gate's sigmoid.
        alpha: f32,
        /// gpt-oss: the gate is at most this, the other half within plus and minus it.
        limit: f32,
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
    /// Attributes of `xielu`.
    XieluParams "llmrt_p_xielu" {
        /// Factor on the negative side.
        alpha_n: f32,
        /// Factor of x² on the positive side.
        alpha_p: f32,
        /// Slope at zero.
        beta: f32,
        /// The negative side takes min(x, eps) in its exponential.
        eps: f32,
    }
    /// Attributes of `leaky_relu`.
    LeakyReluParams "llmrt_p_leaky_relu" {
        /// Factor on negative numbers.
        slope: f32,
    }
    /// Attributes of `clamp`.
    ClampParams "llmrt_p_clamp" {
        /// Smallest result.
        min: f32,
        /// Largest result.
        max: f32,
    }
    /// Attributes of `acc` and `set`: position of b in a.
    BlockParams "llmrt_p_block" {
        /// First element in dim 0.
        start0: u32,
        /// First element in dim 1.
        start1: u32,
        /// First element in dim 2.
        start2: u32,
        /// First element in dim 3.
        start3: u32,
    }
    /// Attributes of `argsort`.
    ArgsortParams "llmrt_p_argsort" {
        /// 0: smallest first, 1: largest first.
        descending: u32,
    }
    /// Attributes of `repeat`: dims of the result.
    ShapeParams "llmrt_p_shape" {
        /// Elements of dim 0.
        ne0: u32,
        /// Elements of dim 1.
        ne1: u32,
        /// Elements of dim 2.
        ne2: u32,
        /// Elements of dim 3.
        ne3: u32,
    }
    /// Attributes of `concat`.
    ConcatParams "llmrt_p_concat" {
        /// The dim along which the sources follow each other.
        dim: u32,
    }
    /// Attributes of `diag_mask_inf` and `diag_mask_zero`.
    DiagMaskParams "llmrt_p_diag_mask" {
        /// Elements of row i past n_past + i are masked.
        n_past: u32,
    }
    /// Attributes of `roll`.
    RollParams "llmrt_p_roll" {
        /// Elements by which dim 0 moves on; what leaves it comes in at its other end.
        shift0: i32,
        /// Elements by which dim 1 moves on; what leaves it comes in at its other end.
        shift1: i32,
        /// Elements by which dim 2 moves on; what leaves it comes in at its other end.
        shift2: i32,
        /// Elements by which dim 3 moves on; what leaves it comes in at its other end.
        shift3: i32,
    }
    /// Attributes of `pad`.
    PadParams "llmrt_p_pad" {
        /// 0: with `value`; 1: mirrored at the edge, which is not repeated; 2: circular.
        mode: u32,
        /// What mode 0 puts there.
        value: f32,
        /// Elements before those of dim 0.
        before0: u32,
        /// Elements after those of dim 0.
        after0: u32,
        /// Elements before those of dim 1.
        before1: u32,
        /// Elements after those of dim 1.
        after1: u32,
        /// Elements before those of dim 2.
        before2: u32,
        /// Elements after those of dim 2.
        after2: u32,
        /// Elements before those of dim 3.
        before3: u32,
        /// Elements after those of dim 3.
        after3: u32,
    }
    /// Attributes of `upscale`.
    UpscaleParams "llmrt_p_upscale" {
        /// 0: nearest, 1: bilinear, 2: bicubic, 3: bilinear with antialiasing (of x that shrinks, all elements count
        /// under the triangle that the ratio stretches).
        mode: u32,
        /// 1: the corners of x and y coincide.
        align_corners: u32,
        /// Elements of dim 0 of the result.
        ne0: u32,
        /// Elements of dim 1 of the result.
        ne1: u32,
        /// Elements of dim 2 of the result.
        ne2: u32,
        /// Elements of dim 3 of the result.
        ne3: u32,
    }
    /// Attributes of `arange`.
    ArangeParams "llmrt_p_arange" {
        /// First number.
        start: f32,
        /// The numbers end before this.
        stop: f32,
        /// From one to the next.
        step: f32,
    }
    /// Attributes of `tri`.
    TriParams "llmrt_p_tri" {
        /// What is kept, the rest is 0. 0: upper triangle with the diagonal, 1: upper without, 2: lower with, 3: lower without.
        kind: u32,
    }
    /// Attributes of `fill`.
    FillParams "llmrt_p_fill" {
        /// Every element of the result.
        value: f32,
    }
    /// Attributes of `repeat_interleave`.
    RepeatInterleaveParams "llmrt_p_repeat_interleave" {
        /// The dim that grows.
        dim: u32,
        /// Copies of each element, side by side.
        n: u32,
    }
    /// Attributes of `index_fill`.
    IndexFillParams "llmrt_p_index_fill" {
        /// The dim that indices count.
        dim: u32,
        /// What stands there afterwards.
        value: f32,
    }
    /// Attributes of `win_part` and `win_unpart`.
    WinParams "llmrt_p_win" {
        /// Width and height of a window.
        window: u32,
        /// `win_unpart`: dim 1 of the result.
        width: u32,
        /// `win_unpart`: dim 2 of the result.
        height: u32,
    }
    /// Attributes of `timestep_embedding`.
    TimestepEmbeddingParams "llmrt_p_timestep_embedding" {
        /// Elements of a row of the result.
        dim: u32,
        /// Slowest frequency: 1/max_period.
        max_period: u32,
    }
    /// Attributes of `group_norm`.
    GroupNormParams "llmrt_p_group_norm" {
        /// Groups into which dim 2 falls.
        n_groups: u32,
        /// Added to the variance before the root.
        eps: f32,
    }
    /// Attributes of `im2col`.
    Im2colParams "llmrt_p_im2col" {
        /// Step in dim 0.
        stride0: u32,
        /// Step in dim 1.
        stride1: u32,
        /// Padding at both ends in dim 0.
        pad0: u32,
        /// Padding at both ends in dim 1.
        pad1: u32,
        /// Distance of the taps in dim 0.
        dilation0: u32,
        /// Distance of the taps in dim 1.
        dilation1: u32,
        /// 0: one spatial dim, 1: two.
        is_2d: u32,
        /// The result's dtype number.
        dtype: u32,
    }
    /// Attributes of `im2col_3d`.
    Im2col3dParams "llmrt_p_im2col_3d" {
        /// Step in dim 0.
        stride0: u32,
        /// Step in dim 1.
        stride1: u32,
        /// Step in dim 2.
        stride2: u32,
        /// Padding at both ends in dim 0.
        pad0: u32,
        /// Padding at both ends in dim 1.
        pad1: u32,
        /// Padding at both ends in dim 2.
        pad2: u32,
        /// Distance of the taps in dim 0.
        dilation0: u32,
        /// Distance of the taps in dim 1.
        dilation1: u32,
        /// Distance of the taps in dim 2.
        dilation2: u32,
        /// Input channels, folded into dim 3 of the sources.
        n_channels: u32,
        /// The result's dtype number.
        dtype: u32,
    }
    /// Attributes of `col2im_1d`.
    Col2im1dParams "llmrt_p_col2im_1d" {
        /// Step of the windows.
        stride: u32,
        /// Output channels.
        n_channels: u32,
        /// Elements cut off at both ends.
        pad: u32,
    }
    /// Attributes of `conv_1d`, `conv_1d_dw` and `conv_transpose_1d`.
    Conv1dParams "llmrt_p_conv_1d" {
        /// Step.
        stride: u32,
        /// Padding at both ends.
        pad: u32,
        /// Distance of the taps.
        dilation: u32,
    }
    /// Attributes of `conv_2d` and `conv_2d_dw`; of `conv_transpose_2d`, which has no padding and no dilation.
    Conv2dParams "llmrt_p_conv_2d" {
        /// Step in dim 0.
        stride0: u32,
        /// Step in dim 1.
        stride1: u32,
        /// Padding at both ends in dim 0.
        pad0: u32,
        /// Padding at both ends in dim 1.
        pad1: u32,
        /// Distance of the taps in dim 0.
        dilation0: u32,
        /// Distance of the taps in dim 1.
        dilation1: u32,
    }
    /// Attributes of `conv_3d`.
    Conv3dParams "llmrt_p_conv_3d" {
        /// Step in dim 0.
        stride0: u32,
        /// Step in dim 1.
        stride1: u32,
        /// Step in dim 2.
        stride2: u32,
        /// Padding at both ends in dim 0.
        pad0: u32,
        /// Padding at both ends in dim 1.
        pad1: u32,
        /// Padding at both ends in dim 2.
        pad2: u32,
        /// Distance of the taps in dim 0.
        dilation0: u32,
        /// Distance of the taps in dim 1.
        dilation1: u32,
        /// Distance of the taps in dim 2.
        dilation2: u32,
        /// Input channels, folded into dim 3 of the sources.
        n_channels: u32,
        /// Volumes, folded into dim 3 of x.
        n_batch: u32,
        /// Output channels, folded into dim 3 of the kernel.
        n_out: u32,
    }
    /// Attributes of `pool_1d` and `pool_2d`.
    PoolParams "llmrt_p_pool" {
        /// 0: largest, 1: mean.
        kind: u32,
        /// Elements of a window in dim 0.
        kernel0: u32,
        /// Elements of a window in dim 1.
        kernel1: u32,
        /// Step in dim 0.
        stride0: u32,
        /// Step in dim 1.
        stride1: u32,
        /// Padding at both ends in dim 0.
        pad0: u32,
        /// Padding at both ends in dim 1.
        pad1: u32,
    }
    /// Attributes of `attention_contiguous`.
    AttentionContiguousParams "llmrt_p_attention_contiguous" {
        /// Factor on q·k.
        scale: f32,
        /// Scores become softcap·tanh(score/softcap); 0: none.
        softcap: f32,
        /// ALiBi: largest bias, from which each head's slope on the mask follows; 0: slopes are 1.
        max_bias: f32,
    }
    /// Attributes of `ssm_scan` and `gated_delta_net`.
    StatesParams "llmrt_p_states" {
        /// States of each sequence in the result: the one after the last token, then those before, one token back each;
        /// 0 means 1. Those before the first token are zeros; of no tokens, the first is the one that was given.
        n_states: u32,
    }
    /// Attributes of `token_windows`.
    TokenWindowsParams "llmrt_p_token_windows" {
        /// What stands before the first token of a sequence without a state.
        fill: f32,
    }
    /// Attributes of `gated_linear_attn`.
    GatedLinearAttnParams "llmrt_p_gated_linear_attn" {
        /// Factor on the result.
        scale: f32,
    }
    /// Attributes of `mul_mat_sparse` and `mul_mat_t`: which scores pass.
    PickParams "llmrt_p_pick" {
        /// What scores are compared with; not NaN.
        threshold: f32,
        /// 0: scores pass that are not below the threshold, NaN among them; 1: those above it.
        strict: u32,
    }
    /// Attributes of `threshold`.
    ThresholdParams "llmrt_p_threshold" {
        /// Elements of a smaller magnitude become 0; not NaN.
        threshold: f32,
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
    /// Name in C of its params struct; empty: it has none.
    pub params: &'static str,
    /// What it computes, one line.
    pub doc: &'static str,
}

macro_rules! ops {
    ($($variant:ident = $id:literal, $name:literal, $min:literal ..= $max:literal, $params:literal, $doc:literal;)*) => {
        /// An operation of the graph.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u32)]
        pub enum Op { $(#[doc = $doc] $variant = $id,)* }

        impl Op {
            /// All ops, in table order.
            pub const ALL: &'static [Op] = &[$(Op::$variant,)*];

            /// The op with this number, if this build has it.
            pub const fn from_id(id: u32) -> Option<Op> {
                match id { $($id => Some(Op::$variant),)* _ => None }
            }

            /// The row of this op.
            pub const fn info(self) -> OpInfo {
                match self { $(Op::$variant => OpInfo {
                    id: $id, name: $name, version: 1, min_src: $min, max_src: $max, params: $params, doc: $doc,
                },)* }
            }
        }
    };
}

ops! {
    GetRows = 1, "get_rows", 2..=2, "", "rows of a table [n, m], picked by i32 ids; converted to F32, or I32 of an I32 table; dims 2 and 3 are batches; an id outside gives zeros";
    SetRows = 2, "set_rows", 3..=3, "", "cache, rows, ids: writes row i at row ids[i] of the cache, converting; of rows with one id the last stays, ids outside are skipped; dims 2 and 3 are batches over which ids repeat; the result is the cache";
    MulMat = 3, "mul_mat", 2..=2, "", "w [k, m] and x [k, n] give [m, n]; in dims 2 and 3 matrix i of x uses matrix i / (n_x / n_w) of w";
    MulMatId = 4, "mul_mat_id", 3..=3, "", "w [k, m, n_expert], x [k, 1 or n_used, n_tokens], ids [n_used, n_tokens] give [m, n_used, n_tokens]";
    Add = 5, "add", 2..=2, "", "a + b; b broadcasts";
    Sub = 6, "sub", 2..=2, "", "a - b; b broadcasts";
    Mul = 7, "mul", 2..=2, "", "a * b; b broadcasts";
    Div = 8, "div", 2..=2, "", "a / b; b broadcasts";
    Scale = 9, "scale", 1..=1, "llmrt_p_scale", "x * scale + bias";
    Silu = 10, "silu", 1..=1, "", "x * sigmoid(x)";
    Gelu = 11, "gelu", 1..=1, "", "gelu in its tanh form; 0 at -inf";
    GeluErf = 12, "gelu_erf", 1..=1, "", "gelu with the error function";
    GeluQuick = 13, "gelu_quick", 1..=1, "", "x * sigmoid(1.702 x)";
    Relu = 14, "relu", 1..=1, "", "max(x, 0)";
    Tanh = 15, "tanh", 1..=1, "", "hyperbolic tangent";
    Sigmoid = 16, "sigmoid", 1..=1, "", "1 / (1 + exp(-x))";
    RmsNorm = 20, "rms_norm", 1..=2, "llmrt_p_norm", "x * rsqrt(mean(x^2) + eps), times a weight [n] if given";
    LayerNorm = 21, "layer_norm", 1..=3, "llmrt_p_norm", "(x - mean) * rsqrt(variance + eps), times a weight, plus a bias";
    Rope = 22, "rope", 2..=3, "llmrt_p_rope", "rotary position embedding of x [head_dim, n_heads, n_tokens]; frequency factors optional";
    SoftMax = 23, "soft_max", 1..=3, "llmrt_p_soft_max", "softmax(x * scale + slope * mask) over rows; mask (may have more rows than x) and sinks (one more score per head, dim 2) optional; with ALiBi the slope of head h of n is 2^(-max_bias (h + 1) / n), n a power of two; a row of -inf gives zeros";
    Attention = 24, "attention", 6..=8, "llmrt_p_attention", "q, K cache, V cache, block table, sequence lengths, query starts (each at least the one before), sinks, biases by distance: attention over a paged cache";
    PagedMask = 25, "paged_mask", 3..=3, "llmrt_p_paged_mask", "block table, sequence lengths, query starts: 0 where a query may see a slot of the cache, -inf elsewhere";
    Glu = 26, "glu", 1..=2, "llmrt_p_glu", "activation(gate) * up; one source holds both halves";
    TopK = 27, "top_k", 1..=1, "llmrt_p_top_k", "i32 indices of the k largest values of each row, largest first";
    MoeWeights = 28, "moe_weights", 2..=2, "llmrt_p_moe_weights", "router logits [n_expert, n_tokens], ids [n_used, n_tokens]: weights [1, n_used, n_tokens]";
    SumRows = 29, "sum_rows", 1..=1, "", "sum of each row";
    Copy = 30, "copy", 1..=1, "llmrt_p_copy", "a contiguous copy, converted to the result's dtype; integers saturate, NaN becomes 0";
    PagedScores = 31, "paged_scores", 5..=6, "llmrt_p_paged_scores", "q, K cache, block table, sequence lengths, query starts, weights of heads: how well each key of a paged cache suits each query";
    SparseAttention = 32, "sparse_attention", 7..=8, "llmrt_p_sparse_attention", "q, K cache, V cache, block table, sequence lengths, query starts, positions, sinks: attention to keys at these positions of a paged cache";
    MulMatSparse = 33, "mul_mat_sparse", 3..=3, "llmrt_p_pick", "w [k, m], x [k, n], scores [m, n]: w x where the score passes, else 0";
    MulMatT = 34, "mul_mat_t", 2..=3, "llmrt_p_pick", "w [m, k], h [k, n] give [m, n], the rows of w times the elements of h, added up; with scores [k, n] those of h count whose score passes; rows for zeros alone are not read";
    Threshold = 35, "threshold", 1..=1, "llmrt_p_threshold", "x, with 0 where |x| is below the threshold; NaN stays";
    Abs = 40, "abs", 1..=1, "", "|x|";
    Sgn = 41, "sgn", 1..=1, "", "-1, 0 or 1 by the sign of x";
    Neg = 42, "neg", 1..=1, "", "-x";
    Step = 43, "step", 1..=1, "", "1 where x > 0, else 0";
    Elu = 44, "elu", 1..=1, "", "x where x > 0, else exp(x) - 1";
    HardSwish = 45, "hardswish", 1..=1, "", "x * min(1, max(0, (x + 3) / 6))";
    HardSigmoid = 46, "hardsigmoid", 1..=1, "", "min(1, max(0, (x + 3) / 6))";
    Exp = 47, "exp", 1..=1, "", "exp(x)";
    Expm1 = 48, "expm1", 1..=1, "", "exp(x) - 1";
    Softplus = 49, "softplus", 1..=1, "", "log(1 + exp(x)), x itself above 20";
    Xielu = 50, "xielu", 1..=1, "llmrt_p_xielu", "alpha_p x^2 + beta x where x > 0, else alpha_n (exp(min(x, eps)) - 1 - x) + beta x";
    Floor = 51, "floor", 1..=1, "", "largest integer not above x";
    Ceil = 52, "ceil", 1..=1, "", "smallest integer not below x";
    Round = 53, "round", 1..=1, "", "nearest integer, halves away from 0";
    Trunc = 54, "trunc", 1..=1, "", "x without its fraction";
    Sqr = 55, "sqr", 1..=1, "", "x^2";
    Sqrt = 56, "sqrt", 1..=1, "", "square root";
    Log = 57, "log", 1..=1, "", "natural logarithm";
    Sin = 58, "sin", 1..=1, "", "sine";
    Cos = 59, "cos", 1..=1, "", "cosine";
    LeakyRelu = 60, "leaky_relu", 1..=1, "llmrt_p_leaky_relu", "x where x > 0, else slope x; NaN stays NaN";
    Clamp = 61, "clamp", 1..=1, "llmrt_p_clamp", "x within min..max";
    Add1 = 70, "add1", 2..=2, "", "a + b, b of one element";
    AddId = 71, "add_id", 3..=3, "", "a [n, n_used, n_tokens] plus the rows of b [n, n_expert] that ids [n_used, n_tokens] name";
    Acc = 72, "acc", 2..=2, "llmrt_p_block", "a with b added to a block of it";
    Set = 73, "set", 2..=2, "llmrt_p_block", "a with a block of it replaced by b";
    Pow = 74, "pow", 2..=2, "", "a to the power b; b broadcasts";
    CountEqual = 75, "count_equal", 2..=2, "", "i64: how many elements of two i32 tensors are equal";
    OutProd = 76, "out_prod", 2..=2, "", "a [m, k] and b [n, k] give [m, n], the sum of the outer products of their rows; dims 2 and 3 of a broadcast";
    Sum = 80, "sum", 1..=1, "", "sum of all elements";
    Cumsum = 81, "cumsum", 1..=1, "", "running sum of each row";
    Mean = 82, "mean", 1..=1, "", "mean of each row";
    Argmax = 83, "argmax", 1..=1, "", "i32 index of the largest element of each row; the first of equals";
    Argsort = 84, "argsort", 1..=1, "llmrt_p_argsort", "i32 indices of the elements of each row in order; ties keep the lower index first";
    Repeat = 90, "repeat", 1..=1, "llmrt_p_shape", "copies of x side by side up to the given dims";
    Concat = 91, "concat", 2..=2, "llmrt_p_concat", "a, then b along a dim";
    Cpy = 92, "cpy", 2..=2, "", "y, x: writes the elements of x over those of y, in order, converting; the result is y";
    Diag = 93, "diag", 1..=1, "", "x [n, 1] on the diagonal of [n, n]";
    DiagMaskInf = 94, "diag_mask_inf", 1..=1, "llmrt_p_diag_mask", "-inf past the diagonal";
    DiagMaskZero = 95, "diag_mask_zero", 1..=1, "llmrt_p_diag_mask", "0 past the diagonal";
    Roll = 96, "roll", 1..=1, "llmrt_p_roll", "x moved along its dims, around the ends";
    Pad = 97, "pad", 1..=1, "llmrt_p_pad", "x with elements around it";
    Upscale = 98, "upscale", 1..=1, "llmrt_p_upscale", "x at another resolution";
    Arange = 99, "arange", 0..=0, "llmrt_p_arange", "numbers at equal distances";
    Tri = 100, "tri", 1..=1, "llmrt_p_tri", "a triangle of each matrix, the rest 0";
    Fill = 101, "fill", 1..=1, "llmrt_p_fill", "one number in the shape of x";
    RepeatInterleave = 102, "repeat_interleave", 1..=1, "llmrt_p_repeat_interleave", "each element of a dim several times, copies side by side";
    IndexFill = 103, "index_fill", 2..=2, "llmrt_p_index_fill", "x with one number at the indices of a dim";
    WinPart = 104, "win_part", 1..=1, "llmrt_p_win", "x [c, w, h] cut into square windows, padded with 0: [c, window, window, n]";
    WinUnpart = 105, "win_unpart", 1..=1, "llmrt_p_win", "windows put together, the padding dropped";
    TimestepEmbedding = 106, "timestep_embedding", 1..=1, "llmrt_p_timestep_embedding", "cosines and sines of times [n]: [dim, n]";
    GroupNorm = 110, "group_norm", 1..=1, "llmrt_p_group_norm", "x [w, h, c, n] with zero mean and unit variance in each group of channels";
    L2Norm = 111, "l2_norm", 1..=1, "llmrt_p_norm", "rows divided by their length, which counts as at least eps";
    Im2col = 120, "im2col", 2..=2, "llmrt_p_im2col", "kernel, x: the elements under each position of the kernel, as rows";
    Im2col3d = 121, "im2col_3d", 2..=2, "llmrt_p_im2col_3d", "im2col in three dims";
    Col2im1d = 122, "col2im_1d", 1..=1, "llmrt_p_col2im_1d", "columns of overlapping windows added up to a signal";
    Conv1d = 123, "conv_1d", 2..=2, "llmrt_p_conv_1d", "kernel [k, c_in, c_out], x [l, c_in, n]: convolution in one dim";
    Conv1dDw = 124, "conv_1d_dw", 2..=2, "llmrt_p_conv_1d", "convolution in one dim, each channel with its own kernel";
    Conv2d = 125, "conv_2d", 2..=2, "llmrt_p_conv_2d", "kernel [kw, kh, c_in, c_out], x [w, h, c_in, n]: convolution in two dims";
    Conv2dDw = 126, "conv_2d_dw", 2..=2, "llmrt_p_conv_2d", "convolution in two dims, each channel with its own kernel";
    Conv3d = 127, "conv_3d", 2..=2, "llmrt_p_conv_3d", "convolution in three dims";
    ConvTranspose1d = 128, "conv_transpose_1d", 2..=2, "llmrt_p_conv_1d", "transposed convolution in one dim";
    ConvTranspose2d = 129, "conv_transpose_2d", 2..=2, "llmrt_p_conv_2d", "transposed convolution in two dims";
    Pool1d = 130, "pool_1d", 1..=1, "llmrt_p_pool", "largest or mean of windows of a row";
    Pool2d = 131, "pool_2d", 1..=1, "llmrt_p_pool", "largest or mean of windows of an image";
    AttentionContiguous = 140, "attention_contiguous", 3..=5, "llmrt_p_attention_contiguous", "q [d, n_q, n_heads, n], k [d, n_kv, n_kv_heads, n], v [dv, n_kv, n_kv_heads, n], mask, sinks: [dv, n_heads, n_q, n]";
    SsmConv = 150, "ssm_conv", 2..=2, "", "x [k - 1 + n_tokens, n_inner, n_seqs], kernel [k, n_inner]: causal convolution, [n_inner, n_tokens, n_seqs]";
    SsmScan = 151, "ssm_scan", 7..=8, "llmrt_p_states", "states, x, dt, a, b, c, ids: the scan of a selective state space model, its outputs and then its states; with query starts, of sequences of different lengths";
    RwkvWkv6 = 152, "rwkv_wkv6", 6..=8, "", "k, v, r, time_first, time_decay, state: RWKV 6, its outputs and then its states; with ids and query starts, of sequences of different lengths";
    RwkvWkv7 = 153, "rwkv_wkv7", 7..=9, "", "r, w, k, v, a, b, state: RWKV 7, its outputs and then its states; with ids and query starts, of sequences of different lengths";
    GatedLinearAttn = 154, "gated_linear_attn", 5..=7, "llmrt_p_gated_linear_attn", "k, v, q, g, state: its outputs and then its states; with ids and query starts, of sequences of different lengths";
    GatedDeltaNet = 155, "gated_delta_net", 6..=8, "llmrt_p_states", "q, k, v, g, beta, state: its outputs and then its states; with ids and query starts, of sequences of different lengths";
    SolveTri = 156, "solve_tri", 2..=2, "", "a [n, n] lower triangular, b [k, n]: x [k, n] with a x = b";
    SsmConvRagged = 157, "ssm_conv_ragged", 5..=5, "", "x [n_inner, n_tokens], kernel [k, n_inner], states [n_inner, k - 1, n_slots], ids, query starts: causal convolution of sequences of different lengths, its outputs and then its states";
    TokenWindows = 158, "token_windows", 4..=4, "llmrt_p_token_windows", "x [n, n_tokens], states [n, n_rows - 1, n_slots], ids, query starts: of each token its row and those before it, and then the states";
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
