//! What a model refuses, and the messages.

use super::{SHAPE, file, files, sparse};
use crate::BatchShape;
use llmrt_abi::DType;

#[test]
fn a_missing_tensor_is_named_with_the_dims_it_should_have() {
    refuses(
        file("llama").without("blk.1.ffn_gate.weight").model(),
        "tensor `blk.1.ffn_gate.weight` is missing: llama needs it, with dims [16, 24]; convert the model again",
    );
}

#[test]
fn a_tensor_of_other_dims_is_named_with_both() {
    refuses(
        file("qwen3").with("blk.0.attn_k.weight: 16 16").model(),
        "tensor `blk.0.attn_k.weight` has dims [16, 16]: the metadata require [16, 8]",
    );
    refuses(
        file("llama").with("token_embd.weight: 16").model(),
        "tensor `token_embd.weight` has dims [16, 1]: the metadata require [16, 32]",
    );
}

#[test]
fn a_missing_key_is_named() {
    refuses(
        file("gemma2").without("gemma2.attention.head_count").model(),
        "metadata key `gemma2.attention.head_count` is missing",
    );
    refuses(
        file("gpt2").without("gpt2.attention.layer_norm_epsilon").model(),
        "metadata key `gpt2.attention.layer_norm_epsilon` is missing",
    );
}

#[test]
fn a_value_out_of_range_is_reported_with_the_range() {
    refuses(
        file("llama").with("llama.block_count = 0").model(),
        "metadata key `llama.block_count` is 0: expected 1 to 4096",
    );
    refuses(
        file("llama").with("llama.attention.head_count_kv = 3").model(),
        "metadata key `llama.attention.head_count_kv` is 3 in layer 0: expected a divisor of the 4 query heads",
    );
    refuses(
        file("llama-moe").with("llama.expert_used_count = 5").model(),
        "metadata key `llama.expert_used_count` is 5: expected 1 to 4",
    );
    refuses(
        file("llama").with("llama.rope.scaling.type = dynamic").model(),
        "metadata key `llama.rope.scaling.type` is dynamic: expected none, linear, yarn or longrope",
    );
}

#[test]
fn a_part_of_a_model_is_named() {
    refuses(
        file("llama").with("general.architecture = clip").model(),
        "metadata key `general.architecture` is `clip`: a projector (mmproj) that makes embeddings of images or sounds for a \
         model, not a model of text by itself",
    );
}

#[test]
fn files_of_other_types_are_named() {
    refuses(
        file("llama").with("general.type = adapter").model(),
        "metadata key `general.type` is `adapter`: weights (LoRA) that change those of a model, which llmrt does not apply, \
         not a model of text by itself",
    );
}

#[test]
fn floats_that_are_no_numbers_or_below_zero_are_refused_with_their_key() {
    refuses(
        file("llama").with("llama.rope.freq_base = NaN").model(),
        "metadata key `llama.rope.freq_base` is NaN: expected a finite number of at least 0",
    );
    refuses(
        file("gemma2").with("gemma2.final_logit_softcapping = inf").model(),
        "metadata key `gemma2.final_logit_softcapping` is inf: expected a finite number",
    );
    refuses(
        file("llama").with("llama.attention.layer_norm_rms_epsilon = -0.00001").model(),
        "metadata key `llama.attention.layer_norm_rms_epsilon` is -0.00001: expected a finite number of at least 0",
    );
}

#[test]
fn an_unknown_architecture_is_reported_with_the_nearest_names() {
    refuses(
        file("llama").with("general.architecture = lama3").model(),
        "metadata key `general.architecture` is `lama3`, which llmrt cannot build; nearest are llama, llama4, plamo3, \
         gemma3, jamba (docs/reference/models.md has all)",
    );
}

#[test]
fn a_batch_that_makes_no_graph_is_refused() {
    let model = file("llama").model().expect("the file makes a model");
    refuses(model.graph(&BatchShape { n_outputs: 4, ..SHAPE }), "batch: n_outputs is 4: expected 1 to 3");
    refuses(model.graph(&BatchShape { n_seqs: 0, ..SHAPE }), "batch: n_seqs is 0: expected 1 to 2147483647");
    refuses(
        model.graph(&BatchShape { n_blocks: u64::MAX, ..SHAPE }),
        "batch: n_blocks is 18446744073709551615: expected 1 to 2147483647",
    );
    refuses(
        model.graph(&BatchShape { v_type: DType::Q8_0, ..SHAPE }),
        "V cache of layer 0 cannot be Q8_0: a head of 4 is not whole blocks of 32",
    );
}

#[test]
fn no_value_of_any_key_panics() {
    let values = ["0", "1", "3", "4294967295", "-1.0", "NaN", "inf", "text"];
    for (kind, file) in files().into_iter().chain(sparse::files()) {
        let keys: Vec<String> = file.meta.iter().map(|(key, _)| key.to_string()).collect();
        for key in keys {
            let _ = file.without(&key).model();
            for value in values {
                if let Ok(model) = file.with(&format!("{key} = {value}")).model() {
                    model.graph(&SHAPE).unwrap_or_else(|e| panic!("{kind} with {key} = {value}: {e}"));
                }
            }
        }
    }
}

fn refuses<T>(result: crate::Result<T>, message: &str) {
    assert_eq!(result.err().map(|e| e.to_string()).as_deref(), Some(message));
}
