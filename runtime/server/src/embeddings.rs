//! Vectors of texts: OpenAI's /v1/embeddings, Ollama's /api/embed and /api/embeddings; and scores of documents, /v1/rerank.

use crate::error::ApiError;
use crate::fields::{Fields, read};
use crate::generation::{Answer, Generation};
use crate::keep_alive;
use crate::model::Model;
use crate::registry::{Lease, on_thread};
use crate::server::App;
use axum::Json;
use axum::extract::State;
use llmrt::engine::{Pooling, Request};
use llmrt::tokenizer::{EncodeOptions, Limits};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Most texts of a request.
const MAX_TEXTS: usize = 2048;

/// A text as it is given.
#[derive(Clone, PartialEq, Debug)]
enum Input {
    Text(String),
    Ids(Vec<u32>),
    Pair(String, String),
}

/// POST /v1/embeddings.
pub async fn openai(State(app): State<Arc<App>>, fields: Fields) -> Result<Json<Value>, ApiError> {
    let (entry, fields) = app.resolve(fields).await?;
    let inputs = inputs(&fields)?;
    let dimensions = fields.get::<usize>("dimensions")?;
    let is_base64 = match fields.get::<String>("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let message = format!("`encoding_format` is {other}: expected float or base64");
            return Err(ApiError::param("encoding_format", message));
        }
    };
    let lease = app.lease_of(&entry, &fields).await?;
    let job = Job { inputs, pooling: None, normalise: true, truncates: false, dimensions };
    let (generation, vectors) = job.run(&app, lease).await?;
    let written = |vector: &Vec<f32>| if is_base64 { base64(vector).into() } else { numbers(vector) };
    let data = vectors.iter().enumerate().map(|(index, of_text)| {
        let mut rows = of_text.iter().map(written);
        let embedding = match generation.lease.model.pooling {
            Pooling::None => rows.collect(),
            _ => rows.next().unwrap_or_default(),
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    });
    Ok(Json(json!({
        "object": "list",
        "data": data.collect::<Vec<_>>(),
        "model": generation.lease.entry().name(),
        "usage": usage(&generation),
    })))
}

/// POST /v1/rerank, in Jina's form.
pub async fn rerank(State(app): State<Arc<App>>, fields: Fields) -> Result<Json<Value>, ApiError> {
    let (entry, fields) = app.resolve(fields).await?;
    let query: String = fields.require("query")?;
    let documents: Vec<String> = fields.require("documents")?;
    check_number("documents", documents.len())?;
    let top_n = fields.get_or("top_n", documents.len())?;
    let lease = app.lease_of(&entry, &fields).await?;
    if lease.model.pooling != Pooling::Rank {
        return Err(ApiError::invalid("the model has no classifier that ranks documents: load a reranker"));
    }
    let inputs = documents.into_iter().map(|document| Input::Pair(query.clone(), document)).collect();
    let pooling = Some(Pooling::Rank);
    let job = Job { inputs, pooling, normalise: false, truncates: false, dimensions: None };
    let (generation, vectors) = job.run(&app, lease).await?;
    let score = |of_text: &Vec<Vec<f32>>| of_text.first().and_then(|vector| vector.first()).copied();
    let mut scores: Vec<(usize, f32)> =
        vectors.iter().enumerate().filter_map(|(i, of_text)| Some((i, score(of_text)?))).collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    let results = scores.iter().take(top_n);
    let results = results.map(|(index, score)| json!({ "index": index, "relevance_score": short(*score) }));
    Ok(Json(json!({
        "object": "list",
        "results": results.collect::<Vec<_>>(),
        "model": generation.lease.entry().name(),
        "usage": usage(&generation),
    })))
}

/// POST /api/embed: vectors of length 1; texts that are too long are cut.
pub async fn ollama(State(app): State<Arc<App>>, fields: Fields) -> Result<Json<Value>, ApiError> {
    let started = Instant::now();
    let truncates = fields.get_or("truncate", true)?;
    let dimensions = fields.get::<usize>("dimensions")?;
    let texts: Vec<String> = fields.get_or("input", Vec::new())?;
    check_number("input", texts.len().max(1))?;
    let inputs = texts.into_iter().map(Input::Text).collect();
    let job = Job { inputs, pooling: None, normalise: true, truncates, dimensions };
    let (generation, vectors) = of_ollama(&app, &fields, job).await?;
    let embeddings = vectors.iter().flatten().map(|vector| numbers(vector));
    Ok(Json(json!({
        "model": fields.require::<String>("model")?,
        "embeddings": embeddings.collect::<Vec<_>>(),
        "total_duration": nanos(started),
        "load_duration": (generation.started - started).as_nanos() as u64,
        "prompt_eval_count": generation.usage().n_prompt,
    })))
}

