//! `llmrt embed`: vectors of texts.

mod args;

pub use args::Embed;

use crate::args::Global;
use crate::cmd::Command;
use crate::context::{self, Defaults};
use crate::error::{Error, Result};
use crate::interrupt::UNTIL_INTERRUPTED;
use crate::model::{self, OpenModel};
use crate::output::{self, n_things, note};
use crate::session::{self, Core, Session};
use crate::setup::Setup;
use crate::{interrupt, text, tokens};
use args::PoolingArg;
use llmrt_abi::DType;
use llmrt_engine::{EngineEvent, EngineOptions, Pooling, Request, RequestId, TokenId};
use llmrt_models::{ModelSpec, StepOutput};
use llmrt_tokenizer::{EncodeOptions, Tokenizer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;

impl Command for Embed {
    const NAME: &'static str = "embed";

    fn run(&self, global: &Global) -> Result<()> {
        embed(global, self)
    }
}

/// Texts computed at the same time.
const MAX_SEQS: usize = 64;

/// Steps' worth of tokens that the KV cache has room for.
const STEPS_IN_CACHE: usize = 2;

/// Computes and prints.
fn embed(global: &Global, args: &Embed) -> Result<()> {
    let model = OpenModel::open(args.model.as_deref(), &model::open_options(&args.loading))?;
    let spec = model.build()?.spec().clone();
    if spec.has_encoder() {
        return Err(Error::from(llmrt_engine::Error::NoVectors).of_model(&model.name));
    }
    let pooling = args.pooling.map_or(spec.default_pooling(), PoolingArg::pooling);
    let prompts = prompts(args, &model, pooling)?;
    let setup = Setup::new(global)?;
    let options = options(args, &setup, &model, &spec, pooling, &prompts)?;
    let name = model.name.clone();
    let mut session = Session::load(&setup, model, &args.loading, options, None)?;
    for prompt in &prompts {
        tokens::check(prompt, session.model().config.n_vocab, "the text")?;
    }
    let started = Instant::now();
    let n_tokens: usize = prompts.iter().map(Vec::len).sum();
    let vectors = vectors(&mut session.core, prompts, pooling, !args.no_normalise)?;
    session.report_placement(setup.verbose);
    note(format_args!(
        "load {:.2} s, {} of {} at {:.1} tok/s",
        session.load.as_secs_f64(),
        n_things(n_tokens, "token"),
        n_things(vectors.len(), "text"),
        n_tokens as f64 / started.elapsed().as_secs_f64()
    ));
    match args.json {
        true => Ok(output::json_line(&list(&vectors, pooling, &name, n_tokens))?),
        false => Ok(vectors.iter().flatten().try_for_each(|vector| output::print(line(vector)))?),
    }
}

/// The tokens of each text.
fn prompts(args: &Embed, model: &OpenModel, pooling: Pooling) -> Result<Vec<Vec<TokenId>>> {
    if let Some(given) = &args.tokens {
        let ids = tokens::parse(given, "--tokens")?;
        return match ids.is_empty() {
            true => Err(Error::usage("--tokens: there are no token ids: expected at least one")),
            false => Ok(vec![ids]),
        };
    }
    let tokenizer = model.tokenizer()?;
    let texts = texts(args)?;
    if texts.is_empty() {
        return Err(Error::usage("there are no texts: give TEXT, -f FILE or lines on stdin"));
    }
    let encode = |(i, text): (usize, &String)| {
        let prompt = encoded(&tokenizer, text, pooling)
            .map_err(|e| Error { message: format!("text {}: {}", i + 1, e.message), ..e })?;
        match prompt.is_empty() {
            true => Err(Error::usage(format!("text {}: has no tokens: expected at least one", i + 1))),
            false => Ok(prompt),
        }
    };
    texts.iter().enumerate().map(encode).collect()
}

fn texts(args: &Embed) -> Result<Vec<String>> {
    if !args.texts.is_empty() {
        return Ok(args.texts.clone());
    }
    let read = args.file.as_ref().map_or_else(text::of_stdin, |path| text::of_file(path))?;
    Ok(match args.whole {
        true => vec![text::without_last_line_end(read)],
        false => read.lines().map(String::from).collect(),
    })
}

/// The tokens of a text; to be ranked, those of a query and a document with a tab in between.
fn encoded(tokenizer: &Tokenizer, text: &str, pooling: Pooling) -> Result<Vec<TokenId>> {
    if pooling == Pooling::Rank {
        let pair = text.split_once('\t');
        let (query, document) = pair.ok_or_else(|| {
            Error::usage("has no tab: expected a query, a tab and a document, which get a score")
        })?;
        return Ok(tokenizer.encode_pair(query, document, UNTIL_INTERRUPTED)?);
    }
    let options = EncodeOptions { add_special: true, parse_special: false };
    Ok(tokenizer.encode_within(text, options, UNTIL_INTERRUPTED)?)
}

/// Sizes for these texts, the longest of which decides.
fn options(
    args: &Embed,
    setup: &Setup,
    model: &OpenModel,
    spec: &ModelSpec,
    pooling: Pooling,
    prompts: &[Vec<TokenId>],
) -> Result<EngineOptions> {
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(1);
    let trained = model.n_ctx_train().unwrap_or(usize::MAX);
    let limit = args.context.ctx.filter(|&n| n > 0).unwrap_or(trained);
    if let Some(i) = prompts.iter().position(|prompt| prompt.len() > limit) {
        let n = prompts[i].len();
        return Err(Error::usage(format!(
            "text {}: has {n} tokens and the context holds {limit}: shorten it, or raise -c",
            i + 1
        )));
    }
    let defaults = Defaults { n_ctx: Some(longest), kv_type: DType::F32 };
    let mut options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.placing())?;
    if !spec.is_causal {
        options.n_batch = options.n_batch.max(longest);
    }
    options.max_seqs = prompts.len().clamp(1, MAX_SEQS);
    options.n_batch = options.n_batch.max(options.max_seqs);
    let n_blocks = (STEPS_IN_CACHE * options.n_batch).div_ceil(options.block_size()) + options.max_seqs;
    let all = options.max_blocks() * options.max_seqs;
    options.kv_blocks = Some((n_blocks + options.max_blocks()).min(all));
    options.output = Some(match pooling {
        Pooling::Rank => StepOutput::Scores,
        _ => StepOutput::Embeddings,
    });
    Ok(options)
}

