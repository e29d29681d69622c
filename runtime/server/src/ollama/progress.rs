//! Long work of the store, with its progress as lines of JSON; a client that is gone cancels it.

use crate::error::ApiError;
use crate::stream;
use axum::Json;
use axum::response::{IntoResponse, Response};
use llmrt_store::{Event, Watch};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How often a line on the same blob is written.
const INTERVAL: Duration = Duration::from_millis(100);

/// Runs the work on a thread for that. `verb` is `pulling`, `pushing` or `creating`.
pub async fn answer(
    verb: &'static str,
    streams: bool,
    work: impl FnOnce(&mut Watch<'_>) -> Result<(), ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let (sender, receiver) = channel(16);
    tokio::task::spawn_blocking(move || run(verb, &sender, work));
    match streams {
        true => Ok(stream::lines(|out| copy(receiver, out))),
        false => last(receiver).await.map(|value| Json(value).into_response()),
    }
}

type Line = Result<Value, ApiError>;

async fn copy(mut lines: Receiver<Line>, out: stream::Writer) -> Result<(), stream::Gone> {
    while let Some(line) = lines.recv().await {
        out.line(&line.unwrap_or_else(|e| e.ollama())).await?;
    }
    Ok(())
}

async fn last(mut lines: Receiver<Line>) -> Line {
    let mut last = Err(ApiError::internal("the work ended without a result"));
    while let Some(line) = lines.recv().await {
        last = Ok(line?);
    }
    last
}

/// The channel closes when the client is gone.
fn run(verb: &str, lines: &Sender<Line>, work: impl FnOnce(&mut Watch<'_>) -> Result<(), ApiError>) {
    let mut before: Option<(Value, Instant)> = None;
    let mut show = |event: &Event| {
        let Some(line) = line(verb, event) else { return };
        let is_whole = line["completed"] == line["total"];
        let is_soon = |(status, at): &(Value, Instant)| *status == line["status"] && at.elapsed() < INTERVAL;
        if !is_whole && before.as_ref().is_some_and(is_soon) {
            return;
        }
        before = Some((line["status"].clone(), Instant::now()));
        let _ = lines.blocking_send(Ok(line));
    };
    let is_cancelled = || lines.is_closed();
    let done = work(&mut Watch { show: &mut show, is_cancelled: &is_cancelled });
    let _ = lines.blocking_send(done.map(|()| json!({ "status": "success" })));
}

/// The line of an event, as Ollama writes it.
fn line(verb: &str, event: &Event) -> Option<Value> {
    Some(match event {
        Event::Manifest => json!({ "status": format!("{verb} manifest") }),
        Event::Transfer { digest: Some(digest), done, total } => {
            let mut line = json!({ "status": format!("{verb} {}", digest.short()), "digest": digest });
            line["completed"] = (*done).into();
            line["total"] = total.unwrap_or(*done).into();
            line
        }
        Event::Transfer { digest: None, done, total } => json!({
            "status": format!("{verb} file"), "completed": done, "total": total.unwrap_or(*done),
        }),
        Event::Exists { digest } => {
            json!({ "status": format!("using existing layer {}", digest.short()), "digest": digest })
        }
        Event::Retry { why, .. } => json!({ "status": format!("trying again: {why}") }),
        Event::Finish => json!({ "status": "writing manifest" }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_store::Digest;

    #[test]
    fn a_line_has_the_digest_and_the_bytes() {
        let digest = Digest::of(b"abc");
        let event = Event::Transfer { digest: Some(digest), done: 3, total: Some(9) };
        let expected = json!({
            "status": "pulling ba7816bf8f01", "digest": digest.to_string(), "completed": 3, "total": 9,
        });
        assert_eq!(line("pulling", &event), Some(expected));
    }

    #[tokio::test]
    async fn a_failure_is_the_last_line_or_the_answer() {
        let fails = |_: &mut Watch<'_>| Err(ApiError::invalid("no"));
        let error = answer("pulling", false, fails).await.unwrap_err();
        assert_eq!(error.message, "no");
        let response = answer("pulling", true, fails).await.unwrap();
        let body = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
        assert_eq!(body, "{\"error\":\"no\"}\n");
    }
}
