//! Mixes of types: which tensors get a better type than most. The rules are llama.cpp's, without importance matrix.

use llmrt_abi::DType;

/// A type for most matrices, and rules for the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Its name, lower case.
    pub name: &'static str,
    /// The type of most matrices.
    pub base: DType,
    /// `general.file_type`.
    pub file_type: u32,
    form: Form,
}

/// How much better the better ones are: the last letter of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Small,
    Medium,
    Large,
}

/// Names, types and file types.
const MIXES: &[(&str, DType, u32, Form)] = &[
    ("f32", DType::F32, 0, Form::Small),
    ("f16", DType::F16, 1, Form::Small),
    ("q4_0", DType::Q4_0, 2, Form::Small),
    ("q4_1", DType::Q4_1, 3, Form::Small),
    ("q8_0", DType::Q8_0, 7, Form::Small),
    ("q5_0", DType::Q5_0, 8, Form::Small),
    ("q5_1", DType::Q5_1, 9, Form::Small),
    ("q2_k", DType::Q2_K, 10, Form::Medium),
    ("q3_k_s", DType::Q3_K, 11, Form::Small),
    ("q3_k_m", DType::Q3_K, 12, Form::Medium),
    ("q3_k_l", DType::Q3_K, 13, Form::Large),
    ("q4_k_s", DType::Q4_K, 14, Form::Small),
    ("q4_k_m", DType::Q4_K, 15, Form::Medium),
    ("q5_k_s", DType::Q5_K, 16, Form::Small),
    ("q5_k_m", DType::Q5_K, 17, Form::Medium),
    ("q6_k", DType::Q6_K, 18, Form::Small),
    ("q2_k_s", DType::Q2_K, 21, Form::Small),
    ("iq4_nl", DType::IQ4_NL, 25, Form::Small),
    ("iq4_xs", DType::IQ4_XS, 30, Form::Small),
    ("bf16", DType::BF16, 32, Form::Small),
    ("tq1_0", DType::TQ1_0, 36, Form::Small),
    ("tq2_0", DType::TQ2_0, 37, Form::Small),
    ("mxfp4", DType::MXFP4, 38, Form::Small),
    ("q1_0", DType::Q1_0, 40, Form::Small),
    ("q2_0", DType::Q2_0, 41, Form::Small),
    ("q3_k", DType::Q3_K, 12, Form::Medium),
    ("q4_k", DType::Q4_K, 15, Form::Medium),
    ("q5_k", DType::Q5_K, 17, Form::Medium),
];

impl std::str::FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let found = MIXES.iter().find(|(name, ..)| name.eq_ignore_ascii_case(text));
        let names = || MIXES.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
        let &(name, base, file_type, form) = found.ok_or_else(|| format!("expected one of {}", names()))?;
        Ok(Mix { name, base, file_type, form })
    }
}

/// Facts of a model that the rules depend on.
#[derive(Clone, Copy, Default, Debug)]
pub struct Facts {
    /// Layers.
    pub n_layers: u64,
    /// Query heads per KV head.
    pub n_gqa: u64,
    /// Experts; 0 or 1 in dense models.
    pub n_experts: u64,
    /// Falcon has a narrower ffn_down and keeps its output at Q8_0.
    pub is_falcon: bool,
    /// Llama 2 and 3 of 70 billion weights: attn_v is small beside the rest.
    pub is_70b: bool,
    /// The token embeddings are the output matrix too.
    pub is_tied: bool,
}

impl Mix {
    /// The type of the matrix `name` with rows of `n` elements; `n_matrices` is more than 1 for experts.
    pub fn dtype(&self, facts: &Facts, name: &str, n: u64, n_matrices: u64) -> DType {
        if !self.base.is_quantised() {
            return self.base;
        }
        let has = |part: &str| name.contains(part);
        let layer = layer(name);
        match () {
            () if name == "output.weight" || (facts.is_tied && name == "token_embd.weight") => {
                self.output(facts, n)
            }
            () if self.base == DType::MXFP4 => {
                if n_matrices > 1 {
                    DType::MXFP4
                } else {
                    DType::Q8_0
                }
            }
            () if name == "token_embd.weight" => match self.base {
                DType::TQ1_0 | DType::TQ2_0 | DType::Q2_0 => DType::Q4_K,
                base => base,
            },
            () if ["attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"].iter().any(|part| has(part)) => {
                self.attn_v(facts, layer)
            }
            () if has("attn_k.weight") && facts.n_experts == 8 => DType::Q8_0,
            () if has("ffn_down") => self.ffn_down(facts, layer),
            () if has("attn_output.weight") => self.attn_output(facts),
            () => self.base,
        }
    }

    fn output(&self, facts: &Facts, n: u64) -> DType {
        let whole = n.is_multiple_of(self.base.block_elems() as u64);
        match self.base {
            DType::MXFP4 | DType::Q8_0 => DType::Q8_0,
            _ if facts.is_falcon || !whole => DType::Q8_0,
            _ => DType::Q6_K,
        }
    }

    fn attn_v(&self, facts: &Facts, layer: u64) -> DType {
        let more = more_bits(layer, facts.n_layers);
        let dtype = match (self.base, self.form) {
            (DType::Q2_K, Form::Medium) if facts.n_gqa < 4 => DType::Q3_K,
            (DType::Q2_K, _) if facts.n_gqa >= 4 => DType::Q4_K,
            (DType::Q3_K, Form::Medium) if layer >= 2 => DType::Q4_K,
            (DType::Q3_K, Form::Medium | Form::Large) => DType::Q5_K,
            (DType::IQ4_NL | DType::IQ4_XS, _) if facts.n_gqa >= 4 => DType::Q5_K,
            (DType::Q4_K | DType::Q5_K, Form::Medium) if more => DType::Q6_K,
            (DType::Q4_K, Form::Small) if layer < 4 => DType::Q5_K,
            (base, _) => base,
        };
        match dtype {
            _ if facts.n_experts == 8 => DType::Q8_0,
            DType::Q3_K | DType::Q4_K if facts.is_70b => DType::Q5_K,
            dtype => dtype,
        }
    }

