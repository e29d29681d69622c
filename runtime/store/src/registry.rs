//! The client of registries and hubs.

mod pull;

mod push;

mod hub;

mod download;

mod session;

mod challenge;
mod http;

use crate::error::{Error, Result};
use crate::name::Name;
use http::Http;
use std::str::FromStr;
use std::time::Duration;

/// A model in a registry: a name, with `http://` before it where the registry has no TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The model.
    pub name: Name,
    /// Whether requests go by plain HTTP.
    pub plain_http: bool,
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Source> {
        let (plain_http, name) = match text.strip_prefix("http://") {
            Some(name) => (true, name),
            None => (false, text.strip_prefix("https://").unwrap_or(text)),
        };
        Ok(Source { name: name.parse()?, plain_http })
    }
}

/// How often and when a request is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    /// Tries in a row that bring nothing new before the work ends.
    pub n_tries: u32,
    /// The wait before the second try; each later one doubles, up to 8 seconds.
    pub first_wait: Duration,
}

/// Where models are from, and how requests are made.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Whether plain HTTP is permitted: for names that begin with `http://`, and redirects from them.
    pub insecure: bool,
    /// The hub's address: names of `hf.co` are requested there.
    pub hub: String,
    /// A token that the hub gets, for models that need an account.
    pub hub_token: Option<String>,
    /// How requests are repeated.
    pub retry: Retry,
    /// How long a connection may take, and may bring no byte.
    pub timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            insecure: false,
            hub: "https://huggingface.co".into(),
            hub_token: None,
            retry: Retry { n_tries: 6, first_wait: Duration::from_millis(500) },
            timeout: Duration::from_secs(60),
        }
    }
}

/// Pulls and pushes models.
pub struct Client {
    options: ClientOptions,
    http: Http,
}

impl Client {
    /// A client with these options.
    pub fn new(options: ClientOptions) -> Client {
        Client { http: Http::new(&options), options }
    }

    /// The address of a name's registry; an error if it is plain HTTP and that is not permitted.
    fn registry(&self, source: &Source) -> Result<String> {
        let host = source.name.host();
        if source.plain_http && !self.options.insecure {
            return Err(Error::PlainHttp { host: host.into() });
        }
        Ok(format!("{}://{host}", if source.plain_http { "http" } else { "https" }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_used_only_where_it_is_named_and_permitted() {
        let url = |text: &str, insecure| {
            let client = Client::new(ClientOptions { insecure, ..ClientOptions::default() });
            client.registry(&text.parse().unwrap()).map_err(|e| e.code())
        };
        assert_eq!(url("http://127.0.0.1:5000/me/tiny", true).unwrap(), "http://127.0.0.1:5000");
        assert_eq!(url("http://127.0.0.1:5000/me/tiny", false), Err("plain-http"));
        assert_eq!(url("127.0.0.1:5000/me/tiny", true).unwrap(), "https://127.0.0.1:5000");
        assert_eq!(url("https://tiny", false).unwrap(), "https://registry.ollama.ai");
    }
}
