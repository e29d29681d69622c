//! Of every architecture: a text in company, forked, swapped out and back, or with its tokens replaced is the text that it is
//! alone, bit for bit.

use llmrt_abi::DType;
use llmrt_engine::batch::Ahead;
use llmrt_engine::core::CoreOptions;
use llmrt_engine::options::BLOCK_SIZE;
use llmrt_engine::output::SampledToken;
use llmrt_engine::scheduler::{Preemption, SchedulerConfig};
use llmrt_engine::speculation::{DraftInput, DraftLayers, DraftModel, Drafter};
use llmrt_engine::{
    Batch, Decoding, DeviceRunner, EngineCore, EngineEvent, EngineOptions, Request, RequestId, Row,
    SamplingParams, TokenId,
};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use llmrt_models::{DRAFT_PREFIX, ModelSpec};
use llmrt_tests::fixtures::compared;
use llmrt_tests::models::{TinyMamba2, TinyQwen35, text};
use llmrt_tests::reference;
use llmrt_tests::steps::{self, Core};
use llmrt_tests::{f32s, nmse};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

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

/// The tokens of three texts, whose log-probabilities are of all logits.
fn drafted_texts(core: &mut Core) -> BTreeMap<RequestId, Vec<SampledToken>> {
    for (i, n) in PROMPTS.into_iter().enumerate() {
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
    texts
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
        (drafted_texts(&mut core), core.draft_use())
    };
    let (expected, found) = (texts(false), texts(true));
    assert_eq!(found.0, expected.0, "{}", model.display());
    let used = found.1.unwrap();
    assert!(used.n_accepted_tokens > 6 && used.acceptance_rate() < 1.0, "{}: {used:?}", model.display());
}

/// A model of `tests/fixtures/models` with layers that predict ahead for it, some lines of whose description are others.
fn with_layers(dir: &Path, changes: &[(&str, &str)]) -> Result<DeviceRunner, String> {
    with_layers_on(&["cpu"], dir, changes)
}

/// The same on these devices.
fn with_layers_on(devices: &[&str], dir: &Path, changes: &[(&str, &str)]) -> Result<DeviceRunner, String> {
    let description = |name: &str| text::descriptions().join(format!("{name}.txt"));
    let model = text::write(&description("gemma4"), dir);
    let mut layers = std::fs::read_to_string(description("gemma4-assistant")).unwrap();
    for (line, other) in changes {
        assert!(layers.contains(line), "{line}");
        layers = layers.replace(line, other);
    }
    let changed = dir.join("layers.txt");
    std::fs::write(&changed, layers).unwrap();
    let open = |file: &Path| ModelFiles::open(file, &OpenOptions::default()).unwrap();
    let mut files = open(&model);
    files.attach(open(&text::write(&changed, dir)), DRAFT_PREFIX).unwrap();
    runner_of(devices, files, 3, false).map_err(|e| e.to_string())
}

