//! HEAD and POST /api/blobs/DIGEST: files that a later /api/create names by digest.

use super::transfer::store;
use crate::error::ApiError;
use crate::registry::on_thread;
use crate::server::App;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use futures_util::StreamExt;
use llmrt_store::Digest;
use std::io::{Error, Read};
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, channel};

/// Whether the store has a blob.
pub async fn head(State(app): State<Arc<App>>, Path(digest): Path<String>) -> Result<StatusCode, ApiError> {
    let digest: Digest = digest.replacen("sha256-", "sha256:", 1).parse()?;
    on_thread(move || match store(&app.registry)?.store.blob_path(&digest).is_file() {
        true => Ok(StatusCode::OK),
        false => Err(ApiError::new(StatusCode::NOT_FOUND, format!("{digest}: there is no such blob"))),
    })
    .await?
}

/// Receives a blob. It has its name when its digest is verified.
pub async fn post(
    State(app): State<Arc<App>>,
    Path(digest): Path<String>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let digest: Digest = digest.replacen("sha256-", "sha256:", 1).parse()?;
    let (sender, chunks) = channel(4);
    let received = on_thread(move || {
        let mut reader = Reader { chunks, chunk: Bytes::new() };
        match store(&app.registry)?.store.receive(&digest, &mut reader) {
            Ok(()) => Ok(StatusCode::CREATED),
            Err(e @ llmrt_store::Error::DigestMismatch { .. }) => Err(ApiError::invalid(e.to_string())),
            Err(e) => Err(e.into()),
        }
    });
    let send = async move {
        let mut body = body.into_data_stream();
        while let Some(chunk) = body.next().await {
            let stalled = chunk.as_ref().err().and_then(crate::body::stalled);
            let chunk = chunk.map_err(|e| Error::other(e.to_string()));
            let is_last = chunk.is_err();
            if sender.send(chunk).await.is_err() || is_last {
                return stalled;
            }
        }
        None
    };
    let (received, stalled) = tokio::join!(received, send);
    stalled.map_or(received?, Err)
}

/// The chunks of a body, to be read on another thread.
struct Reader {
    chunks: Receiver<Result<Bytes, Error>>,
    chunk: Bytes,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        while self.chunk.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.chunk = chunk?,
                None => return Ok(0),
            }
        }
        let n = buffer.len().min(self.chunk.len());
        buffer[..n].copy_from_slice(&self.chunk.split_to(n));
        Ok(n)
    }
}
