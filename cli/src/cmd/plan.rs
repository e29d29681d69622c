//! `llmrt plan`: the memory a model needs on each device, before anything is loaded.

use crate::args::{Global, Plan};
use crate::context::{self, Defaults};
use crate::error::{Error, Result};
use crate::model::{self, OpenModel};
use crate::output::{self, bytes};
use crate::setup::Setup;
use llmrt_abi::DType;
use llmrt_engine::memory::{self, DevicePlan};
use serde_json::json;
use std::io::Write;

/// Computes and prints the plan.
pub fn plan(global: &Global, args: &Plan) -> Result<()> {
    let model = OpenModel::open(args.model.as_deref(), &model::open_options(&args.loading))?;
    let setup = Setup::new(global)?;
    let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
    let options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.strict)?;
    let plan = memory::memory_plan(&setup.devices, &model.files, &options)
        .map_err(|e| Error::from(e).of_model(&model.name))?;

    if args.json {
        let devices: Vec<_> = plan
            .devices
            .iter()
            .map(|d| {
                json!({
                    "device": d.device, "weights": d.weights, "kv": d.kv, "compute": d.compute,
                    "staging": d.staging, "total": total(d), "free": d.free,
                })
            })
            .collect();
        return Ok(output::json(&json!({
            "model": model.name, "n_ctx": options.n_ctx, "n_batch": options.n_batch,
            "kv_type": options.k_type.name(), "kv_bytes_per_token": plan.kv_bytes_per_token, "devices": devices,
        }))?);
    }
    let rows: Vec<Vec<String>> = plan
        .devices
        .iter()
        .map(|d| {
            let free = d.free.map_or("(not said)".into(), bytes);
            let cells = [d.weights, d.kv, d.compute, d.staging, total(d)].map(bytes);
            [d.device.clone()].into_iter().chain(cells).chain([free]).collect()
        })
        .collect();
    output::table(&["device", ">weights", ">KV cache", ">compute", ">staging", ">total", ">free"], &rows)?;
    let kv = bytes(plan.kv_bytes_per_token);
    let (n_ctx, kv_type, n_batch) = (options.n_ctx, options.k_type, options.n_batch);
    writeln!(
        std::io::stdout().lock(),
        "\ncontext {n_ctx} tokens, {kv_type} KV cache of {kv} per token, batch {n_batch}"
    )?;
    for d in &plan.devices {
        if d.free.is_some_and(|free| free < total(d)) {
            output::note(format_args!(
                "{}: needs {} more than is free; lower -c, take --kv-type q8_0 or a smaller model",
                d.device,
                bytes(total(d) - d.free.unwrap_or(0))
            ));
        }
    }
    Ok(())
}

fn total(d: &DevicePlan) -> u64 {
    d.weights + d.kv + d.compute + d.staging
}
