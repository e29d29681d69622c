//! How tokens are picked, by the names and defaults of OpenAI and vLLM.

use crate::error::ApiError;
use crate::fields::{Fields, read};
use crate::names;
use llmrt::engine::beam::{BeamParams, EarlyStopping};
use llmrt::engine::sampler::SamplingRules;
use llmrt::engine::{Decoding, Request, SamplingParams};
use serde_json::{Map, Value};

/// Fields that would change the text and are not supported, and what to do instead.
const REFUSED: [(&str, &str); 23] = [
    ("guided_json", NO_GRAMMARS),
    ("guided_regex", NO_GRAMMARS),
    ("guided_choice", NO_GRAMMARS),
    ("guided_grammar", NO_GRAMMARS),
    ("structured_outputs", NO_GRAMMARS),
    ("grammar", NO_GRAMMARS),
    ("json_schema", NO_GRAMMARS),
    ("allowed_token_ids", "use logit_bias"),
    ("logits_processors", "leave it out"),
    ("truncate_prompt_tokens", "shorten the prompt"),
    ("include_stop_str_in_output", "append the stop string"),
    ("prompt_embeds", "send text or token ids"),
    ("mirostat", "use top_p or min_p"),
    ("xtc_probability", "leave it out"),
    ("dry_multiplier", "use repetition_penalty"),
    ("dynatemp_range", "use temperature"),
    ("samplers", "the chain is fixed: top_k, typical_p, top_p, min_p"),
    ("grammar_lazy", NO_GRAMMARS),
    ("lora", "merge the adapter into the model"),
    ("prompt_lookup_num_tokens", "leave it out"),
    ("n_predict", "use max_tokens"),
    ("n_probs", "use logprobs"),
    ("return_tokens_as_token_ids", "use logprobs, which has the bytes of tokens in a chat"),
];

/// What is answered where a grammar is requested.
pub const NO_GRAMMARS: &str =
    "grammars are not supported yet; describe the format in the prompt and check the answer";

/// A request with the sampling of OpenAI's fields, to which prompt and length are added.
pub fn request(fields: &Fields) -> Result<Request, ApiError> {
    fields.refuse(&REFUSED)?;
    check_response_format(fields)?;
    if !fields.get_or("skip_special_tokens", true)? {
        return Err(ApiError::unsupported("skip_special_tokens", "only true is: leave it out"));
    }
    let n = fields.get_or("n", 1usize)?;
    let best_of: Option<usize> = fields.get("best_of")?;
    let width = n.max(best_of.unwrap_or(0));
    check_width(width)?;
    let resumed: Vec<u32> = fields.get_or("resume_token_ids", Vec::new())?;
    if !resumed.is_empty() && width > 1 {
        return Err(ApiError::unsupported("resume_token_ids", "only with one text: leave out n and best_of"));
    }
    let request = Request {
        resumed,
        n,
        best_of,
        decoding: decoding(fields)?,
        min_tokens: fields.get_or("min_tokens", 0)?,
        stop: fields.get_or("stop", Vec::new())?,
        stop_token_ids: fields.get_or("stop_token_ids", Vec::new())?,
        bad_words: fields.get_or("bad_words", Vec::new())?,
        ignore_eos: fields.get_or("ignore_eos", false)?,
        prompt_logprobs: logprobs(fields, "prompt_logprobs")?,
        priority: priority(fields)?,
        cache_salt: fields.get_or("cache_salt", String::new())?,
        ..Request::greedy(Vec::new())
    };
    Ok(request)
}

/// In vLLM smaller goes first, in the engine larger.
fn priority(fields: &Fields) -> Result<i32, ApiError> {
    let max = i64::from(i32::MAX);
    Ok(-(fields.get_or("priority", 0i64)?.clamp(-max, max) as i32))
}

/// Each text has a sequence.
const MAX_WIDTH: usize = 128;

fn check_width(width: usize) -> Result<(), ApiError> {
    match width {
        ..=MAX_WIDTH => Ok(()),
        _ => Err(ApiError::param("n", format!("n or best_of is {width}: expected at most {MAX_WIDTH}"))),
    }
}