    fn ffn_down(&self, facts: &Facts, layer: u64) -> DType {
        let n = facts.n_layers;
        let (first, more) = (layer < n / 8, more_bits(layer, n));
        match (self.base, self.form) {
            (DType::Q2_K, Form::Medium) => DType::Q3_K,
            (DType::Q2_K, _) if first => DType::Q4_K,
            (DType::Q3_K, Form::Medium) if layer < n / 16 => DType::Q5_K,
            (DType::Q3_K, Form::Medium) if !facts.is_falcon || more => DType::Q4_K,
            (DType::Q3_K, Form::Large) => {
                if facts.is_falcon {
                    DType::Q4_K
                } else {
                    DType::Q5_K
                }
            }
            (DType::Q4_K, Form::Medium) if facts.is_falcon => match layer {
                _ if layer < n / 16 => DType::Q6_K,
                _ if more => DType::Q5_K,
                _ => DType::Q4_K,
            },
            (DType::Q4_K | DType::Q5_K, Form::Medium) if more => DType::Q6_K,
            (DType::IQ4_NL | DType::IQ4_XS, _) if first => DType::Q5_K,
            (DType::Q4_K, Form::Small) if first && !facts.is_falcon => DType::Q5_K,
            (base, _) => base,
        }
    }

    fn attn_output(&self, facts: &Facts) -> DType {
        match (self.base, self.form) {
            (DType::Q3_K, Form::Large) if facts.is_falcon => DType::Q4_K,
            (base, _) if facts.is_falcon => base,
            (DType::Q2_K, Form::Medium) | (DType::Q3_K, Form::Small | Form::Medium)
                if facts.n_experts == 8 =>
            {
                DType::Q5_K
            }
            (DType::Q4_K | DType::IQ4_NL | DType::IQ4_XS, _) if facts.n_experts == 8 => DType::Q5_K,
            (base, _) if facts.n_experts == 8 => base,
            (DType::Q2_K, Form::Medium) => DType::Q3_K,
            (DType::Q3_K, Form::Medium) => DType::Q4_K,
            (DType::Q3_K, Form::Large) => DType::Q5_K,
            (base, _) => base,
        }
    }
}

/// The first and last eighth of the layers, and every third between.
fn more_bits(layer: u64, n_layers: u64) -> bool {
    let eighth = n_layers / 8;
    layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2
}

/// N of `blk.N.…`; 0 without one.
fn layer(name: &str) -> u64 {
    let number = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next());
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mix: &str, facts: Facts, expected: &[(&str, DType)]) {
        let mix: Mix = mix.parse().unwrap();
        for (name, dtype) in expected {
            assert_eq!(mix.dtype(&facts, name, 4096, 1), *dtype, "{} {name}", mix.name);
        }
    }

    const DENSE: Facts =
        Facts { n_layers: 32, n_gqa: 4, n_experts: 0, is_falcon: false, is_70b: false, is_tied: false };

    #[test]
    fn q4_k_m_gives_more_bits_to_the_ends_and_to_every_third_between() {
        let down = |layer: u64| format!("blk.{layer}.ffn_down.weight");
        let mix: Mix = "Q4_K_M".parse().unwrap();
        let better: Vec<u64> =
            (0..32).filter(|l| mix.dtype(&DENSE, &down(*l), 4096, 1) == DType::Q6_K).collect();
        assert_eq!(better, [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
        check(
            "q4_k_m",
            DENSE,
            &[
                ("output.weight", DType::Q6_K),
                ("token_embd.weight", DType::Q4_K),
                ("blk.0.attn_v.weight", DType::Q6_K),
                ("blk.4.attn_v.weight", DType::Q4_K),
                ("blk.0.attn_q.weight", DType::Q4_K),
            ],
        );
    }

    #[test]
    fn other_mixes_have_their_own_bumps() {
        check("q2_k", DENSE, &[("blk.9.attn_v.weight", DType::Q4_K), ("blk.9.ffn_down.weight", DType::Q3_K)]);
        check(
            "q3_k_m",
            DENSE,
            &[("blk.1.attn_v.weight", DType::Q5_K), ("blk.9.attn_output.weight", DType::Q4_K)],
        );
        check(
            "q4_k_s",
            DENSE,
            &[("blk.3.attn_v.weight", DType::Q5_K), ("blk.4.ffn_down.weight", DType::Q4_K)],
        );
        check("q8_0", DENSE, &[("output.weight", DType::Q8_0), ("blk.0.ffn_down.weight", DType::Q8_0)]);
        check("f16", DENSE, &[("output.weight", DType::F16)]);
        let moe = Facts { n_experts: 8, ..DENSE };
        check(
            "q4_k_m",
            moe,
            &[("blk.9.attn_k.weight", DType::Q8_0), ("blk.9.attn_output.weight", DType::Q5_K)],
        );
        check("q4_k_m", Facts { is_tied: true, ..DENSE }, &[("token_embd.weight", DType::Q6_K)]);
        check("q3_k_s", Facts { is_70b: true, ..DENSE }, &[("blk.9.attn_v.weight", DType::Q5_K)]);
    }

    #[test]
    fn a_name_that_is_none_is_answered_with_all() {
        assert!("q7".parse::<Mix>().unwrap_err().contains("q4_k_m"));
        assert!(MIXES.iter().all(|(_, base, ..)| llmrt_graph::quant::can_encode(*base)));
    }
}
