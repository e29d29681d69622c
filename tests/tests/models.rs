//! Small models end to end: a prompt's chunks change no bit, whatever the cache's dtype, and the numbers are those of the
//! plain references.

use llmrt_abi::DType;
use llmrt_engine::core::CoreOptions;
use llmrt_engine::options::BLOCK_SIZE;
use llmrt_engine::scheduler::{Preemption, SchedulerConfig};
use llmrt_engine::{Decoding, DeviceRunner, EngineCore, EngineEvent, EngineOptions, Request, SamplingParams};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use llmrt_tests::models::text;
use llmrt_tests::models::{Rwkv, TinyDeepseek2, TinyFalcon, TinyLlama, TinyMamba2, TinyQwen35, TinyRwkv};
use llmrt_tests::steps::{self, Core};
use llmrt_tests::{nmse, reference};
use std::collections::BTreeMap;
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

#[test]
fn tokens_mixed_with_those_before_them_give_the_logits_of_the_references_in_any_chunks() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [Rwkv::V6, Rwkv::V6Qwen2, Rwkv::V7, Rwkv::V7Qwen2] {
        check_against_references(&TinyRwkv::new(kind).write(dir.path()));
    }
}

/// A model of each recurrence, and one with attention too.
fn recurrent_models(dir: &Path) -> [PathBuf; 4] {
    [
        TinyMamba2::default().write(dir),
        TinyQwen35::default().write(dir),
        TinyRwkv::new(Rwkv::V6).write(dir),
        TinyRwkv::new(Rwkv::V7).write(dir),
    ]
}

#[test]
fn recurrent_sequences_in_any_company_give_the_logits_that_each_gives_alone() {
    let dir = tempfile::tempdir().unwrap();
    recurrent_models(dir.path()).iter().for_each(|model| check_company(model));
}

/// Sequences begin in turn, some wait while others go on, and there are more of them than states: the last begins when
/// another has ended.
fn check_company(model: &Path) {
    let whole = run(model, DType::F32, &[N_TOKENS]);
    let row = |position: usize| &whole[position * 300..][..300];

    let mut core = core(model, DType::F32, 2);
    let mut n_rows = 0;
    let mut next = |core: &mut Core, budget| {
        core.set_max_num_batched_tokens(budget).unwrap();
        for event in core.step().unwrap() {
            if let EngineEvent::Logits { request, position, logits } = event {
                assert!(logits == row(position), "{request} position {position}, {budget} tokens");
                n_rows += 1;
            }
        }
    };
    for (i, n) in [17, 23, 40, 1, N_TOKENS].into_iter().enumerate() {
        core.add(steps::all_logits(&tokens()[..n])).unwrap();
        [[4, 1, 9], [3, 30, 2]][i % 2].into_iter().for_each(|budget| next(&mut core, budget));
    }
    while !core.is_idle() {
        next(&mut core, 7);
    }
    assert_eq!(n_rows, 17 + 23 + 40 + 1 + N_TOKENS);
}

#[test]
fn recurrent_texts_fork_and_move_to_host_memory_and_back() {
    let dir = tempfile::tempdir().unwrap();
    recurrent_models(dir.path()).iter().for_each(|model| check_forks(model));
}

#[test]
fn texts_whose_prompts_an_encoder_reads_fork_and_move_to_host_memory_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(text::descriptions().join("t5.txt")).unwrap();
    let text = text.replace("vocab_size u32 128", "vocab_size u32 300");
    let description = dir.path().join("t5.txt");
    std::fs::write(&description, text.replace("embd.weight 64 128", "embd.weight 64 300")).unwrap();
    check_forks(&text::write(&description, dir.path()));
}

/// Texts that fork read one state and go on apart; a text that is swapped out or whose tokens are replaced goes on as if
/// nothing had been.
fn check_forks(model: &Path) {
    let request = |seed, n| {
        let params = SamplingParams { temperature: 2.0, top_k: 0, ..SamplingParams::default() };
        let decoding = Decoding::Sample { params, seed };
        Request {
            decoding,
            n,
            max_tokens: Some(12),
            ..Request::greedy(tokens()[..20 + seed as usize].to_vec())
        }
    };
    let run = |core: &mut Core, requests: &[Request]| {
        let ids: Vec<_> = requests.iter().map(|request| core.add(request.clone()).unwrap()).collect();
        let mut texts = BTreeMap::new();
        let mut n_swapped = 0;
        while !core.is_idle() {
            for event in core.step().unwrap() {
                if let EngineEvent::Finished(output) = event {
                    let of = output.outputs.into_iter().map(|output| output.tokens);
                    texts.insert(ids.iter().position(|id| *id == output.request), of.collect::<Vec<_>>());
                }
            }
            n_swapped += core.scheduler().counts()[2];
        }
        (texts, n_swapped)
    };
    // Text i of a request has its seed and i.
    let alone = |seed: u64, i| {
        let one = Request { prompt: request(seed, 1).prompt, ..request(seed + i, 1) };
        run(&mut core(model, DType::F32, 1), &[one]).0[&Some(0)][0].clone()
    };
    let expected: BTreeMap<_, _> = (0..3)
        .map(|seed| (Some(seed as usize), (0..3).map(|i| alone(seed, i)).collect::<Vec<_>>()))
        .collect();
    let requests: Vec<_> = (0..3).map(|seed| request(seed, 3)).collect();
    assert_eq!(run(&mut core(model, DType::F32, 9), &requests).0, expected);

    let scheduler = SchedulerConfig {
        max_num_batched_tokens: 64,
        max_num_seqs: 9,
        preemption: Preemption::Swap,
        ..SchedulerConfig::default()
    };
    // Too few blocks for all.
    let (n_blocks, n_host_blocks, n_states, n_host_states) = (10, 9, 18, 9);
    let runner = runner(model, DType::F32, 9);
    let decoder_start = runner.model().spec().has_encoder().then_some(0);
    let options = CoreOptions {
        scheduler,
        n_ctx: 64,
        block_size: BLOCK_SIZE,
        n_blocks,
        n_host_blocks,
        n_states,
        n_host_states,
        windows: Vec::new(),
        decoder_start,
    };
    let mut tight = EngineCore::new(runner, None, options).unwrap();
    let (found, n_swapped) = run(&mut tight, &requests);
    assert!(found == expected && n_swapped > 0, "{n_swapped} swapped");
}

#[test]
fn a_recurrent_text_whose_tokens_are_replaced_goes_on_after_the_others() {
    let dir = tempfile::tempdir().unwrap();
    recurrent_models(dir.path()).iter().for_each(|model| check_replacement(model));
}

fn check_replacement(model: &Path) {
    let mut core = core(model, DType::F32, 1);
    let text = |core: &mut Core| {
        let mut tokens = Vec::new();
        while !core.is_idle() {
            for event in core.step().unwrap() {
                if let EngineEvent::Token { token, .. } = event {
                    tokens.push(token.token);
                }
            }
        }
        tokens
    };
    let request = |n| Request { max_tokens: Some(9), ..Request::greedy(tokens()[..n].to_vec()) };
    core.add(request(30)).unwrap();
    let expected = text(&mut core);
    let id = core.add(request(11)).unwrap();
    core.set_max_num_batched_tokens(5).unwrap();
    core.step().unwrap();
    core.replace(id, &tokens()[..30]).unwrap();
    assert_eq!(text(&mut core), expected);
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
