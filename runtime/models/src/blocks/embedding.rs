//! From ids to vectors.

use crate::builder::Builder;
use crate::error::Result;
use crate::input::Input;
use llmrt_abi::DType;
use llmrt_graph::{Role, Tensor};

/// Most types of tokens of a model; BERT has 2.
const MAX_TOKEN_TYPES: u64 = 1 << 16;

/// The tokens' vectors [n_embd, n_tokens], times the model's factor on them.
pub(crate) fn token_embedding(b: &mut Builder<'_>) -> Result<Tensor> {
    let tokens = b.input(Input::Tokens);
    embedding_of(b, tokens)
}

/// As `token_embedding`, of these tokens.
pub(crate) fn embedding_of(b: &mut Builder<'_>, tokens: Tensor) -> Result<Tensor> {
    let dims = [b.cfg.n_embd, b.cfg.n_vocab];
    let table = b.weight("token_embd.weight", &dims, Role::Embedding)?;
    let x = b.g.get_rows(table, tokens);
    let x = b.name(x, "inp_embd");
    Ok(match b.cfg.scales.embedding {
        1.0 => x,
        scale => {
            let x = b.g.scale(x, scale);
            b.name(x, "inp_scaled")
        }
    })
}

/// The positions' vectors [n_embd, n_tokens], of models that learn them.
pub(crate) fn position_embedding(b: &mut Builder<'_>) -> Result<Tensor> {
    let dims = [b.cfg.n_embd, b.cfg.n_ctx_train];
    b.n_positions = Some(b.cfg.n_ctx_train);
    let table = b.weight("position_embd.weight", &dims, Role::Embedding)?;
    let positions = b.input(Input::Positions);
    let x = b.g.get_rows(table, positions);
    Ok(b.name(x, "pos_embd"))
}

/// `x` [n_embd, n_tokens] plus the vector of the first type of tokens, in models that have types: those of a second text, as
/// in pairs, are for training.
pub(crate) fn token_type_embedding(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let Some([_, n_types, ..]) = b.dims("token_types.weight") else { return Ok(x) };
    let n_types = n_types.clamp(1, MAX_TOKEN_TYPES);
    let table = b.weight("token_types.weight", &[b.cfg.n_embd, n_types], Role::Embedding)?;
    let first = b.g.arange(0.0, 1.0, 1.0);
    let first = b.g.cast(first, DType::I32);
    let first = b.g.get_rows(table, first); // [n_embd, 1]
    Ok(b.add("inp_types", x, first))
}
