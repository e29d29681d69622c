//! `llmrt serve`: models over HTTP, with the APIs of OpenAI, Ollama, Anthropic and llama-server.

mod args;
mod log;
mod models;

pub use args::Serve;

use crate::args::Global;
use crate::clock;
use crate::cmd::Command;
use crate::error::{Error, Exit, Result};
use crate::output;
use crate::setup::Setup;
use llmrt_host::knobs;
use llmrt_server::{Limits, Server, ServerOptions, TlsFiles};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

impl Command for Serve {
    const NAME: &'static str = "serve";

    /// The server drains at the first signal.
    const ENDS_AT_ONCE: bool = true;

    fn run(&self, global: &Global) -> Result<()> {
        serve(global, self)
    }
}

fn serve(global: &Global, args: &Serve) -> Result<()> {
    log::start(args.log_format, args.log_level, global.verbose);
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    let ready = |address: SocketAddr| {
        let _ = output::print(format_args!("listening on {scheme}://{address}\n"));
    };
    args.server(global)?.serve(ready).map_err(Error::from)
}

impl From<llmrt_server::Error> for Error {
    fn from(e: llmrt_server::Error) -> Error {
        let exit = match &e {
            llmrt_server::Error::Load(_) | llmrt_server::Error::Tls { .. } => Exit::File,
            llmrt_server::Error::Origin { .. } => Exit::Usage,
            _ => Exit::Failure,
        };
        Error::new(exit, e)
    }
}

impl Serve {
    /// The server, before it listens or loads.
    pub fn server(&self, global: &Global) -> Result<Server> {
        let options = options(self)?;
        let setup = Arc::new(Setup::new(global)?);
        let server = Server::new(options, models::sources(self, &setup)?);
        let Some(store) = models::store(self, &setup) else { return Ok(server) };
        let is_empty = store.store.list().is_ok_and(|(models, _)| models.is_empty());
        let has_named = !self.models.is_empty() || !self.model_files.is_empty();
        Ok(server.with_store(store, has_named || is_empty))
    }
}

fn options(args: &Serve) -> Result<ServerOptions> {
    if args.parallel == 0 {
        return Err(Error::usage("--parallel 0: expected 1 or more requests"));
    }
    if args.max_connections == 0 {
        return Err(Error::usage("--max-connections 0: expected 1 or more connections"));
    }
    let tls = args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key });
    let seconds = |n: usize| Duration::from_secs(n as u64);
    Ok(ServerOptions {
        tls,
        limits: Limits { max_connections: args.max_connections, ..Limits::default() },
        api_keys: api_keys(args)?,
        cors: args.cors.clone(),
        max_body: args.max_body as usize,
        parallel: args.parallel,
        max_queue: args.max_queue,
        max_loaded_models: args.max_loaded_models,
        keep_alive: args.keep_alive.0,
        request_timeout: (args.request_timeout > 0).then(|| seconds(args.request_timeout)),
        grace: seconds(args.grace),
        utc: clock::written,
        ..ServerOptions::at(address(&args.host, args.port)?)
    })
}

fn address(host: &str, port: u16) -> Result<SocketAddr> {
    let found = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| {
        Error::usage(format!("--host {host}: expected an address or a name that resolves, such as 127.0.0.1"))
    })
}

/// `--api-key`, or `LLMRT_API_KEY`, which other users of the machine do not see.
fn api_keys(args: &Serve) -> Result<Vec<String>> {
    let set = knobs::API_KEY.text().filter(|_| args.api_key.is_empty());
    let set =
        set.map(|key| key.into_string().map_err(|_| Error::usage("LLMRT_API_KEY: expected UTF-8 text")));
    let keys: Vec<String> = args.api_key.iter().cloned().map(Ok).chain(set).collect::<Result<_>>()?;
    match keys.iter().any(String::is_empty) {
        true => Err(Error::usage("--api-key: the key is empty: give one, or leave the flag out")),
        false => Ok(keys),
    }
}
