//! Of every architecture: a text in company, forked, swapped out and back, or with its tokens replaced is the text that it is
//! alone, bit for bit.

use llmrt_abi::DType;
use llmrt_engine::core::CoreOptions;
use llmrt_engine::options::BLOCK_SIZE;
use llmrt_engine::output::SampledToken;
use llmrt_engine::scheduler::{Preemption, SchedulerConfig};
use llmrt_engine::speculation::{DraftInput, DraftModel, Drafter};
use llmrt_engine::{
    Decoding, DeviceRunner, EngineCore, EngineEvent, EngineOptions, Request, SamplingParams, TokenId,
};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use llmrt_models::ModelSpec;
use llmrt_tests::fixtures::compared;
use llmrt_tests::models::{TinyMamba2, TinyQwen35};
use llmrt_tests::reference;
use llmrt_tests::steps::{self, Core};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

const N_TOKENS: usize = 48;

/// Checks such models of every architecture, and models of each recurrence whose heads and states are of several sizes.
fn check_all(which: fn(&ModelSpec) -> bool, check: fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let recurrent = [TinyMamba2::default().write(dir.path()), TinyQwen35::default().write(dir.path())];
    let models: Vec<PathBuf> = compared().into_iter().map(|(model, _)| model).chain(recurrent).collect();
    models.iter().filter(|model| is(model, which)).for_each(|model| check(model));
}

fn is(model: &Path, which: fn(&ModelSpec) -> bool) -> bool {
    which(&reference::spec(model))
}

/// Whether the logits of a token do not depend on what follows it.
fn grows(spec: &ModelSpec) -> bool {
    spec.is_causal && !spec.has_encoder()
}

fn writes(spec: &ModelSpec) -> bool {
    spec.is_causal && spec.has_logits
}

/// Texts of the others do not grow, or their prompts do not: each is computed whole, in any company.
#[test]
fn texts_whose_tokens_see_later_ones_are_in_company_what_each_is_alone() {
    let models = compared().into_iter().map(|(model, _)| model).filter(|model| !is(model, grows));
    for model in models {
        let logits = |core: &mut Core, sizes: &[usize]| {
            let add = |n: &usize| core.add(steps::all_logits(&tokens()[..*n])).unwrap();
            let ids: Vec<_> = sizes.iter().map(add).collect();
            let mut texts = vec![Vec::new(); ids.len()];
            while !core.is_idle() {
                for event in core.step().unwrap() {
                    if let EngineEvent::Logits { request, logits, .. } = event {
                        let at = ids.iter().position(|id| *id == request).unwrap();
                        texts[at].extend(logits.iter().map(|x| x.to_bits()));
                    }
                }
            }
            texts
        };
        let sizes = [17, 23, 40, 1, N_TOKENS];
        let together = logits(&mut core(&model, 3), &sizes);
        for (n, found) in sizes.iter().zip(together) {
            assert!(logits(&mut core(&model, 1), &[*n]) == [found], "{}: {n} tokens", model.display());
        }
    }
}

#[test]
fn sequences_in_any_company_give_the_logits_that_each_gives_alone() {
    check_all(grows, check_company);
}

