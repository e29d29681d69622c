//! `llmrt plan`: the memory a model needs on each device, before anything is loaded.

use crate::args::{ContextArgs, Global, ModelArgs, OpenArgs, RequestsArgs, SpecArgs};
use crate::cmd::Command;
use crate::context::{self, Defaults};
use crate::error::{Error, Exit, Result};
use crate::model::{self, OpenModel};
use crate::output::{self, bytes, n_things};
use crate::setup::Setup;
use crate::speculation;
use crate::values;
use clap::Args;
use llmrt_abi::DType;
use llmrt_engine::EngineOptions;
use llmrt_engine::memory::{self, DevicePlan, MemoryPlan, PlacementPlan};
use llmrt_host::sched::limits;
use llmrt_tokenizer::Tokenizer;
use serde_json::json;
use std::path::PathBuf;

/// Compute the memory a model needs, per device, without loading it.
///
/// Weights, KV cache of the whole context and compute memory of the largest step, on the device; staging for copies,
/// inputs and results, in the host's memory. Exit code 6: a device has less free than it needs.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// Model file [default: the embedded model].
    #[arg(value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Model file.
    #[arg(short = 'm', long = "model", value_name = "FILE", conflicts_with = "model")]
    pub model_file: Option<PathBuf>,
    /// Sequences at the same time, at full length unless the KV cache's memory is given: `run --batch-file` has up to 8.
    #[arg(short = 's', long, visible_alias = "parallel", value_name = "N", default_value_t = 1, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub sequences: usize,
    /// One JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub requests: RequestsArgs,
    #[command(flatten)]
    pub speculation: SpecArgs,
    #[command(flatten)]
    pub open: OpenArgs,
}

impl Command for PlanArgs {
    const NAME: &'static str = "plan";

    fn run(&self, global: &Global) -> Result<()> {
        plan(global, self)
    }
}

/// A model with the memory that it needs.
pub struct Planned {
    /// The model, whose tables are read.
    pub model: OpenModel,
    /// With the flags.
    pub options: EngineOptions,
    /// What it needs.
    pub memory: MemoryPlan,
}

/// Plans a model; nothing is loaded.
pub fn plan_model(setup: &Setup, args: &PlanArgs) -> Result<Planned> {
    let path = args.model.as_deref().or(args.model_file.as_deref());
    let mut model = OpenModel::open(path, &model::table_options(&args.open))?;
    speculation::attach(&mut model, &args.speculation, &ModelArgs::default())?;
    let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
    let mut options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.placing())?;
    options.max_seqs = args.sequences;
    options.max_drafts = speculation::max_drafts(&args.speculation);
    args.requests.apply(&mut options, setup, &model)?;
    let mut memory = memory::memory_plan(&setup.devices, &model.files, &options)
        .map_err(|e| Error::from(e).of_model(&model.name))?;
    if let Some(draft) = &model.draft {
        memory.add(&speculation::draft_memory(setup, draft, &options)?);
    }
    // No more is swapped than there is.
    let kv = memory.kv_bytes_per_token.saturating_mul((options.n_blocks() * options.block_size()) as u64);
    options.swap_space = options.swap_space.min(kv);
    Ok(Planned { model, options, memory })
}

/// Computes and prints the plan.
fn plan(global: &Global, args: &PlanArgs) -> Result<()> {
    if args.sequences == 0 {
        return Err(Error::usage("--sequences 0: expected 1 or more"));
    }
    let setup = Setup::new(global)?;
    let Planned { mut model, options, memory: plan } = plan_model(&setup, args)?;
    let host = host_bytes(&mut model, &setup, &options)?.map(|host| host + options.swap_space);
    match args.json {
        true => print_json(&model, &options, &plan, host)?,
        false => print(&options, &plan, host)?,
    }
    if setup.strict {
        check_placement(&setup, &model, &options)?;
    }
    check_fits(&plan)
}

/// Bytes of the process besides those of devices: program, libraries and plugins, tables, tokenizer and graphs, all of
/// which are there now and are counted, and the buffers of a step. `None` where the system does not count them.
fn host_bytes(model: &mut OpenModel, setup: &Setup, options: &EngineOptions) -> Result<Option<u64>> {
    // A model without a tokenizer that works here is planned without one.
    let tokenizer = Tokenizer::from_metadata(model.metadata()).ok();
    model.drop_vocabulary();
    let plans = [1, options.n_batch].map(|n_batch| {
        PlacementPlan::new(&setup.devices, &model.files, &EngineOptions { n_batch, ..options.clone() })
    });
    let buffers = plans[1].as_ref().map_or(0, |plan| memory::step_buffers(&plan.model, options));
    let now = llmrt_host::heap::resident_bytes().map(|(now, _)| now);
    drop((tokenizer, plans));
    Ok(now.map(|now| now + buffers))
}

/// An error if any op of a decode step or of the largest step would fall back.
fn check_placement(setup: &Setup, model: &OpenModel, options: &EngineOptions) -> Result<()> {
    for n_batch in [1, options.n_batch] {
        let options = EngineOptions { n_batch, ..options.clone() };
        let placement = PlacementPlan::new(&setup.devices, &model.files, &options)
            .map_err(|e| Error::from(e).of_model(&model.name))?;
        limits::strict(&placement.resolved.report)?;
    }
    Ok(())
}

