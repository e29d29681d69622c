//! A model: whether its file can be read, and fits.

use super::Doctor;
use super::report::Report;
use crate::args::{Global, RequestsArgs};
use crate::cmd::plan::{PlanArgs, Planned, check_fits, plan_model};
use crate::output::{bytes, n_things};
use crate::setup::{Plugins, Setup};
use std::path::Path;

/// Checks tables, tokenizer and memory on the devices that a command would take.
pub fn check(report: &Report, global: &Global, plugins: Option<Plugins>, path: &Path, args: &Doctor) {
    // Without plugins or devices there is a problem already.
    let Some(Ok(setup)) = plugins.map(|plugins| Setup::of(plugins, global)) else { return };
    let plan = PlanArgs {
        speculation: Default::default(),
        model: Some(path.into()),
        model_file: None,
        sequences: 1,
        json: false,
        context: args.context.clone(),
        requests: RequestsArgs::default(),
        open: args.open.clone(),
    };
    let Planned { model, options, memory } = match plan_model(&setup, &plan) {
        Ok(planned) => planned,
        Err(e) => return report.problem("model", e.message),
    };
    let architecture =
        model.metadata().str("general.architecture").unwrap_or("(no architecture)").to_string();
    let (n_tensors, size) = (model.files.model.tensors.len(), bytes(model.files.file_bytes()));
    report.ok(
        "model",
        format_args!("{}: {architecture}, {}, {size}", model.name, n_things(n_tensors, "tensor")),
    );
    if let Err(e) = model.tokenizer() {
        report.problem("model", e.message);
    }
    match check_fits(&memory) {
        Ok(()) => {
            let total =
                memory.devices.iter().map(|device| device.total().saturating_add(device.staging)).sum();
            report.ok(
                "model",
                format_args!("needs {} with a context of {} tokens, and fits", bytes(total), options.n_ctx),
            );
        }
        Err(e) => report.problem("model", e.message),
    }
}
