//! API keys: `Authorization: Bearer KEY`, or `x-api-key` as Anthropic's clients send it.

use crate::error::ApiError;
use crate::server::App;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Routes that need no key: they report that the server runs.
const OPEN: [&str; 2] = ["/", "/health"];

/// Files of the page, which has a field for the key.
const OPEN_FOLDER: &str = "/assets/";

/// Refuses requests without a key, where keys are set.
pub async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let keys = &app.options.api_keys;
    let path = request.uri().path();
    if keys.is_empty()
        || OPEN.contains(&path)
        || path.starts_with(OPEN_FOLDER)
        || has_key(request.headers(), keys)
    {
        return next.run(request).await;
    }
    let message = "the API key is missing or wrong: send it as `Authorization: Bearer KEY`";
    let error =
        ApiError { code: Some("invalid_api_key"), ..ApiError::new(StatusCode::UNAUTHORIZED, message) };
    error.into_response()
}

fn has_key(headers: &HeaderMap, keys: &[String]) -> bool {
    let bearer = headers.get("authorization").and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let given = bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()));
    given.is_some_and(|given| keys.iter().any(|key| is_same(given, key.as_bytes())))
}

/// Takes the same time wherever the first difference is.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_in_either_header() {
        let keys = ["secret".to_string()];
        let has = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            has_key(&headers, &keys)
        };
        assert!(has("authorization", "Bearer secret"));
        assert!(has("x-api-key", "secret"));
        assert!(!has("authorization", "Bearer Secret"));
        assert!(!has("authorization", "secret"));
        assert!(!has_key(&HeaderMap::new(), &keys));
    }
}