/// POST /api/embeddings, the older form: one text, whose vector keeps its length.
pub async fn ollama_one(State(app): State<Arc<App>>, fields: Fields) -> Result<Json<Value>, ApiError> {
    let text: String = fields.get_or("prompt", String::new())?;
    let inputs = if text.is_empty() { Vec::new() } else { vec![Input::Text(text)] };
    let job = Job { inputs, pooling: None, normalise: false, truncates: true, dimensions: None };
    let (_, vectors) = of_ollama(&app, &fields, job).await?;
    let vector = vectors.iter().flatten().next().map_or(json!([]), |vector| numbers(vector));
    Ok(Json(json!({ "embedding": vector })))
}

async fn of_ollama(
    app: &Arc<App>,
    fields: &Fields,
    job: Job,
) -> Result<(Generation, Vec<Vec<Vec<f32>>>), ApiError> {
    let model: String = fields.require("model")?;
    let keep_alive = fields.value("keep_alive").map(keep_alive::of_json).transpose();
    let keep_alive = keep_alive.map_err(|e| ApiError::param("keep_alive", format!("keep_alive: {e}")))?;
    let entry = app.registry.find(Some(&model)).await?;
    if let Some(time) = keep_alive {
        entry.set_keep_alive(time);
    }
    job.run(app, app.lease_of(&entry, fields).await?).await
}

/// Texts to be computed.
struct Job {
    inputs: Vec<Input>,
    /// The model's, if not given.
    pooling: Option<Pooling>,
    normalise: bool,
    /// Whether texts that are too long are cut.
    truncates: bool,
    /// Numbers of a vector that are kept: the first ones (arXiv 2205.13147).
    dimensions: Option<usize>,
}

impl Job {
    /// The vectors of each text.
    async fn run(self, app: &Arc<App>, lease: Lease) -> Result<(Generation, Vec<Vec<Vec<f32>>>), ApiError> {
        let Job { inputs, normalise, truncates, dimensions, .. } = self;
        let pooling = self.pooling.unwrap_or(lease.model.pooling);
        if pooling == Pooling::Rank && self.pooling.is_none() {
            return Err(ApiError::invalid("the model ranks documents and gives no vectors: use /v1/rerank"));
        }
        let (lease, prompts) = on_thread(move || {
            let encode = |input: Input| lease.model.encode_whole(&input, truncates);
            let prompts: Result<Vec<_>, ApiError> = inputs.into_iter().map(encode).collect();
            prompts.map(|prompts| (lease, prompts))
        })
        .await??;
        let requests = prompts.into_iter().map(|prompt| Request::embed(prompt, pooling, normalise)).collect();
        let mut generation = Generation::start(lease, requests, app.options.request_timeout, &app.metrics)?;
        let answers = generation.finish().await?;
        let of_answer = |answer: Answer| {
            let vectors = answer.output.embeddings.into_iter();
            vectors.map(|vector| shortened(vector, dimensions, normalise)).collect()
        };
        let vectors: Result<Vec<_>, ApiError> = answers.into_iter().map(of_answer).collect();
        Ok((generation, vectors?))
    }
}

impl Model {
    /// The ids of a text with the marks around it that the vocabulary requires. Control tokens in it are text, as they
    /// are in messages of chats.
    fn encode_whole(&self, input: &Input, truncates: bool) -> Result<Vec<u32>, ApiError> {
        let limits = Limits { max_tokens: self.n_ctx.max(4096).saturating_mul(4), is_cancelled: &|| false };
        let options = EncodeOptions { add_special: true, parse_special: false };
        let mut tokens = match input {
            Input::Text(text) => self.tokenizer.encode_within(text, options, limits)?,
            Input::Pair(query, document) => self.tokenizer.encode_pair(query, document, limits)?,
            Input::Ids(ids) => ids.clone(),
        };
        let (n, n_ctx) = (tokens.len(), self.n_ctx);
        match n {
            0 => Err(ApiError::param("input", "a text has no tokens: expected at least one")),
            n if n <= n_ctx => Ok(tokens),
            _ if truncates => {
                // The last token stays: it may be a mark of the end.
                let last = tokens[n - 1];
                tokens.truncate(n_ctx);
                tokens[n_ctx - 1] = last;
                Ok(tokens)
            }
            _ => Err(ApiError {
                code: Some("context_length_exceeded"),
                ..ApiError::invalid(format!(
                    "a text has {n} tokens and the context holds {n_ctx}: shorten it, or start the server with a larger --ctx"
                ))
            }),
        }
    }
}

