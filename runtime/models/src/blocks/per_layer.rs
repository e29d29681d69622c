//! Embeddings that each layer has of its own (Gemma 3n, 2025): looked up by token, and made of the usual embeddings.

use crate::builder::Builder;
use crate::error::Result;
use crate::input::Input;
use llmrt_graph::{Activation, Role, Tensor};
use std::f32::consts::FRAC_1_SQRT_2;

/// The layers' embeddings of the step's tokens, whose usual embeddings are `x`: [n_embd_per_layer, n_layer, n_tokens].
pub(crate) fn per_layer_embeddings(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (n, n_layer, n_embd) = (b.cfg.n_embd_per_layer, b.cfg.n_layer as u64, b.cfg.n_embd);
    let dims = [n, n_layer, b.g.ne(x)[1]];
    let table = b.weight("per_layer_token_embd.weight", &[n * n_layer, b.cfg.n_vocab], Role::Embedding)?;
    let tokens = b.input(Input::Tokens);
    let of_tokens = b.g.get_rows(table, tokens);
    let of_tokens = b.g.scale(of_tokens, (n as f32).sqrt());
    let of_tokens = b.g.reshape(of_tokens, &dims);

    let made = b.linear("per_layer_model_proj", n * n_layer, x)?;
    let made = b.g.scale(made, (n_embd as f32).sqrt().recip());
    let made = b.g.reshape(made, &dims);
    let made = b.norm("per_layer_proj_norm", made)?;
    let both = b.g.add(made, of_tokens);
    let both = b.g.scale(both, FRAC_1_SQRT_2);
    Ok(b.name(both, "inp_per_layer"))
}

/// The layer's embeddings of those [n_embd_per_layer, n_layer, n_tokens]: [n_embd_per_layer, n_tokens].
pub(crate) fn embedding_of_layer(b: &mut Builder<'_>, embeddings: Tensor) -> Tensor {
    let [n, _, n_tokens, _] = b.g.ne(embeddings);
    let own = b.g.slice(embeddings, 1, b.il() as u64, 1);
    let own = b.g.cont(own);
    b.g.reshape(own, &[n, n_tokens])
}

/// What a layer's embeddings `own` add to `x` [n_embd, n], which gates them: [n_embd, n].
pub(crate) fn gated_embedding(b: &mut Builder<'_>, x: Tensor, own: Tensor) -> Result<Tensor> {
    let gate = b.linear("inp_gate", b.cfg.n_embd_per_layer, x)?;
    let y = b.g.glu(Activation::Gelu, gate, Some(own));
    let y = b.linear("proj", b.cfg.n_embd, y)?;
    b.norm("post_norm", y)
}
