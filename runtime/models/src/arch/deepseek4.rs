//! DeepSeek-V4 (DeepSeek, 2026): one key for all heads, which is also the value; queries see a window, and blocks of positions
//! before it as one key each, of short blocks those that a lightning indexer finds. Several residual streams that exchange;
//! in the first layers a table has the experts of each token.

use super::Arch;
use crate::blocks::{
    attention_to_window, compressed_attention, head, last_mix, moe, streams, token_embedding, weighted_mix,
};
use crate::builder::Builder;
use crate::config::{
    Config, ExpertActivation, Gating, Glu, HyperConfig, IndexerConfig, Keys, MAX_DIM, Norm, RopeKind,
};
use crate::error::Result;
use crate::input::Input;
use llmrt_abi::op::RopeParams;
use llmrt_graph::{Role, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let window = keys.count("attention.sliding_window", 1..=1 << 20)? as u32;
    set_rotations(cfg, keys)?;
    cfg.indexer = IndexerConfig::read(cfg, keys)?;
    (cfg.indexer.window, cfg.indexer.rope) = (
        window,
        RopeParams { offset: cfg.indexer.key_dim as u32 - cfg.rope.params.n_dims, ..cfg.rope.params },
    );
    const STRIDES: &str = "attention.compress_ratios";
    let strides = keys.per_layer(STRIDES, cfg.n_layer, 0..=128, None)?;
    if let Some(stride) = strides.iter().find(|stride| ![0, 4, 128].contains(*stride)) {
        return Err(keys.bad(STRIDES, stride, "0, 4 or 128"));
    }
    for (layer, stride) in cfg.layers.iter_mut().zip(strides) {
        (layer.index_stride, layer.n_head_kv) = (stride, 1);
        layer.window = if stride == 0 { window } else { 0 };
    }
    cfg.hyper = HyperConfig::read_exchanging(cfg, keys)?;
    cfg.output_groups = read_groups(cfg, keys)?;
    cfg.output_rank = keys.count("attention.output_lora_rank", 1..=MAX_DIM)?;
    cfg.mla.q_rank = keys.count("attention.q_lora_rank", 1..=MAX_DIM)?;
    read_experts(cfg, keys)
}

fn read_groups(cfg: &Config, keys: &Keys<'_>) -> Result<u64> {
    let most = cfg.most_heads();
    let n_group = keys.count("attention.output_group_count", 1..=most.max(1))?;
    match cfg.layers.iter().find(|layer| !layer.n_head.is_multiple_of(n_group)) {
        Some(layer) => {
            let expected = format!("a divisor of the {} heads", layer.n_head);
            Err(keys.bad("attention.output_group_count", n_group, expected))
        }
        None => Ok(n_group),
    }
}

/// The last elements of heads are rotated: in layers with blocks by a base of their own and stretched, without YaRN's factor.
fn set_rotations(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let n_dims = cfg.rope.params.n_dims;
    let offset = cfg.head_dim_k as u32 - n_dims;
    let plain = RopeParams { offset, ..cfg.rope.unstretched(cfg.rope.params.freq_base) };
    cfg.rope.windowed = RopeParams { attn_factor: 1.0, ..plain };
    let base = keys.f32_or_zero("attention.compress_rope_freq_base", cfg.rope.params.freq_base)?;
    let stretch = cfg.rope.params.freq_scale.recip().ln();
    let of_yarn = if cfg.rope.params.ext_factor == 0.0 { 1.0 } else { 1.0 + 0.1 * stretch };
    cfg.rope.params.freq_base = base;
    cfg.rope.params.attn_factor = of_yarn.recip();
    cfg.rope.params.offset = offset;
    Ok(())
}

