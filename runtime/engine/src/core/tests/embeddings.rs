//! Vectors of texts, beside texts that are generated.

use super::super::*;
use super::fake::{Fake, core, outputs, run};
use crate::sequence::TokenId;
use llmrt_models::Pooling;

/// The rows that the runner gives of a prompt.
fn rows(prompt: &[TokenId]) -> Vec<Vec<f32>> {
    vectors(&mut core(16, 0, SchedulerConfig::default()), prompt, Pooling::None)
}

fn vectors(core: &mut EngineCore<Fake>, prompt: &[TokenId], pooling: Pooling) -> Vec<Vec<f32>> {
    let id = core.add(Request::embed(prompt.to_vec(), pooling, false)).unwrap();
    outputs(&run(core)).remove(&id).unwrap().embeddings
}

#[test]
fn a_text_has_the_vectors_of_its_tokens_their_mean_the_first_or_the_last() {
    let prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3];
    let rows = rows(&prompt);
    assert_eq!(rows.len(), prompt.len());
    // In chunks of four tokens.
    let config = SchedulerConfig { max_num_batched_tokens: 4, max_num_seqs: 4, ..SchedulerConfig::default() };
    let mut core = core(16, 0, config);
    assert_eq!(vectors(&mut core, &prompt, Pooling::None), rows);
    assert_eq!(vectors(&mut core, &prompt, Pooling::Cls), rows[..1]);
    assert_eq!(vectors(&mut core, &prompt, Pooling::Last), rows[9..]);
    assert_eq!(vectors(&mut core, &prompt, Pooling::Last), rows[9..], "its prefix is in the cache");
    let mean: Vec<f32> = (0..rows[0].len())
        .map(|i| (rows.iter().map(|row| f64::from(row[i])).sum::<f64>() / 10.0) as f32)
        .collect();
    assert_eq!(vectors(&mut core, &prompt, Pooling::Mean), [mean]);
    assert_eq!(core.scheduler().pool().n_used(), 0);
}

#[test]
fn vectors_may_have_length_one() {
    let mut core = core(16, 0, SchedulerConfig::default());
    let id = core.add(Request::embed(vec![1, 2, 3], Pooling::Mean, true)).unwrap();
    let output = outputs(&run(&mut core)).remove(&id).unwrap();
    let length: f32 = output.embeddings[0].iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-6 && output.outputs.is_empty(), "{length}");
    assert_eq!(output.usage, Usage { n_prompt: 3, n_computed: 3, ..Usage::default() });
}

#[test]
fn texts_and_vectors_share_steps_and_change_nothing_of_each_other() {
    let generated = |core: &mut EngineCore<Fake>| {
        core.add(Request { max_tokens: Some(6), ..Request::greedy(vec![7, 8, 9]) }).unwrap()
    };
    let mut alone = core(16, 0, SchedulerConfig::default());
    let id = generated(&mut alone);
    let text = outputs(&run(&mut alone))[&id].outputs[0].tokens.clone();

    let mut core = core(16, 0, SchedulerConfig { max_num_batched_tokens: 8, ..few() });
    let id = generated(&mut core);
    let prompts: Vec<Vec<TokenId>> = (1..5).map(|n| (0..3 * n).collect()).collect();
    let add = |prompt: &Vec<TokenId>| core.add(Request::embed(prompt.clone(), Pooling::None, false)).unwrap();
    let ids: Vec<RequestId> = prompts.iter().map(add).collect();
    // The step is repeated: rows come twice.
    core.runner_mut().n_failures = 2;
    let outputs = outputs(&run(&mut core));
    assert_eq!(outputs[&id].outputs[0].tokens, text);
    for (id, prompt) in ids.iter().zip(&prompts) {
        assert_eq!(outputs[id].embeddings, rows(prompt));
    }
}

fn few() -> SchedulerConfig {
    SchedulerConfig { max_num_seqs: 8, ..SchedulerConfig::default() }
}

