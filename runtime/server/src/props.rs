//! GET /props of llama-server: a model, and where it runs. No model is loaded for it.

use crate::error::ApiError;
use crate::model::{Model, Placement};
use crate::registry::on_thread;
use crate::server::App;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::Uri;
use llmrt::host::sched::report::Report;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// The model of `?model=NAME`, else the first. Fields that only a loaded model has are null in others.
pub async fn route(State(app): State<Arc<App>>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let query = Query::<HashMap<String, String>>::try_from_uri(&uri);
    let query = query.map_err(|e| ApiError::param("model", format!("the query is not readable: {e}")))?.0;
    let name = query.get("model").filter(|name| !name.is_empty());
    let mut props = json!({
        "total_slots": app.options.parallel,
        "build_info": concat!("llmrt-", env!("CARGO_PKG_VERSION")),
        "model_alias": null,
        "is_loaded": false,
        "default_generation_settings": { "n_ctx": null },
        "chat_template": "",
        "bos_token": "",
        "eos_token": "",
        "placement": null,
    });
    if name.is_none() && app.registry.named().is_empty() {
        return Ok(Json(props)); // models of the store only, and none is requested
    }
    let entry = app.registry.find(name.map(String::as_str)).await?;
    props["model_alias"] = entry.name().into();
    match entry.loaded() {
        Some(model) => {
            of_loaded(&model).into_iter().for_each(|(name, value)| props[name] = value);
        }
        None => {
            let template = on_thread(move || entry.info().map(|info| info.chat_template.clone())).await??;
            props["chat_template"] = template.unwrap_or_default().into();
        }
    }
    Ok(Json(props))
}

fn of_loaded(model: &Model) -> [(&'static str, Value); 6] {
    let template = model.template.as_ref().map_or("", |template| template.jinja.source());
    let piece = |id: Option<u32>| id.and_then(|id| model.tokenizer.piece(id)).unwrap_or_default();
    [
        ("is_loaded", true.into()),
        ("default_generation_settings", json!({ "n_ctx": model.n_ctx })),
        ("chat_template", template.into()),
        ("bos_token", piece(model.tokenizer.bos()).into()),
        ("eos_token", piece(model.tokenizer.eos()).into()),
        ("placement", of_placement(&model.placement)),
    ]
}

/// Before the first step there are the devices' names alone.
fn of_placement(placement: &Placement) -> Value {
    let device = |name: &String| json!({ "device": name });
    match placement.report() {
        None => json!({ "devices": placement.devices.iter().map(device).collect::<Vec<_>>() }),
        Some(report) => of_report(&report),
    }
}

fn of_report(report: &Report) -> Value {
    let name = |row: usize| report.devices.get(row).map_or("", String::as_str);
    let is_divided = report.neurons.iter().any(|(n, _)| *n > 0);
    let device = |(row, device): (usize, &String)| {
        let mut fields = Map::from_iter([("device".to_string(), json!(device))]);
        fields.extend(report.nodes.get(row).map(|n| ("n_nodes".to_string(), json!(n))));
        fields.extend(report.compute_bytes.get(row).map(|n| ("compute_bytes".to_string(), json!(n))));
        if let (Some((n, bytes)), true) = (report.neurons.get(row), is_divided) {
            fields.extend([("n_neurons".to_string(), json!(n)), ("neuron_bytes".to_string(), json!(bytes))]);
        }
        Value::from(fields)
    };
    let fallbacks = report.fallbacks.iter().map(|group| {
        json!({
            "op": group.op, "device": name(group.device), "reason": group.reason.to_string(),
            "count": group.count, "example": group.example,
        })
    });
    let splits = report.splits.iter().map(|(row, n)| json!({ "device": name(*row), "n_nodes": n }));
    json!({
        "devices": report.devices.iter().enumerate().map(device).collect::<Vec<_>>(),
        "fallbacks": fallbacks.collect::<Vec<_>>(),
        "splits": splits.collect::<Vec<_>>(),
        "n_copies": report.n_copies,
        "copied_bytes": report.copied_bytes,
        "failed": report.failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_has_the_fields_that_the_page_reads() {
        let placement = Placement::new(vec!["sim0".into(), "cpu".into()]);
        assert_eq!(
            of_placement(&placement),
            json!({ "devices": [{ "device": "sim0" }, { "device": "cpu" }] })
        );
        placement.set(&Report {
            devices: vec!["sim0".into(), "cpu".into()],
            nodes: vec![5, 1],
            splits: vec![(0, 5), (1, 1)],
            compute_bytes: vec![64, 32],
            n_copies: 1,
            copied_bytes: 16,
            neurons: vec![(0, 0), (0, 0)],
            ..Report::default()
        });
        let placed = of_placement(&placement);
        assert_eq!(placed["devices"][1], json!({ "device": "cpu", "n_nodes": 1, "compute_bytes": 32 }));
        assert_eq!(
            placed["splits"],
            json!([{ "device": "sim0", "n_nodes": 5 }, { "device": "cpu", "n_nodes": 1 }])
        );
        assert_eq!((&placed["n_copies"], &placed["copied_bytes"]), (&json!(1), &json!(16)));
    }

    #[test]
    fn a_placement_has_the_neurons_of_each_device_where_they_are_divided() {
        let placed = of_report(&Report {
            devices: vec!["sim0".into(), "cpu".into()],
            neurons: vec![(300, 4096), (724, 9000)],
            ..Report::default()
        });
        assert_eq!(placed["devices"][0], json!({ "device": "sim0", "n_neurons": 300, "neuron_bytes": 4096 }));
        assert_eq!(placed["devices"][1], json!({ "device": "cpu", "n_neurons": 724, "neuron_bytes": 9000 }));
    }
}
