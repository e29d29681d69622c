//! The flags of `serve`.

use crate::args::{ContextArgs, ModelArgs, RequestsArgs, SpecArgs, TemplateArgs};
use crate::values;
use clap::{Args, ValueEnum};
use llmrt_server::{KeepAlive, parse_keep_alive};
use std::ffi::OsString;
use std::path::PathBuf;

/// Serve models over HTTP: the APIs of OpenAI, Ollama, Anthropic and llama-server.
///
/// Models are loaded when they are first used, the first one at once. With no model the embedded story teller is served.
#[derive(Args, Debug)]
#[command(after_long_help = SERVE_HELP)]
pub struct Serve {
    /// Model files, each with the name that clients use: NAME=FILE, or FILE, whose name is that of the file without its
    /// extension; or models of the store [default: the embedded model, `stories`].
    #[arg(value_name = "[NAME=]FILE")]
    pub models: Vec<OsString>,
    /// Model file (repeatable): the same as without -m.
    #[arg(short = 'm', long = "model", value_name = "[NAME=]FILE")]
    pub model_files: Vec<OsString>,
    #[command(flatten)]
    pub template: TemplateArgs,
    /// Address to listen on; 0.0.0.0: all of this machine.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", help_heading = "Server")]
    pub host: String,
    /// Port to listen on; 0: a free one, which the first line on stdout has.
    #[arg(long, value_name = "N", default_value_t = 8080, help_heading = "Server")]
    pub port: u16,
    /// Key that clients must send (repeatable) [default: the value of LLMRT_API_KEY, else none is needed].
    #[arg(long, value_name = "KEY", help_heading = "Server")]
    pub api_key: Vec<String>,
    /// Origin whose pages may call the server (repeatable); `*`: all [default: none].
    #[arg(long, value_name = "ORIGIN", help_heading = "Server")]
    pub cors: Vec<String>,
    /// File with the server's certificate in PEM form, then those between it and the root: answers over TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Server")]
    pub tls_cert: Option<PathBuf>,
    /// File with the private key of --tls-cert in PEM form, without a password.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Server")]
    pub tls_key: Option<PathBuf>,
    /// Most connections that are open at a time; others wait.
    #[arg(long, value_name = "N", value_parser = values::whole, default_value_t = 1024)]
    #[arg(allow_negative_numbers = true, help_heading = "Server")]
    pub max_connections: usize,
    /// Largest request.
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "16MiB", help_heading = "Server")]
    pub max_body: u64,
    /// Most seconds of a request, waiting included; 0: no limit.
    #[arg(long, value_name = "SECONDS", value_parser = values::whole, default_value_t = 0)]
    #[arg(allow_negative_numbers = true, help_heading = "Server")]
    pub request_timeout: usize,
    /// Seconds that running requests have after SIGTERM or Ctrl-C; a second signal ends the server at once.
    #[arg(long, value_name = "SECONDS", value_parser = values::whole, default_value_t = 30)]
    #[arg(allow_negative_numbers = true, help_heading = "Server")]
    pub grace: usize,
    /// Most models that are loaded at a time: for another one the least recently used is unloaded.
    #[arg(long, value_name = "N", value_parser = values::whole, default_value_t = 3)]
    #[arg(allow_negative_numbers = true, help_heading = "Server")]
    pub max_loaded_models: usize,
    /// How long a model without requests stays loaded, such as 300, 5m or 1h; -1: until another one needs its place.
    #[arg(long, value_name = "TIME", value_parser = keep_alive, default_value = "-1")]
    #[arg(allow_negative_numbers = true, help_heading = "Server")]
    pub keep_alive: Time,
    /// Form of the log on stderr.
    #[arg(long, value_enum, default_value_t, value_name = "FORM", help_heading = "Log")]
    pub log_format: LogFormat,
    /// Least important lines of the log; `info` has one for each request [default: warn; with -v: info, with -vv: debug].
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Log")]
    pub log_level: Option<LogLevel>,
    /// Requests of a model that run at a time.
    #[arg(long, value_name = "N", value_parser = values::whole, default_value_t = 8)]
    #[arg(allow_negative_numbers = true, help_heading = "Several sequences")]
    pub parallel: usize,
    #[command(flatten)]
    pub speculation: SpecArgs,
    /// Requests of a model that wait while others run; more are answered with 503.
    #[arg(long, value_name = "N", value_parser = values::whole, default_value_t = 512)]
    #[arg(allow_negative_numbers = true, help_heading = "Several sequences")]
    pub max_queue: usize,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub requests: RequestsArgs,
    #[command(flatten)]
    pub loading: ModelArgs,
}

/// `--log-format`.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines to read.
    #[default]
    Text,
    /// An object per line.
    Json,
}

/// `--log-level`.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// No log.
    Off,
    /// What ends the server.
    Error,
    /// What needs a look: devices that were left out, requests that failed in the server.
    Warn,
    /// Each request.
    Info,
    /// Connections that failed.
    Debug,
}

/// `--keep-alive`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time(pub KeepAlive);

fn keep_alive(text: &str) -> Result<Time, String> {
    parse_keep_alive(text).map(Time)
}

const SERVE_HELP: &str = "\
Examples:
  llmrt serve                                   the embedded story teller on http://127.0.0.1:8080
  llmrt serve model.gguf --port 9000
  llmrt serve small=a.gguf large=b.gguf --kv-memory 2GiB
  LLMRT_API_KEY=secret llmrt serve model.gguf --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem

Then, for example: curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Once upon a time\", \"stream\": true}'";
