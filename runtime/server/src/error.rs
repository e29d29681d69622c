//! Errors as values: a status, a cause with its remedy, and their form in each API.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use llmrt::engine::Error as EngineError;
use llmrt::engine::scheduler::{Limit, Refusal};
use serde_json::{Value, json};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No runtime, or no socket.
    #[error("cannot listen on {address}: {problem}; choose another address with --host and --port")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system reports.
        problem: String,
    },
    /// A thread or a signal handler.
    #[error("cannot start the server: {problem}")]
    Start {
        /// What the system reports.
        problem: String,
    },
    /// An origin that is none.
    #[error("--cors {origin}: expected an origin such as http://localhost:3000, or *")]
    Origin {
        /// What was given.
        origin: String,
    },
    /// A file of TLS.
    #[error("{flag} {}: {problem}; {remedy}", path.display())]
    Tls {
        /// The flag that gives it.
        flag: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What helps.
        remedy: String,
    },
    /// The first model.
    #[error("{0}")]
    Load(String),
    /// A request that is none in HTTP's form.
    #[error(
        "the request is none: {0}; expected a method, a path that begins with a slash, and headers of visible characters"
    )]
    Request(String),
}

/// What is answered in the place of a result.
#[derive(Clone, PartialEq, Debug)]
pub struct ApiError {
    pub status: StatusCode,
    /// OpenAI's `code`.
    pub code: Option<&'static str>,
    /// The field of the request that is wrong.
    pub param: Option<String>,
    pub message: String,
    /// Seconds after which a client may try again.
    pub retry_after: Option<u32>,
}

impl ApiError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, code: None, param: None, message: message.into(), retry_after: None }
    }

    /// A request that makes no sense.
    pub fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field of a request that makes no sense.
    pub fn param(name: &str, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(name.into()), ..ApiError::invalid(message) }
    }

    /// A field that would change the result and is not supported.
    pub fn unsupported(name: &str, remedy: &str) -> ApiError {
        let message = format!("`{name}` is not supported: {remedy}");
        ApiError { code: Some("unsupported_parameter"), ..ApiError::param(name, message) }
    }

    pub fn unknown_model(name: &str, known: &[&str]) -> ApiError {
        let message = format!("The model `{name}` does not exist: there {}", list(known));
        ApiError {
            code: Some("model_not_found"),
            param: Some("model".into()),
            ..ApiError::new(StatusCode::NOT_FOUND, message)
        }
    }

    pub fn internal(message: impl std::fmt::Display) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message.to_string())
    }

    /// OpenAI's `type`.
    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 | 403 => "authentication_error",
            400..500 => "invalid_request_error",
            503 => "overloaded_error",
            _ => "server_error",
        }
    }

    /// `{"error": {…}}` of OpenAI, which llama-server has too.
    pub fn openai(&self) -> Value {
        json!({ "error": {
            "message": self.message, "type": self.kind(), "param": self.param, "code": self.code,
        }})
    }

    /// `{"error": "…"}` of Ollama.
    pub fn ollama(&self) -> Value {
        json!({ "error": self.message })
    }

    /// `{"type": "error", "error": {…}}` of Anthropic.
    pub fn anthropic(&self) -> Value {
        let kind = match self.status.as_u16() {
            404 => "not_found_error",
            413 => "request_too_large",
            500.. if self.kind() == "server_error" => "api_error",
            _ => self.kind(),
        };
        json!({ "type": "error", "error": { "type": kind, "message": self.message } })
    }
}

fn list(known: &[&str]) -> String {
    match known {
        [] => "is none".into(),
        [one] => format!("is `{one}`"),
        more => format!("are `{}`", more.join("`, `")),
    }
}

/// In OpenAI's form; [`in_routes_form`] changes it.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.openai())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::REQUEST_TIMEOUT {
            // The rest of the body may still come.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes errors as clients of their route expect them. What the router refuses by itself becomes an error as well: a path
