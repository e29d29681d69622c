//! A server as a process of its own, ended when it is dropped.

use super::client;
use super::load::Load;
use crate::bench::process::most_resident;
use crate::bench::program::Llmrt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time until a server answers.
const START: Duration = Duration::from_secs(60);

/// Threads of both servers.
const THREADS: &str = "2";

/// A server that answers.
pub struct Server {
    child: Child,
    address: SocketAddr,
}

/// A port that nothing listens on.
pub fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("no free port: {e}"))?;
    listener.local_addr().map(|address| address.port()).map_err(|e| format!("no free port: {e}"))
}

impl Server {
    /// `llmrt serve` with room for the load.
    pub fn llmrt(llmrt: &Llmrt, model: &Path, load: &Load, port: u16) -> Result<Server, String> {
        let mut command = llmrt.command();
        command.args(["serve", "--port", &port.to_string(), "-t", THREADS]);
        command.args(["-c", &load.n_ctx().to_string(), "--parallel", &load.n_streams.to_string()]);
        let mut name = std::ffi::OsString::from("m=");
        name.push(model);
        Server::start(command.arg(name), port)
    }

    /// llama-server with room for the load: its context is that of all slots together.
    pub fn llama(program: &Path, model: &Path, load: &Load, port: u16) -> Result<Server, String> {
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string(), "-t", THREADS, "-tb", THREADS, "--no-ui"]);
        command.args(["-c", &(load.n_ctx() * load.n_streams).to_string()]);
        command.args(["-np", &load.n_streams.to_string(), "-m"]).arg(model);
        Server::start(&mut command, port)
    }

    /// Starts a program that listens on this port of the machine, and waits until it answers.
    pub fn start(command: &mut Command, port: u16) -> Result<Server, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|e| format!("{name}: cannot be started: {e}; check the path"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Server { child, address };
        let started = Instant::now();
        while !client::is_healthy(address) {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{name} ended before it answered: {status}"));
            }
            if started.elapsed() > START {
                return Err(format!("{name} does not answer after {} s", START.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Most bytes resident so far.
    pub fn peak_bytes(&self) -> u64 {
        most_resident(&format!("/proc/{}/status", self.child.id())).unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