/// `max_tokens` by any of its names; -1 and, as in llama.cpp, -2 are no limit but the context's.
pub fn max_tokens(
    fields: &Fields,
    names: &[&str],
    default: Option<usize>,
) -> Result<Option<usize>, ApiError> {
    for name in names {
        match fields.get::<i64>(name)? {
            Some(n @ ..=-3) => {
                let message = format!("`{name}` is {n}: expected 0 or more tokens, or -1 for no limit");
                return Err(ApiError::param(name, message));
            }
            Some(n) => return Ok(usize::try_from(n).ok()),
            None => {}
        }
    }
    Ok(default)
}

/// Most log-probabilities of a place.
const MAX_LOGPROBS: usize = 100;

/// A number of likeliest tokens.
pub fn logprobs(fields: &Fields, name: &str) -> Result<Option<usize>, ApiError> {
    match fields.get::<usize>(name)? {
        Some(n) if n > MAX_LOGPROBS => {
            Err(ApiError::param(name, format!("`{name}` is {n}: expected 0 to {MAX_LOGPROBS}")))
        }
        n => Ok(n),
    }
}

/// `response_format`: text, until there are grammars.
fn check_response_format(fields: &Fields) -> Result<(), ApiError> {
    let Some(format) = fields.value("response_format") else { return Ok(()) };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(()),
        _ => Err(ApiError::unsupported("response_format", NO_GRAMMARS)),
    }
}

fn decoding(fields: &Fields) -> Result<Decoding, ApiError> {
    if fields.get_or("use_beam_search", false)? {
        check_beams(fields)?;
        return Ok(Decoding::Beam(BeamParams {
            length_penalty: fields.get_or("length_penalty", 1.0)?,
            early_stopping: match fields.value("early_stopping") {
                None | Some(Value::Bool(false)) => EarlyStopping::Likely,
                Some(Value::Bool(true)) => EarlyStopping::Always,
                Some(_) => EarlyStopping::Never,
            },
        }));
    }
    fields.refuse(&[("early_stopping", "it needs use_beam_search")])?;
    let seed = fields.get::<i64>("seed")?.filter(|seed| *seed != -1).map(|seed| seed as u64);
    let params = SamplingParams {
        temperature: fields.get_or("temperature", 1.0)?,
        rules: SamplingRules::Vllm,
        top_k: fields.get_or("top_k", -1i64)?.clamp(-1, i64::from(i32::MAX)) as i32,
        top_p: fields.get_or("top_p", 1.0)?,
        min_p: fields.get_or("min_p", 0.0)?,
        typical_p: fields.get_or("typical_p", 1.0)?,
        repeat_penalty: fields.get_or("repetition_penalty", 1.0)?,
        frequency_penalty: fields.get_or("frequency_penalty", 0.0)?,
        presence_penalty: fields.get_or("presence_penalty", 0.0)?,
        repeat_last_n: -1,
        logit_bias: logit_bias(fields)?,
        seed,
    };
    check(&params)?;
    Ok(Decoding::Sample { params, seed: names::random() })
}

/// Beams are not sampled: numbers of the sampler must be neutral.
fn check_beams(fields: &Fields) -> Result<(), ApiError> {
    fields
        .refuse(&["logit_bias", "frequency_penalty", "presence_penalty"].map(|name| (name, NOT_OF_BEAMS)))?;
    for name in ["temperature", "top_p", "typical_p", "repetition_penalty"] {
        if fields.get::<f32>(name)?.is_some_and(|x| x != 1.0 && x != 0.0) {
            return Err(ApiError::unsupported(name, NOT_OF_BEAMS));
        }
    }
    Ok(())
}

const NOT_OF_BEAMS: &str = "not with use_beam_search";

/// Ranges, with the names of OpenAI.
pub fn check(params: &SamplingParams) -> Result<(), ApiError> {
    params.check().map_err(ApiError::from)?;
    match params.temperature {
        t if t < 0.0 => {
            Err(ApiError::param("temperature", format!("temperature is {t}: expected 0 or more")))
        }
        _ => Ok(()),
    }
}

