//! Tokens per second of the facade, for `runtime/python/bench.py`: `decode_rate MODEL N_STREAMS N_TOKENS`. For each line of
//! stdin so many requests are streamed at once, a thread each; their rate is a line of stdout.

use llmrt::{EngineEvent, EngineOptions, Llm, Options, Request};
use std::io::Write;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, n_streams, n_tokens] = words.as_slice() else {
        return Err("usage: decode_rate MODEL N_STREAMS N_TOKENS".into());
    };
    let (n_streams, n_tokens): (usize, usize) = (n_streams.parse()?, n_tokens.parse()?);
    let engine = EngineOptions { n_ctx: 512, max_seqs: n_streams, ..EngineOptions::default() };
    let llm = Llm::open_with(path, Options { engine, ..Options::default() })?;
    for _ in std::io::stdin().lines() {
        println!("{}", rate(&llm, n_streams, n_tokens)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Tokens per second, from before the first request to the last token.
fn rate(llm: &Llm, n_streams: usize, n_tokens: usize) -> llmrt::Result<f64> {
    let began = Instant::now();
    let request = |i: usize| {
        let prompt = llm.request(&format!("Story {i}: once upon a time"))?;
        llm.submit(Request { max_tokens: Some(n_tokens), ignore_eos: true, ..prompt })
    };
    let streams = (0..n_streams).map(request).collect::<llmrt::Result<Vec<_>>>()?;
    let count = |stream: llmrt::RequestStream| {
        let mut text = String::new();
        for event in stream {
            if let EngineEvent::Token { token, .. } = event {
                text += &token.text;
            }
        }
        text.len()
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = streams.into_iter().map(|stream| scope.spawn(|| count(stream))).collect();
        readers.into_iter().for_each(|reader| drop(reader.join()));
    });
    Ok((n_streams * n_tokens) as f64 / began.elapsed().as_secs_f64())
}
