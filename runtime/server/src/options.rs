//! What a server is started with.

use std::net::SocketAddr;
use std::time::Duration;

/// Address, limits and keys.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where it listens; port 0 is a free one.
    pub address: SocketAddr,
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