/// The vectors of each text, in the order of the texts.
fn vectors(
    core: &mut Core,
    prompts: Vec<Vec<TokenId>>,
    pooling: Pooling,
    normalise: bool,
) -> Result<Vec<Vec<Vec<f32>>>> {
    let mut ids: Vec<RequestId> = Vec::new();
    for prompt in prompts {
        ids.push(core.add(Request::embed(prompt, pooling, normalise))?);
    }
    let mut found = BTreeMap::new();
    while !core.is_idle() {
        for event in session::step(core)? {
            match event {
                EngineEvent::Finished(output) => drop(found.insert(output.request, output.embeddings)),
                EngineEvent::Failed { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
        if interrupt::is_requested() {
            return Err(Error::interrupted());
        }
    }
    Ok(ids.iter().map(|id| found.remove(id).unwrap_or_default()).collect())
}

/// A vector's numbers, each as short as it can be read back.
fn line(vector: &[f32]) -> String {
    let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
    numbers.join(" ") + "\n"
}

/// OpenAI's list of embeddings. Where each token has a vector, an embedding is a list of them.
fn list(vectors: &[Vec<Vec<f32>>], pooling: Pooling, model: &str, n_tokens: usize) -> Value {
    let data = vectors.iter().enumerate().map(|(index, of_text)| {
        let mut rows = of_text.iter().map(|vector| short(vector));
        let embedding = match pooling {
            Pooling::None => rows.collect(),
            _ => rows.next().unwrap_or_default(),
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    });
    json!({
        "object": "list",
        "data": data.collect::<Vec<_>>(),
        "model": model,
        "usage": { "prompt_tokens": n_tokens, "total_tokens": n_tokens },
    })
}

/// Numbers that are written with the fewest digits that give the same f32.
fn short(vector: &[f32]) -> Value {
    vector.iter().map(|x| x.to_string().parse::<f64>().unwrap_or_default()).collect()
}
