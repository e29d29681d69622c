//! Bodies that are written while they are sent: a task writes, the connection reads, and a client that is gone ends the task.

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::convert::Infallible;
use std::future::Future;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Chunks that wait for a slow client.
const BUFFER: usize = 16;

/// The writing end of a body.
#[derive(Clone)]
pub struct Writer(Sender<Bytes>);

/// The client is gone.
pub struct Gone;

impl Writer {
    /// An event of a text/event-stream.
    pub async fn data(&self, value: &Value) -> Result<(), Gone> {
        self.text(format!("data: {value}\n\n")).await
    }

    /// A line of JSON.
    pub async fn line(&self, value: &Value) -> Result<(), Gone> {
        self.text(format!("{value}\n")).await
    }

    pub async fn text(&self, text: String) -> Result<(), Gone> {
        self.0.send(text.into()).await.map_err(|_| Gone)
    }
}

/// Server-sent events that `write` writes.
pub fn events<F: Future<Output = Result<(), Gone>> + Send + 'static>(
    write: impl FnOnce(Writer) -> F,
) -> Response {
    body("text/event-stream", write)
}

/// Lines of JSON that `write` writes.
pub fn lines<F: Future<Output = Result<(), Gone>> + Send + 'static>(
    write: impl FnOnce(Writer) -> F,
) -> Response {
    body("application/x-ndjson", write)
}

fn body<F: Future<Output = Result<(), Gone>> + Send + 'static>(
    content_type: &'static str,
    write: impl FnOnce(Writer) -> F,
) -> Response {
    let (sender, receiver) = channel(BUFFER);
    let writing = write(Writer(sender.clone()));
    tokio::spawn(async move {
        tokio::select! {
            // What is dropped here aborts its requests.
            () = sender.closed() => {}
            _ = writing => {}
        }
    });
    let chunks = futures_util::stream::unfold(receiver, next);
    let headers = [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(chunks)).into_response()
}

async fn next(mut receiver: Receiver<Bytes>) -> Option<(Result<Bytes, Infallible>, Receiver<Bytes>)> {
    let chunk = receiver.recv().await?;
    Some((Ok(chunk), receiver))
}
