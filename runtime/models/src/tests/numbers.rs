//! What metadata mean: windows, rotations, scales, caches; and how little an architecture takes.

use super::{SHAPE, file, files};
use crate::arch;
use crate::{CacheGroup, Input, PagedLayer, StateTensor, ValueRows};
use llmrt_abi::{DType, Op, op::RopeParams};
use llmrt_gguf::{Array, Value};
use llmrt_graph::Kind;

#[test]
fn every_second_layer_of_gemma2_has_a_window() {
    assert_eq!(windows(&file("gemma2")), [8, 0]);
    assert_eq!(windows(&file("gemma2").without("gemma2.attention.sliding_window")), [4096, 0]);
    let mut changed = file("gemma2");
    changed.meta.set("gemma2.attention.sliding_window_pattern", Array::Bool(vec![false, true]));
    assert_eq!(windows(&changed), [0, 8]);
}

#[test]
fn windowed_layers_of_gemma3_turn_by_a_base_of_their_own() {
    assert_eq!(windows(&file("gemma3")), [8, 0]);
    assert_eq!(windows(&file("gemma3").without("gemma3.attention.sliding_window_pattern")), [8, 8], "of 6");
    let g = file("gemma3").model().expect("a model").graph(&SHAPE).expect("a graph").graph;
    let turns = g.nodes.iter().filter(|n| n.op == Op::Rope);
    let turns = turns.map(|n| RopeParams::from_bytes(&n.params).expect("params of a rotation"));
    let of_q_and_k = turns.map(|p| (p.freq_base, p.freq_scale)).collect::<Vec<_>>();
    assert_eq!(of_q_and_k, [(1e4, 1.0), (1e4, 1.0), (1e6, 0.125), (1e6, 0.125)]);
}

/// DeepSeek-V2's numbers: a factor of 40, a multiplier of 0.0707, heads of 192.
#[test]
fn yarn_scales_the_scores_of_deepseek2_and_not_its_rotations() {
    let lines = ["scaling.type = yarn", "scaling.factor = 40", "scaling.yarn_log_multiplier = 0.0707"];
    let stretched = lines.iter().fold(file("deepseek2"), |f, line| f.with(&format!("deepseek2.rope.{line}")));
    let config = stretched.model().expect("a model").config;
    let (scale, rope) = (config.attn_scale, config.rope.params);
    let expected = (1.0 + 0.0707 * 40f32.ln()).powi(2) / 5f32.sqrt();
    assert!((scale - expected).abs() < 1e-6, "{scale}");
    // What the op multiplies its factor with cancels it.
    assert!((rope.attn_factor * (1.0 + 0.1 * 40f32.ln()) - 1.0).abs() < 1e-6, "{rope:?}");
    let plain = file("deepseek2").model().expect("a model").config;
    assert_eq!((plain.attn_scale, plain.rope.params.attn_factor), (5f32.sqrt().recip(), 1.0));
}

#[test]
fn latent_rows_are_cached_once() {
    let model = file("deepseek2").model().expect("a model");
    let layer = |il| PagedLayer { il, k_row: 8, v: ValueRows::ViewOfK(0..6) };
    assert_eq!(model.spec().caches, [CacheGroup::Paged { layers: vec![layer(0), layer(1)], window: 0 }]);
    assert_eq!(model.spec().bytes_per_token(DType::F16, DType::F32), 2 * 8 * 2);
    let g = model.graph(&SHAPE).expect("a graph").graph;
    let states = g.tensors.iter().filter(|t| t.kind == Kind::State).map(|t| t.name.as_str());
    assert_eq!(states.collect::<Vec<_>>(), ["blk.0.k_cache", "blk.1.k_cache"]);
}

