//! The routes of `llmrt serve` without a socket, and requests to them.

use crate::engine::stats_dict;
use crate::error::Failure;
use crate::fork::{OpenModel, Owned};
use crate::interrupt;
use crate::mailbox::Mailbox;
use llmrt::engine::{AsyncEngine, BlockHash};
use llmrt_server::{Local, News, Part};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ffi::OsString;

/// Models and their routes.
#[pyclass(frozen, module = "llmrt._llmrt")]
pub struct Server {
    open: Owned<(Local, OpenModel)>,
}

impl Server {
    fn engine(&self) -> Result<AsyncEngine, Failure> {
        self.open.with(|(local, _)| local.engine().ok_or(Failure::Closed))
    }
}

#[pymethods]
impl Server {
    /// Loads the first model that the arguments of `llmrt serve` name.
    #[new]
    fn new(py: Python<'_>, words: Vec<OsString>) -> PyResult<Server> {
        let count = OpenModel::new()?;
        let open = move || llmrt_cli::server(words)?.local().map_err(llmrt_cli::Error::from);
        let open = move |_| open().map(|local| (local, count)).map_err(Failure::of_command);
        Ok(Server { open: Owned::new(interrupt::on_thread(py, open)??) })
    }

    /// Checks the arguments of `llmrt serve`, and that files are there; nothing is loaded.
    #[staticmethod]
    fn check(py: Python<'_>, words: Vec<OsString>) -> PyResult<()> {
        py.detach(|| llmrt_cli::server(words)).map_err(Failure::of_command)?;
        Ok(())
    }

    /// Hands a request over; its news go to an event loop's mailbox.
    fn send(
        &self,
        method: &str,
        path: &str,
        headers: Vec<(Vec<u8>, Vec<u8>)>,
        body: Vec<u8>,
        mailbox: &Mailbox,
        key: u64,
    ) -> PyResult<Exchange> {
        let post = mailbox.post();
        let on_news = move || post.notify(key);
        let sent = self.open.with(|(local, _)| {
            let sent = local.send((method, path), &headers, body, on_news);
            sent.map_err(|e| Failure::of_command(e.into()))
        });
        Ok(Exchange(Owned::new(sent?)))
    }

    /// Names of the blocks that the first model's prefix cache has, shortened to 64 bits.
    fn block_hashes(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let engine = self.engine()?;
        let names = py.detach(|| engine.cached_blocks()).map_err(Failure::from)?;
        Ok(names.into_iter().map(BlockHash::short).collect())
    }

    /// Queues, KV cache and counters of the first model after its last step.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats_dict(py, &self.engine()?.stats())
    }

    /// Ends all requests, and frees the models. Returns when that is done.
    fn close(&self, py: Python<'_>) {
        let open = self.open.take();
        py.detach(|| drop(open));
    }

    #[getter]
    fn is_open(&self) -> bool {
        self.open.is_open()
    }
}

/// A request that is answered. To drop it ends the request.
#[pyclass(frozen, module = "llmrt._llmrt")]
pub struct Exchange(Owned<llmrt_server::Exchange>);

/// Name and value.
type Header<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// What Python takes of an answer.
#[derive(IntoPyObject)]
pub enum Taken<'py> {
    /// Status and headers.
    Head((u16, Vec<Header<'py>>)),
    /// Bytes of the body.
    Body(Bound<'py, PyBytes>),
    /// `True` at the end.
    End(bool),
}

#[pymethods]
impl Exchange {
    /// `(status, headers)`, then bytes of the body, then `True`; `None`: nothing yet. An error where the server was closed.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Taken<'py>>> {
        let news = self.0.with(|exchange| Ok(exchange.take()))?;
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok(match news {
            News::Pending => None,
            News::Gone => return Err(Failure::Closed.into()),
            News::Part(Part::End) => Some(Taken::End(true)),
            News::Part(Part::Body(body)) => Some(Taken::Body(bytes(&body))),
            News::Part(Part::Head(status, headers)) => {
                let headers = headers.iter().map(|(name, value)| (bytes(name.as_bytes()), bytes(value)));
                Some(Taken::Head((status, headers.collect())))
            }
        })
    }

    /// Ends the request.
    fn close(&self) {
        drop(self.0.take());
    }
}
