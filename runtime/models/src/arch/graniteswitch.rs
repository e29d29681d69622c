//! Granite Switch (IBM 2026): Granite with adapters of low rank (LoRA, arXiv 2106.09685). Special tokens of a text pick the
//! adapter for what follows them; which one it is comes from a head of attention that has no weights and a layer of its own.

use super::Arch;
use super::granite;
use crate::blocks::{attention, embedding_of, head, rope};
use crate::builder::Builder;
use crate::config::{AdapterConfig, Config, Keys, LayerConfig, Norm, RopeKind};
use crate::error::Result;
use crate::input::Input;
use llmrt_abi::DType;
use llmrt_graph::{Activation, Padding, Role, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    granite::config(cfg, keys)?;
    cfg.adapters = AdapterConfig::read(keys, cfg.n_vocab)?;
    cfg.layers.push(LayerConfig {
        n_head: 1,
        n_head_kv: 1,
        head_dim_k: cfg.head_dim_k,
        head_dim_v: cfg.head_dim_v,
        block: cfg.n_layer,
        ..LayerConfig::default()
    });
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let tokens = b.input(Input::Tokens);
    let picked = picked(b, tokens); // each [1, n_tokens]
    let n_layer = b.cfg.n_layer;
    let adapters = b.layers_in(n_layer..n_layer + 1, picked.adapter, |b, _| current(b, &picked))?; // [1, n_tokens]

    let x = embedding_of(b, picked.token)?; // [n_embd, n_tokens]
    let x = b.layers(x, |b, x| block(b, x, adapters))?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

/// What the tokens of a step pick.
struct Picked {
    /// The tokens that the model reads: [n_tokens].
    token: Tensor,
    /// 1 for tokens that pick an adapter, else 0: [1, n_tokens].
    picks: Tensor,
    /// Number of the adapter that a token picks, from 1 on, else 0: [1, n_tokens].
    adapter: Tensor,
}

fn picked(b: &mut Builder<'_>, tokens: Tensor) -> Picked {
    let n_tokens = b.g.ne(tokens)[0];
    let tokens = b.g.cast(tokens, DType::F32);
    let (mut token, mut picks, mut adapter) = (tokens, b.g.fill(tokens, 0.0), b.g.fill(tokens, 0.0));
    for (i, &[pick, substitute]) in b.cfg.adapters.tokens.iter().enumerate() {
        let distance = b.g.scale_bias(tokens, 1.0, -pick as f32);
        let distance = b.g.abs(distance);
        let far = b.g.clamp(distance, 0.0, 1.0);
        let is_picked = b.g.scale_bias(far, -1.0, 1.0);
        let number = b.g.scale(is_picked, (i + 1) as f32);
        let change = b.g.scale(is_picked, (substitute - pick) as f32);
        picks = b.g.add(picks, is_picked);
        adapter = b.g.add(adapter, number);
        token = b.g.add(token, change);
    }
    let token = b.g.cast(token, DType::I32);
    let [picks, adapter] = [picks, adapter].map(|t| b.g.reshape(t, &[1, n_tokens]));
    Picked { token, picks, adapter }
}

/// The adapter of each token, as I32 [1, n_tokens]: attention to the tokens that pick one.
fn current(b: &mut Builder<'_>, picked: &Picked) -> Result<Tensor> {
    let (gain, n_adapters) = (b.cfg.adapters.gain, b.cfg.adapters.tokens.len());
    let n_tokens = b.g.ne(picked.picks)[1];
    let q = b.g.fill(picked.picks, b.cfg.attn_scale.recip());
    let k = b.g.scale_bias(picked.picks, 2.0 * gain, -gain);
    let [q, k, v] = [q, k, picked.adapter].map(|signal| {
        let head = b.g.reshape(signal, &[1, 1, n_tokens]);
        let n_zeros = [b.cfg.head_dim_k as u32 - 1, 0, 0, 0];
        b.g.pad(head, [0; 4], n_zeros, Padding::Constant(0.0))
    });
    let y = attention(b, q, k, v)?; // [head_dim, n_tokens]
    let y = b.g.slice(y, 0, 0, 1);
    let y = b.g.clamp(y, 0.0, n_adapters as f32);
    let y = b.g.round(y);
    Ok(b.g.cast(y, DType::I32))
}

fn block(b: &mut Builder<'_>, x: Tensor, adapters: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = switched_attention(b, h, adapters)?; // [head_dim * n_head, n_tokens]
    let [attn, x, adapters] = b.keep_outputs([attn, x, adapters]); // [.., n]: in the last layer the outputs alone
    let attn = switched(b, "attn_output", b.cfg.n_embd, attn, adapters)?; // [n_embd, n]
    let x = b.residual("ffn_inp", attn, x);

    let h = b.norm("ffn_norm", x)?;
    let n_ff = b.layer().n_ff;
    let gate = switched(b, "ffn_gate", n_ff, h, adapters)?;
    let up = switched(b, "ffn_up", n_ff, h, adapters)?;
    let h = b.g.glu(Activation::Silu, gate, Some(up)); // [n_ff, n]
    let ffn = switched(b, "ffn_down", b.cfg.n_embd, h, adapters)?;
    Ok(b.residual("l_out", ffn, x))
}

fn switched_attention(b: &mut Builder<'_>, x: Tensor, adapters: Tensor) -> Result<Tensor> {
    let (il, layer) = (b.il(), b.layer());
    let (n_q, n_k, n_v) = (layer.n_head * layer.head_dim_k, b.cfg.n_embd_k(il), b.cfg.n_embd_v(il));
    let all = b.matmul("attn_qkv", n_q + n_k + n_v, x)?;
    let mut heads = Vec::new();
    for (name, start, n, n_head) in [
        ("attn_q", 0, n_q, layer.n_head),
        ("attn_k", n_q, n_k, layer.n_head_kv),
        ("attn_v", n_q + n_k, n_v, layer.n_head_kv),
    ] {
        let part = b.g.slice(all, 0, start, n);
        let more = adapted(b, name, n, x, adapters)?;
        let both = b.g.add(more, part);
        heads.push(b.g.split_heads(both, n_head)); // [head_dim, n_head or n_head_kv, n_tokens]
    }
    let (q, k) = (rope(b, "Qcur", heads[0])?, rope(b, "Kcur", heads[1])?);
    attention(b, q, k, heads[2])
}

/// w·x, plus what each token's adapter adds.
fn switched(b: &mut Builder<'_>, name: &str, n_out: u64, x: Tensor, adapters: Tensor) -> Result<Tensor> {
    let y = b.matmul(name, n_out, x)?;
    let more = adapted(b, name, n_out, x, adapters)?;
    Ok(b.add(name, y, more))
}

/// b·a·x of each token's adapter; the first of the file's is for tokens without one.
fn adapted(b: &mut Builder<'_>, name: &str, n_out: u64, x: Tensor, adapters: Tensor) -> Result<Tensor> {
    let ([n_in, n, ..], rank, n_sets) =
        (b.g.ne(x), b.cfg.adapters.rank, b.cfg.adapters.tokens.len() as u64 + 1);
    let down = b.weight(&format!("{name}.lora_a"), &[n_in, rank, n_sets], Role::Experts)?;
    let up = b.weight(&format!("{name}.lora_b"), &[rank, n_out, n_sets], Role::Experts)?;
    let x = b.contiguous(x);
    let x = b.g.reshape(x, &[n_in, 1, n]);
    let low = b.g.mul_mat_id(down, x, adapters); // [rank, 1, n]
    let y = b.g.mul_mat_id(up, low, adapters); // [n_out, 1, n]
    Ok(b.g.reshape(y, &[n_out, n]))
}
