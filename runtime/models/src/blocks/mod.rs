//! What architectures are built from.

mod decoder;

mod attention;
mod embedding;
mod experts;
mod ffn;
mod glu;
mod head;
mod linear;
mod mla;
mod moe;
mod router;
mod ssm;

pub(crate) use attention::{
    attention, attention_output, attention_temperature, gated, gated_heads, norm_all_heads, norm_each_head,
    normed_attention, qkv, rope, self_attention,
};
pub(crate) use decoder::{decoder, parallel, post_norm, pre_norm, sandwich_norm};
pub(crate) use embedding::{position_embedding, token_embedding};
pub(crate) use experts::{Bank, experts};
pub(crate) use ffn::{ffn_fused, ffn_gated, ffn_plain, ffn_squared_relu, swiglu, swiglu_or_experts};
pub(crate) use head::{head, logits};
pub(crate) use mla::{mla, mla_output};
pub(crate) use moe::{experts_if_routed, moe};
pub(crate) use router::{Route, route, router_logits};
pub(crate) use ssm::{mamba2, mamba2_output};
