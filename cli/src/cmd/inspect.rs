//! `llmrt inspect`: what a model file holds, and where it would run.

mod args;

pub use args::Inspect;

use crate::args::Global;
use crate::cmd::Command;
use crate::cmd::sparse::times_line;
use crate::context::{self, Defaults, Placing};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::model::{self, OpenModel};
use crate::output::{self, bytes, count, n_things, note};
use crate::session::note_warnings;
use crate::setup::Setup;
use llmrt_abi::DType;
use llmrt_engine::EngineOptions;
use llmrt_engine::memory::{self, Placed};
use llmrt_engine::neurons::{self, NeuronTimes};
use llmrt_gguf::{Array, FileKind, TensorInfo, Value, printable};
use llmrt_host::load;
use llmrt_host::sched::report::Report;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

impl Command for Inspect {
    const NAME: &'static str = "inspect";

    fn run(&self, global: &Global) -> Result<()> {
        inspect(global, self)
    }
}

/// Longer arrays are shown by their beginning.
const MAX_SHOWN: usize = 8;

/// Prints metadata, tensors, placement.
fn inspect(global: &Global, args: &Inspect) -> Result<()> {
    let path = args.model.as_deref().or(args.model_file.as_deref());
    let model = OpenModel::open(path, &model::table_options(&args.open))?;
    let placed = if args.placement || args.graph { Some(Placement::of(global, args, &model)?) } else { None };
    if args.json {
        output::json(&as_json(args, &model, placed.as_ref()))?;
    } else {
        print(args, &model, placed.as_ref())?;
    }
    if args.check_tensors {
        load::check(&model.files, &interrupt::is_requested)
            .map_err(|e| Error::from(e).of_model(&model.name))?;
        note(format_args!("{}: no weight is NaN or infinite", model.name));
    }
    match placed {
        Some(Placement { placed, .. }) if global.strict_device => {
            Ok(llmrt_host::sched::limits::strict(&placed.report)?)
        }
        _ => Ok(()),
    }
}

/// Where the decode step would run, and what divided neurons are predicted to take.
struct Placement {
    placed: Placed,
    times: Option<NeuronTimes>,
}

impl Placement {
    fn of(global: &Global, args: &Inspect, model: &OpenModel) -> Result<Placement> {
        let setup = Setup::new(global)?;
        let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
        let placing = Placing { strict: false, ..setup.placing() };
        let options = context::engine_options(&args.context, model.n_ctx_train(), defaults, placing)?;
        let placed = memory::placement(&setup.devices, &model.files, &options);
        let placed = placed.map_err(|e| Error::from(e).of_model(&model.name))?;
        note_warnings(placed.notes.clone());
        let is_timed = args.placement && !placed.neurons.layers.is_empty();
        let times = if is_timed { Some(times(model, &placed, &options)?) } else { None };
        Ok(Placement { placed, times })
    }
}

/// By rates that are measured now, for which some of the model is loaded.
fn times(model: &OpenModel, placed: &Placed, options: &EngineOptions) -> Result<NeuronTimes> {
    let rates = neurons::rates(&placed.devices, &model.files, options);
    let times = rates
        .and_then(|rates| neurons::times(&placed.devices, &model.files, options, &placed.neurons, &rates));
    times.map_err(|e| Error::from(e).of_model(&model.name))
}

fn print(args: &Inspect, model: &OpenModel, placed: Option<&Placement>) -> Result<()> {
    let mut text = format!("{}: {}\n", printable(&model.name), kind_name(model.files.kind));
    for (key, value) in summary(model) {
        text += &format!("  {key:<12} {}\n", printable(&value));
    }
    text += "\nmetadata\n";
    for (key, value) in model.metadata().iter() {
        text += &format!("  {:<44} {:<10} {}\n", printable(key), type_name(value), shown(value));
    }
    output::print(text)?;

    if args.tensors {
        output::print("\ntensors\n")?;
        let rows: Vec<_> = model.files.model.tensors.iter().map(row).collect();
        output::table(&["tensor", "type", "shape", ">bytes", ">offset", ">file"], &rows)?;
    }
    if let Some(Placement { placed: Placed { report, graph, devices, .. }, times }) = placed {
        if args.placement {
            output::print(format_args!("\nplacement of a decode step\n{report}"))?;
            if let Some(times) = times {
                output::print(format_args!("  {}\n", times_line(devices, times)))?;
            }
        }
        if args.graph {
            output::print(format_args!("\ngraph of a decode step\n{graph}"))?;
        }
    }
    Ok(())
}

