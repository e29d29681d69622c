//! The embedded model on the CPU: batched equals alone, bit for bit.

use super::super::*;
use super::beams::{MAX_TOKENS, check};
use super::fake::{outputs, run};
use crate::beam::{BeamParams, EarlyStopping};
use crate::options::EngineOptions;
use crate::request::Decoding;
use crate::runner::DeviceRunner;
use crate::sampler::{Rng, SamplingParams};
use crate::scheduler::{Policy, Preemption};
use crate::sequence::TokenId;
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use llmrt_tokenizer::EncodeOptions;
use std::path::Path;

const N_CTX: usize = 128;

/// The embedded model with room for 8 sequences, and its tokenizer.
fn runner() -> (DeviceRunner, Arc<Tokenizer>) {
    let host = Host::new(HostOptions::default());
    host.register_builtin(llmrt_cpu::query).unwrap();
    let files =
        ModelFiles::open(Path::new("../../cli/assets/stories.gguf"), &OpenOptions::default()).unwrap();
    let tokenizer = Arc::new(Tokenizer::from_metadata(&files.model.metadata).unwrap());
    let load = LoadOptions::default();
    let options = EngineOptions { n_ctx: N_CTX, n_batch: 512, max_seqs: 8, ..EngineOptions::default() };
    (DeviceRunner::new(&host, host.devices(), files, load, options).unwrap(), tokenizer)
}

fn requests(tokenizer: &Tokenizer) -> Vec<Request> {
    let beginning =
        "Once upon a time there was a little fox who lived near the sea with his mother and his friends. ";
    let prompts = [
        ("Once upon a time", 1),
        (beginning, 1),
        (&format!("{beginning}One day he"), 3),
        (&format!("{beginning}Then"), 2),
        ("The dog", 2),
        (&format!("{beginning}{beginning}At night"), 1),
    ];
    let request = |(i, (prompt, width)): (usize, &(&str, usize))| {
        let params = SamplingParams::default();
        let decoding = match *width {
            3 => Decoding::Beam(BeamParams { length_penalty: 1.0, early_stopping: EarlyStopping::Likely }),
            _ => Decoding::Sample { params, seed: i as u64 },
        };
        let options = EncodeOptions { add_special: true, parse_special: false };
        let prompt = tokenizer.encode(prompt, options).unwrap();
        Request { decoding, n: *width, max_tokens: Some(12), logprobs: Some(2), ..Request::greedy(prompt) }
    };
    prompts.iter().enumerate().map(request).collect()
}

/// The streamed tokens, with the bits of their log-probabilities, and the texts of each request.
type Seen = BTreeMap<usize, (Vec<(usize, TokenId, u64)>, Vec<String>)>;

fn seen(events: &[EngineEvent], ids: &[(usize, RequestId)]) -> Seen {
    let outputs = outputs(events);
    let of = |(i, id): &(usize, RequestId)| {
        let mut tokens: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                EngineEvent::Token { request, index, token } if request == id => {
                    Some((*index, token.token, token.logprob.unwrap().to_bits()))
                }
                _ => None,
            })
            .collect();
        tokens.sort_by_key(|(index, ..)| *index);
        let texts = outputs[id].outputs.iter().map(|o| format!("{}|{}", o.text, o.cumulative_logprob));
        (*i, (tokens, texts.collect()))
    };
    ids.iter().map(of).collect()
}

fn core(
    runner: DeviceRunner,
    tokenizer: &Arc<Tokenizer>,
    scheduler: SchedulerConfig,
    n_blocks: usize,
) -> EngineCore<DeviceRunner> {
    let options =
        CoreOptions { scheduler, n_ctx: N_CTX, n_blocks, n_host_blocks: 12, ..CoreOptions::default() };
    EngineCore::new(runner, Some(tokenizer.clone()), options).unwrap()
}

