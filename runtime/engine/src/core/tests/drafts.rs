//! A text with drafts of its next tokens is the text without.

use super::super::*;
use super::fake::{Fake, N_VOCAB, core, outputs, run};
use crate::output::SampledToken;
use crate::request::Decoding;
use crate::sampler::{Rng, SamplingParams};
use crate::scheduler::Preemption;
use crate::sequence::TokenId;
use crate::speculation::{DraftInput, Drafter};

/// Guesses the next tokens of texts that are known, some of them wrong.
struct Oracle {
    texts: Vec<Vec<TokenId>>,
    rng: Rng,
    /// One guess in so many is wrong.
    one_wrong_in: usize,
}

impl Oracle {
    fn below(&mut self, n: usize) -> usize {
        (self.rng.next_f64() * n as f64) as usize
    }
}

impl<R> Drafter<R> for Oracle {
    fn draft(&mut self, texts: &[DraftInput<'_>], _target: &mut R) -> Result<Vec<Vec<TokenId>>> {
        let mut drafts = Vec::new();
        for text in texts {
            let tokens = text.sequence.tokens();
            let known =
                self.texts.iter().find(|known| known.starts_with(tokens)).cloned().unwrap_or_default();
            let n = self.below(text.max_drafts + 1);
            let mut draft = known.get(tokens.len()..).unwrap_or_default().to_vec();
            draft.truncate(n);
            for token in &mut draft {
                if self.below(self.one_wrong_in) == 0 {
                    *token = (*token + 1) % N_VOCAB as TokenId;
                }
            }
            drafts.push(draft);
        }
        Ok(drafts)
    }
}

fn requests() -> Vec<Request> {
    let request = |i: u64| {
        let params = SamplingParams {
            temperature: if i.is_multiple_of(3) { 0.0 } else { 1.0 },
            presence_penalty: 0.5,
            ..SamplingParams::default()
        };
        let prompt = (0..2 + i as TokenId % 9).map(|t| (t * 5 + i as TokenId) % 7).collect();
        Request {
            decoding: Decoding::Sample { params, seed: 40 + i },
            n: 1 + i as usize % 3,
            best_of: (i % 4 == 3).then_some(4),
            max_tokens: Some(1 + 3 * i as usize % 23),
            min_tokens: i as usize % 2,
            stop_token_ids: vec![i as TokenId],
            logprobs: i.is_multiple_of(2).then_some(2),
            ..Request::greedy(prompt)
        }
    };
    (0..24).map(request).collect()
}

/// The tokens of each text, and how the texts of each request ended.
type Seen = (BTreeMap<(RequestId, usize), Vec<SampledToken>>, BTreeMap<RequestId, RequestOutput>);

fn seen(core: &mut EngineCore<Fake>, requests: &[Request]) -> (Seen, usize) {
    for request in requests {
        core.add(request.clone()).unwrap();
    }
    let (mut texts, mut events, mut n_steps) = (BTreeMap::<_, Vec<_>>::new(), Vec::new(), 0);
    while !core.is_idle() {
        events.extend(core.step().unwrap());
        n_steps += 1;
    }
    for event in &events {
        if let EngineEvent::Token { request, index, token } = event {
            texts.entry((*request, *index)).or_default().push(token.clone());
        }
    }
    let mut outputs = outputs(&events);
    outputs.values_mut().for_each(|output| output.usage = Usage::default());
    ((texts, outputs), n_steps)
}

#[test]
fn texts_with_drafts_are_the_texts_without_in_fewer_steps() {
    let config = |seed: usize| SchedulerConfig {
        max_num_batched_tokens: [16, 40, 200][seed % 3],
        max_num_seqs: 16,
        preemption: [Preemption::Recompute, Preemption::Swap][seed % 2],
        prefix_cache: seed % 4 < 2,
        ..SchedulerConfig::default()
    };
    let requests = requests();
    let (expected, n_steps) = seen(&mut core(400, 0, config(2)), &requests);
    let complete = |output: &RequestOutput| {
        let prompt = requests[output.request.0 as usize].prompt.clone();
        output.outputs.iter().map(|text| [&prompt[..], &text.tokens].concat()).collect::<Vec<_>>()
    };
    let texts: Vec<_> = expected.1.values().flat_map(complete).collect();
    let (mut used, mut n_preemptions) = (DraftUse::default(), 0);
    for seed in 0..24 {
        let mut core = core([40, 60, 400][seed % 3], 12, config(seed));
        let one_wrong_in = [2, 5, 1000][seed / 3 % 3];
        let oracle = Oracle { texts: texts.clone(), rng: Rng::new(seed as u64), one_wrong_in };
        core.speculate(Box::new(oracle), 1 + seed % 7);
        let (found, n_with) = seen(&mut core, &requests);
        for (text, tokens) in &found.0 {
            assert_eq!(Some(tokens), expected.0.get(text), "seed {seed}, {text:?}");
        }
        for (request, output) in &found.1 {
            assert_eq!(Some(output), expected.1.get(request), "seed {seed}");
        }
        assert_eq!((found.0.len(), found.1.len()), (expected.0.len(), expected.1.len()));
        assert_eq!(core.scheduler().pool().n_used(), 0);
        used.add(core.draft_use().unwrap());
        n_preemptions += core.kv_use().n_preemptions;
        assert!(seed < 23 || n_with < n_steps, "{n_with} steps with drafts, {n_steps} without");
    }
    assert!(n_preemptions > 0);
    assert!(used.n_accepted_tokens > 1000 && used.acceptance_rate() < 0.9, "{used:?}");
    assert!(used.n_drafts < used.n_draft_tokens && used.acceptance_rate() > 0.4, "{used:?}");
}

#[test]
fn a_step_that_fails_with_drafts_is_repeated() {
    let request = Request { max_tokens: Some(20), ..Request::greedy(vec![1, 2, 3]) };
    let mut plain = core(16, 0, SchedulerConfig::default());
    let id = plain.add(request.clone()).unwrap();
    let expected = outputs(&run(&mut plain))[&id].outputs[0].tokens.clone();
    let mut core = core(16, 0, SchedulerConfig::default());
    let texts = vec![[&request.prompt[..], &expected].concat()];
    core.speculate(Box::new(Oracle { texts, rng: Rng::new(3), one_wrong_in: 6 }), 5);
    let id = core.add(request).unwrap();
    let mut events = Vec::new();
    for i in 0..12 {
        core.runner_mut().n_failures = i % 2;
        core.runner_mut().loses_caches = i % 4 == 3;
        events.extend(core.step().unwrap_or_default());
    }
    core.runner_mut().n_failures = 0;
    events.extend(run(&mut core));
    assert_eq!(outputs(&events)[&id].outputs[0].tokens, expected);
}

/// Fails, or is interrupted, once.
struct Failing(Option<Error>);

impl<R> Drafter<R> for Failing {
    fn draft(&mut self, texts: &[DraftInput<'_>], _target: &mut R) -> Result<Vec<Vec<TokenId>>> {
        self.0.take().map_or(Ok(vec![Vec::new(); texts.len()]), Err)
    }
}

/// Guesses far more than there is room for, and tokens that do not exist.
struct Wild;

impl<R> Drafter<R> for Wild {
    fn draft(&mut self, texts: &[DraftInput<'_>], _target: &mut R) -> Result<Vec<Vec<TokenId>>> {
        Ok(texts.iter().map(|_| (30..9000).chain([TokenId::MAX]).collect()).collect())
    }
}

#[test]
fn texts_go_on_without_drafts_where_these_fail() {
    let request = Request { max_tokens: Some(5), ..Request::greedy(vec![1, 2, 3]) };
    let mut core = core(16, 0, SchedulerConfig::default());
    core.speculate(Box::new(Failing(Some(Error::NoLogits))), 5);
    let id = core.add(request.clone()).unwrap();
    assert_eq!(outputs(&run(&mut core))[&id].outputs[0].tokens.len(), 5);
    core.speculate(Box::new(Wild), 3);
    let id = core.add(request.clone()).unwrap();
    assert_eq!(outputs(&run(&mut core))[&id].outputs[0].tokens.len(), 5);
    assert!(core.draft_use().unwrap().n_draft_tokens < 10, "{:?}", core.draft_use());

    core.speculate(Box::new(Failing(Some(Error::Cancelled))), 5);
    let id = core.add(request).unwrap();
    assert_eq!(core.step().unwrap_err(), Error::Cancelled);
    assert_eq!(outputs(&run(&mut core))[&id].outputs[0].tokens.len(), 5);
    assert_eq!(core.draft_use(), Some(DraftUse::default()));
}
