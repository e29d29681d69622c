//! The id of a request, and its line in the log: what was requested, what came of it, and how long it took. Texts of prompts
//! and answers are never part of it.

use crate::error::ApiError;
use crate::names;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use llmrt::engine::core::Usage;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tracing::field::Empty;
use tracing::{Instrument, Span};

/// Clients send an id of theirs in it; every answer has it.
pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Most characters of a client's id.
const MAX_ID: usize = 128;

/// Most characters of a path in the log.
const MAX_PATH: usize = 256;

tokio::task_local! {
    static CURRENT: Trace;
}

/// A request, until all of its answer is sent. What is recorded is logged when the last clone is dropped.
#[derive(Clone)]
pub struct Trace(Arc<Recorded>);

struct Recorded {
    id: HeaderValue,
    span: Span,
    started: Instant,
    outcome: Mutex<Outcome>,
}

#[derive(Default)]
struct Outcome {
    status: Option<StatusCode>,
    model: Option<String>,
    n_prompt: usize,
    n_output: usize,
    first_token: Option<Duration>,
    /// Whether the whole answer was sent.
    is_whole: bool,
    /// What failed in the server.
    failure: Option<String>,
}

/// Gives a request its id and a span, and its answer the id.
pub async fn layer(request: Request, next: Next) -> Response {
    let trace = Trace::new(&request);
    let is_head = request.method() == Method::HEAD;
    let answering = CURRENT.scope(trace.clone(), next.run(request));
    let mut response = answering.instrument(trace.0.span.clone()).await;
    response.headers_mut().insert(HEADER, trace.0.id.clone());
    let mut outcome = trace.outcome();
    outcome.status = Some(response.status());
    outcome.is_whole = is_head;
    drop(outcome);
    if let Some(error) = response.extensions().get::<ApiError>() {
        trace.failed(error);
    }
    response.map(|body| Body::new(Traced { body, trace }))
}

/// The request that this task answers; `None` outside of [`layer`].
pub fn current() -> Option<Trace> {
    CURRENT.try_with(Trace::clone).ok()
}

impl Trace {
    fn new(request: &Request) -> Trace {
        let id = id(request.headers());
        let text = id.to_str().unwrap_or_default();
        let path: String = request.uri().path().chars().take(MAX_PATH).collect();
        let method = request.method().as_str();
        let span = tracing::error_span!(
            "request",
            id = text,
            method,
            path,
            model = Empty,
            status = Empty,
            prompt_tokens = Empty,
            output_tokens = Empty,
            ttft_ms = Empty,
            duration_ms = Empty,
        );
        Trace(Arc::new(Recorded { id, span, started: Instant::now(), outcome: Mutex::default() }))
    }

    /// Its tokens are computed by this model now.
    pub fn begins(&self, model: &str, n_prompt: usize) {
        let mut outcome = self.outcome();
        outcome.model = Some(model.into());
        outcome.n_prompt = n_prompt;
    }

    /// A token was computed.
    pub fn token(&self) {
        let mut outcome = self.outcome();
        outcome.n_output += 1;
        outcome.first_token.get_or_insert_with(|| self.0.started.elapsed());
    }

    /// Some of its prompts have ended: this is their sum.
    pub fn finished(&self, usage: Usage) {
        let mut outcome = self.outcome();
        outcome.n_output = outcome.n_output.max(usage.n_generated);
    }

    /// Keeps an error of the server for the log; those of the client's request may contain parts of it.
    pub fn failed(&self, error: &ApiError) {
        if error.status == StatusCode::INTERNAL_SERVER_ERROR {
            self.outcome().failure = Some(error.message.clone());
        }
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.0.outcome.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The client's id, where it is one, else a new one.
fn id(headers: &HeaderMap) -> HeaderValue {
    let is_one = |value: &&HeaderValue| {
        (1..=MAX_ID).contains(&value.len()) && value.as_bytes().iter().all(|b| (b' '..=b'~').contains(b))
    };
    let made = || HeaderValue::try_from(names::id("req-")).unwrap_or(HeaderValue::from_static("req"));
    headers.get(HEADER).filter(is_one).cloned().unwrap_or_else(made)
}

/// The line of the log.
impl Drop for Recorded {
    fn drop(&mut self) {
        let outcome = self.outcome.get_mut().unwrap_or_else(|e| e.into_inner());
        let ms = |time: Duration| (time.as_secs_f64() * 1e5).round() / 1e2;
        let span = &self.span;
        if let Some(status) = outcome.status {
            span.record("status", status.as_u16());
        }
        if let Some(model) = &outcome.model {
            span.record("model", model.as_str());
            span.record("prompt_tokens", outcome.n_prompt);
            span.record("output_tokens", outcome.n_output);
        }
        if let Some(time) = outcome.first_token {
            span.record("ttft_ms", ms(time));
        }
        span.record("duration_ms", ms(self.started.elapsed()));
        match (&outcome.failure, outcome.is_whole) {
            (Some(failure), _) => tracing::warn!(parent: span, failure = failure.as_str(), "failed"),
            (None, true) => tracing::info!(parent: span, "answered"),
            (None, false) => tracing::info!(parent: span, "the client went away"),
        }
    }
}

/// A body that ends the trace of its request.
struct Traced {
    body: Body,
    trace: Trace,
}

impl hyper::body::Body for Traced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) {
            self.trace.outcome().is_whole = true;
        }
        polled
    }

    /// Marks the answer as whole: a body of known length is not polled after its last frame.
    fn is_end_stream(&self) -> bool {
        let has_ended = self.body.is_end_stream();
        self.trace.outcome().is_whole |= has_ended;
        has_ended
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_id_is_kept_if_it_is_short_and_printable() {
        let of = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, HeaderValue::from_bytes(value).unwrap());
            id(&headers).to_str().unwrap().to_string()
        };
        assert_eq!(of(b"a-1 \"b\""), "a-1 \"b\"");
        assert_eq!(of(&[b'x'; 128]), "x".repeat(128));
        let long = [b'x'; 129];
        for refused in [&b""[..], b"a\tb", b"\xffa", &long[..]] {
            assert!(of(refused).starts_with("req-"), "{refused:?}");
        }
        assert_ne!(id(&HeaderMap::new()), id(&HeaderMap::new()));
    }
}
