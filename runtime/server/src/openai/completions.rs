//! POST /v1/completions.

use super::logprobs::{Legacy, of_prompt};
use super::{Envelope, Streaming, check_logprobs, end, token_ids, usage};
use crate::error::ApiError;
use crate::fields::{Fields, read};
use crate::generation::{Answer, Generation, Piece, finish_reason};
use crate::prompts::Prompt;
use crate::registry::{Lease, on_thread};
use crate::sampling;
use crate::server::App;
use crate::stream::{self, Gone, Writer};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use llmrt::engine::Request;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tokens of an answer where the request has no limit, as OpenAI has it.
const DEFAULT_MAX_TOKENS: usize = 16;

/// Most prompts of a request.
const MAX_PROMPTS: usize = 1024;

/// A prompt as it is given.
#[derive(Clone, PartialEq, Debug)]
enum Input {
    Text(String),
    Ids(Vec<u32>),
}

/// A request that was read.
struct Call {
    request: Request,
    inputs: Vec<Input>,
    streaming: Streaming,
    echo: bool,
}

/// Texts of prompts, ready to be computed.
struct Job {
    generation: Generation,
    prompts: Vec<Prompt>,
    envelope: Envelope,
    streaming: Streaming,
    echo: bool,
    /// Texts of a prompt.
    n: usize,
    n_logprobs: Option<usize>,
    has_prompt_logprobs: bool,
}

/// The route.
pub async fn route(State(app): State<Arc<App>>, fields: Fields) -> Result<Response, ApiError> {
    let (entry, fields) = app.resolve(fields).await?;
    let call = Call::read(&fields)?;
    let lease = app.lease_of(&entry, &fields).await?;
    let job = call.start(&app, lease).await?;
    Ok(match job.streaming.stream {
        true => stream::events(|out| job.stream(out)),
        false => Json(job.complete().await?).into_response(),
    })
}

impl Call {
    fn read(fields: &Fields) -> Result<Call, ApiError> {
        fields.refuse(&[
            ("suffix", "models for infilling are not; put the beginning into the prompt"),
            ("tools", "use /v1/chat/completions"),
        ])?;
        let mut request = sampling::request(fields)?;
        request.max_tokens =
            sampling::max_tokens(fields, &["max_tokens", "max_completion_tokens"], Some(DEFAULT_MAX_TOKENS))?;
        request.logprobs = sampling::logprobs(fields, "logprobs")?;
        let (echo, streaming) = (fields.get_or("echo", false)?, Streaming::read(fields)?);
        if echo && request.logprobs.is_some() {
            request.prompt_logprobs = request.prompt_logprobs.max(request.logprobs);
        }
        if streaming.stream && request.prompt_logprobs.is_some() {
            return Err(ApiError::unsupported("stream", "not with prompt_logprobs, or echo with logprobs"));
        }
        check_logprobs(&request)?;
        let inputs = inputs(fields)?;
        if inputs.len() > 1 && !request.resumed.is_empty() {
            return Err(ApiError::unsupported("resume_token_ids", "only with one prompt"));
        }
        Ok(Call { request, inputs, streaming, echo })
    }

    async fn start(self, app: &App, lease: Lease) -> Result<Job, ApiError> {
        let Call { request, inputs, streaming, echo } = self;
        let (lease, prompts) = on_thread(move || {
            let encode = |input: Input| match input {
                Input::Text(text) => lease.model.encode_text(&text),
                Input::Ids(ids) => lease.model.prompt_of_ids(ids),
            };
            let prompts: Result<Vec<Prompt>, ApiError> = inputs.into_iter().map(encode).collect();
            prompts.map(|prompts| (lease, prompts))
        })
        .await??;
        let requests = prompts.iter().map(|prompt| Request {
            prompt: prompt.tokens.clone(),
            continues: prompt.text.as_deref() != Some(""),
            ..request.clone()
        });
        let envelope = Envelope::new("cmpl-", "text_completion", lease.entry().name());
        let requests = requests.collect();
        let generation = Generation::start(lease, requests, app.options.request_timeout, &app.metrics)?;
        Ok(Job {
            generation,
            prompts,
            envelope,
            streaming,
            echo,
            n: request.n,
            n_logprobs: request.logprobs,
            has_prompt_logprobs: request.prompt_logprobs.is_some(),
        })
    }
}

