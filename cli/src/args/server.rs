//! The flag of commands that request something of a running server.

use clap::Args;

/// Which server.
#[derive(Args, Debug, Clone, Default)]
pub struct ServerArgs {
    /// The server: HOST, HOST:PORT or http(s)://HOST:PORT [default: the value of LLMRT_HOST, else 127.0.0.1:8080].
    /// LLMRT_API_KEY is the key that it gets.
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
}
