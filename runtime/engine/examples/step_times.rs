//! Times between two tokens of 8 sequences, alone and while prompts of 512 tokens arrive, and those of a chunk of a prompt
//! alone: a token should wait no longer than a chunk and a step.
//! `cargo run --release -p llmrt-engine --example step_times MODEL.gguf [TOKENS_OF_A_CHUNK]`
use llmrt_engine::{DeviceRunner, EngineCore, EngineEvent, EngineOptions, Request, Result, TokenId};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use std::time::{Duration, Instant};
use std::{collections::HashMap, path::Path};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("expected a GGUF file; `llmrt synth` writes one")?;
    let n_batch: usize = args.next().map_or(Ok(512), |n| n.parse())?;
    let host = Host::new(HostOptions::default());
    host.register_builtin(llmrt_cpu::query)?;
    let files = ModelFiles::open(Path::new(&path), &OpenOptions::default())?;
    let load = LoadOptions::default();
    let options = EngineOptions { n_batch, max_seqs: 9, prefix_cache: false, ..EngineOptions::default() };
    let mut core = DeviceRunner::new(&host, host.devices(), files, load, options)?.into_core(None)?;
    let mut chunks = Vec::new();
    for _ in 0..=10 {
        core.add(request(n_batch, Some(1)))?;
        let started = Instant::now();
        core.step()?;
        chunks.push(started.elapsed());
    }
    (0..8).try_for_each(|_| core.add(request(16, None)).map(drop))?;
    waits(&mut core, 20, true)?; // warms up
    show(&format!("a chunk of {n_batch} tokens alone"), chunks.split_off(1));
    show("between tokens, 8 sequences alone", waits(&mut core, 100, false)?);
    show("between tokens, prompts arriving", waits(&mut core, 200, true)?);
    Ok(())
}

fn request(n_prompt: usize, max_tokens: Option<usize>) -> Request {
    Request { max_tokens, ..Request::greedy((0..n_prompt as TokenId).collect()) }
}

/// Times between the tokens of each sequence that decodes; a prompt arrives every tenth step, or none.
fn waits(core: &mut EngineCore<DeviceRunner>, n_steps: usize, prompts_arrive: bool) -> Result<Vec<Duration>> {
    let (mut last, mut waits) = (HashMap::new(), Vec::new());
    for i in 0..n_steps {
        if prompts_arrive && i % 10 == 0 {
            core.add(request(512, Some(1)))?;
        }
        for event in core.step()? {
            let EngineEvent::Token { request, .. } = event else { continue };
            waits.extend(last.insert(request, Instant::now()).map(|before: Instant| before.elapsed()));
        }
    }
    Ok(waits)
}

fn show(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0]
        .map(|share| times[(share * (times.len() - 1) as f64).round() as usize].as_secs_f64() * 1e3);
    println!("{name:34} p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, max {max:.1} ms");
}