#[test]
fn layers_that_predict_ahead_give_llama_cpps_logits() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = with_layers(dir.path(), &[]).unwrap().into_core(None).unwrap();
    let text = std::fs::read_to_string(llmrt_tests::fixtures::tokens()).unwrap();
    let tokens: Vec<u32> = text.split_whitespace().map(|token| token.parse().unwrap()).collect();
    let (last, before) = tokens.split_last().unwrap();
    core.runner_mut().keep_hidden(true);
    let decoding = Decoding::Forced { tokens: vec![*last, 0], required_top_k: None };
    core.add(Request { decoding, ..Request::greedy(before.to_vec()) }).unwrap();
    core.step().unwrap();
    let sequence = core.scheduler().running().next().unwrap().1.clone();
    assert_eq!((sequence.n_computed(), sequence.tokens()), (before.len(), &tokens[..]));
    let caches = core.scheduler().device().clone();
    let mut hidden = core.runner().hidden(sequence.id, before.len() - 1).unwrap().to_vec();
    let expected = std::fs::read(text::descriptions().join("gemma4-assistant.drafts.f32")).unwrap();
    let expected = f32s(&expected);
    for (i, expected) in expected.chunks(expected.len() / 4).enumerate() {
        let token = if i == 0 { *last } else { tokens[i - 1] };
        let one = Ahead { sequence: &sequence, token, hidden: &hidden };
        let mut compute = |texts: &[Ahead<'_>]| {
            let batch = Batch::ahead(texts, &caches, 4).unwrap();
            let (rows, next) = core.runner_mut().predict_ahead(&batch).unwrap();
            let row = |i| match rows.row(i) {
                Row::All(logits) => logits.to_vec(),
                row => panic!("{row:?}"),
            };
            ((0..texts.len()).map(row).collect::<Vec<_>>(), next.to_vec())
        };
        let (logits, next) = compute(&[one]);
        let three = compute(&[Ahead { token: 7, ..one }, one, Ahead { token: 9, ..one }]);
        assert!(
            three.0[1] == logits[0] && three.1[next.len()..][..next.len()] == next,
            "alone and beside others"
        );
        // llama.cpp's GELU is rounded to F16, and errors grow from draft to draft: each goes on from its hidden state.
        let (logits_there, hidden_there) = expected.split_at(logits[0].len());
        let error = nmse(&logits[0], logits_there).max(nmse(&next, hidden_there));
        println!("draft {i}: NMSE {error:.1e}");
        assert!(error < 1e-5, "draft {i}: NMSE {error}");
        hidden = hidden_there.to_vec();
    }
}

#[test]
fn texts_with_drafts_of_layers_that_predict_ahead_are_the_texts_without() {
    let dir = tempfile::tempdir().unwrap();
    let new = || with_layers(dir.path(), &[]).unwrap().into_core(None).unwrap();
    let mut drafted = new();
    drafted.speculate(Box::new(DraftLayers { min_probability: 0.0 }), 3);
    let expected = drafted_texts(&mut new());
    assert_eq!(drafted_texts(&mut drafted), expected);
    assert!(drafted.draft_use().unwrap().n_draft_tokens > 60);

    let on_card = with_layers_on(&["sim:sim", "cpu"], dir.path(), &[]).unwrap();
    let mut on_card = on_card.into_core(None).unwrap();
    on_card.speculate(Box::new(DraftLayers { min_probability: 0.0 }), 3);
    assert_eq!(drafted_texts(&mut on_card), expected, "on a simulated card");
    assert_eq!(on_card.draft_use(), drafted.draft_use());
    let report = on_card.runner().report().unwrap();
    assert_eq!((&*report.devices[0], report.n_fallbacks()), ("sim:sim", 0), "{report}");

    // Whatever is accepted, guesses are of the text as it is.
    let texts: Vec<Vec<TokenId>> = expected
        .values()
        .zip(PROMPTS)
        .map(|(text, n)| tokens()[..n].iter().copied().chain(text.iter().map(|token| token.token)).collect())
        .collect();
    let observed = |n_right| {
        let guesses = Arc::default();
        let mut core = new();
        let drafter = Observed { texts: texts.clone(), n_right, guesses: Arc::clone(&guesses) };
        core.speculate(Box::new(drafter), 4);
        assert_eq!(drafted_texts(&mut core), expected, "{n_right} right guesses");
        guesses.lock().unwrap().clone()
    };
    let one_by_one = observed(0);
    for n_right in 1..=3 {
        let guesses = observed(n_right);
        assert!(
            guesses.len() > 8 && guesses.len() < one_by_one.len(),
            "{} of {}",
            guesses.len(),
            one_by_one.len()
        );
        for (tokens, guess) in guesses {
            assert_eq!(
                one_by_one.get(&tokens),
                Some(&guess),
                "{n_right} right guesses, {} tokens",
                tokens.len()
            );
        }
    }
}

/// What layers that predict ahead guess of texts, by their tokens.
type Guesses = BTreeMap<Vec<TokenId>, Vec<TokenId>>;

