//! Models with recurrences: what they keep of a sequence, and sizes that do not fit.

use super::{File, GATE, RMS, SHAPE, file};
use crate::{CacheGroup, Error, Input, PagedLayer, StateTensor, ValueRows};
use llmrt_gguf::{Array, Value};

/// A delta network, then attention.
fn qwen35() -> File {
    let lines = "
        attention.head_count_kv = 2\nfull_attention_interval = 2
        ssm.conv_kernel = 4\nssm.inner_size = 20\nssm.state_size = 5\nssm.time_step_rank = 4\nssm.group_count = 2
        blk.0.attn_qkv.weight: 16 40\nblk.0.attn_gate.weight: 16 20\nblk.0.ssm_conv1d.weight: 4 40
        blk.0.ssm_beta.weight: 16 4\nblk.0.ssm_alpha.weight: 16 4\nblk.0.ssm_dt.bias: 4\nblk.0.ssm_a: 4
        blk.0.ssm_norm.weight: 5\nblk.0.ssm_out.weight: 20 16\nblk.post_attention_norm.weight: 16
        blk.1.attn_q.weight: 16 32\nblk.1.attn_k.weight: 16 8\nblk.1.attn_v.weight: 16 8
        blk.1.attn_q_norm.weight: 4\nblk.1.attn_k_norm.weight: 4";
    File::new("qwen35", &[RMS, GATE, lines].concat())
}

/// Kimi Delta Attention in both layers.
fn kimi() -> File {
    let lines = "
        attention.kv_lora_rank = 6\nattention.key_length_mla = 5
        attention.value_length_mla = 4\nrope.dimension_count = 2\nssm.conv_kernel = 4\nkda.head_dim = 5
        expert_count = 4\nexpert_used_count = 2\nexpert_feed_forward_length = 10";
    let mut file = File::new("kimi-linear", &[RMS, lines].concat());
    file.meta.set("kimi-linear.attention.head_count_kv", Value::Array(Array::U32(vec![0; 2])));
    file
}

#[test]
fn a_hybrid_has_states_in_some_layers_and_keys_and_values_in_the_others() {
    let model = qwen35().model().expect("a model");
    // 3 columns of 40 channels; a matrix of 5 · 5 for each of 4 heads.
    let tensors = [("conv_state", 120), ("delta_state", 100)].map(|(name, row)| StateTensor { name, row });
    let states = CacheGroup::Recurrent { layers: vec![0], tensors: tensors.to_vec() };
    let layer = PagedLayer { il: 1, k_row: 8, v: ValueRows::Own(8) };
    let paged = CacheGroup::Paged { layers: vec![layer], window: 0 };
    assert_eq!(model.spec().caches, [states, paged]);
    assert!(model.spec().is_recurrent());
    let inputs = [Input::StateSlots, Input::QueryStarts, Input::Positions, Input::Slots(0), Input::SeqLens];
    assert!(inputs.iter().all(|input| model.spec().inputs.contains(input)), "{:?}", model.spec().inputs);
}

#[test]
fn the_last_layer_computes_outputs_alone_whatever_mixes_its_tokens() {
    for file in [qwen35(), without_attention()] {
        let g = file.model().expect("a model").graph(&SHAPE).expect("a graph").graph;
        let rows = |name: &str| g.ne(g.find(name).expect(name))[1];
        assert_eq!((rows("l_out-0"), rows("l_out-1")), (SHAPE.n_tokens, SHAPE.n_outputs));
    }
}

/// Delta networks in both layers.
fn without_attention() -> File {
    let mut file = qwen35().with("qwen35.full_attention_interval = 3");
    let of_layer_0: Vec<_> = file.tensors.iter().filter(|(name, _)| name.starts_with("blk.0.")).collect();
    let copies: Vec<_> =
        of_layer_0.into_iter().map(|(name, shape)| (name.replace("blk.0.", "blk.1."), *shape)).collect();
    file.tensors.extend(copies);
    file
}

#[test]
fn sizes_that_do_not_fit_are_errors_that_name_their_key() {
    let key_of = |file: File| match file.model() {
        Err(Error::BadValue { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    assert_eq!(key_of(qwen35().with("qwen35.ssm.inner_size = 16")), "qwen35.ssm.inner_size");
    assert_eq!(key_of(qwen35().with("qwen35.ssm.group_count = 3")), "qwen35.ssm.group_count");
    assert_eq!(key_of(qwen35().with("qwen35.ssm.conv_kernel = 1")), "qwen35.ssm.conv_kernel");
    assert_eq!(key_of(file("mamba2").with("mamba2.ssm.time_step_rank = 5")), "mamba2.ssm.time_step_rank");
    let big = u32::MAX;
    assert_eq!(key_of(kimi().with(&format!("kimi-linear.kda.head_dim = {big}"))), "kimi-linear.kda.head_dim");
}
