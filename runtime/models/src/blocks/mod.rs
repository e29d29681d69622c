//! What architectures are built from.

mod decoder;

mod attention;
mod classifier;
mod cross;
mod delta_net;
mod embedding;
mod encoder;
mod experts;
mod ffn;
mod glu;
mod head;
mod hybrid;
mod kda;
mod latent;
mod lightning;
mod linear;
mod mla;
mod moe;
mod recurrent;
mod relative_bias;
mod router;
mod rwkv;
mod rwkv6;
mod rwkv7;
mod short_conv;
mod ssm;

pub(crate) use attention::{
    attention, attention_by_normed_head, attention_by_normed_row, attention_output, attention_temperature,
    gated, gated_heads, norm_all_heads, norm_each_head, normed_attention, part_of_heads, qkv, rope,
    self_attention, times_each_head,
};
pub(crate) use classifier::classifier;
pub(crate) use cross::cross_attention;
pub(crate) use decoder::{decoder, parallel, post_norm, pre_norm, sandwich_norm};
pub(crate) use delta_net::delta_net_mixer;
pub(crate) use embedding::{embedding_of, position_embedding, token_embedding, token_type_embedding};
pub(crate) use encoder::{encoder, norm_of_sum};
pub(crate) use experts::{Bank, experts, sum_used};
pub(crate) use ffn::{ffn_fused, ffn_gated, ffn_plain, ffn_squared_relu, swiglu, swiglu_or_experts};
pub(crate) use head::{head, logits};
pub(crate) use hybrid::{Mixer, hybrid, mix_and_feed, mix_by_attention};
pub(crate) use kda::kda_mixer;
pub(crate) use lightning::lightning_mixer;
pub(crate) use mla::{mla, mla_mixer, mla_values};
pub(crate) use moe::{dense_or_experts, experts_if_routed, moe};
pub(crate) use relative_bias::{Sides, biased_attention, encoder_attention, relative_bias};
pub(crate) use router::{Route, route, router_logits};
pub(crate) use rwkv::rwkv_layer;
pub(crate) use rwkv6::rwkv6;
pub(crate) use rwkv7::rwkv7;
pub(crate) use short_conv::short_conv_mixer;
pub(crate) use ssm::{SsmScan, mamba_mixer, mamba_output, mamba2_mixer};
