//! A model on its devices, and its requests.

use crate::error::Failure;
use crate::fork::{OpenModel, Owned};
use crate::interrupt::{self, Cancelled, INTERVAL};
use crate::mailbox::Mailbox;
use crate::progress::{Progress, Taking};
use crate::request::Task;
use crate::settings::Settings;
use crate::stream::{Running, Stream, Waker};
use crate::tokenizer::Tokenizer;
use llmrt::engine::EngineStats;
use llmrt::{EngineEvent, Llm, Options};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long an interrupted call waits until its requests have given their blocks back.
const ABORT_TIME: Duration = Duration::from_millis(500);

/// A loaded model.
#[pyclass(frozen, module = "llmrt._llmrt")]
pub struct Engine {
    open: Owned<Open>,
    tokenizer: Py<Tokenizer>,
    warnings: Vec<String>,
    devices: Vec<String>,
    n_ctx: usize,
}

/// What a closed engine has no more.
struct Open {
    llm: Llm,
    /// Requests that may still run.
    running: Vec<Weak<Running>>,
    count: OpenModel,
}

impl Open {
    /// Queues a request.
    fn submit(&mut self, task: Task, prompt: Vec<u32>, waker: Waker) -> Result<Arc<Running>, Failure> {
        let request = task.request(&self.llm, prompt);
        let running = Running::new(Progress::new(&request), waker);
        let sink = running.clone();
        let guard = self
            .llm
            .engine()
            .generate_with(request, Box::new(move |event: EngineEvent| sink.on_event(event)))
            .map_err(llmrt::Error::from)?;
        running.queued(guard);
        self.running.retain(|other| other.strong_count() > 0);
        self.running.push(Arc::downgrade(&running));
        Ok(running)
    }
}

#[pymethods]
impl Engine {
    /// Loads a model: a GGUF file, a model of the user's store, or the story model that is part of this library.
    #[new]
    fn new(py: Python<'_>, model: Option<PathBuf>, settings: Settings) -> PyResult<Engine> {
        let options = settings.options()?;
        let count = OpenModel::new()?;
        let (llm, count) = interrupt::on_thread(py, move |is_cancelled| {
            open(model, options, is_cancelled).map(|llm| (llm, count))
        })??;
        let n_ctx = llm.n_ctx();
        let template = llm.chat_template().ok().cloned();
        Ok(Engine {
            tokenizer: Py::new(py, Tokenizer::new(llm.tokenizer().clone(), template, n_ctx))?,
            warnings: llm.warnings().to_vec(),
            devices: llm.devices().to_vec(),
            n_ctx,
            open: Owned::new(Open { llm, running: Vec::new(), count }),
        })
    }

    /// Runs requests to their ends; `on_end` is called after each. At Ctrl-C, and at the first error, all are aborted.
    fn run(
        &self,
        py: Python<'_>,
        requests: Vec<(Task, Vec<u32>)>,
        on_end: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Option<Py<PyTuple>>>> {
        let (sender, mut ended) = channel();
        let queued = self.open.with(|open| {
            let wait = |i| Waker::AtEnd(sender.clone(), i);
            let queue = |(i, (task, prompt))| open.submit(task, prompt, wait(i));
            requests.into_iter().enumerate().map(queue).collect::<Result<Vec<_>, _>>()
        })?;
        let mut results: Vec<_> = queued.iter().map(|_| None).collect();
        let mut n_open = queued.len();
        while n_open > 0 {
            let received;
            (received, ended) = py.detach(move || (ended.recv_timeout(INTERVAL), ended));
            let outcome = match received {
                Ok(i) => {
                    n_open -= 1;
                    let taken = queued[i].take(py, Taking::All);
                    taken.map(|result| results[i] = result).and_then(|()| match &on_end {
                        Some(on_end) => on_end.call1((i,)).map(drop),
                        None => Ok(()),
                    })
                }
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => Err(Failure::Closed.into()),
            };
            if let Err(e) = outcome.and_then(|()| py.check_signals()) {
                queued.iter().for_each(|running| running.abort());
                py.detach(move || wait_for(n_open, &ended));
                return Err(e);
            }
        }
        Ok(results)
    }

    /// Queues a request whose news go to an event loop's mailbox.
    fn submit(
        &self,
        task: Task,
        prompt: Vec<u32>,
        mailbox: &Mailbox,
        key: u64,
        only_end: bool,
    ) -> PyResult<Stream> {
        let waker = Waker::Loop { post: mailbox.post(), key, only_end };
        Ok(Stream(self.open.with(|open| open.submit(task, prompt, waker))?))
    }

    /// Ends all requests, and frees the model. Returns when that is done; of a closed engine, at once.
    fn close(&self, py: Python<'_>) {
        if let Some(Open { llm, running, count }) = self.open.take() {
            py.detach(move || {
                running.iter().filter_map(Weak::upgrade).for_each(|running| running.fail(Failure::Closed));
                llm.engine().drain();
                drop(llm);
                drop(count);
            });
        }
    }

    /// Queues, KV cache and counters after the last step.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.open.with(|open| Ok(open.llm.engine().stats()))?;
        stats_dict(py, &stats)
    }

    #[getter]
    fn is_open(&self) -> bool {
        self.open.is_open()
    }

    #[getter]
    fn tokenizer(&self, py: Python<'_>) -> Py<Tokenizer> {
        self.tokenizer.clone_ref(py)
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    #[getter]
    fn devices(&self) -> Vec<String> {
        self.devices.clone()
    }

    #[getter]
    fn n_ctx(&self) -> usize {
        self.n_ctx
    }
}

/// Counters by name.
pub fn stats_dict<'py>(py: Python<'py>, stats: &EngineStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in [
        ("n_waiting", stats.n_waiting as u64),
        ("n_running", stats.n_running as u64),
        ("n_swapped", stats.n_swapped as u64),
        ("block_size", stats.block_size as u64),
        ("n_blocks", stats.n_blocks as u64),
        ("n_blocks_used", stats.n_blocks_used as u64),
        ("n_preemptions", stats.n_preemptions),
        ("n_draft_tokens", stats.drafts.n_draft_tokens),
        ("n_accepted_draft_tokens", stats.drafts.n_accepted_tokens),
        ("n_prompt_tokens", stats.n_prompt_tokens),
        ("n_cached_tokens", stats.n_cached_tokens),
        ("n_generated_tokens", stats.n_generated_tokens),
        ("n_stopped", stats.n_stopped),
        ("n_at_length", stats.n_at_length),
        ("n_aborted", stats.n_aborted),
        ("n_failed", stats.n_failed),
    ] {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// Loads, until it is cancelled.
fn open(model: Option<PathBuf>, options: Options, is_cancelled: Cancelled) -> Result<Llm, Failure> {
    let options = Options { progress: Some(Box::new(move |_| !is_cancelled.load(Relaxed))), ..options };
    Ok(match model {
        Some(path) => Llm::open_with(llmrt_cli::stored_file(&path).unwrap_or(path), options)?,
        None => Llm::from_bytes("(embedded model)", llmrt_cli::EMBEDDED, options)?,
    })
}

/// Waits until so many requests have ended, or for [`ABORT_TIME`].
fn wait_for(n_open: usize, ended: &Receiver<usize>) {
    let deadline = Instant::now() + ABORT_TIME;
    for _ in 0..n_open {
        if ended.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_err() {
            return;
        }
    }
}
