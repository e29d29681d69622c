//! GET /openapi.json: the routes, what requests have and what is answered, as an OpenAPI 3.1 document.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;

const DOCUMENT: &str = include_str!("../assets/openapi.json");

/// The route.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/openapi.json", get(document))
}

async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::Path;

    /// What a route begins with; in two parts, since this file is one of the sources.
    const CALL: &str = concat!(".route", "(\"");

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    /// Source files of this crate.
    fn sources(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(|path| match path.is_dir() {
                true => sources(&path),
                false => vec![std::fs::read_to_string(&path).unwrap()],
            })
            .collect()
    }

    /// The path and the methods in the arguments of a route, such as `/v1/models", get(list))`.
    fn route(call: &str) -> Option<(String, Vec<&'static str>)> {
        let (path, handlers) = call.lines().next()?.split_once("\", ")?;
        let methods = [("get", "get("), ("post", "post("), ("head", "head("), ("delete", "delete(")];
        let has = |call: &str| {
            let at = handlers.find(call);
            at.is_some_and(|at| at == 0 || handlers[..at].ends_with('.'))
        };
        let methods = methods.iter().filter(|(_, call)| has(call)).map(|(name, _)| *name);
        Some((path.replace("{*", "{"), methods.collect()))
    }

    #[test]
    fn every_route_of_the_sources_is_in_the_document() {
        let document = document();
        let files = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let found: Vec<_> =
            files.iter().flat_map(|text| text.split(CALL).skip(1)).filter_map(route).collect();
        assert!(found.len() > 20, "{found:?}");
        for (path, methods) in &found {
            assert!(!methods.is_empty(), "{path} has a method that this test does not read");
            for method in methods {
                assert!(
                    document["paths"][path][method].is_object(),
                    "{method} {path} is not in openapi.json"
                );
            }
        }
        let documented = document["paths"].as_object().unwrap().keys();
        let unknown: Vec<_> =
            documented.filter(|path| !found.iter().any(|(known, _)| known == *path)).collect();
        assert!(unknown.is_empty(), "no route of the sources: {unknown:?}");
    }

    #[test]
    fn every_reference_leads_to_a_part_of_the_document() {
        fn check(value: &Value, document: &Value) {
            match value {
                Value::Object(map) => map.iter().for_each(|(key, value)| match (key.as_str(), value) {
                    ("$ref", Value::String(to)) => {
                        let at = to.strip_prefix('#').unwrap();
                        assert!(document.pointer(at).is_some(), "{to} is not there");
                    }
                    _ => check(value, document),
                }),
                Value::Array(items) => items.iter().for_each(|item| check(item, document)),
                _ => {}
            }
        }
        let document = document();
        check(&document, &document);
    }

    #[test]
    fn every_operation_has_errors_in_the_form_of_its_api() {
        let document = document();
        for (path, item) in document["paths"].as_object().unwrap() {
            let form = match path.as_str() {
                path if path.starts_with("/api/") => "Ollama",
                path if path.starts_with("/v1/messages") => "Anthropic",
                _ => "OpenAi",
            };
            for operation in item.as_object().unwrap().values() {
                for (code, response) in operation["responses"].as_object().unwrap() {
                    let Some(to) = response["$ref"].as_str() else { continue };
                    assert!(to.starts_with(&format!("#/components/responses/{form}")), "{path} {code}: {to}");
                }
            }
        }
    }
}