fn row(tensor: &TensorInfo) -> Vec<String> {
    let dims: Vec<_> = tensor.shape().dims().iter().map(u64::to_string).collect();
    let [name, dtype] = [tensor.name.clone(), tensor.dtype.to_string()];
    let [nbytes, offset] = [tensor.nbytes, tensor.offset].map(|n| n.to_string());
    vec![name, dtype, dims.join(" × "), nbytes, offset, tensor.file.to_string()]
}

/// The lines at the top.
fn summary(model: &OpenModel) -> Vec<(&'static str, String)> {
    let tables = &model.files.model;
    let n_params = tables.tensors.iter().map(TensorInfo::n_elements).sum();
    let mut types: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for tensor in &tables.tensors {
        let (n, total) = types.entry(tensor.dtype.name()).or_default();
        (*n, *total) = (*n + 1, *total + tensor.nbytes);
    }
    let types: Vec<_> =
        types.iter().map(|(name, (n, total))| format!("{n} × {name} ({})", bytes(*total))).collect();
    let text = |key| tables.metadata.str(key).unwrap_or("(not given)").to_string();
    vec![
        ("name", text("general.name")),
        ("architecture", text("general.architecture")),
        ("parameters", count(n_params)),
        ("context", model.n_ctx_train().map_or("(not given)".into(), |n| n.to_string())),
        (
            "tensors",
            format!(
                "{} in {}, {}",
                tables.tensors.len(),
                n_things(tables.n_files, "file"),
                bytes(tables.nbytes())
            ),
        ),
        ("types", types.join(", ")),
    ]
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Gguf => "GGUF",
        FileKind::PowerInfer => "PowerInfer GGUF",
        FileKind::Llama2cV0Maybe => "llama2.c checkpoint, version 0",
        FileKind::Llama2cV1 => "llama2.c checkpoint, version 1",
        FileKind::Llama2cV2 => "llama2.c checkpoint, version 2 (int8)",
        FileKind::Unknown => "unknown",
    }
}

fn type_name(value: &Value) -> String {
    match value {
        Value::Array(array) => format!("{}[{}]", array.element_type(), array.len()),
        other => other.value_type().to_string(),
    }
}

