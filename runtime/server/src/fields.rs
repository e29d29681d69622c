//! The JSON object of a request: lenient about what is absent, null or written as a number with a fraction of 0, exact about
//! the type of what is there.

use crate::error::ApiError;
use crate::server::App;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use futures_util::StreamExt;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The fields of a request.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Fields(pub Map<String, Value>);

/// A type that a field may have.
pub trait Field: Sized {
    /// What an error expects.
    const EXPECTED: &'static str;

    fn read(value: &Value) -> Option<Self>;
}

impl Fields {
    /// The object in a body.
    pub fn parse(body: &[u8]) -> Result<Fields, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Fields(map)),
            Ok(other) => {
                Err(ApiError::invalid(format!("the request is {}: expected a JSON object", kind(&other))))
            }
            Err(e) => Err(ApiError::invalid(format!("the request is no JSON: {e}"))),
        }
    }

    /// A field as it is; `None` if it is absent or null.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A field of a type; `None` if it is absent or null.
    pub fn get<T: Field>(&self, name: &str) -> Result<Option<T>, ApiError> {
        self.value(name).map(|value| read(name, value)).transpose()
    }

    /// The same with a default.
    pub fn get_or<T: Field>(&self, name: &str, default: T) -> Result<T, ApiError> {
        Ok(self.get(name)?.unwrap_or(default))
    }

    /// A field that must be there.
    pub fn require<T: Field>(&self, name: &str) -> Result<T, ApiError> {
        self.get(name)?
            .ok_or_else(|| ApiError::param(name, format!("`{name}` is missing: expected {}", T::EXPECTED)))
    }

    /// Refuses fields that would change the result: those that are neither absent, null, false, 0 nor empty.
    pub fn refuse(&self, names: &[(&str, &str)]) -> Result<(), ApiError> {
        let given = names.iter().find(|(name, _)| self.value(name).is_some_and(|value| !is_neutral(value)));
        given.map_or(Ok(()), |(name, remedy)| Err(ApiError::unsupported(name, remedy)))
    }
}

/// A value of a field.
pub fn read<T: Field>(name: &str, value: &Value) -> Result<T, ApiError> {
    T::read(value).ok_or_else(|| {
        ApiError::param(name, format!("`{name}` is {}: expected {}", kind(value), T::EXPECTED))
    })
}

fn is_neutral(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// A value in an error, short.
fn kind(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() > 40 => "a string".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        simple => simple.to_string(),
    }
}

/// Reads a body within the server's limit.
impl FromRequest<Arc<App>> for Fields {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Fields, ApiError> {
        let limit = app.options.max_body;
        let mut chunks = request.into_body().into_data_stream();
        let mut body = Vec::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|e| {
                crate::body::stalled(&e)
                    .unwrap_or_else(|| ApiError::invalid(format!("the body ended early: {e}")))
            })?;
            if chunk.len() > limit - body.len() {
                let message = format!("the request has more than {limit} bytes: --max-body raises the limit");
                return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            body.extend_from_slice(&chunk);
        }
        Fields::parse(&body)
    }
}

macro_rules! field {
    ($type:ty, $expected:literal, $read:expr) => {
        impl Field for $type {
            const EXPECTED: &'static str = $expected;

            fn read(value: &Value) -> Option<$type> {
                #[allow(clippy::redundant_closure_call)]
                ($read)(value)
            }
        }
    };
}

field!(bool, "true or false", |v: &Value| v.as_bool());
field!(f32, "a number", |v: &Value| v.as_f64().map(|x| x as f32));
field!(f64, "a number", |v: &Value| v.as_f64());
field!(i64, "a whole number", |v: &Value| v.as_i64().or_else(|| whole(v)));
field!(usize, "a whole number, 0 or more", |v: &Value| i64::read(v).and_then(|n| n.try_into().ok()));
field!(u32, "a token id", |v: &Value| i64::read(v).and_then(|n| n.try_into().ok()));
field!(String, "a string", |v: &Value| v.as_str().map(String::from));
field!(Map<String, Value>, "an object", |v: &Value| v.as_object().cloned());
field!(Vec<Value>, "a list", |v: &Value| v.as_array().cloned());
field!(Vec<u32>, "a list of token ids", |v: &Value| v.as_array()?.iter().map(u32::read).collect());
field!(Vec<String>, "a string or a list of strings", |v: &Value| match v {
    Value::String(text) => Some(vec![text.clone()]),
    v => v.as_array()?.iter().map(String::read).collect(),
});

fn whole(value: &Value) -> Option<i64> {
    value.as_f64().filter(|x| x.fract() == 0.0 && x.abs() < 9e15).map(|x| x as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn absent_null_and_whole_numbers_with_a_fraction_are_accepted() {
        let f = fields(r#"{"n": 2.0, "seed": null, "stop": "a", "t": 1}"#);
        assert_eq!(f.get::<usize>("n").unwrap(), Some(2));
        assert_eq!(f.get::<i64>("seed").unwrap(), None);
        assert_eq!(f.get::<Vec<String>>("stop").unwrap(), Some(vec!["a".to_string()]));
        assert_eq!(f.get_or("t", 0.5f32).unwrap(), 1.0);
    }

    #[test]
    fn a_wrong_type_is_named_with_what_was_expected() {
        let e = fields(r#"{"n": "two"}"#).get::<usize>("n").unwrap_err();
        assert_eq!(e.message, "`n` is \"two\": expected a whole number, 0 or more");
        assert_eq!(e.param.as_deref(), Some("n"));
        assert!(fields(r#"{"n": -1}"#).get::<usize>("n").is_err());
        assert!(fields("{}").require::<String>("prompt").unwrap_err().message.contains("is missing"));
        assert!(Fields::parse(b"[1]").unwrap_err().message.contains("expected a JSON object"));
        assert!(Fields::parse(b"{").unwrap_err().message.contains("no JSON"));
    }

    #[test]
    fn neutral_values_of_unsupported_fields_are_accepted() {
        let refuse = [("suffix", "leave it out")];
        for text in ["{}", r#"{"suffix": null}"#, r#"{"suffix": ""}"#] {
            assert_eq!(fields(text).refuse(&refuse), Ok(()));
        }
        let e = fields(r#"{"suffix": "x"}"#).refuse(&refuse).unwrap_err();
        assert_eq!(e.message, "`suffix` is not supported: leave it out");
    }
}