fn print_json(
    model: &OpenModel,
    options: &EngineOptions,
    plan: &MemoryPlan,
    host: Option<u64>,
) -> Result<()> {
    let devices: Vec<_> = plan
        .devices
        .iter()
        .map(|d| {
            json!({
                "device": d.device, "weights": d.weights, "kv": d.kv, "compute": d.compute,
                "staging": d.staging, "pinned": d.pinned, "total": d.total(), "free": d.free,
                "fits": d.missing() == 0,
            })
        })
        .collect();
    Ok(output::json(&json!({
        "model": model.name, "n_ctx": options.n_ctx, "n_batch": options.n_batch, "n_sequences": options.max_seqs,
        "kv_blocks": options.n_blocks(), "kv_block_size": options.block_size(),
        "kv_tokens": options.n_blocks() * options.block_size(), "swap_space": options.swap_space,
        "windows": plan.windows.iter().map(|(n, blocks)| json!({ "tokens": n, "blocks": blocks })).collect::<Vec<_>>(),
        "kv_type": options.k_type.name(), "kv_bytes_per_token": plan.kv_bytes_per_token,
        "state_bytes_per_sequence": plan.state_bytes_per_sequence,
        "fits": plan.devices.iter().all(|d| d.missing() == 0), "devices": devices,
        "host": host, "process": host.map(|host| in_process(plan, host)),
    }))?)
}

/// Bytes of the process: those of the host, of the CPU baseline, which is the last device, and staging.
fn in_process(plan: &MemoryPlan, host: u64) -> u64 {
    let staging = plan.devices.iter().fold(host, |sum, d| sum.saturating_add(d.staging));
    plan.devices.last().map_or(0, DevicePlan::total).saturating_add(staging)
}

fn print(options: &EngineOptions, plan: &MemoryPlan, host: Option<u64>) -> Result<()> {
    let mut rows: Vec<Vec<String>> = plan
        .devices
        .iter()
        .map(|d| {
            let free = d.free.map_or("(unknown)".into(), bytes);
            let cells = [d.weights, d.kv, d.compute, d.total()].map(bytes);
            [d.device.clone()].into_iter().chain(cells).chain([free, bytes(d.staging)]).collect()
        })
        .collect();
    if let Some(host) = host {
        let row = |name: &str, n: u64| {
            let blanks = std::iter::repeat_n(String::new(), 3);
            std::iter::once(name.to_string()).chain(blanks).chain([bytes(n)]).collect::<Vec<_>>()
        };
        rows.extend([row("host", host), row("process", in_process(plan, host))]);
    }
    output::table(
        &["device", ">weights", ">KV cache", ">compute", ">total", ">free", ">host staging"],
        &rows,
    )?;
    let kv = bytes(plan.kv_bytes_per_token);
    let (n_ctx, kv_type, n_batch) = (options.n_ctx, options.k_type, options.n_batch);
    let each = match options.max_seqs {
        1 => String::new(),
        n => format!(" for each of {n} sequences"),
    };
    let states = match plan.state_bytes_per_sequence {
        0 => String::new(),
        n => format!(", F32 states of {} per sequence", bytes(n)),
    };
    output::print(format_args!(
        "\ncontext {n_ctx} tokens{each}, {kv_type} KV cache of {kv} per token{states}, batch {n_batch}\n"
    ))?;
    if options.kv_blocks.is_some() || options.swap_space > 0 {
        let (n_blocks, swap) = (options.n_blocks(), options.swap_space);
        let n_tokens = n_blocks * options.block_size();
        let n_full = n_blocks / options.max_blocks();
        let of_token = swap.checked_div(plan.kv_bytes_per_token).unwrap_or(0);
        output::print(format_args!(
            "KV cache of {n_blocks} blocks, {n_tokens} tokens: {} at full length; swap space {} for {of_token} tokens\n",
            n_things(n_full, "sequence"),
            bytes(swap)
        ))?;
    }
    for (window, n_blocks) in &plan.windows {
        output::print(format_args!(
            "layers with a window of {window} tokens: {n_blocks} blocks, those before the window are freed\n"
        ))?;
    }
    let crowded =
        |d: &&DevicePlan| d.mappable > 0 && d.missing() == 0 && d.free.is_some_and(|free| d.total() > free);
    if let Some(d) = plan.devices.iter().find(crowded) {
        let (device, weights) = (&d.device, bytes(d.mappable));
        output::note(format_args!(
            "{device}: of {weights} of mapped weights a part will be read from disk at every step"
        ));
    }
    Ok(())
}

/// An error for the first device that has too little.
pub fn check_fits(plan: &MemoryPlan) -> Result<()> {
    match plan.devices.iter().find(|d| d.missing() > 0) {
        None => Ok(()),
        Some(d) => Err(Error::new(
            Exit::Memory,
            format!(
                "{}: needs {} more than is free; lower -c, take --kv-type q8_0 or a smaller model",
                d.device,
                bytes(d.missing())
            ),
        )),
    }
}
