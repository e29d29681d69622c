//! `options` of a request: the numbers of the sampler, with Ollama's names and defaults.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::{names, sampling};
use llmrt::engine::{Decoding, Request, SamplingParams};
use serde_json::{Map, Value};

/// Options that would change the text and are not supported. What places work on devices has no effect on it.
const REFUSED: [(&str, &str); 3] = [
    ("mirostat", "use top_p or min_p"),
    ("dynatemp_range", "use temperature"),
    ("xtc_probability", "leave it out"),
];

/// What the options of a request come to.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// A request without a prompt.
    pub request: Request,
    /// Tokens that prompt and answer may have together.
    pub num_ctx: Option<usize>,
}

impl Options {
    /// Those of a request; `stored` are those of the model, where the request has none.
    pub fn read(fields: &Fields, stored: Option<&Map<String, Value>>) -> Result<Options, ApiError> {
        let mut options = Fields(stored.cloned().unwrap_or_default());
        // The model is loaded with it.
        options.0.remove("num_ctx");
        options.0.extend(fields.get_or("options", Map::new())?);
        options.refuse(&REFUSED)?;
        let seed = options.get::<i64>("seed")?.filter(|seed| *seed != -1).map(|seed| seed as u64);
        let params = SamplingParams {
            temperature: options.get_or("temperature", 0.8)?,
            top_k: options.get_or("top_k", 40i64)?.clamp(-1, i64::from(i32::MAX)) as i32,
            top_p: options.get_or("top_p", 0.9)?,
            min_p: options.get_or("min_p", 0.0)?,
            typical_p: options.get_or("typical_p", 1.0)?,
            repeat_penalty: options.get_or("repeat_penalty", 1.1)?,
            repeat_last_n: options.get_or("repeat_last_n", 64i64)?.clamp(-2, i64::from(i32::MAX)) as i32,
            presence_penalty: options.get_or("presence_penalty", 0.0)?,
            frequency_penalty: options.get_or("frequency_penalty", 0.0)?,
            seed,
            ..SamplingParams::default()
        };
        sampling::check(&params)?;
        let request = Request {
            decoding: Decoding::Sample { params, seed: names::random() },
            max_tokens: sampling::max_tokens(&options, &["num_predict"], None)?,
            stop: options.get_or("stop", Vec::new())?,
            ..Request::greedy(Vec::new())
        };
        Ok(Options { request, num_ctx: options.get("num_ctx")? })
    }

    /// The request for a prompt of `n_prompt` tokens, in a context of `n_ctx`.
    pub fn request(self, n_prompt: usize, n_ctx: usize) -> Result<Request, ApiError> {
        let Some(num_ctx) = self.num_ctx else { return Ok(self.request) };
        if num_ctx > n_ctx {
            let message = format!(
                "num_ctx is {num_ctx} and the model was loaded with a context of {n_ctx}: start the server with --ctx {num_ctx}"
            );
            return Err(ApiError::param("num_ctx", message));
        }
        let left = num_ctx.checked_sub(n_prompt).filter(|left| *left > 0).ok_or_else(|| {
            let message = format!("the prompt has {n_prompt} tokens and num_ctx is {num_ctx}: raise num_ctx, or shorten the prompt");
            ApiError::param("num_ctx", message)
        })?;
        let max_tokens = Some(self.request.max_tokens.map_or(left, |max| max.min(left)));
        Ok(Request { max_tokens, ..self.request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Options, ApiError> {
        Options::read(&Fields::parse(text.as_bytes()).unwrap(), None)
    }

    #[test]
    fn defaults_are_ollamas() {
        let Decoding::Sample { params, .. } = of("{}").unwrap().request.decoding else { panic!() };
        let p = &params;
        assert_eq!((p.temperature, p.top_k, p.top_p, p.min_p), (0.8, 40, 0.9, 0.0));
        assert_eq!((p.repeat_penalty, p.repeat_last_n), (1.1, 64));
    }

    #[test]
    fn lengths_count_the_prompt() {
        let request = |text: &str| of(text).unwrap().request(10, 100);
        assert_eq!(request(r#"{"options": {"num_predict": -1}}"#).unwrap().max_tokens, None);
        assert_eq!(request(r#"{"options": {"num_ctx": 32}}"#).unwrap().max_tokens, Some(22));
        assert_eq!(request(r#"{"options": {"num_ctx": 32, "num_predict": 5}}"#).unwrap().max_tokens, Some(5));
        assert!(request(r#"{"options": {"num_ctx": 10}}"#).unwrap_err().message.contains("raise num_ctx"));
        assert!(request(r#"{"options": {"num_ctx": 101}}"#).unwrap_err().message.contains("--ctx 101"));
        assert_eq!(of(r#"{"options": {"mirostat": 1}}"#).unwrap_err().param.as_deref(), Some("mirostat"));
        assert_eq!(of(r#"{"options": {"num_gpu": 1, "mirostat": 0}}"#).unwrap().num_ctx, None);
    }
}
