//! OPT (arXiv 2205.01068): learned positions, layer norms, biases on everything, ReLU, most of whose neurons give zeros.

use super::Arch;
use crate::blocks::{attention_output, head, plain_neurons, self_attention, token_embedding};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use crate::input::Input;
use llmrt_graph::{Role, Tensor};

/// Rows before that of the first position: the embeddings were learned with a padding token.
const N_BEFORE: u64 = 2;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Layer,
    rope: RopeKind::None,
    config: |cfg, keys| cfg.read_hidden_activation(keys),
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let pos = positions(b)?;
    let x = b.add("inpL", x, pos);
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

/// The positions' vectors [n_embd, n_tokens]. The file counts the rows before them to its context.
fn positions(b: &mut Builder<'_>) -> Result<Tensor> {
    let n_rows = b.cfg.n_ctx_train;
    let table = b.weight("position_embd.weight", &[b.cfg.n_embd, n_rows], Role::Embedding)?;
    let table = b.g.slice(table, 1, N_BEFORE, n_rows.saturating_sub(N_BEFORE));
    let positions = b.input(Input::Positions);
    let x = b.g.get_rows(table, positions);
    Ok(b.name(x, "pos_embd"))
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = self_attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let x = b.add("ffn_inp", attn, x);

    let h = b.norm("ffn_norm", x)?;
    let ffn = plain_neurons(b, h, x)?;
    Ok(b.add("l_out", ffn, x))
}
