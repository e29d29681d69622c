//! Requests end as they should, each for itself.

use super::super::*;
use super::fake::{Fake, N_VOCAB, core, outputs, run};
use crate::beam::{BeamParams, EarlyStopping};
use crate::request::Decoding;
use crate::sampler::{SamplingParams, SamplingRules};
use crate::sequence::TokenId;
use llmrt_tokenizer::{ModelKind, Vocab};

fn sampled(prompt: &[TokenId], seed: u64) -> Request {
    let params = SamplingParams { top_k: 0, ..SamplingParams::default() };
    let decoding = Decoding::Sample { params, seed };
    Request { decoding, max_tokens: Some(8), ..Request::greedy(prompt.to_vec()) }
}

#[test]
fn a_request_ends_after_its_tokens_and_streams_each() {
    let mut core = core(16, 0, SchedulerConfig::default());
    let id = core.add(Request { max_tokens: Some(5), ..Request::greedy(vec![1, 2, 3]) }).unwrap();
    let events = run(&mut core);
    let streamed: Vec<TokenId> = events
        .iter()
        .filter_map(|event| match event {
            EngineEvent::Token { token, .. } => Some(token.token),
            _ => None,
        })
        .collect();
    let output = &outputs(&events)[&id];
    assert_eq!(output.outputs[0].tokens, streamed);
    assert_eq!((streamed.len(), &output.outputs[0].finish), (5, &Finish::Length));
    assert_eq!(
        output.usage,
        Usage { n_prompt: 3, n_computed: 3, n_cached: 0, n_generated: 5, n_preemptions: 0 }
    );
    assert_eq!(core.scheduler().pool().n_used(), 0);
}

#[test]
fn a_text_that_fills_the_context_ends() {
    let mut core = core(32, 0, SchedulerConfig::default());
    let id = core.add(Request::greedy(vec![1; 60])).unwrap();
    let output = outputs(&run(&mut core)).remove(&id).unwrap();
    assert_eq!(output.outputs[0].tokens.len(), 5, "the last token needs no place");
    assert!(core.add(Request::greedy(vec![1; 65])).unwrap_err().to_string().contains("65 tokens"));
    assert!(core.add(Request::greedy(vec![1, 32])).unwrap_err().to_string().contains("32"));
}

#[test]
fn stop_tokens_end_a_text_after_the_least_number_of_tokens() {
    let mut core = core(16, 0, SchedulerConfig::default());
    let all = Request { max_tokens: Some(8), ..Request::greedy(vec![4, 5]) };
    let id = core.add(all.clone()).unwrap();
    let tokens = outputs(&run(&mut core))[&id].outputs[0].tokens.clone();
    let stop = Request { stop_token_ids: vec![tokens[3]], ..all };
    let id = core.add(stop.clone()).unwrap();
    let ended = outputs(&run(&mut core))[&id].outputs[0].clone();
    assert_eq!((&ended.tokens[..], ended.finish), (&tokens[..3], Finish::StopToken(tokens[3])));
    let id = core.add(Request { min_tokens: 6, ..stop }).unwrap();
    let longer = outputs(&run(&mut core))[&id].outputs[0].clone();
    assert!(longer.tokens.len() >= 6 && !longer.tokens[..6].contains(&tokens[3]), "{:?}", longer.tokens);
}

/// What happened to a request's texts, whichever request it was.
fn of_texts(events: Vec<EngineEvent>) -> Vec<EngineEvent> {
    let any = RequestId(0);
    let of_text = |event| match event {
        EngineEvent::Token { index, token, .. } => Some(EngineEvent::Token { request: any, index, token }),
        EngineEvent::TextEnded { index, text, finish, .. } => {
            Some(EngineEvent::TextEnded { request: any, index, text, finish })
        }
        _ => None,
    };
    events.into_iter().filter_map(of_text).collect()
}

