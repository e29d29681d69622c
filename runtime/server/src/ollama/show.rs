//! POST /api/show: what a model is made of.

use super::models::details;
use super::transfer;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::ModelInfo;
use crate::registry::{Entry, on_thread};
use crate::server::App;
use axum::Json;
use axum::extract::State;
use llmrt_store::{Instruction, StoredModel};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The route.
pub async fn show(State(app): State<Arc<App>>, fields: Fields) -> Result<Json<Value>, ApiError> {
    let entry = app.registry.find(Some(&transfer::name(&fields)?)).await?;
    on_thread(move || {
        let mut answer = of_file(&entry, entry.info()?);
        answer["modified_at"] = app.utc(entry.info()?.modified).into();
        if let Some(model) = entry.stored() {
            answer.as_object_mut().into_iter().for_each(|map| map.extend(of_store(model)));
        }
        Ok(Json(answer))
    })
    .await?
}

/// What the GGUF file has.
fn of_file(entry: &Entry, info: &ModelInfo) -> Value {
    let template = info.chat_template.as_deref().unwrap_or_default();
    let has_tools = template.contains("tools");
    json!({
        "modelfile": format!("FROM {}\n", entry.name()),
        "parameters": "",
        "template": template,
        "details": details(info),
        "model_info": model_info(info),
        "capabilities": if has_tools { json!(["completion", "tools"]) } else { json!(["completion"]) },
    })
}

/// What the layers of the store have.
fn of_store(model: &StoredModel) -> Map<String, Value> {
    let mut map = Map::new();
    let mut set = |key: &str, value: Option<String>| {
        value.into_iter().for_each(|value| drop(map.insert(key.into(), value.into())));
    };
    set("modelfile", model.modelfile().to_text().ok());
    set("parameters", Some(parameters(model)));
    set("template", model.template.clone());
    set("system", model.system.clone());
    set("license", Some(model.licenses.join("\n\n")).filter(|text| !text.is_empty()));
    if !model.messages.is_empty() {
        map.insert("messages".into(), json!(model.messages));
    }
    map
}

/// A line for each parameter.
fn parameters(model: &StoredModel) -> String {
    let line = |instruction: &Instruction| match instruction {
        Instruction::Parameter(name, value) => Some(format!("{name:<30} {value}")),
        _ => None,
    };
    model.modelfile().instructions.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

fn model_info(info: &ModelInfo) -> Value {
    let arch = &info.architecture;
    let mut map = Map::new();
    map.insert("general.architecture".into(), arch.as_str().into());
    map.insert("general.parameter_count".into(), info.n_params.into());
    let more = [("context_length", info.n_ctx_train), ("embedding_length", info.n_embd)];
    for (key, value) in more {
        value.into_iter().for_each(|value| drop(map.insert(format!("{arch}.{key}"), value.into())));
    }
    map.into()
}
