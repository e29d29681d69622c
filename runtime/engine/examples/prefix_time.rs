//! Time to the first token of a request, and of a second one that shares its first 1000 tokens and has 8 of its own. The
//! aim: at most 5 % of the first. `cargo run --release -p llmrt-engine --example prefix_time MODEL.gguf`
use llmrt_engine::core::Runner;
use llmrt_engine::{DeviceRunner, EngineCore, EngineEvent, EngineOptions, Request, TokenId};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use std::{path::Path, time::Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Shared tokens, and those that each of the two has alone.
const N_TOKENS: (u64, u64) = (1000, 8);
const N_ROUNDS: u64 = 5;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).ok_or("expected a GGUF file; `llmrt synth` writes one")?;
    let host = Host::new(HostOptions::default());
    host.register_builtin(llmrt_cpu::query)?;
    let files = ModelFiles::open(Path::new(&path), &OpenOptions::default())?;
    let load = LoadOptions::default();
    let options = EngineOptions { n_ctx: 1024, max_seqs: 2, ..EngineOptions::default() };
    let mut core = DeviceRunner::new(&host, host.devices(), files, load, options)?.into_core(None)?;

    println!("first, ms | second, ms | of the first | cached tokens of the second");
    for round in 0..=N_ROUNDS {
        let n_vocab = core.runner().n_vocab() as u64;
        // Other tokens in each round, so that the first request finds nothing.
        let tokens = |part: u64, n| -> Vec<TokenId> {
            (0..n).map(|i| ((i * 7919 + (3 * round + part) * 104_729) % n_vocab) as TokenId).collect()
        };
        let shared = tokens(0, N_TOKENS.0);
        let (first, n_found) = first_token(&mut core, [shared.clone(), tokens(1, N_TOKENS.1)].concat())?;
        let (second, n_cached) = first_token(&mut core, [shared, tokens(2, N_TOKENS.1)].concat())?;
        assert_eq!(n_found, 0, "the first request must be computed whole");
        // Round 0 warms up.
        if round > 0 {
            println!("{first:9.1} | {second:10.1} | {:10.1} % | {n_cached}", 100.0 * second / first);
        }
    }
    Ok(())
}

/// Milliseconds from the request to its first token, and how many tokens of the prompt were in the cache.
fn first_token(core: &mut EngineCore<DeviceRunner>, prompt: Vec<TokenId>) -> Result<(f64, usize)> {
    let started = Instant::now();
    core.add(Request { max_tokens: Some(1), ..Request::greedy(prompt) })?;
    let mut time = 0.0;
    loop {
        for event in core.step()? {
            match event {
                EngineEvent::Token { .. } => time = started.elapsed().as_secs_f64() * 1e3,
                EngineEvent::Finished(output) => return Ok((time, output.usage.n_cached)),
                EngineEvent::Failed { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
    }
}
