//! Streamed completions over plain HTTP.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longest time without a byte.
const PATIENCE: Duration = Duration::from_secs(600);

/// A completion as it came.
pub struct Streamed {
    /// From the request to each piece of text.
    pub pieces: Vec<Duration>,
    /// Tokens, as the server counts them.
    pub n_generated: usize,
}

/// Whether a server loaded its model.
pub fn is_healthy(address: SocketAddr) -> bool {
    let get = || {
        let mut stream = connect(address).ok()?;
        write!(stream, "GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.split_whitespace().nth(1)? == "200")
    };
    get().unwrap_or(false)
}

/// Posts JSON, and returns the status and the body of the answer.
pub fn post(address: SocketAddr, path: &str, body: &Value) -> Result<(String, Value), String> {
    let failed = |e: std::io::Error| format!("{address}: {e}");
    let body = body.to_string();
    let mut stream = connect(address).map_err(failed)?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("{address}: no answer"))?;
    let status = head.split_whitespace().nth(1).unwrap_or_default().to_string();
    let body = serde_json::from_str(body).map_err(|e| format!("{address}: {status}: {e}"))?;
    Ok((status, body))
}

/// Posts a completion with `stream`, and reads it to its end.
pub fn complete(address: SocketAddr, body: &Value) -> Result<Streamed, String> {
    let failed = |e: std::io::Error| format!("{address}: {e}");
    let (body, started) = (body.to_string(), Instant::now());
    let mut stream = connect(address).map_err(failed)?;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).map_err(failed)?;
    let mut lines = BufReader::new(stream).lines();
    let status = lines.next().transpose().map_err(failed)?.unwrap_or_default();
    if !status.contains(" 200") {
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        return Err(format!("{address}: {status}: {}", rest.join(" ")));
    }
    let mut streamed = Streamed { pieces: Vec::new(), n_generated: 0 };
    // Lines of heads and chunk sizes are passed over: each event is a chunk of its own in both servers.
    for line in lines {
        let line = line.map_err(failed)?;
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let Ok(event) = serde_json::from_str::<Value>(data) else { continue };
        if event["choices"][0]["text"].is_string() {
            streamed.pieces.push(started.elapsed());
        }
        if let Some(n) = event["usage"]["completion_tokens"].as_u64() {
            streamed.n_generated = n as usize;
        }
    }
    Ok(streamed)
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