/// Records what layers that predict ahead guess, and gives right guesses in their place, then a wrong one.
struct Observed {
    texts: Vec<Vec<TokenId>>,
    n_right: usize,
    guesses: Arc<Mutex<Guesses>>,
}

impl Drafter<DeviceRunner> for Observed {
    fn draft(
        &mut self,
        texts: &[DraftInput<'_>],
        target: &mut DeviceRunner,
    ) -> llmrt_engine::Result<Vec<Vec<TokenId>>> {
        let guesses = DraftLayers { min_probability: 0.0 }.draft(texts, target)?;
        let mut drafts = Vec::new();
        for (text, guess) in texts.iter().zip(guesses) {
            let tokens = text.sequence.tokens();
            assert_eq!(guess.len(), text.max_drafts);
            self.guesses.lock().unwrap().insert(tokens.to_vec(), guess[..1].to_vec());
            let known = self.texts.iter().find(|known| known.starts_with(tokens)).unwrap();
            let right = known[tokens.len()..].iter().copied().take(self.n_right);
            drafts.push(right.chain([3]).take(text.max_drafts).collect());
        }
        Ok(drafts)
    }
}

/// Lengths of the prompts of [`drafted_texts`].
const PROMPTS: [usize; 3] = [20, 33, 5];

#[test]
fn layers_that_predict_ahead_for_another_model_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (line, other, expected) in [
        (
            "embedding_length_out u32 64",
            "embedding_length_out u32 32",
            "`gemma4-assistant.embedding_length_out` is 32",
        ),
        ("sliding_window u32 12", "sliding_window u32 13", "a window of 13 tokens"),
        ("head_count_kv u32 2", "head_count_kv u32 1", "1 KV heads"),
        ("block_count u32 3", "block_count u32 0", "`gemma4-assistant.block_count`"),
        ("block_count u32 3", "block_count u32 4", "`gemma4-assistant."),
        ("tensor nextn.pre_projection.weight 128 32", "", "`draft.nextn.pre_projection.weight`"),
        (
            "tensor blk.2.attn_q.weight 32 128",
            "tensor blk.2.attn_q.weight 32 64",
            "`draft.blk.2.attn_q.weight`",
        ),
        ("tensor token_embd.weight 32 128", "tensor token_embd.weight 32 64", "`draft.token_embd.weight`"),
    ] {
        let found = with_layers(dir.path(), &[(line, other)]).err().unwrap_or_else(|| panic!("{other}"));
        assert!(found.contains(expected), "{other}: {found}");
    }
}

fn tokens() -> Vec<u32> {
    (0..N_TOKENS as u32).map(|i| 3 + i * i * 7 % 120).collect()
}

fn core(model: &Path, max_seqs: usize) -> Core {
    runner(model, max_seqs, false).into_core(None).unwrap()
}

fn runner(model: &Path, max_seqs: usize, swa_full: bool) -> DeviceRunner {
    let files = ModelFiles::open(model, &OpenOptions::default()).unwrap();
    runner_of(&["cpu"], files, max_seqs, swa_full).unwrap()
}

fn runner_of(
    devices: &[&str],
    files: ModelFiles,
    max_seqs: usize,
    swa_full: bool,
) -> llmrt_engine::Result<DeviceRunner> {
    static HOST: LazyLock<Arc<Host>> = LazyLock::new(|| {
        let host = Host::new(HostOptions::default());
        host.register_builtin(llmrt_cpu::query).unwrap();
        host.register_builtin(llmrt_sim::query).unwrap();
        host
    });
    let options = EngineOptions {
        n_ctx: 64,
        n_batch: 64,
        max_seqs,
        swa_full,
        k_type: DType::F32,
        v_type: DType::F32,
        ..EngineOptions::default()
    };
    let devices = devices.iter().map(|name| HOST.device(name).unwrap()).collect();
    DeviceRunner::new(&HOST, devices, files, LoadOptions::default(), options)
}