/// whose variable is no UTF-8.
pub async fn in_routes_form(request: Request, next: Next) -> Response {
    let form = match request.uri().path() {
        path if path.starts_with("/api/") => ApiError::ollama,
        path if path.starts_with("/v1/messages") => ApiError::anthropic,
        _ => ApiError::openai,
    };
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions().get::<ApiError>() {
        let body = form(error).to_string();
        // Other headers stay, such as `Allow`.
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = body.into();
    } else if response.status() == StatusCode::BAD_REQUEST {
        let error = ApiError::invalid("the path is no UTF-8: expected bytes of UTF-8, written as %XX");
        response = (error.status, Json(form(&error))).into_response();
    }
    response
}

impl From<EngineError> for ApiError {
    fn from(e: EngineError) -> ApiError {
        use EngineError as E;
        let message = e.to_string();
        match e {
            E::BadParam { name, .. } => ApiError::param(name, message),
            E::NeverFits(Refusal { limit: Limit::Sequences, .. }) => ApiError::param("n", message),
            E::PromptTooLong { .. } | E::NeverFits(_) => {
                ApiError { code: Some("context_length_exceeded"), ..ApiError::invalid(message) }
            }
            E::BadBias { .. } | E::BiasOutOfVocab { .. } => ApiError::param("logit_bias", message),
            E::EmptyStop => ApiError::param("stop", message),
            E::EmptyBadWord => ApiError::param("bad_words", message),
            E::TokenOutOfVocab { .. } | E::NoTokens { .. } => ApiError::param("prompt", message),
            E::NoText | E::NotCausal | E::NoVectors | E::NotLoaded { .. } => ApiError::invalid(message),
            E::AllForbidden => ApiError::param("logit_bias", message),
            E::Tokenizer(e) => e.into(),
            E::EngineGone => {
                ApiError { retry_after: Some(1), ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message) }
            }
            E::Host(_) => ApiError::internal(format!(
                "{message}; send the request again, and if it fails as well, start the server on another device (--backend)"
            )),
            _ => ApiError::internal(message),
        }
    }
}

impl From<llmrt_store::Error> for ApiError {
    fn from(e: llmrt_store::Error) -> ApiError {
        use llmrt_store::Error as E;
        let status = match &e {
            E::NotFound { .. } | E::NotInRegistry { .. } => StatusCode::NOT_FOUND,
            E::BadName { .. } | E::BadDigest { .. } | E::Modelfile { .. } | E::Unprintable { .. } => {
                StatusCode::BAD_REQUEST
            }
            E::NoBase { .. } | E::NotGguf { .. } | E::Unsupported { .. } | E::PlainHttp { .. } => {
                StatusCode::BAD_REQUEST
            }
            E::Network { .. } | E::Unauthorized { .. } | E::Status { .. } | E::BadAnswer { .. } => {
                StatusCode::BAD_GATEWAY
            }
            E::DigestMismatch { .. } | E::WrongLength { .. } => StatusCode::BAD_GATEWAY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError::new(status, format!("{e}; {}", e.remedy()))
    }
}

impl From<llmrt::tokenizer::Error> for ApiError {
    fn from(e: llmrt::tokenizer::Error) -> ApiError {
        use llmrt::tokenizer::Error as E;
        let message = e.to_string();
        match e {
            E::TooManyTokens { .. } | E::LongPrompt { .. } => {
                ApiError { code: Some("context_length_exceeded"), ..ApiError::invalid(message) }
            }
            E::OutOfMemory { .. } => ApiError::internal(message),
            _ => ApiError::invalid(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_form_of_their_api() {
        let error = ApiError::unknown_model("x", &["a", "b"]);
        assert_eq!(
            error.openai().to_string(),
            r#"{"error":{"message":"The model `x` does not exist: there are `a`, `b`","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#
        );
        assert_eq!(
            error.ollama().to_string(),
            r#"{"error":"The model `x` does not exist: there are `a`, `b`"}"#
        );
        assert_eq!(
            error.anthropic().to_string(),
            r#"{"type":"error","error":{"type":"not_found_error","message":"The model `x` does not exist: there are `a`, `b`"}}"#
        );
    }
}