#[test]
fn a_resumed_text_is_the_one_that_was_begun() {
    let mut core = core(16, 0, SchedulerConfig::default());
    for seed in 0..6 {
        let params = SamplingParams {
            temperature: if seed == 0 { 0.0 } else { 1.0 },
            rules: SamplingRules::Vllm,
            presence_penalty: 0.5,
            ..SamplingParams::default()
        };
        let begun = Request { decoding: Decoding::Sample { params, seed }, ..sampled(&[1, 2, 3], seed) };
        let id = core.add(begun.clone()).unwrap();
        let events = run(&mut core);
        let tokens = outputs(&events)[&id].outputs[0].tokens.clone();
        let expected = of_texts(events);
        for n_known in 1..=tokens.len() {
            let resumed = Request { resumed: tokens[..n_known].to_vec(), ..begun.clone() };
            let id = core.add(resumed).unwrap();
            let events = run(&mut core);
            let usage = outputs(&events)[&id].usage;
            assert_eq!((usage.n_prompt, usage.n_generated), (3, tokens.len()));
            assert_eq!(of_texts(events), expected, "seed {seed}, {n_known} known tokens");
        }
        // A token that ends the text ends it again.
        let stop = Request { stop_token_ids: vec![tokens[3]], resumed: tokens.clone(), ..begun.clone() };
        let id = core.add(stop).unwrap();
        let ended = outputs(&run(&mut core)).remove(&id).unwrap().outputs.remove(0);
        let n = tokens.iter().position(|token| *token == tokens[3]).unwrap();
        assert_eq!((&ended.tokens[..], ended.finish), (&tokens[..n], Finish::StopToken(tokens[3])));
        let long = Request { resumed: vec![1; 62], ..begun.clone() };
        assert!(core.add(long).unwrap_err().to_string().contains("65 tokens"));
        for wrong in [
            Request { n: 2, ..Request { resumed: vec![1], ..begun.clone() } },
            Request { resumed: vec![1], prompt_logprobs: Some(0), ..begun.clone() },
            Request { resumed: vec![N_VOCAB as TokenId], ..begun },
        ] {
            core.add(wrong).unwrap_err();
        }
    }
    assert_eq!(core.scheduler().pool().n_used(), 0);
}

#[test]
fn given_tokens_are_followed_and_their_logprobs_returned() {
    let mut core = core(16, 0, SchedulerConfig::default());
    let decoding = Decoding::Forced { tokens: vec![9, 8, 7], required_top_k: None };
    let id = core.add(Request { decoding, logprobs: Some(2), ..Request::greedy(vec![1]) }).unwrap();
    let events = run(&mut core);
    let output = &outputs(&events)[&id].outputs[0];
    assert_eq!(output.tokens, [9, 8, 7]);
    let mut sum = 0.0;
    for event in &events {
        if let EngineEvent::Token { token, .. } = event {
            sum += token.logprob.unwrap();
            assert_eq!(token.top_logprobs.len(), 2);
            assert!(token.top_logprobs[0].logprob >= token.logprob.unwrap());
        }
    }
    assert!(sum < 0.0 && sum == output.cumulative_logprob);
}

#[test]
fn logits_of_a_prompt_are_returned_in_order_and_nothing_of_it_is_cached() {
    let mut core = core(
        16,
        0,
        SchedulerConfig { max_num_batched_tokens: 8, max_num_seqs: 8, ..SchedulerConfig::default() },
    );
    for from in [0, 13] {
        let id = core.add(Request::logits((0..20).collect(), from)).unwrap();
        let events = run(&mut core);
        let positions: Vec<usize> = events
            .iter()
            .filter_map(|event| match event {
                EngineEvent::Logits { position, .. } => Some(*position),
                _ => None,
            })
            .collect();
        assert_eq!(positions, (from..20).collect::<Vec<_>>());
        assert_eq!(outputs(&events)[&id].usage.n_cached, 0);
    }
}

#[test]
fn best_of_returns_those_with_the_largest_sum_of_logprobs() {
    let mut core = core(64, 0, SchedulerConfig::default());
    let one = |core: &mut EngineCore<_>, seed| {
        let request = Request { logprobs: Some(0), ..sampled(&[3, 1, 4], seed) };
        let id = core.add(request).unwrap();
        outputs(&run(core))[&id].outputs[0].clone()
    };
    let mut each: Vec<_> = (0..6).map(|i| one(&mut core, 40 + i)).collect();
    each.sort_by(|a, b| b.cumulative_logprob.total_cmp(&a.cumulative_logprob));
    let id = core.add(Request { n: 2, best_of: Some(6), ..sampled(&[3, 1, 4], 40) }).unwrap();
    let best = outputs(&run(&mut core)).remove(&id).unwrap();
    let tokens: Vec<_> = best.outputs.iter().map(|o| o.tokens.clone()).collect();
    assert_eq!(tokens, [each[0].tokens.clone(), each[1].tokens.clone()]);
    assert_eq!(core.scheduler().pool().n_used(), 0);
}

