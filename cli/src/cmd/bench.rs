//! `llmrt bench`: prompt and decode speed on random tokens, and the roofline of the machine.

mod args;
mod cases;
mod ceilings;
mod speeds;
mod work;

pub use args::{Bench, CeilingsArg};

use crate::args::Global;
use crate::cmd::Command;
use crate::context::{self, Defaults};
use crate::error::{Error, Result};
use crate::model::{self, OpenModel};
use crate::output::{self, bytes, count};
use crate::session::Session;
use crate::setup::Setup;
use cases::Cases;
use ceilings::Ceilings;
use llmrt_abi::DType;
use serde_json::json;
use speeds::Speeds;
use work::Work;

impl Command for Bench {
    const NAME: &'static str = "bench";

    fn run(&self, global: &Global) -> Result<()> {
        bench(global, self)
    }
}

/// Measures and prints a table or JSON.
fn bench(global: &Global, args: &Bench) -> Result<()> {
    check_flags(args)?;
    let ceilings = args.ceilings.map(|which| Ceilings::measure(global, which)).transpose()?;
    if args.n_prompt == 0 && args.n_gen == 0 {
        return Ok(output::json(&json!({ "ceilings": ceilings.map(|c| c.json()) }))?);
    }
    let model = OpenModel::open(
        args.model.as_deref().or(args.model_file.as_deref()),
        &model::open_options(&args.loading),
    )?;
    let (name, work) = (model_name(&model), Work::of(&model));
    let setup = Setup::new(global)?;
    let n_needed = Cases::n_needed(args.n_depth, args.n_prompt, args.n_gen);
    let defaults = Defaults { n_ctx: Some(n_needed), kv_type: DType::F16 };
    let mut options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.placing())?;
    if options.n_ctx < n_needed {
        let n_ctx = options.n_ctx;
        return Err(Error::usage(format!(
            "--ctx {n_ctx}: the test needs {n_needed} tokens; raise it, or lower -p, -n and -d"
        )));
    }
    options.max_seqs = args.sequences;
    options.n_batch = options.n_batch.max(args.sequences);
    args.requests.apply(&mut options, &setup, &model)?;
    let kv_type = options.k_type;
    let mut session = Session::load(&setup, model, &args.loading, options, None)?;

    let mut cases = Cases::new(&mut session.core, args.n_depth, args.top_k);
    if !args.no_warmup {
        cases.prompt(args.n_prompt)?;
        cases.decode(args.n_gen.min(8), args.sequences)?;
    }
    let (mut prompt, mut decode) = (Speeds::default(), Speeds::default());
    for _ in 0..args.repetitions {
        prompt.push(args.n_prompt, cases.prompt(args.n_prompt)?);
        decode.push(args.n_gen * args.sequences, cases.decode(args.n_gen, args.sequences)?);
    }
    session.report_placement(setup.verbose);

    let devices = setup.device_names();
    let n_threads = setup.host.threads().n_threads();
    if args.json {
        let spec = session.model().spec();
        let result = json!({
            "model": name, "model_bytes": work.n_bytes, "n_params": work.n_params,
            "read_bytes_per_step": work.n_read, "mul_adds_per_token": work.n_mul_adds,
            "kv_bytes_per_token": spec.bytes_per_token(kv_type, kv_type),
            "devices": devices, "threads": n_threads,
            "kv_type": kv_type.name(), "load_s": session.load.as_secs_f64(),
            "n_prompt": args.n_prompt, "n_gen": args.n_gen, "repetitions": args.repetitions,
            "n_depth": args.n_depth, "sequences": args.sequences,
            "prompt_tok_s": prompt.mean(), "prompt_tok_s_sd": prompt.sd(),
            "decode_tok_s": decode.mean(), "decode_tok_s_sd": decode.sd(),
            "logits_bytes": session.core.runner().n_bytes_read(),
            "ceilings": ceilings.map(|c| c.json()),
        });
        return Ok(output::json(&result)?);
    }
    if let Some(ceilings) = ceilings {
        ceilings.note(n_threads);
    }
    let depth = if args.n_depth > 0 { format!(" at depth {}", args.n_depth) } else { String::new() };
    let together = if args.sequences > 1 { format!(" × {}", args.sequences) } else { String::new() };
    let row = |test: String, speeds: &Speeds| {
        let cells = [name.clone(), bytes(work.n_bytes), count(work.n_params), devices.join(",")];
        cells.into_iter().chain([n_threads.to_string(), test, speeds.shown()]).collect()
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    if args.n_prompt > 0 {
        rows.push(row(format!("prompt {}{depth}", args.n_prompt), &prompt));
    }
    if args.n_gen > 0 {
        rows.push(row(format!("decode {}{together}{depth}", args.n_gen), &decode));
    }
    Ok(output::table(&["model", ">size", ">params", "devices", ">threads", "test", ">tok/s"], &rows)?)
}

fn check_flags(args: &Bench) -> Result<()> {
    const MAX_TOKENS: usize = 1 << 24;
    const MAX_SEQUENCES: usize = 1024;
    if args.n_prompt == 0 && args.n_gen == 0 && args.ceilings.is_none() {
        return Err(Error::usage("-p 0 -n 0: there is nothing to measure; expected one of them above 0"));
    }
    if args.repetitions == 0 {
        return Err(Error::usage("-r 0: expected 1 or more repetitions"));
    }
    if args.n_prompt > MAX_TOKENS || args.n_gen > MAX_TOKENS || args.n_depth > MAX_TOKENS {
        return Err(Error::usage(format!(
            "-p {} -n {} -d {}: expected at most {MAX_TOKENS} tokens",
            args.n_prompt, args.n_gen, args.n_depth
        )));
    }
    if !(1..=MAX_SEQUENCES).contains(&args.sequences) {
        return Err(Error::usage(format!("--sequences {}: expected 1 to {MAX_SEQUENCES}", args.sequences)));
    }
    Ok(())
}

/// `general.name` of the file, else its path.
fn model_name(model: &OpenModel) -> String {
    model.metadata().str("general.name").map_or_else(|| model.name.clone(), String::from)
}
