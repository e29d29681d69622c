//! Beam search finds what a search written without an engine finds.

use super::super::*;
use super::fake::{core, outputs, run};
use crate::beam::{BeamParams, EarlyStopping};
use crate::logprobs::LogSoftmax;
use crate::request::Decoding;
use crate::sequence::TokenId;
use std::collections::BTreeMap as Map;

pub const MAX_TOKENS: usize = 6;

/// Log-probabilities after texts that were computed.
type Known = Map<Vec<TokenId>, Vec<f64>>;

/// Log-probabilities after a text, computed by a core one text at a time.
fn logprobs<R: Runner>(
    core: &mut EngineCore<R>,
    prompt: &[TokenId],
    known: &mut Known,
    tokens: &[TokenId],
) -> Vec<f64> {
    let all = [prompt, tokens].concat();
    if let Some(row) = known.get(&all) {
        return row.clone();
    }
    let prompt_logits = Some(all.len() - 1);
    core.add(Request { prompt_logits, max_tokens: Some(0), ..Request::greedy(all.clone()) }).unwrap();
    let events = run(core);
    let row = events.iter().rev().find_map(|event| match event {
        EngineEvent::Logits { logits, .. } => Some(logits.clone()),
        _ => None,
    });
    let row = row.unwrap();
    let softmax = LogSoftmax::new(&row).unwrap();
    let n_vocab = core.runner().n_vocab() as TokenId;
    let row: Vec<f64> = (0..n_vocab).map(|token| softmax.of(token).logprob).collect();
    known.insert(all, row.clone());
    row
}

/// vLLM's rules, step by step: all continuations of all beams, the best 2 · width of each considered.
fn expected<R: Runner>(
    core: &mut EngineCore<R>,
    known: &mut Known,
    prompt: &[TokenId],
    (width, params): (usize, BeamParams),
    is_end: impl Fn(TokenId) -> bool,
) -> Vec<(Vec<TokenId>, f64)> {
    let score = |sum: f64, n: usize| sum / ((prompt.len() + n) as f64).powf(params.length_penalty);
    let mut beams: Vec<(Vec<TokenId>, f64)> = vec![(Vec::new(), 0.0)];
    let mut complete: Vec<(f64, Vec<TokenId>, f64)> = Vec::new();
    while !beams.is_empty() {
        let mut next = Vec::new();
        for (tokens, sum) in &beams {
            let row = logprobs(core, prompt, known, tokens);
            let mut order: Vec<TokenId> = (0..row.len() as TokenId).collect();
            order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]));
            for token in &order[..2 * width] {
                let sum = sum + row[*token as usize];
                let longer = [&tokens[..], &[*token]].concat();
                if is_end(*token) {
                    complete.push((score(sum, tokens.len()), tokens.clone(), sum));
                } else if longer.len() == MAX_TOKENS {
                    complete.push((score(sum, longer.len()), longer, sum));
                } else {
                    next.push((longer, sum));
                }
            }
        }
        complete.sort_by(|a, b| b.0.total_cmp(&a.0));
        complete.truncate(width);
        next.sort_by(|a: &(Vec<_>, f64), b| b.1.total_cmp(&a.1));
        next.truncate(width);
        if complete.len() == width && !next.is_empty() {
            let (best, worst) = (&next[0], complete[width - 1].0);
            let longest = if params.length_penalty > 0.0 { MAX_TOKENS } else { best.0.len() };
            let is_over = match params.early_stopping {
                EarlyStopping::Always => true,
                EarlyStopping::Likely => worst >= score(best.1, best.0.len()),
                EarlyStopping::Never => worst >= score(best.1, longest),
            };
            if is_over {
                next.clear();
            }
        }
        beams = next;
    }
    complete.into_iter().map(|(_, tokens, sum)| (tokens, sum)).collect()
}

/// Three beams of a core, whose texts also end at `stop`, are those of the search above; how long they are.
pub fn check<R: Runner>(
    core: &mut EngineCore<R>,
    known: &mut Known,
    prompt: &[TokenId],
    params: BeamParams,
    (stop, is_end): (TokenId, impl Fn(TokenId) -> bool),
) -> Vec<usize> {
    let expected = expected(core, known, prompt, (3, params), is_end);
    let request = Request {
        decoding: Decoding::Beam(params),
        n: 3,
        max_tokens: Some(MAX_TOKENS),
        stop_token_ids: vec![stop],
        ..Request::greedy(prompt.to_vec())
    };
    let id = core.add(request).unwrap();
    let output = outputs(&run(core)).remove(&id).unwrap();
    let found: Vec<_> = output.outputs.iter().map(|o| (o.tokens.clone(), o.cumulative_logprob)).collect();
    assert_eq!(found, expected, "{params:?}, prompt {prompt:?}");
    found.iter().map(|(tokens, _)| tokens.len()).collect()
}

#[test]
fn beams_are_those_of_a_search_without_an_engine() {
    let mut lengths = Vec::new();
    for early_stopping in [EarlyStopping::Always, EarlyStopping::Likely, EarlyStopping::Never] {
        for (seed, length_penalty) in [(1, 0.0), (5, 1.0), (9, 2.0), (14, 1.0), (20, -1.0)] {
            let params = BeamParams { length_penalty, early_stopping };
            let end = 2 + seed % 5;
            let mut core = core(64, 0, SchedulerConfig::default());
            let ends = (end, |token| token == end);
            lengths.extend(check(&mut core, &mut Map::new(), &[seed, 3, 7], params, ends));
        }
    }
    assert!(lengths.iter().any(|n| *n < MAX_TOKENS), "no text ended by a token: {lengths:?}");
}