#[test]
fn a_request_that_can_never_run_fails_alone() {
    let mut core = core(4, 0, SchedulerConfig { watermark: 0.0, ..SchedulerConfig::default() });
    let huge = core.add(Request::greedy(vec![1; 30])).unwrap();
    let small = core.add(Request { max_tokens: Some(2), ..Request::greedy(vec![1; 5]) }).unwrap();
    let events = run(&mut core);
    let failed = events.iter().find_map(|event| match event {
        EngineEvent::Failed { request, error } => Some((*request, error.to_string())),
        _ => None,
    });
    let (request, message) = failed.unwrap();
    assert_eq!(request, huge);
    assert!(message.starts_with("request 0 requires 8 blocks of the KV cache and there are 4"), "{message}");
    assert!(events.iter().any(|event| matches!(event, EngineEvent::Finished(o) if o.request == small)));
}

#[test]
fn a_text_that_outgrows_the_cache_keeps_what_it_has() {
    let mut core = core(4, 0, SchedulerConfig { watermark: 0.0, ..SchedulerConfig::default() });
    let id = core.add(Request::greedy(vec![1; 10])).unwrap();
    let output = outputs(&run(&mut core)).remove(&id).unwrap();
    assert_eq!((output.outputs[0].tokens.len(), &output.outputs[0].finish), (7, &Finish::Length));
}

#[test]
fn a_cancelled_step_is_repeated_and_lost_caches_are_computed_again() {
    let alone = |fail: &dyn Fn(&mut EngineCore<super::fake::Fake>)| {
        let mut core = core(16, 8, SchedulerConfig::default());
        let ids = [core.add(sampled(&[1, 2, 3, 4, 5], 1)).unwrap(), core.add(sampled(&[9], 2)).unwrap()];
        for _ in 0..3 {
            core.step().unwrap();
        }
        fail(&mut core);
        let outputs = outputs(&run(&mut core));
        ids.map(|id| outputs[&id].outputs.clone())
    };
    let expected = alone(&|_| ());
    assert_eq!(alone(&|core| core.runner_mut().n_failures = 2), expected);
    assert_eq!(
        alone(&|core| {
            core.runner_mut().n_failures = 1;
            core.runner_mut().loses_caches = true;
        }),
        expected
    );
}

#[test]
fn a_text_that_fills_the_context_goes_on_after_fewer_tokens() {
    let mut core = core(32, 0, SchedulerConfig::default());
    let request = Request { context_shift: true, max_tokens: Some(20), ..Request::greedy(vec![1; 60]) };
    let id = core.add(request.clone()).unwrap();
    let (mut tokens, mut n_shifts) = (vec![1; 60], 0);
    let mut ended = None;
    while !core.is_idle() {
        for event in core.step().unwrap() {
            match event {
                EngineEvent::Token { token, .. } => tokens.push(token.token),
                EngineEvent::ContextFull { request } => {
                    n_shifts += 1;
                    assert_eq!((request, tokens.len()), (id, 64));
                    tokens.drain(..50);
                    core.replace(id, &tokens).unwrap();
                }
                EngineEvent::Finished(output) => ended = Some(output.outputs[0].clone()),
                _ => {}
            }
        }
    }
    let ended = ended.unwrap();
    assert_eq!((n_shifts, ended.tokens.len(), &ended.finish), (1, 20, &Finish::Length));
    // What follows the shift is what follows its tokens.
    let id = core.add(Request { max_tokens: Some(16), ..Request::greedy(tokens[..14].to_vec()) }).unwrap();
    assert_eq!(outputs(&run(&mut core))[&id].outputs[0].tokens, tokens[14..]);

    // A caller that shortens nothing has a text of the whole context.
    let id = core.add(request.clone()).unwrap();
    assert_eq!(outputs(&run(&mut core))[&id].outputs[0].tokens.len(), 4);
    assert!(core.add(Request { n: 2, ..request }).is_err());
}

