//! The port of `llmrt serve`: who answers there, or whether it is free.

use super::report::Report;
use crate::args::ServerArgs;
use crate::output::n_things;
use crate::remote::{Failure, Remote};
use serde_json::Value;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks the address of the flag or of `LLMRT_HOST`.
pub fn check(report: &Report, args: &ServerArgs) {
    let remote = match Remote::new(args, PATIENCE) {
        Ok(remote) => remote,
        Err(e) => return report.problem("server", e.message),
    };
    let address = &remote.address;
    match remote.get("/v1/models") {
        Ok(models) if is_llmrt(&models) => running(report, &remote),
        Ok(_) => report.problem("server", occupied(&remote, "another server")),
        Err(Failure::Refused(401, _)) => {
            report.warning(
                "server",
                format_args!("{address}: a server requires another key; set LLMRT_API_KEY"),
            );
        }
        Err(Failure::Refused(..) | Failure::Foreign(_)) => {
            report.problem("server", occupied(&remote, "another program"));
        }
        Err(Failure::Unreachable(cause)) => is_free(report, &remote, &cause),
    }
}

/// Whether each model is one of llmrt. A server of an empty store has none: then the list is empty.
fn is_llmrt(answer: &Value) -> bool {
    let models = answer["data"].as_array();
    models.is_some_and(|models| models.iter().all(|model| model["owned_by"] == "llmrt"))
}

fn occupied(remote: &Remote, who: &str) -> String {
    format!(
        "{}: {who} has this port: end it, or give `llmrt serve` another one with --port, and set LLMRT_HOST to that",
        remote.address
    )
}

fn running(report: &Report, remote: &Remote) {
    let version = remote.get("/api/version").ok().and_then(|v| v["version"].as_str().map(String::from));
    let version = version.unwrap_or_default();
    let n_loaded = remote.get("/api/ps").ok().and_then(|v| v["models"].as_array().map(Vec::len));
    let loaded = n_things(n_loaded.unwrap_or(0), "loaded model");
    let text = format!("{}: llmrt {version} serves, {loaded}", remote.address);
    match version == env!("CARGO_PKG_VERSION") {
        true => report.ok("server", text),
        false => {
            report.warning("server", format_args!("{text}: its version is not this one: start it again"))
        }
    }
}

/// There is no answer: on this machine the port can be bound.
fn is_free(report: &Report, remote: &Remote, cause: &str) {
    let address = &remote.address;
    match TcpListener::bind((address.host.as_str(), address.port)) {
        Ok(_) => report.ok("server", format_args!("{address}: no server, and the port is free")),
        Err(e) if e.kind() == ErrorKind::AddrInUse => {
            report.problem("server", occupied(remote, "a program that does not answer"));
        }
        Err(e) if e.kind() == ErrorKind::PermissionDenied => report.problem(
            "server",
            format_args!(
                "{address}: cannot listen there: {e}; ports below 1024 need rights: take another one"
            ),
        ),
        Err(_) => report.problem(
            "server",
            format_args!(
                "{address}: no server answers: {cause}; check the address, and that the server runs"
            ),
        ),
    }
}
