//! Bodies of requests that stop coming: the request ends with 408.

use crate::error::ApiError;
use crate::server::App;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use std::error::Error;
use std::sync::Arc;
use tokio::time::timeout;

/// No byte came for too long.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request stalled")]
struct Stalled;

/// Ends bodies that stall for longer than the server's limit with an error.
pub async fn limit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let longest = app.options.limits.body_timeout;
    let next_chunk = move |chunks: Option<BodyDataStream>| async move {
        let mut chunks = chunks?;
        match timeout(longest, chunks.next()).await {
            Ok(chunk) => chunk.map(|chunk| (chunk, Some(chunks))),
            Err(_) => Some((Err(axum::Error::new(Stalled)), None)),
        }
    };
    let timed = |body: Body| Body::from_stream(unfold(Some(body.into_data_stream()), next_chunk));
    next.run(request.map(timed)).await
}

/// The answer to a body that stalled; `None`: it failed for another reason.
pub fn stalled(e: &axum::Error) -> Option<ApiError> {
    let first: &(dyn Error + 'static) = e;
    let mut causes = std::iter::successors(Some(first), |&e| e.source());
    let has_stalled = causes.any(|e| e.is::<Stalled>());
    let message = "the rest of the request did not come in time: send it again, without pauses";
    has_stalled.then(|| ApiError::new(StatusCode::REQUEST_TIMEOUT, message))
}
