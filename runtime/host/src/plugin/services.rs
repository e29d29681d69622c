//! A host's services to its plugins, and its state per plugin. Plugins call them through [`super::callbacks`].

use super::callbacks;
use super::custom::{CustomOp, Registered};
use super::loaded::Loaded;
use crate::cancel::{CancelToken, Runs};
use crate::knobs;
use crate::pool::PoolKind;
use crate::threads::ThreadPool;
use core::ffi::c_void;
use llmrt_abi::types as c;
use llmrt_gguf::{printable, printable_lines};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Where plugins' log lines go: level (1 error … 5 trace), plugin's target, text.
pub type LogSink = Arc<dyn Fn(u32, &str, &str) + Send + Sync>;

/// Host features a plugin may need, as `abi::types::NEEDS_*` bits.
pub(crate) const OFFERED: u64 = c::NEEDS_THREADS;

/// What one host offers its plugins.
pub(crate) struct Services {
    pub(crate) api: c::HostApi,
    pub(super) threads_api: c::HostThreads,
    pub(crate) pool: Arc<ThreadPool>,
    options: BTreeMap<String, String>,
    /// Options that plugins read, set or not.
    options_read: Mutex<BTreeSet<String>>,
    /// How long one call of a device may take to compute or to wait.
    pub(crate) watchdog: Option<Duration>,
    pub(super) log: LogSink,
    /// How scratch memory of devices is managed; `None`: the knob.
    pub(crate) scratch_pool: Option<PoolKind>,
    /// Whether calls in both directions are checked.
    pub(crate) validate: bool,
    /// The runs that can be cancelled.
    pub(crate) runs: Runs,
    ops: Mutex<Vec<Arc<Registered>>>,
}

// SAFETY: the raw pointers are `ctx`, the address of this struct, and everything it points to is `Sync`.
unsafe impl Send for Services {}
// SAFETY: as above.
unsafe impl Sync for Services {}

impl Services {
    /// Services at an address of their own, which is the `ctx` of their tables.
    pub(crate) fn new(
        pool: Arc<ThreadPool>,
        options: BTreeMap<String, String>,
        log: Option<LogSink>,
        validate: bool,
        watchdog: Option<Duration>,
        scratch_pool: Option<PoolKind>,
    ) -> Arc<Services> {
        Arc::new_cyclic(|this: &std::sync::Weak<Services>| {
            let ctx = this.as_ptr().cast_mut().cast::<c_void>();
            Services {
                api: callbacks::host_api(ctx),
                threads_api: callbacks::threads_api(ctx),
                pool,
                options,
                options_read: Mutex::default(),
                watchdog,
                log: log.unwrap_or_else(stderr_log),
                scratch_pool,
                validate,
                runs: Runs::default(),
                ops: Mutex::default(),
            }
        })
    }

    /// The value of a plugin's option: set by the program, by the knob for all of them, or by its own variable.
    pub(super) fn option(&self, key: &str) -> Option<String> {
        self.options.get(key).cloned().or_else(|| knobs::plugin_option(key))
    }

    /// Where an option is set, and its value: `LLMRT_CPU_ISA=avx2`.
    pub(crate) fn option_as_set(&self, key: &str) -> Option<String> {
        let value = self.option(key)?;
        match self.options.contains_key(key) {
            true => Some(format!("plugin option {key}={value}")),
            false => Some(format!("{}={value}", knobs::variable(key)?)),
        }
    }

    /// The same, and noted as an option that is read.
    pub(crate) fn read_option(&self, key: &str) -> Option<String> {
        let mut read = self.options_read.lock();
        if !read.contains(key) {
            read.insert(key.to_string());
        }
        drop(read);
        self.option(key)
    }

    /// Options that were set for all plugins.
    pub(crate) fn options_set(&self) -> impl Iterator<Item = &String> {
        self.options.keys()
    }

    /// Marks a run as cancelled, or clears the mark.
    pub(crate) fn set_cancelled(&self, run_id: u64, yes: bool) {
        if !yes {
            return self.runs.forget(run_id);
        }
        let token = CancelToken::new();
        token.cancel();
        self.runs.watch(run_id, &token);
    }

    /// A custom op of a plugin that this host started.
    pub(crate) fn find_op(&self, name: &str, version: u32) -> Option<CustomOp> {
        self.ops().iter().find(|op| (op.name.as_str(), op.version) == (name, version)).cloned().map(CustomOp)
    }

    /// All of them.
    pub(crate) fn custom_ops(&self) -> Vec<CustomOp> {
        self.ops().iter().cloned().map(CustomOp).collect()
    }

    /// What was registered since there were `n_before` ops belongs to this plugin, or goes if its `init` failed.
    pub(crate) fn settle_ops(&self, n_before: usize, plugin: Option<&Arc<Loaded>>) {
        let mut ops = self.ops();
        match plugin {
            Some(plugin) => ops[n_before..].iter().for_each(|op| op.belongs_to(plugin)),
            None => ops.truncate(n_before),
        }
    }

    pub(super) fn ops(&self) -> MutexGuard<'_, Vec<Arc<Registered>>> {
        self.ops.lock()
    }

    /// Options that plugins read.
    pub(crate) fn options_read(&self) -> Vec<String> {
        self.options_read.lock().iter().cloned().collect()
    }

    /// A plugin broke a rule in a call of the host: logged if calls are checked.
    pub(super) fn misuse(&self, call: &str, text: impl std::fmt::Display) {
        if self.validate {
            self.log_line(1, &format!("LLMRT_VALIDATE: a plugin: {call}: {text}"));
        }
    }

    /// A line of the host's own.
    pub(crate) fn log_line(&self, level: u32, text: &str) {
        (self.log)(level, "host", text);
    }
}

/// Lines up to the knob's level go to standard error.
fn stderr_log() -> LogSink {
    let level = knobs::settings().map_or(2, |settings| settings.log);
    Arc::new(move |l, target, text| {
        if l <= level {
            let word = ["error", "error", "warn", "info", "debug", "trace"][l.min(5) as usize];
            // When stderr is gone there is no other place for the line.
            let (target, text) = (printable(target), printable_lines(text));
            let _ = writeln!(std::io::stderr(), "{word}: {target}: {text}");
        }
    })
}