/// `input`: a text, texts, ids, or lists of ids.
fn inputs(fields: &Fields) -> Result<Vec<Input>, ApiError> {
    let ids = |value: &Value| read("input", value).map(Input::Ids);
    let inputs = match fields.value("input") {
        Some(Value::Array(items)) => match items.first() {
            Some(Value::String(_)) => {
                items.iter().map(|item| read("input", item).map(Input::Text)).collect::<Result<_, _>>()?
            }
            Some(Value::Array(_)) => items.iter().map(ids).collect::<Result<_, _>>()?,
            Some(_) => vec![ids(&Value::from(items.clone()))?],
            None => Vec::new(),
        },
        _ => vec![Input::Text(fields.require("input")?)],
    };
    check_number("input", inputs.len())?;
    Ok(inputs)
}

fn check_number(name: &str, n: usize) -> Result<(), ApiError> {
    match n {
        1..=MAX_TEXTS => Ok(()),
        n => Err(ApiError::param(name, format!("`{name}` has {n} texts: expected 1 to {MAX_TEXTS}"))),
    }
}

/// The first numbers of a vector, again of length 1 if it was.
fn shortened(mut vector: Vec<f32>, n: Option<usize>, normalise: bool) -> Result<Vec<f32>, ApiError> {
    let Some(n) = n else { return Ok(vector) };
    if !(1..=vector.len()).contains(&n) {
        let most = vector.len();
        return Err(ApiError::param("dimensions", format!("`dimensions` is {n}: expected 1 to {most}")));
    }
    vector.truncate(n);
    let length = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if normalise && length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
    Ok(vector)
}

fn usage(generation: &Generation) -> Value {
    let n = generation.usage().n_prompt;
    generation.with_receipt(json!({ "prompt_tokens": n, "total_tokens": n }))
}

fn nanos(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

fn numbers(vector: &[f32]) -> Value {
    vector.iter().map(|&x| short(x)).collect()
}

/// A number that is written with the fewest digits that give the same f32.
fn short(x: f32) -> f64 {
    x.to_string().parse().unwrap_or_default()
}

/// The bytes of the numbers, little-endian, as clients of OpenAI request them.
fn base64(vector: &[f32]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    let group = |three: &[u8]| {
        let at = |i: usize| u32::from(three.get(i).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let digit = move |i: usize| match i <= three.len() {
            true => char::from(DIGITS[(bits >> (18 - 6 * i) & 63) as usize]),
            false => '=',
        };
        [0, 1, 2, 3].map(digit)
    };
    bytes.chunks(3).flat_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_texts_or_ids_one_or_several() {
        let of = |text: &str| inputs(&Fields::parse(format!(r#"{{"input": {text}}}"#).as_bytes()).unwrap());
        assert_eq!(of("\"a\"").unwrap(), [Input::Text("a".into())]);
        assert_eq!(of(r#"["a", "b"]"#).unwrap().len(), 2);
        assert_eq!(of("[1, 2]").unwrap(), [Input::Ids(vec![1, 2])]);
        assert_eq!(of("[[1], [2]]").unwrap(), [Input::Ids(vec![1]), Input::Ids(vec![2])]);
        assert!(of("[]").unwrap_err().message.contains("0 texts: expected 1 to 2048"));
        assert!(of("[\"a\", 1]").is_err() && of("null").is_err());
    }

    #[test]
    fn base64_is_of_little_endian_floats() {
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, -2.0]), "AACAPwAAAMA=");
        assert_eq!(base64(&[1.0, -2.0, 0.5]), "AACAPwAAAMAAAAA/");
    }

    #[test]
    fn the_first_numbers_have_length_one_again() {
        assert_eq!(shortened(vec![3.0, 4.0, 12.0], Some(2), true).unwrap(), [0.6, 0.8]);
        assert_eq!(shortened(vec![3.0, 4.0], Some(1), false).unwrap(), [3.0]);
        let e = shortened(vec![1.0], Some(2), true).unwrap_err();
        assert_eq!(e.message, "`dimensions` is 2: expected 1 to 1");
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        assert_eq!(numbers(&[0.1, -1.0]).to_string(), "[0.1,-1.0]");
    }
}
