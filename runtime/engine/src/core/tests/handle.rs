//! The engine on its own thread.

use super::super::*;
use super::fake::core;
use crate::handle::{AsyncEngine, EventSink};
use crate::kv::prefix::BlockHash;
use crate::sequence::TokenId;
use std::sync::mpsc::{Sender, channel};

fn request(max_tokens: usize) -> Request {
    Request { max_tokens: Some(max_tokens), ..Request::greedy(vec![1, 2, 3]) }
}

#[test]
fn streams_of_many_requests_end_with_their_texts() {
    let engine = AsyncEngine::start(core(64, 0, SchedulerConfig::default())).unwrap();
    let threads: Vec<_> = (1..20)
        .map(|n| {
            let engine = engine.clone();
            std::thread::spawn(move || {
                let stream = engine.generate(request(n)).unwrap();
                let events: Vec<EngineEvent> = stream.collect();
                let n_tokens = events.iter().filter(|e| matches!(e, EngineEvent::Token { .. })).count();
                assert_eq!(n_tokens, n);
                assert!(matches!(events.last(), Some(EngineEvent::Finished(_))));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!([engine.n_waiting(), engine.n_running(), engine.n_swapped()], [0; 3]);
}

#[test]
fn a_watcher_sees_the_core_after_each_step() {
    let (sender, seen) = channel();
    let watch = move |core: &mut EngineCore<_>| sender.send(core.is_idle()).unwrap_or_default();
    let engine = AsyncEngine::start_watched(core(64, 0, SchedulerConfig::default()), watch).unwrap();
    engine.generate(request(3)).unwrap().finish().unwrap();
    engine.drain();
    drop(engine);
    // The prompt's step gives the first token.
    assert_eq!(seen.iter().collect::<Vec<bool>>(), [false, false, true]);
}

#[test]
fn a_reader_that_never_reads_holds_up_nothing() {
    let engine = AsyncEngine::start(core(64, 0, SchedulerConfig::default())).unwrap();
    let unread = engine.generate(request(60)).unwrap();
    let output = engine.generate(request(40)).unwrap().finish().unwrap();
    assert_eq!(output.usage.n_generated, 40);
    assert_eq!(unread.finish().unwrap().usage.n_generated, 60);
}

#[test]
fn a_dropped_or_aborted_stream_gives_its_blocks_back() {
    let engine = AsyncEngine::start(core(64, 0, SchedulerConfig::default())).unwrap();
    drop(engine.generate(request(60)).unwrap());
    let stream = engine.generate(request(60)).unwrap();
    engine.abort(stream.id()).unwrap();
    let output = stream.finish().unwrap();
    assert!(output.outputs.iter().all(|o| o.finish == Finish::Cancelled || o.tokens.len() == 60));
    // Both are gone before the next answer.
    engine.generate(request(1)).unwrap().finish().unwrap();
    assert_eq!(engine.n_running(), 0);
}

#[test]
fn a_callback_gets_the_events_and_a_refusal_is_one() {
    let engine = AsyncEngine::start(core(64, 0, SchedulerConfig::default())).unwrap();
    let (sender, events) = channel();
    let sink = |sender: Sender<EngineEvent>| -> EventSink { Box::new(move |event| drop(sender.send(event))) };
    let _guard = engine.generate_with(request(5), sink(sender.clone())).unwrap();
    let last = events.iter().find(EngineEvent::is_last).unwrap();
    assert!(matches!(last, EngineEvent::Finished(output) if output.usage.n_generated == 5));
    let _refused = engine.generate_with(Request { n: 0, ..request(5) }, sink(sender)).unwrap();
    let refusal = events.recv().unwrap();
    assert!(matches!(refusal, EngineEvent::Failed { error: Error::BadParam { name: "n", .. }, .. }));
    let stats = engine.stats();
    assert_eq!((stats.n_prompt_tokens, stats.n_generated_tokens, stats.n_blocks_used), (3, 5, 0));
}

#[test]
fn dropping_a_guard_aborts_its_request() {
    let engine = AsyncEngine::start(core(64, 0, SchedulerConfig::default())).unwrap();
    let (sender, events) = channel();
    let guard = engine.generate_with(request(60), Box::new(move |event| drop(sender.send(event)))).unwrap();
    drop(guard);
    assert!(events.iter().any(|event| event.is_last()));
    engine.generate(request(1)).unwrap().finish().unwrap();
    assert_eq!((engine.n_running(), engine.stats().n_blocks_used), (0, 0));
}

#[test]
fn preemptions_are_counted() {
    let engine = AsyncEngine::start(core(8, 0, SchedulerConfig::default())).unwrap();
    let (go, wait) = channel::<()>();
    let (sender, events) = channel();
    // The first event holds the engine until the second request is queued.
    let sink = move |event| {
        let _ = wait.recv();
        let _ = sender.send(event);
    };
    let _guard = engine.generate_with(request(20), Box::new(sink)).unwrap();
    let (last, second) = channel();
    let other = Request { prompt: vec![7, 8, 9], ..request(20) };
    let _second = engine.generate_with(other, Box::new(move |event| drop(last.send(event)))).unwrap();
    drop(go);
    assert!(events.iter().any(|event| event.is_last()));
    assert!(second.iter().any(|event| event.is_last()));
    assert!(engine.stats().n_preemptions > 0, "{:?}", engine.stats());
}

#[test]
fn errors_of_a_step_and_of_a_request_reach_their_streams() {
    let mut failing = core(64, 0, SchedulerConfig::default());
    failing.runner_mut().n_failures = 1;
    let engine = AsyncEngine::start(failing).unwrap();
    assert_eq!(engine.generate(request(5)).unwrap().finish(), Err(Error::Cancelled));
    assert!(engine.generate(Request { n: 0, ..request(5) }).is_err());
    assert_eq!(
        engine.generate(request(5)).unwrap().finish().unwrap().usage.n_generated,
        5,
        "the next one goes on"
    );
}

#[test]
fn a_drained_engine_ends_what_runs_and_takes_no_more() {
    let engine = AsyncEngine::start(core(64, 0, SchedulerConfig::default())).unwrap();
    let stream = engine.generate(request(50)).unwrap();
    engine.drain();
    assert_eq!(stream.finish().unwrap().usage.n_generated, 50);
    assert_eq!(engine.generate(request(1)).err(), Some(Error::EngineGone));
}

#[test]
fn the_names_of_cached_blocks_are_those_of_their_prompts() {
    let engine = AsyncEngine::start(core(16, 0, SchedulerConfig::default())).unwrap();
    let prompt: Vec<TokenId> = (0..9).collect();
    let of_prompt = |salt: &str| BlockHash::of_salt(salt).of_blocks(&prompt, 4);
    let salted = Request { cache_salt: "a".into(), ..request(1) };
    for request in [request(1), salted] {
        engine.generate(Request { prompt: prompt.clone(), ..request }).unwrap().finish().unwrap();
    }
    let cached = engine.cached_blocks().unwrap();
    for name in of_prompt("").into_iter().chain(of_prompt("a")) {
        assert!(cached.contains(&name));
        assert_eq!(cached.iter().filter(|other| other.short() == name.short()).count(), 1);
    }
    // The prompt's two full blocks with each salt.
    assert_eq!(cached.iter().filter(|name| of_prompt("").contains(name)).count(), 2);
}