/// `{"ID": BIAS}`, −100 to 100, where −100 forbids a token in practice.
fn logit_bias(fields: &Fields) -> Result<Vec<(u32, f32)>, ApiError> {
    let map: Map<String, Value> = fields.get_or("logit_bias", Map::new())?;
    let entry = |(id, bias): (&String, &Value)| {
        let token = id.trim().parse().map_err(|_| {
            ApiError::param("logit_bias", format!("`logit_bias` has the key {id:?}: expected a token id"))
        })?;
        let bias = read::<f32>("logit_bias", bias)?;
        Ok((token, bias.clamp(-100.0, 100.0)))
    };
    map.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Request, ApiError> {
        request(&Fields::parse(text.as_bytes()).unwrap())
    }

    fn params(text: &str) -> SamplingParams {
        match of(text).unwrap().decoding {
            Decoding::Sample { params, .. } => params,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_vllm() {
        let p = params("{}");
        assert_eq!((p.temperature, p.top_k, p.top_p, p.min_p), (1.0, -1, 1.0, 0.0));
        assert_eq!(p.rules, SamplingRules::Vllm);
        assert_eq!(p.seed, None);
    }

    #[test]
    fn extras_of_vllm_are_read() {
        let text = r#"{"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "seed": 7, "logit_bias": {"3": -100},
            "stop": "x", "stop_token_ids": [1], "ignore_eos": true, "min_tokens": 2, "n": 2, "best_of": 3, "priority": 4}"#;
        let (p, r) = (params(text), of(text).unwrap());
        assert_eq!((p.top_k, p.min_p, p.repeat_penalty, p.seed), (5, 0.1, 1.2, Some(7)));
        assert_eq!(p.logit_bias, [(3, -100.0)]);
        assert_eq!((r.stop.as_slice(), r.stop_token_ids.as_slice()), (&["x".to_string()][..], &[1][..]));
        assert_eq!((r.ignore_eos, r.min_tokens, r.n, r.best_of, r.priority), (true, 2, 2, Some(3), -4));
        let beam = of(r#"{"use_beam_search": true, "n": 2, "length_penalty": 0.5}"#).unwrap();
        assert!(matches!(beam.decoding, Decoding::Beam(BeamParams { length_penalty: 0.5, .. })));
    }

    #[test]
    fn what_would_change_the_text_is_refused() {
        let refused = |text: &str| of(text).unwrap_err();
        let beam = refused(r#"{"use_beam_search": true, "n": 2, "temperature": 0.5}"#);
        assert_eq!(beam.param.as_deref(), Some("temperature"));
        of(r#"{"use_beam_search": true, "n": 2, "temperature": 0, "seed": 3}"#).unwrap();
        let format = refused(r#"{"response_format": {"type": "json_object"}}"#);
        assert_eq!(format.param.as_deref(), Some("response_format"));
        assert!(format.message.contains("grammars are not supported"));
        assert_eq!(refused(r#"{"guided_regex": "a+"}"#).param.as_deref(), Some("guided_regex"));
        assert_eq!(refused(r#"{"n_predict": 5}"#).message, "`n_predict` is not supported: use max_tokens");
        assert_eq!(refused(r#"{"temperature": -1}"#).param.as_deref(), Some("temperature"));
        assert_eq!(refused(r#"{"top_p": 2}"#).param.as_deref(), Some("top_p"));
        assert_eq!(refused(r#"{"logit_bias": {"x": 1}}"#).param.as_deref(), Some("logit_bias"));
        assert_eq!(refused(r#"{"n": 1000}"#).param.as_deref(), Some("n"));
        assert_eq!(
            refused(r#"{"logprobs": 1, "prompt_logprobs": 101}"#).param.as_deref(),
            Some("prompt_logprobs")
        );
        of(r#"{"response_format": {"type": "text"}, "user": "u", "store": true}"#).unwrap();
    }
}