impl Job {
    /// The whole answer.
    async fn complete(mut self) -> Result<Value, ApiError> {
        let answers = self.generation.finish().await?;
        let answers = answers.into_iter().enumerate();
        let choices: Vec<Value> = answers.flat_map(|(i, answer)| self.choices(i, &answer)).collect();
        Ok(self.envelope.with(choices, Some(usage(&self.generation))))
    }

    fn choices(&self, prompt: usize, answer: &Answer) -> Vec<Value> {
        let outputs = answer.output.outputs.iter().enumerate();
        let choice = |(i, output): (usize, &llmrt::engine::output::CompletionOutput)| {
            let mut choice = json!({
                "index": prompt * self.n + i,
                "text": self.echoed(prompt) + &output.text,
                "logprobs": self.logprobs(prompt, answer, output.index, output.tokens.len()),
                "finish_reason": finish_reason(&output.finish),
            });
            if self.streaming.has_token_ids {
                choice["token_ids"] = output.tokens.as_slice().into();
                choice["prompt_token_ids"] = self.prompts[prompt].tokens.as_slice().into();
            }
            if self.has_prompt_logprobs {
                let tokenizer = &self.generation.lease.model.tokenizer;
                choice["prompt_logprobs"] = of_prompt(tokenizer, &answer.output.prompt_logprobs);
            }
            choice
        };
        outputs.map(choice).collect()
    }

    fn logprobs(&self, prompt: usize, answer: &Answer, index: usize, n_tokens: usize) -> Value {
        let Some(n_top) = self.n_logprobs else { return Value::Null };
        let tokenizer = &self.generation.lease.model.tokenizer;
        let mut logprobs = Legacy::default();
        if self.echo {
            let of_prompt = &answer.output.prompt_logprobs;
            logprobs.push_prompt(tokenizer, &self.prompts[prompt].tokens, of_prompt, n_top);
        }
        let tokens = answer.tokens.get(&index).map_or(&[][..], Vec::as_slice);
        tokens.iter().take(n_tokens).for_each(|token| logprobs.push(tokenizer, token, n_top));
        logprobs.to_json()
    }

    /// The prompt's text, if it is repeated.
    fn echoed(&self, prompt: usize) -> String {
        let Prompt { tokens, text, .. } = &self.prompts[prompt];
        let decode = || self.generation.lease.model.tokenizer.decode(tokens, false).unwrap_or_default();
        if self.echo { text.clone().unwrap_or_else(decode) } else { String::new() }
    }

    /// The answer in chunks.
    async fn stream(mut self, out: Writer) -> Result<(), Gone> {
        let outcome = self.stream_texts(&out).await?;
        end(&out, &self.envelope, self.streaming, &self.generation, outcome).await
    }

    async fn stream_texts(&mut self, out: &Writer) -> Result<Result<(), ApiError>, Gone> {
        if self.echo {
            for prompt in 0..self.prompts.len() {
                for i in 0..self.n {
                    let text = self.echoed(prompt);
                    let choice = choice(prompt * self.n + i, &text, Value::Null, Value::Null);
                    out.data(&self.envelope.chunk(choice, self.streaming)).await?;
                }
            }
        }
        let mut n_chars = BTreeMap::new();
        loop {
            let piece = match self.generation.piece().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(Ok(())),
                Err(e) => return Ok(Err(e)),
            };
            let has_more =
                piece.finish.is_some() || self.n_logprobs.is_some() || self.streaming.has_token_ids;
            if piece.text.is_empty() && !has_more {
                continue;
            }
            let is_first = !n_chars.contains_key(&(piece.prompt, piece.index));
            let at = n_chars.entry((piece.prompt, piece.index)).or_insert(0);
            let mut choice = self.choice(&piece, at);
            if self.streaming.has_token_ids {
                choice["token_ids"] = token_ids(&piece);
                if is_first {
                    choice["prompt_token_ids"] = self.prompts[piece.prompt].tokens.as_slice().into();
                }
            }
            out.data(&self.envelope.chunk(choice, self.streaming)).await?;
        }
    }

    fn choice(&self, piece: &Piece, n_chars: &mut usize) -> Value {
        let tokenizer = &self.generation.lease.model.tokenizer;
        let logprobs = self.n_logprobs.zip(piece.token.as_ref()).map_or(Value::Null, |(n_top, token)| {
            let mut logprobs = Legacy::starting_at(*n_chars);
            logprobs.push(tokenizer, token, n_top);
            *n_chars = logprobs.n_chars();
            logprobs.to_json()
        });
        let finish = piece.finish.as_ref().map_or(Value::Null, |finish| finish_reason(finish).into());
        choice(piece.prompt * self.n + piece.index, &piece.text, logprobs, finish)
    }
}

