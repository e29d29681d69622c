//! Small models end to end: a prompt's chunks change no bit, whatever the cache's dtype, and the numbers are those of the
//! plain references.

use llmrt_abi::DType;
use llmrt_engine::{DeviceRunner, EngineOptions};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use llmrt_tests::models::{TinyDeepseek2, TinyFalcon, TinyLlama, TinyMamba2, TinyQwen35};
use llmrt_tests::steps::{self, Core};
use llmrt_tests::{nmse, reference};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

const N_TOKENS: usize = 48;

#[test]
fn a_falcon_with_one_kv_head_gives_the_logits_of_the_references_in_any_chunks() {
    let dir = tempfile::tempdir().unwrap();
    check_against_references(&TinyFalcon::default().write(dir.path()));
    check_against_references(&TinyFalcon { n_head: 2, ..TinyFalcon::default() }.write(dir.path()));
}

#[test]
fn a_falcon_with_several_kv_heads_gives_the_logits_of_the_references_in_any_chunks() {
    let dir = tempfile::tempdir().unwrap();
    check_against_references(&TinyFalcon { n_head_kv: 2, ..TinyFalcon::default() }.write(dir.path()));
}

#[test]
fn a_llama_gives_the_logits_of_the_references_in_any_chunks() {
    let dir = tempfile::tempdir().unwrap();
    check_against_references(&TinyLlama::default().write(dir.path()));
}

#[test]
fn latent_attention_gives_the_logits_of_the_references_in_any_chunks() {
    let dir = tempfile::tempdir().unwrap();
    check_against_references(&TinyDeepseek2::default().write(dir.path()));
    check_against_references(&TinyDeepseek2 { q_rank: 0, ..TinyDeepseek2::default() }.write(dir.path()));
}

#[test]
fn experts_of_the_best_group_give_the_logits_of_the_references_in_any_chunks() {
    let dir = tempfile::tempdir().unwrap();
    check_against_references(&TinyDeepseek2 { n_group: 2, ..TinyDeepseek2::default() }.write(dir.path()));
}

#[test]
fn recurrent_states_give_the_logits_of_the_references_in_any_chunks() {
    let dir = tempfile::tempdir().unwrap();
    check_against_references(&TinyMamba2::default().write(dir.path()));
}

#[test]
fn states_beside_keys_and_values_give_the_logits_of_the_references_in_any_chunks() {
    let dir = tempfile::tempdir().unwrap();
    check_against_references(&TinyQwen35::default().write(dir.path()));
}

fn check_against_references(model: &Path) {
    let whole = same_in_any_chunks(model, DType::F32);
    let tokens: Vec<i32> = tokens().iter().map(|&t| t as i32).collect();
    let expected = reference::logits(model, &tokens, N_TOKENS);
    let error = nmse(&whole[whole.len() / 2..], &expected);
    assert!(error <= 1e-11, "{}: NMSE {error}", model.display());
}

#[test]
fn an_f16_cache_gives_nearly_the_logits_of_an_f32_cache_in_any_chunks() {
    check_cache(DType::F16, 1e-5);
}

#[test]
fn a_q8_0_cache_gives_about_the_logits_of_an_f32_cache_in_any_chunks() {
    check_cache(DType::Q8_0, 1e-2);
}

/// All models with this cache give logits as near to those with an F32 cache as `limit`, and no nearer than rounding
/// allows: the cache has the requested type.
fn check_cache(cache: DType, limit: f64) {
    let dir = tempfile::tempdir().unwrap();
    // Heads of 32 elements, which is a block of Q8_0.
    let llama = TinyLlama { n_embd: 128, ..TinyLlama::default() };
    let several = TinyFalcon { n_head_kv: 2, ..TinyFalcon::default() };
    let falcon = TinyFalcon::default();
    let writers: [(&str, &dyn Fn() -> PathBuf); 3] = [
        ("llama", &|| llama.write(dir.path())),
        ("falcon", &|| falcon.write(dir.path())),
        ("falcon with 2 KV heads", &|| several.write(dir.path())),
    ];
    for (name, write) in writers {
        let model = write();
        let error = nmse(&same_in_any_chunks(&model, cache), &run(&model, DType::F32, &[N_TOKENS]));
        println!("{name}, {cache} cache: NMSE {error:.1e}");
        assert!(error > 0.0 && error <= limit, "{name}, {cache} cache: NMSE {error}");
    }
}

/// Logits of the whole prompt in one batch, which other chunks must give bit for bit.
fn same_in_any_chunks(model: &Path, cache: DType) -> Vec<f32> {
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let whole = run(model, cache, &[N_TOKENS]);
    for chunks in [&[1; N_TOKENS][..], &[5, 17, 3, 1, 22], &[33, 15]] {
        let parts = run(model, cache, chunks);
        assert!(bits(&parts) == bits(&whole), "{}, {cache} cache, chunks {chunks:?}", model.display());
    }
    whole
}

/// Logits of all tokens, [n_tokens, n_vocab], the prompt cut into these chunks.
fn run(model: &Path, cache: DType, chunks: &[usize]) -> Vec<f32> {
    let all = steps::run(&mut core(model, cache, 1), &tokens(), chunks).logits;
    assert_eq!(all.len(), N_TOKENS * 300);
    all
}

fn tokens() -> Vec<u32> {
    (0..N_TOKENS as u32).map(|i| 3 + i * i * 7 % 290).collect()
}

fn core(model: &Path, cache: DType, max_seqs: usize) -> Core {
    runner(model, cache, max_seqs).into_core(None).unwrap()
}

fn runner(model: &Path, cache: DType, max_seqs: usize) -> DeviceRunner {
    static HOST: LazyLock<Arc<Host>> = LazyLock::new(|| {
        let host = Host::new(HostOptions::default());
        host.register_builtin(llmrt_cpu::query).unwrap();
        host
    });
    let files = ModelFiles::open(model, &OpenOptions::default()).unwrap();
    let options = EngineOptions {
        n_ctx: 64,
        n_batch: 64,
        max_seqs,
        k_type: cache,
        v_type: cache,
        split: Default::default(),
        ..EngineOptions::default()
    };
    let load = LoadOptions { check_tensors: true, ..LoadOptions::default() };
    DeviceRunner::new(&HOST, vec![HOST.device("cpu").unwrap()], files, load, options).unwrap()
}