#[test]
fn mamba2_has_states_by_sequence_and_no_rows_by_token() {
    let model = file("mamba2").model().expect("a model");
    // 3 columns of 12 + 2 · 2 · 5 channels; 12 · 5 elements.
    let tensors = [("conv_state", 96), ("scan_state", 60)].map(|(name, row)| StateTensor { name, row });
    let group = CacheGroup::Recurrent { layers: vec![0, 1], tensors: tensors.to_vec() };
    assert_eq!((&model.spec().caches, model.spec().is_recurrent()), (&vec![group], true));
    assert_eq!(model.spec().bytes_per_token(DType::F16, DType::F16), 0);
    assert_eq!(model.spec().bytes_per_sequence(), 2 * 4 * (96 + 60));
    let inputs = [Input::Tokens, Input::StateSlots, Input::QueryStarts, Input::OutputIds];
    assert_eq!(model.spec().inputs, inputs);
}

#[test]
fn phi3_and_mistral_have_one_window_for_all_layers() {
    assert_eq!(windows(&file("phi3")), [8, 8]);
    assert_eq!(windows(&file("llama")), [0, 0]);
    assert_eq!(windows(&file("llama").with("llama.attention.sliding_window = 5")), [5, 5]);
}

#[test]
fn scores_are_scaled_by_the_root_of_a_head_unless_the_file_has_a_scale() {
    let scale = |file: super::File| file.model().expect("a model").config.attn_scale;
    assert_eq!(scale(file("llama")), 0.5);
    assert_eq!(scale(file("llama").with("llama.attention.scale = 0.0")), 0.5);
    assert_eq!(scale(file("llama").with("llama.attention.scale = 0.25")), 0.25);
}

#[test]
fn rope_scaling_stretches_positions() {
    let plain = rope("");
    assert_eq!((plain.freq_scale, plain.ext_factor, plain.freq_base, plain.mode), (1.0, 0.0, 10000.0, 0));
    assert_eq!(rope("rope.scaling.factor = 4").freq_scale, 0.25);
    assert_eq!(rope("rope.scale_linear = 2").freq_scale, 0.5);
    assert_eq!(rope("rope.scaling.factor = 4; rope.scaling.type = none").freq_scale, 1.0);
    assert_eq!(rope("rope.freq_base = 500000").freq_base, 500000.0);
    let yarn =
        rope("rope.scaling.factor = 8; rope.scaling.type = yarn; rope.scaling.original_context_length = 16");
    assert_eq!((yarn.freq_scale, yarn.ext_factor, yarn.n_ctx_orig), (0.125, 1.0, 16));
    assert_eq!((yarn.beta_fast, yarn.beta_slow, yarn.attn_factor), (32.0, 1.0, 1.0));
}

#[test]
fn phi3_takes_long_factors_above_its_original_context() {
    let mut model =
        file("phi3").with("phi3.rope.scaling.original_context_length = 16").model().expect("a model");
    let factors = |model: &crate::Model| {
        let g = model.graph(&SHAPE).expect("a graph").graph;
        let rope = g.nodes.iter().find(|n| n.op == Op::Rope).expect("a rotation");
        rope.src[2].map(|t| g.def(t).name.clone())
    };
    assert_eq!(factors(&model).as_deref(), Some("rope_factors_short.weight"));
    model.set_context(17);
    assert_eq!(factors(&model).as_deref(), Some("rope_factors_long.weight"));
}

#[test]
fn kv_heads_may_differ_by_layer() {
    let mut changed = file("llama").with("blk.1.attn_k.weight: 16 4").with("blk.1.attn_v.weight: 16 4");
    changed.meta.set("llama.attention.head_count_kv", vec![2u32, 1]);
    let model = changed.model().expect("a model");
    let [CacheGroup::Paged { layers, window: 0 }] = &model.spec().caches[..] else {
        panic!("{:?}", model.spec())
    };
    let rows = [(0, 8), (1, 4)].map(|(il, n)| PagedLayer { il, k_row: n, v: ValueRows::Own(n) });
    assert_eq!(layers[..], rows);
    assert_eq!(model.spec().bytes_per_token(DType::F16, DType::F32), 12 * 2 + 12 * 4);
}