#[test]
fn a_vector_with_nan_ends_its_request() {
    let mut core = core(16, 0, SchedulerConfig::default());
    core.runner_mut().is_nan = true;
    core.add(Request::embed(vec![1, 2], Pooling::Mean, true)).unwrap();
    let events = run(&mut core);
    assert!(
        matches!(&events[..], [EngineEvent::Failed { error: Error::BadEmbedding { position: 0, .. }, .. }]),
        "{events:?}"
    );
}

/// A core of a model whose tokens see those after them.
fn bidirectional(max_num_batched_tokens: usize) -> EngineCore<Fake> {
    let mut fake = Fake::new(16, 0);
    fake.abilities.is_causal = false;
    let scheduler = SchedulerConfig { max_num_batched_tokens, max_num_seqs: 4, ..SchedulerConfig::default() };
    let options = CoreOptions { scheduler, n_ctx: 64, n_blocks: 16, block_size: 4, ..CoreOptions::default() };
    EngineCore::new(fake, None, options).unwrap()
}

#[test]
fn texts_are_computed_whole_where_tokens_see_later_ones() {
    let mut core = bidirectional(20);
    for n in [9, 9, 20, 3] {
        core.add(Request::embed(vec![1; n], Pooling::Mean, true)).unwrap();
    }
    let mut steps = Vec::new();
    while !core.is_idle() {
        core.step().unwrap();
        steps.push(core.runner().last_step());
    }
    assert_eq!(steps, [18, 20, 3]);
    let mut core = bidirectional(20);
    core.add(Request::embed(vec![1; 21], Pooling::Mean, true)).unwrap();
    let events = run(&mut core);
    let [EngineEvent::Failed { error, .. }] = &events[..] else { panic!("{events:?}") };
    assert!(error.to_string().contains("requires 21 tokens in a step and there are 20: raise"), "{error}");
}

#[test]
fn no_text_is_cut_when_steps_shrink() {
    let mut core = bidirectional(20);
    core.runner_mut().max_tokens = 10;
    for _ in 0..2 {
        core.add(Request::embed(vec![1; 9], Pooling::Mean, true)).unwrap();
    }
    assert_eq!(outputs(&run(&mut core)).len(), 2);
}

#[test]
fn what_a_model_does_not_give_is_refused() {
    let refusal_of = |abilities: Abilities, decoder_start, request: Request| {
        let mut fake = Fake::new(16, 0);
        fake.abilities = abilities;
        let options = CoreOptions { n_blocks: 16, decoder_start, ..CoreOptions::default() };
        let mut core = EngineCore::new(fake, None, options).unwrap();
        core.add(request).map(|_| ())
    };
    let refusal = |abilities, request| refusal_of(abilities, None, request);
    let of_decoder = Abilities::default();
    let text = Request::greedy(vec![1]);
    let scores = Request::embed(vec![1], Pooling::Rank, false);
    let logits = Request::logits(vec![1], 0);
    assert!(matches!(refusal(of_decoder, scores.clone()), Err(Error::NotLoaded { needed: "scores", .. })));
    let vectors = Request::embed(vec![1], Pooling::Mean, false);
    assert_eq!(refusal_of(of_decoder, Some(0), vectors), Err(Error::NoVectors));
    assert_eq!(refusal_of(of_decoder, Some(0), text.clone()), Ok(()));
    let encoder = Abilities { is_causal: false, has_logits: false, output: StepOutput::Embeddings };
    assert_eq!(refusal(encoder, text.clone()), Err(Error::NoText));
    assert_eq!(refusal(encoder, logits.clone()), Ok(()), "hidden states");
    let diffusion = Abilities { is_causal: false, ..of_decoder };
    assert_eq!(refusal(diffusion, text.clone()), Err(Error::NotCausal));
    assert_eq!(refusal(diffusion, logits.clone()), Ok(()));
    let reranker = Abilities { output: StepOutput::Scores, ..of_decoder };
    assert_eq!(refusal(reranker, scores), Ok(()));
    assert!(matches!(refusal(reranker, text), Err(Error::NotLoaded { .. })));
    assert!(matches!(refusal(reranker, logits), Err(Error::NotLoaded { .. })));
}
