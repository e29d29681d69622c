//! What architectures are built from.

mod altup;
mod attention;
mod block_indexers;
mod classifier;
mod compressed;
mod cross;
mod decoder;
mod delta_net;
mod embedding;
mod encoder;
mod experts;
mod ffn;
mod gated_attention;
mod gated_streams;
mod glu;
mod head;
mod hybrid;
mod hyper;
mod indexer;
mod kda;
mod latent;
mod lightning;
mod linear;
mod mla;
mod moe;
mod ngrams;
mod per_layer;
mod pool;
mod recurrent;
mod relative_bias;
mod router;
mod rwkv;
mod rwkv6;
mod rwkv7;
mod shared_cache;
mod short_conv;
mod ssm;

pub(crate) use altup::{added_to_others, copies, copy, corrected, merged, predictions};
pub(crate) use attention::{
    attention, attention_by_normed_head, attention_by_normed_row, attention_output, attention_temperature,
    attention_to, gated, gated_heads, norm_all_heads, norm_each_head, normed_attention, part_of_heads, qkv,
    queries, read_caches, rope, self_attention, times_each_head,
};
pub(crate) use block_indexers::{block_indexer, pooled_indexer, weighted_pool_indexer};
pub(crate) use classifier::classifier;
pub(crate) use compressed::{attention_to_window, compressed_attention};
pub(crate) use cross::cross_attention;
pub(crate) use decoder::{attention_between_norms, decoder, parallel, post_norm, pre_norm, sandwich_norm};
pub(crate) use delta_net::delta_net_mixer;
pub(crate) use embedding::{embedding_of, position_embedding, token_embedding, token_type_embedding};
pub(crate) use encoder::{encoder, norm_of_sum};
pub(crate) use experts::{Bank, experts, sum_used};
pub(crate) use ffn::{
    ffn_fused, ffn_gated, ffn_plain, ffn_squared_relu, gated_neurons, is_by_neurons, plain_neurons, swiglu,
    swiglu_or_experts,
};
pub(crate) use gated_attention::gated_attention;
pub(crate) use gated_streams::{gated_mix, gated_spread};
pub(crate) use head::{head, logits};
pub(crate) use hybrid::{Mixer, hybrid, mix_and_feed, mix_by_attention};
pub(crate) use hyper::{last_mix, mean_of_streams, streams, weighted_mix};
pub(crate) use indexer::lightning_indexer;
pub(crate) use kda::kda_mixer;
pub(crate) use lightning::lightning_mixer;
pub(crate) use mla::{expanded_mla, indexed_mla, mla, mla_mixer, mla_values};
pub(crate) use moe::{dense_or_experts, dense_or_routed, experts_if_routed, moe};
pub(crate) use ngrams::{add_ngrams, ngram_embedding};
pub(crate) use per_layer::{embedding_of_layer, gated_embedding, per_layer_embeddings};
pub(crate) use relative_bias::{Sides, biased_attention, encoder_attention, relative_bias};
pub(crate) use router::{Route, route, router_logits};
pub(crate) use rwkv::rwkv_layer;
pub(crate) use rwkv6::rwkv6;
pub(crate) use rwkv7::rwkv7;
pub(crate) use shared_cache::attention_over_shared_caches;
pub(crate) use short_conv::short_conv_mixer;
pub(crate) use ssm::{SsmScan, mamba_mixer, mamba_output, mamba2_mixer};
