//! A running server: its address, requests to it, and why there is no answer.

use crate::args::ServerArgs;
use crate::error::{Error, Exit, Result};
use llmrt_host::knobs;
use serde_json::Value;
use std::time::Duration;
use ureq::http::{Request, Response};

/// Port without one in the address, as of `llmrt serve`.
const DEFAULT_PORT: u16 = 8080;

/// Time to connect.
const CONNECT: Duration = Duration::from_secs(5);

/// Most bytes of an answer.
const MAX_ANSWER: u64 = 64 << 20;

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    scheme: &'static str,
    /// A name or an address; of IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What comes before each route, without a slash at the end.
    path: String,
}

/// A server, and the key that it gets.
pub struct Remote {
    /// Where it is.
    pub address: Address,
    key: Option<String>,
    agent: ureq::Agent,
}

/// Why a request has no result.
#[derive(Debug)]
pub enum Failure {
    /// There is no connection.
    Unreachable(String),
    /// Something is there and does not answer as a server of models does.
    Foreign(String),
    /// The server refuses: status and message.
    Refused(u16, String),
}

impl Address {
    /// That of the flag, else of `LLMRT_HOST`, else the default.
    pub fn of(args: &ServerArgs) -> Result<Address> {
        let set = || knobs::HOST.text().map(|text| ("LLMRT_HOST", text.to_string_lossy().into_owned()));
        let (whose, text) = match args.server.clone().map(|text| ("--server", text)).or_else(set) {
            Some(given) => given,
            None => ("--server", "127.0.0.1".into()),
        };
        Address::parse(&text).map_err(|problem| {
            Error::usage(format!(
                "{whose} {text}: {problem}: expected HOST, HOST:PORT or http(s)://HOST:PORT"
            ))
        })
    }

    /// Reads `HOST`, `HOST:PORT`, `[IPV6]:PORT`, each also after `http://` or `https://` and before a path.
    fn parse(text: &str) -> std::result::Result<Address, String> {
        let (scheme, rest, default_port) = match text.trim().split_once("://") {
            None => ("http", text.trim(), DEFAULT_PORT),
            Some(("http", rest)) => ("http", rest, 80),
            Some(("https", rest)) => ("https", rest, 443),
            Some((other, _)) => return Err(format!("`{other}` is no scheme of it")),
        };
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let bracketed = place.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match bracketed {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or("there is text after `]`")?)),
            None if place.matches(':').count() > 1 => (place, None),
            None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            None => default_port,
            Some(port) => port.parse().map_err(|_| format!("`{port}` is no port"))?,
        };
        // A server that listens on every address is reached on this machine's own.
        let host = match host {
            "" | "0.0.0.0" => "127.0.0.1",
            "::" => "::1",
            host => host,
        };
        if host.contains(|c: char| c.is_whitespace() || "@?#".contains(c)) {
            return Err(format!("`{host}` is no host"));
        }
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Address { scheme, host: host.into(), port, path })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Address { scheme, host, port, path } = self;
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}{path}"),
            false => write!(f, "{scheme}://{host}:{port}{path}"),
        }
    }
}

impl Remote {
    /// A server, which may take so long for an answer. No connection is made yet.
    pub fn new(args: &ServerArgs, timeout: Duration) -> Result<Remote> {
        let key = knobs::API_KEY.text().map(|key| key.into_string());
        let key = key.transpose().map_err(|_| Error::usage("LLMRT_API_KEY: expected UTF-8 text"))?;
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("llmrt/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(timeout))
            .timeout_recv_body(Some(timeout));
        Ok(Remote { address: Address::of(args)?, key, agent: config.build().new_agent() })
    }

    /// The JSON of a route.
    pub fn get(&self, path: &str) -> std::result::Result<Value, Failure> {
        self.send("GET", path, String::new())
    }

    /// The JSON that a route answers to a JSON body.
    pub fn post(&self, path: &str, body: &Value) -> std::result::Result<Value, Failure> {
        self.send("POST", path, body.to_string())
    }

    fn send(&self, method: &str, path: &str, body: String) -> std::result::Result<Value, Failure> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.address));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let sent = match method {
            "GET" => request.body(()).map_err(ureq::Error::Http).and_then(|r| self.agent.run(r)),
            _ => {
                let request = request.header("content-type", "application/json").body(body);
                request.map_err(ureq::Error::Http).and_then(|r| self.agent.run(r))
            }
        };
        let answer = sent.map_err(|e| match e {
            ureq::Error::Protocol(_) | ureq::Error::Timeout(ureq::Timeout::RecvResponse) => {
                Failure::Foreign(e.to_string())
            }
            e => Failure::Unreachable(e.to_string()),
        })?;
        read(answer)
    }

    /// What a person does about a failure.
    pub fn error(&self, failure: Failure) -> Error {
        let address = &self.address;
        Error::new(
            Exit::Failure,
            match failure {
                Failure::Unreachable(cause) => format!(
                    "{address}: no server answers: {cause}; start one with `llmrt serve`, or give its address with \
                     --server or LLMRT_HOST"
                ),
                Failure::Foreign(problem) => format!(
                    "{address}: this is no server of models: {problem}; give the server's address with --server or \
                     LLMRT_HOST"
                ),
                Failure::Refused(401, message) => {
                    format!("{address}: {message}; set LLMRT_API_KEY to the server's key")
                }
                Failure::Refused(_, message) => format!("{address}: {message}"),
            },
        )
    }
}

fn read(mut answer: Response<ureq::Body>) -> std::result::Result<Value, Failure> {
    let status = answer.status().as_u16();
    let bytes = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
    let bytes = bytes.map_err(|e| Failure::Unreachable(e.to_string()))?;
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|_| Failure::Foreign(format!("its answer of status {status} is no JSON")))?;
    if status < 400 {
        return Ok(value);
    }
    let error = &value["error"];
    let message = error.as_str().or_else(|| error["message"].as_str());
    Err(match message {
        Some(message) => Failure::Refused(status, message.into()),
        None => Failure::Foreign(format!("its answer has the status {status}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_forms_of_ollama_host() {
        for (text, expected) in [
            ("example.org", "http://example.org:8080"),
            ("10.0.0.1:9000", "http://10.0.0.1:9000"),
            (":9000", "http://127.0.0.1:9000"),
            ("0.0.0.0", "http://127.0.0.1:8080"),
            ("http://example.org", "http://example.org:80"),
            ("https://example.org/llm/", "https://example.org:443/llm"),
            ("https://example.org:8443", "https://example.org:8443"),
            ("[::1]:9000", "http://[::1]:9000"),
            ("fe80::1", "http://[fe80::1]:8080"),
        ] {
            assert_eq!(Address::parse(text).map(|a| a.to_string()).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        let refused = |text: &str| Address::parse(text).unwrap_err();
        assert!(refused("ftp://example.org").contains("`ftp` is no scheme"));
        assert!(refused("example.org:http").contains("`http` is no port"));
        assert!(refused("example.org:70000").contains("no port"));
        assert!(refused("[::1]9000").contains("after `]`"));
        assert!(refused("user@example.org").contains("no host"));
    }
}
