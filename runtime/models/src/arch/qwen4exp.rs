//! Qwen 4 (Qwen, 2026), a preview: layers as Qwen 3.5's with experts, between several residual streams instead of norms;
//! attention to few blocks of keys, which an indexer finds; and one layer that adds embeddings of n-grams.

use super::Arch;
use crate::blocks::{
    add_ngrams, delta_net_mixer, gated_attention, gated_mix, gated_spread, logits, moe, ngram_embedding,
    pooled_indexer, streams, token_embedding,
};
use crate::builder::Builder;
use crate::config::{Config, HyperConfig, IndexerConfig, Keys, NgramConfig, Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.ssm = SsmConfig::read(keys)?;
    if cfg.ssm.n_inner != cfg.ssm.n_head * cfg.ssm.n_state {
        let expected = format!("{} heads of {}", cfg.ssm.n_head, cfg.ssm.n_state);
        return Err(keys.bad("ssm.inner_size", cfg.ssm.n_inner, expected));
    }
    let is_recurrent = SsmConfig::read_recurrent_layers(keys, cfg.n_layer, 4)?;
    cfg.set_recurrent(|il| is_recurrent[il]);
    cfg.hyper = HyperConfig::read_gated(cfg, keys)?;
    cfg.ngrams = NgramConfig::read(keys, cfg.n_layer)?.unwrap_or_default();

    cfg.indexer = IndexerConfig::read(cfg, keys)?;
    const STRIDES: &str = "attention.compress_ratios";
    let none = vec![0; cfg.n_layer];
    let strides = keys.per_layer(STRIDES, cfg.n_layer, 1..=cfg.indexer.top_k.min(1 << 10), Some(&none))?;
    cfg.layers.iter_mut().zip(strides).for_each(|(layer, stride)| layer.index_stride = stride);

    cfg.unused = &["attn_q.bias", "attn_k.bias", "attn_v.bias"];
    cfg.ffn_scales = true;
    let n_ff = cfg.layers[0].n_ff;
    let moe = cfg.experts(keys)?;
    (moe.normalise, moe.gates_shared) = (true, true);
    moe.share(n_ff);
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = streams(b, x); // [n_embd * n_stream, n_tokens]
    let ngrams = ngram_embedding(b)?;
    let x = b.layers(x, |b, x| block(b, x, ngrams))?; // [n_embd * n_stream, n_outputs]
    let [x, _] = gated_mix(b, "output_hc", x)?; // [n_embd, n_outputs]
    logits(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor, ngrams: Option<Tensor>) -> Result<Tensor> {
    let x = match ngrams {
        Some(ngrams) if b.il() == b.cfg.ngrams.il => add_ngrams(b, x, ngrams)?,
        _ => x,
    };
    let [h, normed] = gated_mix(b, "hc_attn", x)?; // [n_embd, n_tokens]
    let [y, x] = match b.layer().is_recurrent() {
        true => delta_net_mixer(b, h, x, Activation::Sigmoid)?,
        false => sparse_attention(b, h, x)?,
    }; // [.., n]: in the last layer the outputs alone
    let [normed] = b.keep_outputs([normed]);
    let x = gated_spread(b, "hc_attn", normed, y, x)?;

    let [h, normed] = gated_mix(b, "hc_ffn", x)?;
    let ffn = moe(b, h)?;
    let x = gated_spread(b, "hc_ffn", normed, ffn, x)?;
    Ok(b.name(x, "l_out"))
}

fn sparse_attention(b: &mut Builder<'_>, h: Tensor, x: Tensor) -> Result<[Tensor; 2]> {
    let chosen = if b.layer().index_stride > 0 { pooled_indexer(b, h)? } else { None };
    gated_attention(b, h, x, chosen)
}