fn choice(index: usize, text: &str, logprobs: Value, finish: Value) -> Value {
    json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": finish })
}

/// `prompt`: a text, a list of texts, ids, or a list of lists of ids.
fn inputs(fields: &Fields) -> Result<Vec<Input>, ApiError> {
    let ids = |value: &Value| read("prompt", value).map(Input::Ids);
    let inputs = match fields.value("prompt") {
        Some(Value::String(text)) => vec![Input::Text(text.clone())],
        Some(Value::Array(items)) => match items.first() {
            None => {
                return Err(ApiError::param(
                    "prompt",
                    "`prompt` is an empty list: expected a text or token ids",
                ));
            }
            Some(Value::String(_)) => {
                items.iter().map(|item| read("prompt", item).map(Input::Text)).collect::<Result<_, _>>()?
            }
            Some(Value::Array(_)) => items.iter().map(ids).collect::<Result<_, _>>()?,
            Some(_) => vec![ids(&Value::from(items.clone()))?],
        },
        Some(other) => vec![Input::Text(read("prompt", other)?)],
        None => vec![Input::Text(fields.require("prompt")?)],
    };
    match inputs.len() {
        ..=MAX_PROMPTS => Ok(inputs),
        n => Err(ApiError::param("prompt", format!("there are {n} prompts: expected at most {MAX_PROMPTS}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> Result<Call, ApiError> {
        Call::read(&Fields::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn prompts_are_texts_or_ids_one_or_several() {
        let inputs = |text: &str| call(&format!(r#"{{"prompt": {text}}}"#)).unwrap().inputs;
        assert_eq!(inputs("\"a\""), [Input::Text("a".into())]);
        assert_eq!(inputs(r#"["a", "b"]"#), [Input::Text("a".into()), Input::Text("b".into())]);
        assert_eq!(inputs("[1, 2]"), [Input::Ids(vec![1, 2])]);
        assert_eq!(inputs("[[1], [2, 3]]"), [Input::Ids(vec![1]), Input::Ids(vec![2, 3])]);
        for wrong in ["{}", r#"{"prompt": []}"#, r#"{"prompt": 5}"#, r#"{"prompt": ["a", 1]}"#] {
            assert_eq!(call(wrong).err().unwrap().param.as_deref(), Some("prompt"), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_computed_is_refused() {
        let refused = |text: &str| call(text).err().unwrap().param.unwrap();
        assert_eq!(refused(r#"{"prompt": "a", "suffix": "b"}"#), "suffix");
        assert_eq!(refused(r#"{"prompt": "a", "best_of": 2, "logprobs": 1}"#), "logprobs");
        assert_eq!(refused(r#"{"prompt": "a", "echo": true, "logprobs": 1, "stream": true}"#), "stream");
        assert_eq!(call(r#"{"prompt": "a"}"#).unwrap().request.max_tokens, Some(16));
        assert_eq!(call(r#"{"prompt": "a", "max_tokens": -1}"#).unwrap().request.max_tokens, None);
        assert!(call(r#"{"prompt": "a", "max_tokens": -3}"#).is_err());
    }

    #[test]
    fn a_choice_has_openais_fields() {
        assert_eq!(
            choice(1, "a", Value::Null, "stop".into()).to_string(),
            r#"{"index":1,"text":"a","logprobs":null,"finish_reason":"stop"}"#
        );
    }
}
