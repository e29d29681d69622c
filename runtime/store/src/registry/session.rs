//! Requests to one registry: repeated where connections break or the server is busy, with a token where it requires one.

use super::challenge::Challenge;
use super::http::{Failure, Http, Request, header, without_query};
use super::{Client, Retry};
use crate::error::{Error, Result};
use crate::manifest::MAX_TEXT;
use crate::watch::{Event, Watch};
use serde::Deserialize;
use std::time::Duration;
use ureq::Body;
use ureq::http::Response;

/// The longest wait between two tries.
const MAX_WAIT: Duration = Duration::from_secs(8);

/// A registry, and the token it has issued.
pub(super) struct Session<'c> {
    http: &'c Http,
    retry: Retry,
    /// The address that the token is sent to.
    base: String,
    token: Option<String>,
    /// Whether a token is being requested: a challenge to that is no reason to request another.
    is_renewing: bool,
}

/// Counts tries in a row that bring nothing new.
pub(super) struct Tries {
    retry: Retry,
    n_failed: u32,
}

impl Tries {
    /// Something new was received.
    pub fn progressed(&mut self) {
        self.n_failed = 0;
    }

    /// Waits before the next try; an error if there were too many.
    pub fn failed(&mut self, url: &str, cause: String, watch: &mut Watch<'_>) -> Result<()> {
        self.n_failed += 1;
        if self.n_failed >= self.retry.n_tries {
            return Err(Error::Network { url: without_query(url), cause, n_tries: self.n_failed });
        }
        let wait = self.retry.first_wait.saturating_mul(1 << (self.n_failed - 1).min(16)).min(MAX_WAIT);
        watch.show(Event::Retry { why: cause, wait });
        watch.wait(wait)
    }
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'c> Session<'c> {
    /// Requests to `base`, and to what its answers lead to.
    pub fn new(client: &'c Client, base: &str, token: Option<String>) -> Session<'c> {
        Session {
            http: &client.http,
            retry: client.options.retry,
            base: base.into(),
            token,
            is_renewing: false,
        }
    }

    /// The address.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// A count that stands at no failure.
    pub fn tries(&self) -> Tries {
        Tries { retry: self.retry, n_failed: 0 }
    }

    /// Sends a request until there is an answer that repeating it would not change.
    pub fn exchange(&mut self, request: &Request<'_>, watch: &mut Watch<'_>) -> Result<Response<Body>> {
        let mut tries = self.tries();
        self.exchange_within(request, &mut tries, watch)
    }

    /// The same, where failures before this request count.
    pub fn exchange_within(
        &mut self,
        request: &Request<'_>,
        tries: &mut Tries,
        watch: &mut Watch<'_>,
    ) -> Result<Response<Body>> {
        let mut has_new_token = false;
        loop {
            watch.check()?;
            let mut response = match self.send(request)? {
                Ok(response) => response,
                Err(cause) => {
                    tries.failed(request.url, cause, watch)?;
                    continue;
                }
            };
            match response.status().as_u16() {
                401 if !has_new_token && !self.is_renewing => {
                    let Some(challenge) = challenge(&response) else { return Ok(response) };
                    self.is_renewing = true;
                    let renewed = self.renew_token(&challenge, watch);
                    self.is_renewing = false;
                    renewed?;
                    has_new_token = true;
                }
                status @ (408 | 429 | 500..) => {
                    let message = message(&mut response);
                    if tries.n_failed + 1 >= self.retry.n_tries {
                        return Err(Error::Status { url: without_query(request.url), status, message });
                    }
                    tries.failed(request.url, format!("the server answered with status {status}"), watch)?;
                }
                _ => return Ok(response),
            }
        }
    }

    /// Sends a request once; the inner error is the cause of a connection that broke.
    pub fn send(&self, request: &Request<'_>) -> Result<std::result::Result<Response<Body>, String>> {
        let is_ours = request.url.strip_prefix(&self.base).is_some_and(|rest| rest.starts_with('/'));
        match self.http.send(request, self.token.as_deref().filter(|_| is_ours)) {
            Ok(response) => Ok(Ok(response)),
            Err(Failure::Broken(cause)) => Ok(Err(cause)),
            Err(Failure::Unreachable(cause)) => {
                Err(Error::Network { url: without_query(request.url), cause, n_tries: 1 })
            }
            Err(Failure::PlainHttp(url)) => Err(Error::PlainHttp { host: without_query(&url) }),
        }
    }

    fn renew_token(&mut self, challenge: &Challenge, watch: &mut Watch<'_>) -> Result<()> {
        self.token = None;
        let url = challenge.url();
        let answer = self.exchange(&Request::new("GET", &url), watch)?;
        let token: Token = json(&url, expect(&url, answer, &[200])?)?;
        self.token = token.token.or(token.access_token);
        match self.token {
            Some(_) => Ok(()),
            None => Err(Error::BadAnswer { url: without_query(&url), problem: "has no token".into() }),
        }
    }
}

fn challenge(response: &Response<Body>) -> Option<Challenge> {
    header(response.headers(), "www-authenticate").and_then(Challenge::parse)
}

/// The answer, if its status is one of these.
pub(super) fn expect(url: &str, mut response: Response<Body>, statuses: &[u16]) -> Result<Response<Body>> {
    let url = || without_query(url);
    match response.status().as_u16() {
        status if statuses.contains(&status) => Ok(response),
        status @ (401 | 403) => Err(Error::Unauthorized { url: url(), status }),
        status => Err(Error::Status { url: url(), status, message: message(&mut response) }),
    }
}

/// The beginning of an answer's text, for a message; none of pages in HTML.
fn message(response: &mut Response<Body>) -> String {
    let text = response.body_mut().with_config().limit(4096).read_to_string().unwrap_or_default();
    match text.trim_start().starts_with('<') {
        true => String::new(),
        false => text.trim().chars().take(200).collect(),
    }
}

/// The bytes of an answer that is text.
pub(super) fn bytes(url: &str, mut response: Response<Body>) -> Result<Vec<u8>> {
    let read = response.body_mut().with_config().limit(MAX_TEXT).read_to_vec();
    read.map_err(|e| Error::BadAnswer { url: without_query(url), problem: format!("cannot be read: {e}") })
}

/// An answer in JSON.
pub(super) fn json<T: serde::de::DeserializeOwned>(url: &str, response: Response<Body>) -> Result<T> {
    serde_json::from_slice(&bytes(url, response)?)
        .map_err(|e| Error::BadAnswer { url: without_query(url), problem: format!("cannot be parsed: {e}") })
}