#[test]
fn layers_with_a_window_are_a_cache_group_of_their_own() {
    let model = file("gemma2").model().expect("a model");
    let layer = |il| PagedLayer { il, k_row: 8, v: ValueRows::Own(8) };
    let group = |il, window| CacheGroup::Paged { layers: vec![layer(il)], window };
    assert_eq!(model.spec().caches, [group(0, 8), group(1, 0)]);
    let tables = model.spec().inputs.iter().filter(|input| matches!(input, Input::BlockTable(_)));
    assert_eq!(tables.collect::<Vec<_>>(), [&Input::BlockTable(8), &Input::BlockTable(0)]);
    assert_eq!(model.spec().windows(), [8]);
}

#[test]
fn a_model_has_the_inputs_that_its_graph_reads() {
    let model = file("gpt2").model().expect("a model");
    let inputs = model.spec().inputs.clone();
    let (slots, blocks) = (Input::Slots(0), Input::BlockTable(0));
    let (ids, lens) = (Input::OutputIds, Input::SeqLens);
    let expected = [Input::Tokens, Input::Positions, slots, blocks, lens, Input::QueryStarts, ids];
    assert_eq!(inputs, expected);
}

#[test]
fn the_vocabulary_has_the_length_of_the_token_list() {
    let mut changed = file("qwen2").without("qwen2.vocab_size");
    changed.meta.set("tokenizer.ggml.tokens", Value::Array(Array::String(vec![String::new(); 32])));
    assert_eq!(changed.model().expect("a model").config.n_vocab, 32);
}

#[test]
fn norm_weights_of_other_types_are_converted() {
    let mut changed = file("llama");
    changed.tensors.insert("output_norm.weight".into(), (DType::F16, [16, 1, 1, 1]));
    let g = changed.model().expect("a model").graph(&SHAPE).expect("a graph").graph;
    let copies = g.nodes.iter().filter(|n| n.op == Op::Copy).map(|n| g.def(n.dst).dtype);
    assert_eq!(copies.collect::<Vec<_>>(), [DType::F32]);
}

#[test]
fn the_last_layer_computes_outputs_alone_after_attention() {
    for (kind, file) in files().into_iter().filter(|(kind, _)| *kind != "mamba2") {
        let g = file.model().expect(kind).graph(&SHAPE).expect(kind).graph;
        let rows = |name: &str| g.ne(g.find(name).expect(name))[1];
        assert_eq!((rows("kqv_out-1"), rows("attn_out-0")), (SHAPE.n_tokens, SHAPE.n_tokens), "{kind}");
        assert_eq!((rows("attn_out-1"), rows("l_out-1")), (SHAPE.n_outputs, SHAPE.n_outputs), "{kind}");
    }
}

#[test]
fn tensors_come_in_order_of_use() {
    let model = file("llama").model().expect("a model");
    let names = model.tensor_names();
    assert_eq!((names[0].as_str(), names[1].as_str()), ("token_embd.weight", "blk.0.attn_norm.weight"));
    assert_eq!(names.last().map(String::as_str), Some("output.weight"));
}

#[test]
fn an_architecture_is_one_row_of_the_table() {
    let table = include_str!("../arch/mod.rs");
    for (_, file) in files() {
        let arch: &str = file.meta.require("general.architecture").expect("a file names its architecture");
        let row = table.lines().filter(|line| line.starts_with(&format!("    (\"{arch}\", &"))).count();
        assert_eq!(row, 1, "{arch}");
        assert!(arch::of(&file.meta).is_ok());
    }
}

fn windows(file: &super::File) -> Vec<u32> {
    file.model().expect("a model").config.layers.iter().map(|l| l.window).collect()
}

fn rope(keys: &str) -> RopeParams {
    let lines = keys.split("; ").filter(|line| !line.is_empty());
    let changed = lines.fold(file("llama"), |file, line| file.with(&format!("llama.{line}")));
    changed.model().expect("a model").config.rope.params
}
