//! The page at `/`: files in the binary, which load nothing from elsewhere.

use crate::error::ApiError;
use axum::Router;
use axum::extract::Path;
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// Files by name, with their types.
const FILES: &[(&str, &str, &str)] = &[
    ("icon.svg", IMAGE, include_str!("../assets/icon.svg")),
    ("style.css", STYLE, include_str!("../assets/style.css")),
    ("api.js", SCRIPT, include_str!("../assets/api.js")),
    ("blocks.js", SCRIPT, include_str!("../assets/blocks.js")),
    ("chat.js", SCRIPT, include_str!("../assets/chat.js")),
    ("conversation.js", SCRIPT, include_str!("../assets/conversation.js")),
    ("dom.js", SCRIPT, include_str!("../assets/dom.js")),
    ("engine.js", SCRIPT, include_str!("../assets/engine.js")),
    ("inline.js", SCRIPT, include_str!("../assets/inline.js")),
    ("main.js", SCRIPT, include_str!("../assets/main.js")),
    ("markdown.js", SCRIPT, include_str!("../assets/markdown.js")),
    ("metrics.js", SCRIPT, include_str!("../assets/metrics.js")),
    ("models.js", SCRIPT, include_str!("../assets/models.js")),
    ("settings.js", SCRIPT, include_str!("../assets/settings.js")),
    ("sse.js", SCRIPT, include_str!("../assets/sse.js")),
    ("store.js", SCRIPT, include_str!("../assets/store.js")),
    ("theme.js", SCRIPT, include_str!("../assets/theme.js")),
    ("transcript.js", SCRIPT, include_str!("../assets/transcript.js")),
];

/// Scripts, styles and requests of this server alone; no page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page's files; the page itself is [`index`].
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/assets/{file}", get(asset))
}

/// The page for browsers; a line of text for Ollama's clients, which look whether a server is there.
pub async fn index(headers: HeaderMap) -> Response {
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match accepts.contains("text/html") {
        true => file(HTML, include_str!("../assets/index.html")),
        false => "llmrt is running".into_response(),
    }
}

async fn asset(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => file(kind, text),
        None => {
            let message = format!("there is no file {name}: the page is at /");
            ApiError::new(StatusCode::NOT_FOUND, message).into_response()
        }
    }
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Another version of the program has other files.
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_names_is_there() {
        let texts = FILES.iter().map(|(_, _, text)| *text).chain([include_str!("../assets/index.html")]);
        let is_known = |name: &str| FILES.iter().any(|(known, ..)| *known == name);
        for text in texts {
            for part in text.split(['"', '\'']) {
                if let Some(name) = part.strip_prefix("assets/").or(part.strip_prefix("./")) {
                    assert!(is_known(name), "{name}");
                }
            }
        }
        let in_folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/assets")).unwrap();
        for entry in in_folder {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_other = ["index.html", "openapi.json", "package.json", "tests"].contains(&name.as_str());
            assert!(is_other || is_known(&name), "{name} is not served");
        }
    }
}
