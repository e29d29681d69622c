//! Two texts at once: `cargo run --release -p llmrt-engine --example generate`.
use llmrt_engine::{AsyncEngine, DeviceRunner, EngineEvent, EngineOptions, Request};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use llmrt_tokenizer::{EncodeOptions, Tokenizer};
use std::{path::Path, sync::Arc};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Host::new(HostOptions::default());
    host.register_builtin(llmrt_cpu::query)?;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cli/assets/stories.gguf");
    let files = ModelFiles::open(Path::new(path), &OpenOptions::default())?;
    let tokenizer = Arc::new(Tokenizer::from_metadata(&files.model.metadata)?);
    let load = LoadOptions::default();
    let options = EngineOptions { n_ctx: 256, max_seqs: 2, ..EngineOptions::default() };
    let runner = DeviceRunner::new(&host, host.devices(), files, load, options)?;
    let engine = AsyncEngine::start(runner.into_core(Some(tokenizer.clone()))?)?;

    let encode = |text| tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: false });
    let request = |prompt| Request { max_tokens: Some(40), ..Request::greedy(prompt) };
    let second = engine.generate(request(encode("The little dog")?))?; // computed in the same steps
    for event in engine.generate(request(encode("Once upon a time")?))? {
        if let EngineEvent::Token { token, .. } = event {
            print!("{}", token.text);
        }
    }
    println!("\n{}", second.finish()?.outputs[0].text);
    Ok(())
}