#[test]
fn a_request_that_is_aborted_before_its_prompt_is_computed_has_empty_texts() {
    let mut core = core(16, 0, SchedulerConfig::default());
    let id = core.add(Request { n: 2, ..sampled(&[1, 2, 3], 1) }).unwrap();
    let output = core.abort(id).unwrap();
    assert_eq!(
        output.outputs.iter().map(|o| (o.index, o.tokens.len())).collect::<Vec<_>>(),
        [(0, 0), (1, 0)]
    );
}

/// After a preemption one text of a request has its logits before the other.
#[test]
fn an_error_of_one_text_ends_all_of_its_request() {
    let mut core = core(16, 0, SchedulerConfig { max_num_seqs: 4, ..SchedulerConfig::default() });
    let id = core.add(Request { n: 2, ..sampled(&[1, 2, 3, 4, 5], 1) }).unwrap();
    (0..3).for_each(|_| drop(core.step().unwrap()));
    (core.runner_mut().n_failures, core.runner_mut().loses_caches) = (1, true);
    core.step().unwrap();
    core.set_max_num_batched_tokens(7).unwrap();
    core.runner_mut().is_nan = true;
    let events = (0..9).flat_map(|_| core.step().unwrap()).collect::<Vec<_>>();
    let n_failed =
        events.iter().filter(|e| matches!(e, EngineEvent::Failed { request, .. } if *request == id));
    assert_eq!(n_failed.count(), 1);
    assert!(core.is_idle() && core.scheduler().pool().n_used() == 0, "{:?}", core.scheduler().counts());
}

/// The step that refuses a request fails afterwards: the event comes with the next one.
#[test]
fn events_of_a_step_that_fails_are_not_lost() {
    let mut core = core(4, 0, SchedulerConfig { watermark: 0.0, ..SchedulerConfig::default() });
    core.add(Request::greedy(vec![1; 30])).unwrap();
    core.add(Request { max_tokens: Some(1), ..Request::greedy(vec![1; 5]) }).unwrap();
    core.runner_mut().n_failures = 1;
    assert!(core.step().is_err());
    let events = run(&mut core);
    assert!(matches!(events[0], EngineEvent::Failed { .. }), "{:?}", events[0]);
}

#[test]
fn steps_shrink_until_a_device_has_memory_for_them() {
    let run_with = |max_tokens| {
        let mut core = core(32, 0, SchedulerConfig { max_num_seqs: 4, ..SchedulerConfig::default() });
        core.runner_mut().max_tokens = max_tokens;
        let prompts = [(0..20).collect(), (5..30).collect::<Vec<_>>()];
        let ids = prompts.map(|p| core.add(Request { max_tokens: Some(4), ..Request::greedy(p) }).unwrap());
        let outputs = outputs(&run(&mut core));
        (ids.map(|id| outputs[&id].outputs.clone()), core.scheduler().config().max_num_batched_tokens)
    };
    let (expected, n_tokens) = run_with(usize::MAX);
    assert_eq!(n_tokens, 2048);
    assert_eq!(run_with(9), (expected, 5), "45, 22, 11, then 5 tokens");

    // Not even one token: the error is returned.
    let mut core = core(32, 0, SchedulerConfig::default());
    core.runner_mut().max_tokens = 0;
    core.add(Request::greedy(vec![1, 2])).unwrap();
    assert!(core.step().is_ok(), "two tokens, then one");
    assert!(core.step().unwrap_err().to_string().contains("no room"));
}

