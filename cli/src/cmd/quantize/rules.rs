//! Which type each tensor gets: what stays, the flags, the mix, and what its rows allow.

use super::mix::{Facts, Mix};
use llmrt_abi::{DType, dtype::DTypeKind};
use llmrt_gguf::{Metadata, TensorShape};
use llmrt_graph::quant;
use regex_automata::meta::Regex;
use std::str::FromStr;

/// `REGEX=TYPE`.
#[derive(Clone, Debug)]
pub struct Rule {
    regex: Regex,
    dtype: DType,
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Rule, String> {
        let (regex, dtype) = text.rsplit_once('=').ok_or("expected REGEX=TYPE, such as ffn_down=q6_k")?;
        let regex = Regex::new(regex).map_err(|e| format!("{regex} is no regular expression: {e}"))?;
        Ok(Rule { regex, dtype: encodable(dtype)? })
    }
}

/// A type that numbers can be written in.
pub fn encodable(text: &str) -> std::result::Result<DType, String> {
    let all = || DType::ALL.iter().filter(|&&t| quant::can_encode(t));
    all().copied().find(|t| t.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
        format!("expected one of {}", all().map(|t| t.name().to_lowercase()).collect::<Vec<_>>().join(", "))
    })
}

/// The requested types.
#[derive(Clone, Copy)]
pub struct TypeRequest<'a> {
    /// The type of most matrices.
    pub mix: Mix,
    /// What comes before the mix.
    pub rules: &'a [Rule],
    /// The type of the output matrix.
    pub output: Option<DType>,
    /// The type of the token embeddings.
    pub embedding: Option<DType>,
    /// All matrices in the mix's base.
    pub pure: bool,
}

/// The type that a tensor gets, and the one it would get if its rows were whole blocks of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// What it gets.
    pub dtype: DType,
    /// What was requested.
    pub requested: DType,
}

/// The type of every tensor of the output.
pub fn choose(request: &TypeRequest<'_>, metadata: &Metadata, tensors: &[TensorShape]) -> Vec<Choice> {
    let facts = facts(metadata, tensors);
    tensors.iter().map(|tensor| choice(request, &facts, tensor)).collect()
}

fn choice(request: &TypeRequest<'_>, facts: &Facts, tensor: &TensorShape) -> Choice {
    if stays(tensor) {
        return Choice { dtype: tensor.dtype, requested: tensor.dtype };
    }
    let name = tensor.name.as_str();
    let (is_output, is_embedding) = (name == "output.weight", name == "token_embd.weight");
    let flag = match () {
        () if is_output => request.output,
        () if is_embedding && facts.is_tied => request.embedding.or(request.output),
        () if is_embedding => request.embedding,
        () => None,
    };
    let rule = || request.rules.iter().find(|rule| rule.regex.is_match(name)).map(|rule| rule.dtype);
    let [n, _, n_matrices, _] = tensor.ne;
    let requested = flag.or_else(rule).unwrap_or_else(|| match request.pure {
        true => request.mix.base,
        false => request.mix.dtype(facts, name, n, n_matrices),
    });
    Choice { dtype: fitting(requested, n), requested }
}

/// Vectors, norms, what routes to experts, and small matrices that matter much stay as they are.
fn stays(tensor: &TensorShape) -> bool {
    const PARTS: &[&str] = &[
        "_norm.weight",
        "ffn_gate_inp",
        "altup",
        "laurel",
        "per_layer_model_proj",
        "position_embd",
        "token_types",
        "ssm_conv1d",
        "shortconv.conv",
        "time_mix_",
        "attn_rel_b",
        "rel_pos",
        "patch_embd",
    ];
    /// Matrices of RWKV that are large.
    const LARGE: &[&str] =
        &["time_mix_key", "time_mix_value", "time_mix_receptance", "time_mix_gate", "time_mix_output"];
    let name = tensor.name.as_str();
    let is_matrix = tensor.dims().iter().filter(|&&n| n > 1).count() >= 2 && name.ends_with("weight");
    let is_small =
        PARTS.iter().any(|part| name.contains(part)) && !LARGE.iter().any(|part| name.contains(part));
    let is_number = tensor.dtype.info().kind != DTypeKind::Int && quant::is_supported(tensor.dtype);
    !is_matrix || is_small || !is_number
}

/// The type itself, or a near one with smaller blocks whose rows are whole, or F16.
pub fn fitting(dtype: DType, n: u64) -> DType {
    let fits = |t: DType| n.is_multiple_of(t.block_elems() as u64);
    let smaller = match dtype {
        DType::Q2_K | DType::Q3_K | DType::TQ1_0 | DType::TQ2_0 | DType::Q2_0 | DType::Q1_0 => DType::Q4_0,
        DType::IQ4_XS => DType::IQ4_NL,
        DType::Q4_K => DType::Q5_0,
        DType::Q5_K => DType::Q5_1,
        DType::Q6_K => DType::Q8_0,
        _ => DType::F16,
    };
    [dtype, smaller].into_iter().find(|&t| fits(t)).unwrap_or(DType::F16)
}

fn facts(metadata: &Metadata, tensors: &[TensorShape]) -> Facts {
    let arch = metadata.str("general.architecture").unwrap_or_default();
    let number = |key: &str| metadata.usize(&format!("{arch}.{key}")).unwrap_or(0) as u64;
    let (n_layers, n_heads) = (number("block_count"), number("attention.head_count"));
    let n_kv_heads = match number("attention.head_count_kv") {
        0 => n_heads,
        n => n,
    };
    let n_gqa = n_heads.checked_div(n_kv_heads).unwrap_or(1);
    Facts {
        n_layers,
        n_gqa,
        n_experts: number("expert_count"),
        is_falcon: arch == "falcon",
        is_70b: arch == "llama" && n_layers == 80 && n_gqa > 1,
        is_tied: !tensors.iter().any(|t| t.name == "output.weight"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_no_whole_blocks_get_a_type_that_fits() {
        let all =
            |n| [DType::Q4_K, DType::Q6_K, DType::Q2_K, DType::IQ4_XS, DType::Q8_0].map(|t| fitting(t, n));
        assert_eq!(all(512), [DType::Q4_K, DType::Q6_K, DType::Q2_K, DType::IQ4_XS, DType::Q8_0]);
        assert_eq!(all(96), [DType::Q5_0, DType::Q8_0, DType::Q4_0, DType::IQ4_NL, DType::Q8_0]);
        assert_eq!(all(40), [DType::F16; 5]);
    }

    #[test]
    fn errors_of_rules_name_what_is_missing() {
        for (text, problem) in [("ffn", "REGEX=TYPE"), ("(=q4_k", "regular expression"), ("a=q9", "q4_k")] {
            assert!(text.parse::<Rule>().unwrap_err().contains(problem), "{text}");
        }
        assert_eq!("a=b=Q4_K".parse::<Rule>().unwrap().dtype, DType::Q4_K);
    }
}