fn read_experts(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let of_experts = keys.f32_per_layer("swiglu_clamp_exp", cfg.n_layer)?;
    let of_all = match keys.meta.contains(&keys.name("swiglu_clamp_shexp")) {
        true => keys.f32_per_layer("swiglu_clamp_shexp", cfg.n_layer)?,
        false => of_experts.clone(),
    };
    cfg.layers.iter_mut().for_each(|layer| layer.is_moe = true);
    let moe = cfg.experts(keys)?;
    moe.gating = keys.gating(Gating::RootOfSoftplus)?;
    if moe.gating != Gating::RootOfSoftplus || !moe.normalise {
        return Err(keys.bad("expert_gating_func", "another", "4, with expert_weights_norm"));
    }
    moe.activation = ExpertActivation::Gated(Glu::BoundedGate(of_experts));
    moe.glu_shared = Glu::BoundedGate(of_all);
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = streams(b, x); // [n_embd * n_stream, n_tokens]
    let x = b.layers(x, block)?; // [n_embd * n_stream, n_outputs]
    let x = last_mix(b, x)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (h, spread) = weighted_mix(b, "hc_attn", x)?; // [n_embd, n_tokens]
    let h = b.norm("attn_norm", h)?;
    let heads = attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [heads, x] = b.keep_outputs([heads, x]); // [.., n]: in the last layer the outputs alone
    let y = grouped_output(b, heads)?; // [n_embd, n]
    let x = spread.of_outputs(b).add(b, "ffn_inp", y, x);

    let (h, spread) = weighted_mix(b, "hc_ffn", x)?;
    let h = b.norm("ffn_norm", h)?;
    let ffn = moe(b, h)?;
    Ok(spread.add(b, "l_out", ffn, x))
}

/// Results of heads, turned back by their queries' positions, since values are turned keys.
fn attention(b: &mut Builder<'_>, h: Tensor) -> Result<Tensor> {
    let (n_head, dim, n_tokens) = (b.layer().n_head, b.cfg.head_dim_k, b.batch.n_tokens);
    let low = b.linear("attn_q_a", b.cfg.mla.q_rank, h)?;
    let low = b.norm("attn_q_a_norm", low)?;
    let q = b.linear("attn_q_b", n_head * dim, low)?;
    let q = b.g.split_heads(q, n_head);
    let q = b.plain_norm("attn_q_norm", q);
    let q = turned(b, q, 0); // [head_dim, n_head, n_tokens]

    let key = b.linear("attn_kv", dim, h)?;
    let key = b.norm("attn_kv_a_norm", key)?;
    let key = b.g.split_heads(key, 1);
    let key = turned(b, key, 0);
    let key = b.g.reshape(key, &[dim, n_tokens]);
    let y = match b.layer().index_stride {
        0 => attention_to_window(b, q, key)?,
        _ => compressed_attention(b, h, low, q, key)?,
    };
    let y = b.g.split_heads(y, n_head);
    let y = turned(b, y, 1);
    Ok(b.g.reshape(y, &[dim * n_head, n_tokens]))
}

fn turned(b: &mut Builder<'_>, heads: Tensor, back: u32) -> Tensor {
    let rope = if b.layer().index_stride == 0 { &b.cfg.rope.windowed } else { &b.cfg.rope.params };
    let positions = b.input(Input::Positions);
    b.g.rope(heads, positions, None, &RopeParams { back, ..*rope })
}

/// Groups of heads, each mixed by a matrix of its own, and then all: [n_embd, n].
fn grouped_output(b: &mut Builder<'_>, heads: Tensor) -> Result<Tensor> {
    let ([n_all, n, ..], n_group, rank) = (b.g.ne(heads), b.cfg.output_groups, b.cfg.output_rank);
    let n_in = n_all / n_group;
    const NAME: &str = "attn_output_a.weight";
    let w = match b.dims(NAME) {
        Some([_, _, 1, 1]) => {
            let w = b.weight(NAME, &[n_in, rank * n_group], Role::Matrix)?;
            b.g.reshape(w, &[n_in, rank, n_group])
        }
        _ => b.weight(NAME, &[n_in, rank, n_group], Role::Matrix)?,
    };
    let groups = b.g.reshape(heads, &[n_in, n_group, n]);
    let groups = b.g.permute(groups, [0, 2, 1, 3]); // [n_in, n, n_group]
    let y = b.g.mul_mat(w, groups); // [rank, n, n_group]
    let y = b.g.permute(y, [0, 2, 1, 3]);
    let y = b.g.cont(y);
    let y = b.g.reshape(y, &[rank * n_group, n]);
    let y = b.linear("attn_output_b", b.cfg.n_embd, y)?;
    Ok(b.name(y, "attn_out"))
}
