//! POST /api/create: a model of the store from JSON fields, or from the text of a Modelfile. `FROM` is a model by name or a
//! blob by digest, never a path: no request reads another file of the machine.

use super::{progress, transfer};
use crate::error::ApiError;
use crate::fields::{Fields, read};
use crate::server::App;
use crate::stored::ModelStore;
use axum::extract::State;
use axum::response::Response;
use llmrt_store::{ChatMessage, CreateOptions, Digest, Instruction, Modelfile, Name, Source, Store, Watch};
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;

const REFUSED: [(&str, &str); 5] = [
    ("adapters", "merge the adapter into the weights first"),
    ("quantize", "`llmrt quantize` writes a smaller file"),
    ("quantization", "`llmrt quantize` writes a smaller file"),
    ("path", "send the text of the Modelfile as `modelfile`"),
    ("renderer", "send a template"),
];

/// The route.
pub async fn create(State(app): State<Arc<App>>, fields: Fields) -> Result<Response, ApiError> {
    let name: Name = transfer::name(&fields)?.parse()?;
    fields.refuse(&REFUSED)?;
    let modelfile = match fields.get::<String>("modelfile")? {
        Some(text) => Modelfile::parse(&text)?,
        None => of_fields(&fields)?,
    };
    let registry = app.registry.clone();
    transfer::store(&registry)?;
    progress::answer("creating", fields.get_or("stream", true)?, move |watch| {
        let store = transfer::store(&registry)?;
        let (modelfile, link) = with_base(store, modelfile, watch)?;
        // Relative names begin in the store, where no file is.
        let options = CreateOptions { folder: store.store.folder().join("manifests"), link };
        Ok(store.store.create(&name, &modelfile, &options, watch)?)
    })
    .await
}

/// The Modelfile whose `FROM` is a model of the store, which is pulled if it is absent, or the path of a blob, which needs
/// no copy.
fn with_base(
    store: &ModelStore,
    mut modelfile: Modelfile,
    watch: &mut Watch<'_>,
) -> Result<(Modelfile, bool), ApiError> {
    let from = modelfile.from().to_string();
    let (base, is_blob) = match blob(&store.store, &from) {
        Some(digest) => {
            let path = store.store.blob_path(&digest);
            if !path.is_file() {
                return Err(ApiError::invalid(format!("{digest}: there is no such blob: send it first")));
            }
            (path.display().to_string(), true)
        }
        None => {
            let source: Source = from.parse()?;
            if !store.store.has(&source.name) {
                (store.client)(false).pull(&store.store, &source, watch)?;
            }
            (source.name.to_string(), false)
        }
    };
    for instruction in &mut modelfile.instructions {
        if let Instruction::From(text) = instruction {
            *text = base.clone();
        }
    }
    Ok((modelfile, is_blob))
}

/// The digest in `sha256:HEX`, `@sha256:HEX` or the path of a blob of this store.
fn blob(store: &Store, from: &str) -> Option<Digest> {
    let file = Path::new(from).file_name()?.to_str()?;
    let of_path = file.replacen("sha256-", "sha256:", 1).parse().ok();
    let of_path = of_path.filter(|digest| store.blob_path(digest) == Path::new(from));
    from.trim_start_matches('@').parse().ok().or(of_path)
}

fn of_fields(fields: &Fields) -> Result<Modelfile, ApiError> {
    let mut instructions = vec![Instruction::From(base(fields)?)];
    instructions.extend(fields.get("template")?.map(Instruction::Template));
    instructions.extend(fields.get("system")?.map(Instruction::System));
    let params: Map<String, Value> = fields.get_or("parameters", Map::new())?;
    for (name, value) in &params {
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        let texts = values.iter().map(text);
        instructions.extend(texts.map(|text| Instruction::Parameter(name.clone(), text)));
    }
    let licenses: Vec<String> = fields.get_or("license", Vec::new())?;
    instructions.extend(licenses.into_iter().filter(|text| !text.is_empty()).map(Instruction::License));
    for message in fields.get_or::<Vec<Value>>("messages", Vec::new())? {
        let part = |key: &str| read::<String>("messages", &message[key]);
        let message = ChatMessage { role: part("role")?, content: part("content")? };
        instructions.push(Instruction::Message(message));
    }
    // Parsing checks names, types and roles.
    Ok(Modelfile::parse(&Modelfile { instructions }.to_text()?)?)
}

/// `from`, or the digest of the one file.
fn base(fields: &Fields) -> Result<String, ApiError> {
    let files: Map<String, Value> = fields.get_or("files", Map::new())?;
    match (fields.get::<String>("from")?.filter(|from| !from.is_empty()), files.len()) {
        (Some(from), 0) => Ok(from),
        (None, 1) => files.values().map(|digest| read::<String>("files", digest)).collect(),
        (None, 0) => Err(ApiError::param("from", "`from` is missing: expected a model, or `files`")),
        _ => Err(ApiError::param(
            "files",
            "`files` has more than the weights: expected `from`, or one GGUF file",
        )),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<String, String> {
        let fields = Fields::parse(text.as_bytes()).unwrap();
        of_fields(&fields).map(|file| file.to_text().unwrap()).map_err(|e| e.message)
    }

    #[test]
    fn fields_become_a_modelfile() {
        let file =
            of(r#"{"from": "a", "system": "be brief", "parameters": {"stop": ["x", "y"], "top_k": 3}}"#);
        let file = file.unwrap();
        for part in ["FROM a\n", "SYSTEM be brief\n", "PARAMETER stop x\n", "PARAMETER stop y\n", "top_k 3"] {
            assert!(file.contains(part), "{part} {file}");
        }
        assert!(of("{}").unwrap_err().contains("`from` is missing"));
        assert!(of(r#"{"from": "a", "parameters": {"top_k": "x"}}"#).unwrap_err().contains("whole number"));
    }

    #[test]
    fn only_names_and_blobs_are_a_base() {
        let store = Store::at("/models");
        let digest = Digest::of(b"abc");
        let path = store.blob_path(&digest).display().to_string();
        for from in [digest.to_string(), format!("@{digest}"), path] {
            assert_eq!(blob(&store, &from), Some(digest));
        }
        assert_eq!(blob(&store, "/etc/passwd"), None);
        assert!("/etc/passwd".parse::<Source>().is_err());
        assert!("../a.gguf".parse::<Source>().is_err());
    }
}
