//! What a server is started with.

use crate::tls::TlsFiles;
use std::net::SocketAddr;
use std::time::Duration;

/// Address, limits and keys.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where it listens; port 0 is a free one.
    pub address: SocketAddr,
    /// Certificate and key; `None`: connections without TLS.
    pub tls: Option<TlsFiles>,
    /// What connections may take.
    pub limits: Limits,
    /// What clients must send as `Authorization: Bearer KEY`; empty: nothing.
    pub api_keys: Vec<String>,
    /// Origins whose pages may call the server; `*`: all.
    pub cors: Vec<String>,
    /// Most bytes of a request.
    pub max_body: usize,
    /// Requests of a model that run at a time.
    pub parallel: usize,
    /// Most requests of a model that wait while others run; more are answered with 503.
    pub max_queue: usize,
    /// Most models that are loaded at a time.
    pub max_loaded_models: usize,
    /// How long a model without requests stays loaded; `None`: until another one needs its place.
    pub keep_alive: Option<Duration>,
    /// Most time of a request, waiting included; `None`: no limit.
    pub request_timeout: Option<Duration>,
    /// How long running requests may go on after a signal.
    pub grace: Duration,
    /// Seconds since 1970 as `YYYY-MM-DDTHH:MM:SS`, UTC.
    pub utc: fn(u64) -> String,
}

impl ServerOptions {
    /// At an address, with the limits of `llmrt serve`, and times as seconds since 1970.
    pub fn at(address: SocketAddr) -> ServerOptions {
        ServerOptions {
            address,
            tls: None,
            limits: Limits::default(),
            api_keys: Vec::new(),
            cors: Vec::new(),
            max_body: 16 << 20,
            parallel: 8,
            max_queue: 512,
            max_loaded_models: 3,
            keep_alive: None,
            request_timeout: None,
            grace: Duration::from_secs(30),
            utc: |seconds| seconds.to_string(),
        }
    }
}

/// What connections may take, in number and in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most connections that are open at a time; others wait until one ends.
    pub max_connections: usize,
    /// Most time of a TLS handshake, of the head of a request, and between two requests; then the connection is closed.
    pub head_timeout: Duration,
    /// Most time between two parts of a body, and beyond what it takes at the least rate; then the request is answered with
    /// 408 and the connection is closed.
    pub body_timeout: Duration,
    /// Most time in which a client takes no byte of its answer; then the connection is closed.
    pub write_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_connections: 1024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
        }
    }
}