/// Sequences begin in turn, some wait while others go on, and there are more of them than states: the last begins when
/// another has ended.
fn check_company(model: &Path) {
    let whole = steps::run(&mut core(model, 1), &tokens(), &[N_TOKENS]).logits;
    let n_vocab = whole.len() / N_TOKENS;
    let row = |position: usize| &whole[position * n_vocab..][..n_vocab];

    let mut core = core(model, 2);
    let mut n_rows = 0;
    let mut next = |core: &mut Core, budget| {
        core.set_max_num_batched_tokens(budget).unwrap();
        for event in core.step().unwrap() {
            if let EngineEvent::Logits { request, position, logits } = event {
                let name = model.display();
                assert!(logits == row(position), "{name}: {request} position {position}, {budget} tokens");
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
    assert_eq!(n_rows, 17 + 23 + 40 + 1 + N_TOKENS, "{}", model.display());
}

#[test]
fn texts_fork_and_move_to_host_memory_and_back() {
    check_all(writes, check_forks);
}

/// Texts that fork read one cache and go on apart; a text that is swapped out goes on as if nothing had been. What is compared
/// are tokens with their log-probabilities, which are of all logits.
fn check_forks(model: &Path) {
    let request = |seed: usize, n| {
        let params = SamplingParams { temperature: 2.0, top_k: 0, ..SamplingParams::default() };
        let decoding = Decoding::Sample { params, seed: seed as u64 };
        Request {
            decoding,
            n,
            max_tokens: Some(12),
            logprobs: Some(5),
            ..Request::greedy(tokens()[..20 + seed].to_vec())
        }
    };
    let run = |core: &mut Core, requests: &[Request]| {
        let ids: Vec<_> = requests.iter().map(|request| core.add(request.clone()).unwrap()).collect();
        let mut texts = BTreeMap::<_, Vec<SampledToken>>::new();
        let mut n_swapped = 0;
        while !core.is_idle() {
            for event in core.step().unwrap() {
                if let EngineEvent::Token { request, index, token } = event {
                    let request = ids.iter().position(|id| *id == request).unwrap();
                    texts.entry((request, index)).or_default().push(token);
                }
            }
            n_swapped += core.scheduler().counts()[2];
        }
        (texts, n_swapped)
    };
    // Text i of a request has its seed and i.
    let alone = |seed: usize, i: usize| {
        let one = Request { prompt: request(seed, 1).prompt, ..request(seed + i, 1) };
        run(&mut core(model, 1), &[one]).0.remove(&(0, 0)).unwrap()
    };
    let expected: BTreeMap<_, _> =
        (0..9).map(|at| (at / 3, at % 3)).map(|(seed, i)| ((seed, i), alone(seed, i))).collect();
    let requests: Vec<_> = (0..3).map(|seed| request(seed, 3)).collect();
    assert_eq!(run(&mut core(model, 9), &requests).0, expected, "{}", model.display());

    let scheduler = SchedulerConfig {
        max_num_batched_tokens: 64,
        max_num_seqs: 9,
        preemption: Preemption::Swap,
        ..SchedulerConfig::default()
    };
    // Too few blocks for all; caches of windows have no pool of their own.
    let (n_blocks, n_host_blocks, n_states, n_host_states) = (10, 9, 18, 9);
    let runner = runner(model, 9, true);
    let options = CoreOptions {
        scheduler,
        n_ctx: 64,
        block_size: BLOCK_SIZE,
        n_blocks,
        n_host_blocks,
        n_states,
        n_host_states,
        windows: Vec::new(),
        decoder_start: runner.model().spec().has_encoder().then_some(0),
    };
    let mut tight = EngineCore::new(runner, None, options).unwrap();
    let (found, n_swapped) = run(&mut tight, &requests);
    assert!(found == expected && n_swapped > 0, "{}: {n_swapped} swapped", model.display());
}

#[test]
fn a_text_whose_tokens_are_replaced_goes_on_after_the_others() {
    check_all(|spec| writes(spec) && grows(spec), check_replacement);
}

fn check_replacement(model: &Path) {
    let mut truncated = core(model, 1);
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
    let request = |tokens: &[u32]| Request { max_tokens: Some(9), ..Request::greedy(tokens.to_vec()) };
    // Longer than what was computed, and another text from a token on that was computed.
    let mut others = tokens()[..20].to_vec();
    others[8..].iter_mut().for_each(|token| *token = 3 + (*token * 5 + 1) % 120);
    let mut fresh = core(model, 1);
    fresh.add(request(&others)).unwrap();
    let expected = text(&mut fresh);
    let id = truncated.add(request(&tokens()[..15])).unwrap();
    truncated.set_max_num_batched_tokens(13).unwrap();
    truncated.step().unwrap();
    truncated.replace(id, &others).unwrap();
    assert_eq!(text(&mut truncated), expected, "{}", model.display());
}

/// A model that guesses its own next tokens, with every third guess wrong.
struct Spoiled(DraftModel, usize);

impl<R> Drafter<R> for Spoiled {
    fn draft(&mut self, texts: &[DraftInput<'_>], target: &mut R) -> llmrt_engine::Result<Vec<Vec<TokenId>>> {
        let mut drafts = self.0.draft(texts, target)?;
        for token in drafts.iter_mut().flatten() {
            self.1 += 1;
            *token = if self.1.is_multiple_of(3) { 3 + *token % 100 } else { *token };
        }
        Ok(drafts)
    }
}

#[test]
fn texts_with_drafts_of_their_next_tokens_are_the_texts_without() {
    check_all(|spec| writes(spec) && grows(spec), check_drafts);
}

/// Wrong drafts leave keys, values and states where those of others go.
fn check_drafts(model: &Path) {
    let texts = |drafts: bool| {
        let mut core = core(model, 3);
        if drafts {
            let model = DraftModel::new(runner(model, 3, false), 0.0).unwrap();
            core.speculate(Box::new(Spoiled(model, 0)), 4);
        }
        for (i, n) in [20, 33, 5].into_iter().enumerate() {
            let params = SamplingParams { temperature: i as f32 / 8.0, ..SamplingParams::default() };
            let decoding = Decoding::Sample { params, seed: 7 };
            let prompt = tokens()[..n].to_vec();
            let request = Request { decoding, max_tokens: Some(14), ..Request::greedy(prompt) };
            core.add(Request { logprobs: Some(3), ..request }).unwrap();
        }
        let mut texts = BTreeMap::<_, Vec<SampledToken>>::new();
        while !core.is_idle() {
            for event in core.step().unwrap() {
                if let EngineEvent::Token { request, token, .. } = event {
                    texts.entry(request).or_default().push(token);
                }
            }
        }
        (texts, core.draft_use())
    };
    let (expected, found) = (texts(false), texts(true));
    assert_eq!(found.0, expected.0, "{}", model.display());
    let used = found.1.unwrap();
    assert!(used.n_accepted_tokens > 6 && used.acceptance_rate() < 1.0, "{}: {used:?}", model.display());
}

fn tokens() -> Vec<u32> {
    (0..N_TOKENS as u32).map(|i| 3 + i * i * 7 % 120).collect()
}

fn core(model: &Path, max_seqs: usize) -> Core {
    runner(model, max_seqs, false).into_core(None).unwrap()
}

fn runner(model: &Path, max_seqs: usize, swa_full: bool) -> DeviceRunner {
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
        swa_full,
        k_type: DType::F32,
        v_type: DType::F32,
        ..EngineOptions::default()
    };
    let device = HOST.device("cpu").unwrap();
    DeviceRunner::new(&HOST, vec![device], files, LoadOptions::default(), options).unwrap()
}