#[test]
fn mixes_on_the_cpu_have_the_bits_of_each_request_alone() {
    let (mut runner, tokenizer) = runner();
    let requests = requests(&tokenizer);
    let mut alone = Seen::new();
    for (i, request) in requests.iter().enumerate() {
        let config = SchedulerConfig { prefix_cache: false, ..SchedulerConfig::default() };
        let mut core = core(runner, &tokenizer, config, 64);
        let id = core.add(request.clone()).unwrap();
        let events = run(&mut core);
        alone.extend(seen(&events, &[(i, id)]));
        runner = core.into_runner();
    }
    assert!(alone[&0].1[0].len() > 20, "{:?}", alone[&0]);
    let (mut n_preempted, mut n_cached) = (0, 0);
    for seed in 0..64 {
        let mut rng = Rng::new(seed);
        let mut below = |n: usize| (rng.next_f64() * n as f64) as usize;
        let policy = [Policy::Chunked, Policy::PrefillFirst][below(2)];
        let chunks = if policy == Policy::Chunked { [16, 33, 100, 512][below(4)] } else { 512 };
        let config = SchedulerConfig {
            max_num_batched_tokens: chunks,
            max_num_seqs: 8,
            max_num_prompt_logits: 64,
            watermark: 0.0,
            policy,
            preemption: [Preemption::Auto, Preemption::Recompute, Preemption::Swap][below(3)],
            cost: None,
            prefix_cache: below(3) > 0,
            is_causal: true,
        };
        let mut core = core(runner, &tokenizer, config, [8, 9, 12, 64][below(4)]);
        let mut order: Vec<usize> = (0..requests.len()).collect();
        (1..order.len()).for_each(|i| order.swap(i, below(i + 1)));
        let mut ids = Vec::new();
        let mut events = Vec::new();
        for i in order {
            ids.push((i, core.add(requests[i].clone()).unwrap()));
            // Requests arrive while others run.
            for _ in 0..below(3) {
                let before = core.scheduler().counts();
                events.extend(core.step().unwrap());
                let after = core.scheduler().counts();
                n_preempted += usize::from(after[0] + after[2] > before[0] + before[2]);
            }
        }
        events.extend(run(&mut core));
        n_cached += outputs(&events).values().map(|o| o.usage.n_cached).sum::<usize>();
        assert_eq!(
            seen(&events, &ids),
            ids.iter().map(|(i, _)| (*i, alone[i].clone())).collect(),
            "seed {seed}"
        );
        runner = core.into_runner();
    }
    println!("{n_preempted} steps with preemption while requests arrived, {n_cached} cached tokens");
    assert!(n_cached > 100);
}

#[test]
fn beams_and_the_best_of_several_texts_are_those_of_searches_without_an_engine() {
    let (runner, tokenizer) = runner();
    let options = EncodeOptions { add_special: true, parse_special: false };
    let mut core = core(runner, &tokenizer, SchedulerConfig::default(), 64);
    let mut known = BTreeMap::new();
    let mut lengths = Vec::new();
    for text in ["The end", "Once upon a time there was a dog", "The fox and the bear"] {
        let prompt = tokenizer.encode(text, options).unwrap();
        for early_stopping in [EarlyStopping::Always, EarlyStopping::Likely, EarlyStopping::Never] {
            for length_penalty in [0.0, 1.0, 2.0] {
                let params = BeamParams { length_penalty, early_stopping };
                // A full stop ends a text, too.
                let stop = tokenizer.find(".").unwrap();
                let is_end = |token| tokenizer.is_eog(token) || token == stop;
                lengths.extend(check(&mut core, &mut known, &prompt, params, (stop, is_end)));
            }
        }
        let one = |core: &mut EngineCore<_>, n, best_of, seed| {
            let decoding = Decoding::Sample { params: SamplingParams::default(), seed };
            let request =
                Request { decoding, n, best_of, logprobs: Some(0), ..Request::greedy(prompt.clone()) };
            let id = core.add(Request { max_tokens: Some(8), ..request }).unwrap();
            let output = outputs(&run(core)).remove(&id).unwrap();
            output.outputs.into_iter().map(|o| (o.cumulative_logprob, o.tokens)).collect::<Vec<_>>()
        };
        let mut each: Vec<_> = (0..5).flat_map(|i| one(&mut core, 1, None, 70 + i)).collect();
        each.sort_by(|a, b| b.0.total_cmp(&a.0));
        assert_eq!(one(&mut core, 2, Some(5), 70), each[..2], "{text}");
    }
    assert!(lengths.iter().any(|n| *n < MAX_TOKENS), "no text ended by a token: {lengths:?}");
}
