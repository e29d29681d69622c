//! One HTTP exchange.

use super::ClientOptions;
use std::io;
use ureq::Body;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{HeaderMap, Request as HttpRequest, Response};

/// Makes requests, with timeouts, TLS and redirects.
pub(super) struct Http {
    agent: ureq::Agent,
}

/// A request: method, URL, headers and body.
pub(super) struct Request<'a> {
    pub method: &'static str,
    pub url: &'a str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// A request without headers and body.
    pub fn new(method: &'static str, url: &'a str) -> Request<'a> {
        Request { method, url, headers: Vec::new(), body: None }
    }

    /// With this header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Request<'a> {
        self.headers.push((name, value.into()));
        self
    }

    /// With this body.
    pub fn body(mut self, bytes: &'a [u8]) -> Request<'a> {
        self.body = Some(bytes);
        self
    }
}

/// Why there is no answer.
pub(super) enum Failure {
    /// A connection that broke, or a timeout: the next try may succeed.
    Broken(String),
    /// No connection can be made.
    Unreachable(String),
    /// A redirect leads to plain HTTP, which is not permitted.
    PlainHttp(String),
}

impl Http {
    pub fn new(options: &ClientOptions) -> Http {
        let timeout = Some(options.timeout);
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .https_only(!options.insecure)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .user_agent(concat!("llmrt/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(timeout)
            .timeout_connect(timeout)
            .timeout_per_read(timeout)
            .timeout_per_write(timeout);
        Http { agent: config.build().new_agent() }
    }

    /// Sends a request; any status is an answer.
    pub fn send(&self, request: &Request<'_>, token: Option<&str>) -> Result<Response<Body>, Failure> {
        let mut builder = HttpRequest::builder().method(request.method).uri(request.url);
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        if let Some(token) = token {
            builder = builder.header("authorization", format!("Bearer {token}"));
        }
        let sent = match request.body {
            Some(bytes) => builder.body(bytes).map_err(ureq::Error::Http).and_then(|r| self.agent.run(r)),
            None => builder.body(()).map_err(ureq::Error::Http).and_then(|r| self.agent.run(r)),
        };
        sent.map_err(failure)
    }
}

fn failure(e: ureq::Error) -> Failure {
    match e {
        ureq::Error::RequireHttpsOnly(url) => Failure::PlainHttp(url),
        ureq::Error::Io(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            Failure::Unreachable(e.to_string())
        }
        ureq::Error::Io(_)
        | ureq::Error::Timeout(_)
        | ureq::Error::Protocol(_)
        | ureq::Error::BodyStalled => Failure::Broken(e.to_string()),
        e => Failure::Unreachable(e.to_string()),
    }
}

/// A header's text.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A URL without its query, which may hold a signature.
pub(super) fn without_query(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or_default().into()
}
