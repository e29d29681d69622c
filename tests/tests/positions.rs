//! Models that learned a vector for each position: texts are no longer than their table.

use llmrt_engine::{DeviceRunner, EngineEvent, EngineOptions, Error, Finish, Request};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use llmrt_tests::models::text;

/// GPT-2 with 16 positions.
const MODEL: &str = "\
general.architecture str gpt2
gpt2.vocab_size u32 64
gpt2.context_length u32 16
gpt2.embedding_length u32 32
gpt2.block_count u32 1
gpt2.feed_forward_length u32 48
gpt2.attention.head_count u32 4
gpt2.attention.layer_norm_epsilon f32 1e-5
tensor token_embd.weight 32 64 : 0 1
tensor position_embd.weight 32 16 : 0 1
tensor {output_norm,blk.0.attn_norm,blk.0.ffn_norm}.weight 32 : 1 0.1
tensor {output_norm,blk.0.attn_norm,blk.0.ffn_norm}.bias 32 : 0 0.1
tensor blk.0.attn_qkv.weight 32 96
tensor blk.0.attn_qkv.bias 96 : 0 0.1
tensor blk.0.attn_output.weight 32 32
tensor blk.0.attn_output.bias 32 : 0 0.1
tensor blk.0.ffn_up.weight 32 48
tensor blk.0.ffn_up.bias 48 : 0 0.1
tensor blk.0.ffn_down.weight 48 32
tensor blk.0.ffn_down.bias 32 : 0 0.1
";

#[test]
fn a_context_is_as_long_as_the_table_of_positions() {
    let dir = tempfile::tempdir().unwrap();
    let description = dir.path().join("gpt2.txt");
    std::fs::write(&description, MODEL).unwrap();
    let files = ModelFiles::open(&text::write(&description, dir.path()), &OpenOptions::default()).unwrap();
    let host = Host::new(HostOptions::default());
    host.register_builtin(llmrt_cpu::query).unwrap();
    let options = EngineOptions { n_ctx: 64, n_batch: 64, ..EngineOptions::default() };
    let device = host.device("cpu").unwrap();
    let mut runner = DeviceRunner::new(&host, vec![device], files, LoadOptions::default(), options).unwrap();
    let warnings = runner.take_warnings().join("; ");
    assert!(warnings.contains("the context holds 16 tokens, not 64"), "{warnings}");

    let mut core = runner.into_core(None).unwrap();
    assert_eq!(core.n_ctx(), 16);
    let error = core.add(Request::greedy(vec![1; 17])).unwrap_err();
    assert!(matches!(error, Error::PromptTooLong { n_tokens: 17, n_ctx: 16, .. }), "{error}");
    core.add(Request::greedy(vec![1; 10])).unwrap();
    let mut outputs = Vec::new();
    while !core.is_idle() {
        outputs.extend(core.step().unwrap().into_iter().filter_map(|event| match event {
            EngineEvent::Finished(output) => Some(output.outputs[0].clone()),
            _ => None,
        }));
    }
    // The last token is not computed.
    assert_eq!((outputs[0].tokens.len(), &outputs[0].finish), (7, &Finish::Length));
}
