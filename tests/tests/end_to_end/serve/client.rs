//! A server that a test starts, and requests to it over plain sockets.

use llmrt_tests::build::llmrt;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running server; dropping it ends it at once.
pub struct Server {
    child: Child,
    address: String,
    /// What its first line has.
    pub url: String,
}

/// What a server answered.
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The events of a stream, without `[DONE]`, which must be the last.
    pub fn events(&self) -> Vec<Value> {
        let mut data: Vec<&str> = self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.body);
        data.into_iter().map(|text| serde_json::from_str(text).expect("an event is JSON")).collect()
    }

    /// The lines of a stream.
    pub fn lines(&self) -> Vec<Value> {
        self.body.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }
}

impl Server {
    /// Starts one on a free port.
    pub fn start(args: &[&str]) -> Server {
        Server::start_with(args, &[])
    }

    /// The same with variables of the environment.
    pub fn start_with(args: &[&str], variables: &[(&str, &Path)]) -> Server {
        Server::start_or_line(args, variables, Stdio::inherit()).unwrap_or_else(no_address)
    }

    /// The same with its stderr in a file.
    pub fn start_logged(args: &[&str], log: &Path) -> Server {
        let log = File::create(log).expect("a file");
        Server::start_or_line(args, &[], log.into()).unwrap_or_else(no_address)
    }

    /// The same; an error is the first line of a server that does not start.
    pub fn try_start(args: &[&str], variables: &[(&str, &Path)]) -> Result<Server, String> {
        Server::start_or_line(args, variables, Stdio::inherit())
    }

    fn start_or_line(args: &[&str], variables: &[(&str, &Path)], stderr: Stdio) -> Result<Server, String> {
        let mut command = llmrt(["serve", "--port", "0", "-t", "1"]);
        command.envs(variables.iter().copied());
        let mut child =
            command.args(args).stdout(Stdio::piped()).stderr(stderr).spawn().expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("the first line");
        match line.trim().strip_prefix("listening on ") {
            Some(url) => {
                let address = url.rsplit('/').next().expect("an address").to_string();
                Ok(Server { child, address, url: url.to_string() })
            }
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(line)
            }
        }
    }

    /// HOST:PORT.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, "", body)
    }

    /// A request that the server may not live to answer: no answer is an error.
    pub fn try_post(&self, path: &str, body: &str) -> std::io::Result<()> {
        let mut text = String::new();
        self.open("POST", path, "", body).read_to_string(&mut text)?;
        if text.is_empty() { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// The answer to these bytes, after which nothing more is sent.
    pub fn exchange(&self, bytes: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.write_all(bytes.as_bytes()).expect("a request");
        stream.shutdown(std::net::Shutdown::Write).expect("the end of the request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    /// A request with further headers, each with its line end.
    pub fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut text = String::new();
        self.open(method, path, headers, body).read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
        let (status, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        Answer { status, headers: headers.to_ascii_lowercase(), body: body.into() }
    }

    /// A request whose answer is not read yet. HTTP/1.0: a body ends where the connection does.
    pub fn open(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        let n = body.len();
        let head = format!("{method} {path} HTTP/1.0\r\nhost: x\r\ncontent-length: {n}\r\n{headers}\r\n");
        stream.write_all((head + body).as_bytes()).expect("a request");
        stream
    }

    /// A stream that has begun: its first `n` bytes of text are read.
    pub fn begin(&self, path: &str, body: &str) -> TcpStream {
        let mut stream = self.open("POST", path, "", body);
        let mut read = Vec::new();
        let mut buffer = [0; 1024];
        while !String::from_utf8_lossy(&read).contains("data: ") {
            let n = stream.read(&mut buffer).expect("the beginning of a stream");
            assert!(n > 0, "{}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&buffer[..n]);
        }
        stream
    }

    /// The value of a metric of the first model.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
    }

    /// Waits until a metric has a value. A request whose client sent more bytes before it hung up runs to its end, which takes
    /// a slow machine a minute.
    pub fn wait_for(&self, name: &str, value: f64) {
        let started = Instant::now();
        while self.metric(name) != value {
            assert!(started.elapsed() < Duration::from_secs(300), "{name} is {}", self.metric(name));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until nothing runs or waits, and no block of the KV cache is in use.
    pub fn wait_until_idle(&self) {
        for name in ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"] {
            self.wait_for(name, 0.0);
        }
    }

    /// The most bytes of memory that the process has had.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("the program ends")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn no_address(line: String) -> Server {
    panic!("{line:?} has no address")
}
