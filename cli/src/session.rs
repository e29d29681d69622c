//! A loaded model on its devices.

use crate::args::ModelArgs;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::model::{self, OpenModel};
use crate::output::{bytes, n_things, note};
use crate::progress::LoadBar;
use crate::setup::Setup;
use crate::speculation::DraftFile;
use llmrt_engine::core::{KvUse, Runner};
use llmrt_engine::runner::ProgramStats;
use llmrt_engine::work::{DividedWork, NeededWork};
use llmrt_engine::{DeviceRunner, EngineCore, EngineEvent, EngineOptions};
use llmrt_host::load::LoadOptions;
use llmrt_host::{PoolStats, knobs};
use llmrt_models::{Model, SparseMode};
use llmrt_sparse::stats::RECALL_KEY;
use llmrt_tokenizer::Tokenizer;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests on the devices of a model.
pub type Core = EngineCore<DeviceRunner>;

/// One step, and its warnings on stderr.
pub fn step(core: &mut Core) -> Result<Vec<EngineEvent>> {
    let events = core.step();
    note_warnings(core.runner_mut().take_warnings());
    Ok(events?)
}

/// Warnings of a runner.
pub fn note_warnings(warnings: Vec<String>) {
    warnings.iter().for_each(|warning| note(format_args!("warning: {warning}")));
}

/// What a device's pool of scratch memory holds, in a line.
fn pool_line(device: &str, s: &PoolStats) -> String {
    let reserved = match s.reserved {
        0 => String::new(),
        n => format!(" of {} reserved", bytes(n)),
    };
    format!(
        "scratch memory of {device}: {}, {} mapped{reserved}, {} in use, {} cached, at most {} in use; it grew {} times, \
         gave back {} times",
        s.kind,
        bytes(s.mapped),
        bytes(s.in_use),
        bytes(s.cached),
        bytes(s.peak),
        s.grows,
        s.evictions
    )
}

/// What a decoded token needed of the weights, in a line; none if it was not counted.
fn needed_line(needed: &NeededWork, mode: &str) -> Option<String> {
    let [n_picked, n_neurons] = needed.neurons;
    let per_token = |n: u64| bytes(n / needed.n_tokens.max(1));
    let share = |[part, all]: [u64; 2]| 100.0 * part as f64 / all.max(1) as f64;
    let neurons = match n_neurons {
        0 => String::new(),
        _ => format!("{:.1} % of {} neurons, ", share([n_picked, n_neurons]), n_neurons / needed.n_tokens),
    };
    (needed.n_tokens > 0).then(|| {
        format!(
            "a decoded token took {neurons}{} of {} of the matrices ({:.1} %), over {}, with --sparse {mode}",
            per_token(needed.bytes[0]),
            per_token(needed.bytes[1]),
            share(needed.bytes),
            n_things(needed.n_tokens as usize, "token")
        )
    })
}

/// What became of neurons that change places, in a line; none if they do not.
fn divided_line(divided: &DividedWork) -> Option<String> {
    let [on_devices, all] = divided.active;
    (divided.n_tokens > 0).then(|| {
        format!(
            "devices had {:.1} % of the active neurons, over {}; they got {}, for which {} of weights were written",
            100.0 * on_devices as f64 / all.max(1) as f64,
            n_things(divided.n_tokens as usize, "token"),
            n_things(divided.n_moved as usize, "neuron"),
            bytes(divided.moved_bytes)
        )
    })
}

/// A model that computes.
pub struct Session {
    /// Its requests.
    pub core: Core,
    /// How long loading took.
    pub load: Duration,
    /// What the predictors in the file find at its threshold, where they pick neurons.
    recall: Option<f32>,
    /// What guesses next tokens, until [`Session::speculating`] loads it.
    pub draft: Option<DraftFile>,
}