/// Preempted in the middle of a prompt, which is then computed a second time.
#[test]
fn logits_of_a_prompt_are_returned_once() {
    let config = SchedulerConfig { max_num_batched_tokens: 8, max_num_seqs: 8, ..SchedulerConfig::default() };
    let mut core = core(16, 0, config);
    core.add(Request { prompt_logits: Some(0), max_tokens: Some(1), ..Request::greedy((0..20).collect()) })
        .unwrap();
    let mut events = core.step().unwrap();
    (core.runner_mut().n_failures, core.runner_mut().loses_caches) = (1, true);
    events.extend(core.step().unwrap());
    events.extend(run(&mut core));
    let positions = events.iter().filter_map(|event| match event {
        EngineEvent::Logits { position, .. } => Some(*position),
        _ => None,
    });
    assert_eq!(positions.collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
}

#[test]
fn an_aborted_request_returns_what_it_has_and_its_blocks() {
    let mut core = core(16, 0, SchedulerConfig::default());
    let id = core.add(Request { n: 3, ..sampled(&[1, 2, 3], 1) }).unwrap();
    for _ in 0..3 {
        core.step().unwrap();
    }
    let output = core.abort(id).unwrap();
    assert_eq!(output.outputs.iter().map(|o| o.tokens.len()).collect::<Vec<_>>(), [3, 3, 3]);
    assert!(output.outputs.iter().all(|o| o.finish == Finish::Cancelled));
    assert!(core.is_idle() && core.scheduler().pool().n_used() == 0);
    assert!(core.abort(id).is_err());
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    let mut core = core(4, 0, SchedulerConfig::default());
    let mut refused = |change: fn(&mut Request), expected: &str| {
        let mut request = Request::greedy(vec![1]);
        change(&mut request);
        let message = core.add(request).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    };
    refused(|r| r.n = 0, "n is 0: expected 1 or more texts");
    refused(|r| (r.n, r.best_of) = (3, Some(2)), "best_of is 2: expected at least n");
    refused(|r| (r.max_tokens, r.min_tokens) = (Some(2), 3), "min_tokens is 3: expected at most max_tokens");
    refused(|r| r.stop.push(String::new()), "a stop string is empty");
    refused(|r| r.prompt.clear(), "sequence 0 has no tokens");
    refused(
        |r| {
            r.decoding = Decoding::Beam(crate::beam::BeamParams {
                length_penalty: 1.0,
                early_stopping: Default::default(),
            });
        },
        "best_of is 1: expected 2 or more, the width of beam search",
    );
}

/// A core whose file forbids these tokens.
fn core_without(suppressed: &[TokenId]) -> EngineCore<Fake> {
    let tokens = ["<unk>", "<s>", "</s>"].map(String::from).into_iter();
    let tokens = tokens.chain((3..N_VOCAB).map(|i| format!("t{i}"))).collect();
    let vocab = Vocab {
        scores: vec![0.0; N_VOCAB],
        suppressed: suppressed.iter().map(|&token| token as i32).collect(),
        ..Vocab::new(ModelKind::Spm, tokens)
    };
    let options = CoreOptions { n_ctx: 64, n_blocks: 32, block_size: 4, ..CoreOptions::default() };
    let tokenizer = Arc::new(Tokenizer::new(vocab).unwrap());
    EngineCore::new(Fake::new(32, 0), Some(tokenizer), options).unwrap()
}

#[test]
fn tokens_that_the_file_forbids_are_never_picked() {
    let greedy = Request { max_tokens: Some(8), ignore_eos: true, ..Request::greedy(vec![4, 5]) };
    let beam = BeamParams { length_penalty: 1.0, early_stopping: EarlyStopping::Likely };
    let requests = [
        greedy.clone(),
        Request { ignore_eos: true, ..sampled(&[4, 5], 7) },
        Request { decoding: Decoding::Beam(beam), best_of: Some(2), ..greedy.clone() },
    ];
    for request in requests {
        let texts = |suppressed: &[TokenId]| {
            let mut core = core_without(suppressed);
            let id = core.add(request.clone()).unwrap();
            outputs(&run(&mut core))[&id].outputs[0].tokens.clone()
        };
        let free = texts(&[]);
        let others = texts(&free);
        assert_eq!(others.len(), 8, "{:?}", request.decoding);
        assert!(others.iter().all(|token| !free.contains(token)), "{free:?}, then {others:?}");
    }
    // Tokens that are given are not picked.
    let tokens = vec![9, 9, 10];
    let decoding = Decoding::Forced { tokens: tokens.clone(), required_top_k: None };
    let mut core = core_without(&[9]);
    let id = core.add(Request { decoding, ..greedy }).unwrap();
    assert_eq!(outputs(&run(&mut core))[&id].outputs[0].tokens, tokens);
}