/// One line for a value.
fn shown(value: &Value) -> String {
    const MAX_CHARS: usize = 100;
    let text = output::json_escaped(&to_json(value).to_string());
    match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn as_json(args: &Inspect, model: &OpenModel, placed: Option<&Placement>) -> Json {
    let tables = &model.files.model;
    let metadata: Map<_, _> =
        tables.metadata.iter().map(|(key, value)| (key.to_string(), to_json(value))).collect();
    let mut root = json!({
        "file": model.name, "kind": kind_name(model.files.kind), "n_files": tables.n_files,
        "n_tensors": tables.tensors.len(), "tensor_bytes": tables.nbytes(),
        "n_params": tables.tensors.iter().map(TensorInfo::n_elements).sum::<u64>(),
        "metadata": metadata,
    });
    if args.tensors {
        root["tensors"] = tables.tensors.iter().map(tensor_json).collect();
    }
    if let Some(Placement { placed: Placed { report, graph, .. }, times }) = placed {
        if args.placement {
            root["placement"] = report_json(report, times.as_ref());
        }
        if args.graph {
            root["graph"] = graph.lines().collect();
        }
    }
    root
}

fn tensor_json(tensor: &TensorInfo) -> Json {
    json!({
        "name": tensor.name, "type": tensor.dtype.name(), "ne": tensor.shape().dims(),
        "nbytes": tensor.nbytes, "offset": tensor.offset, "file": tensor.file,
    })
}

fn report_json(report: &Report, times: Option<&NeuronTimes>) -> Json {
    let device = |row: usize| report.devices.get(row).cloned().unwrap_or_default();
    let splits: Vec<_> =
        report.splits.iter().map(|&(row, n)| json!({ "device": device(row), "n_nodes": n })).collect();
    let fallbacks: Vec<_> = report
        .fallbacks
        .iter()
        .map(|f| {
            json!({
                "op": f.op, "device": device(f.device), "reason": f.reason.to_string(),
                "count": f.count, "example": f.example,
            })
        })
        .collect();
    let devices: Vec<_> = (0..report.devices.len())
        .map(|row| {
            json!({
                "device": device(row), "n_nodes": report.nodes.get(row),
                "compute_bytes": report.compute_bytes.get(row),
                "n_neurons": report.neurons.get(row).map(|(n, _)| n),
                "neuron_bytes": report.neurons.get(row).map(|(_, bytes)| bytes),
                "neuron_seconds": times.and_then(|times| times.by_device.get(row)),
                "bytes_per_second": times.and_then(|times| times.rates.get(row)).map(|rate| rate.bytes_per_second),
            })
        })
        .collect();
    json!({
        "neuron_seconds": times.map(|times| times.all),
        "devices": devices, "splits": splits, "fallbacks": fallbacks, "n_fallbacks": report.n_fallbacks(),
        "copied_bytes": report.copied_bytes, "n_copies": report.n_copies, "n_legalised": report.n_legalised,
        "n_collectives": report.collectives.iter().map(|(n, _)| n).sum::<usize>(), "by_copies": report.by_copies,
    })
}

/// A metadata value as JSON. Long arrays are an object with their length and first elements; numbers that JSON
/// lacks (NaN, infinity) are text.
fn to_json(value: &Value) -> Json {
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::F32(v) => float(f64::from(*v), v.to_string()),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v),
        Value::Array(v) => array(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F64(v) => float(*v, v.to_string()),
    }
}

/// With the digits that the number has in its own width.
fn float(v: f64, text: String) -> Json {
    if v.is_finite() { text.parse::<f64>().map_or(json!(v), |short| json!(short)) } else { json!(text) }
}

fn array(a: &Array) -> Json {
    let n = a.len().min(MAX_SHOWN);
    let first: Vec<Json> = match a {
        Array::U8(v) => v[..n].iter().map(|x| json!(x)).collect(),
        Array::I8(v) => v[..n].iter().map(|x| json!(x)).collect(),
        Array::U16(v) => v[..n].iter().map(|x| json!(x)).collect(),
        Array::I16(v) => v[..n].iter().map(|x| json!(x)).collect(),
        Array::U32(v) => v[..n].iter().map(|x| json!(x)).collect(),
        Array::I32(v) => v[..n].iter().map(|x| json!(x)).collect(),
        Array::F32(v) => v[..n].iter().map(|x| float(f64::from(*x), x.to_string())).collect(),
        Array::Bool(v) => v[..n].iter().map(|x| json!(x)).collect(),
        Array::String(v) => v[..n].iter().map(|x| json!(x)).collect(),
        Array::Nested(v) => v[..n].iter().map(array).collect(),
        Array::U64(v) => v[..n].iter().map(|x| json!(x)).collect(),
        Array::I64(v) => v[..n].iter().map(|x| json!(x)).collect(),
        Array::F64(v) => v[..n].iter().map(|x| float(*x, x.to_string())).collect(),
    };
    match a.len() > n {
        true => json!({ "type": a.element_type().to_string(), "len": a.len(), "first": first }),
        false => Json::Array(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_on_one_line() {
        assert_eq!(shown(&Value::F32(1e-5)), "0.00001");
        assert_eq!(shown(&Value::F32(f32::NAN)), "\"NaN\"");
        assert_eq!(shown(&Value::String("a\nb".into())), r#""a\nb""#);
        assert_eq!(shown(&Value::Array(Array::U32(vec![1, 2]))), "[1,2]");
        let long = Value::Array(Array::U32((0..9).collect()));
        assert_eq!(shown(&long), r#"{"type":"u32","len":9,"first":[0,1,2,3,4,5,6,7]}"#);
        assert_eq!(shown(&Value::String("é".repeat(200))).chars().count(), 101);
    }
}
