//! Bodies of requests that stop coming, or trickle: the request ends with 408.

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
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Bytes per second that a body may come with, on average, at the least.
const LEAST_RATE: f64 = 16.0 * 1024.0;

/// No byte came for too long, or too few did.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request stalled")]
struct Stalled;

/// A body that is read, and how much of it came since when.
struct Timed {
    chunks: BodyDataStream,
    n_bytes: usize,
    started: Instant,
}

/// Ends bodies that stall for longer than the server's limit, or are slower than the least rate for that long, with an error.
pub async fn limit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let longest = app.options.limits.body_timeout;
    let next_chunk = move |timed: Option<Timed>| async move {
        let mut timed = timed?;
        let stalled = || Some((Err(axum::Error::new(Stalled)), None));
        match timeout(longest, timed.chunks.next()).await {
            Ok(None) => None,
            Ok(Some(Err(e))) => Some((Err(e), None)),
            Ok(Some(Ok(chunk))) => {
                timed.n_bytes += chunk.len();
                let allowed = longest + Duration::from_secs_f64(timed.n_bytes as f64 / LEAST_RATE);
                if timed.started.elapsed() > allowed { stalled() } else { Some((Ok(chunk), Some(timed))) }
            }
            Err(_) => stalled(),
        }
    };
    let timed = |body: Body| {
        let timed = Timed { chunks: body.into_data_stream(), n_bytes: 0, started: Instant::now() };
        Body::from_stream(unfold(Some(timed), next_chunk))
    };
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