impl Session {
    /// Loads a model onto the devices of `setup`. Without a tokenizer its requests have tokens and no text.
    pub fn load(
        setup: &Setup,
        mut model: OpenModel,
        args: &ModelArgs,
        options: EngineOptions,
        tokenizer: Option<Arc<Tokenizer>>,
    ) -> Result<Session> {
        let started = Instant::now();
        model.drop_vocabulary();
        let draft = model.draft.take();
        let picks = matches!(options.sparse.mode, SparseMode::Auto | SparseMode::Predict);
        let is_at_threshold =
            options.sparse.threshold.is_none() && knobs::settings()?.sparse_threshold.is_none();
        let recall = model.metadata().f32(RECALL_KEY).filter(|_| picks && is_at_threshold);
        let bar = LoadBar::new();
        let cache = model::seal_cache(args);
        let load = LoadOptions {
            mode: model::load_mode(args),
            check_tensors: args.check_tensors,
            seal_cache: cache.as_ref(),
            progress: Some(&mut |part| bar.show(part)),
        };
        let mut runner = DeviceRunner::new(&setup.host, setup.devices.clone(), model.files, load, options)
            .map_err(|e| Error::from(e).of_model(&model.name))?;
        drop(bar);
        if interrupt::is_requested() {
            return Err(Error::interrupted());
        }
        runner.set_cancel_token(interrupt::token());
        let load = started.elapsed();
        note_warnings(runner.take_warnings());
        Ok(Session { core: runner.into_core(tokenizer)?, load, recall, draft })
    }

    /// The same, if the model generates text.
    pub fn for_text(self) -> Result<Session> {
        self.core.check_generates()?;
        Ok(self)
    }

    /// The blocks of the KV cache, as `plan` has them, and how far they were used.
    fn kv_line(&self) -> String {
        let pool = self.core.scheduler().pool();
        let KvUse { max_blocks, n_preemptions } = self.core.kv_use();
        let n_tokens = pool.n_blocks() * pool.block_size();
        format!(
            "KV cache of {} blocks, {n_tokens} tokens: at most {max_blocks} in use, {}",
            pool.n_blocks(),
            n_things(n_preemptions, "preemption")
        )
    }

    /// The model.
    pub fn model(&self) -> &Model {
        self.core.runner().model()
    }

    /// Notes where the last step ran: all of it, the scratch memory it took and what was read back with `-v`, else one line
    /// if work fell back.
    pub fn report_placement(&self, verbose: u8) {
        let runner = self.core.runner();
        if verbose > 0 {
            runner.pool_stats().iter().for_each(|(device, stats)| note(pool_line(device, stats)));
            let ProgramStats { n_prepared, prepare_time, n_misses } = runner.program_stats();
            let time = prepare_time.as_secs_f64() * 1e3;
            note(format_args!(
                "step programs: {n_prepared} made before the first step in {time:.1} ms, {n_misses} for steps of other shapes"
            ));
            note(self.kv_line());
            let mode = runner.model().sparse_mode().map_or("auto", SparseMode::name);
            needed_line(&runner.work().needed, mode).iter().for_each(note);
            if let Some(recall) = self.recall {
                let percent = 100.0 * recall;
                note(format_args!(
                    "neurons that predictors picked had {percent:.2} % of all values, when that was measured"
                ));
            }
            divided_line(&runner.work().divided).iter().for_each(note);
            note(format_args!("logits read back in the last step: {}", bytes(runner.n_bytes_read())));
            if let Some((now, peak)) = llmrt_host::heap::resident_bytes() {
                note(format_args!("memory of this process: {}, at most {}", bytes(now), bytes(peak)));
            }
        }
        let Some(report) = runner.report() else { return };
        match (verbose, report.n_fallbacks()) {
            (0, 0) => {}
            (0, n) => note(format_args!(
                "{n} of {} ops ran elsewhere than on {}: -v shows which and why",
                report.nodes.iter().sum::<usize>(),
                report.devices.first().map_or("the first device", String::as_str)
            )),
            _ => note(report.to_string().trim_end()),
        }
    }
}
