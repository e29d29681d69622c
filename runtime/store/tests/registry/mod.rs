//! A registry and hub on a port of this machine, which fails on request.
#![allow(dead_code)] // each test binary uses a part

mod http;

use http::{Request, Response};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What goes wrong with one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The connection ends after so many bytes of the body.
    DropAfter(usize),
    /// A byte of the body is another.
    WrongByte,
    /// The body is shorter than it should be, and its head agrees with it.
    Short,
    /// An answer with this status.
    Status(u16),
    /// A redirect to the same bytes at another path.
    Redirect,
    /// A redirect to this URL.
    RedirectTo(String),
    /// The range of the request is ignored.
    NoRange,
    /// The range of the answer is another.
    OtherRange,
    /// Each 16 KiB of the body come after this time.
    Slow(Duration),
}

#[derive(Default)]
pub struct State {
    /// Bodies by path.
    files: HashMap<String, Vec<u8>>,
    /// Uploads by path.
    uploads: HashMap<String, Vec<u8>>,
    /// (part of method and path, what fails), used up in this order.
    faults: Vec<(String, Fault)>,
    /// Every request: method, path, range.
    log: Vec<String>,
    /// Whether requests need the token.
    needs_token: bool,
    /// The query of the last request for a token.
    token_query: String,
}

/// The server; it ends with the process.
#[derive(Clone)]
pub struct Registry {
    /// `127.0.0.1:PORT`.
    pub host: String,
    state: Arc<Mutex<State>>,
}

impl Registry {
    /// Starts a server without models.
    pub fn start() -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let registry = Registry { host, state: Arc::default() };
        let server = registry.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || http::serve(stream, |request| server.answer(request)));
            }
        });
        registry
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Puts bytes at a path.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        self.state().files.insert(path.into(), bytes.into());
    }

    /// The bytes at a path.
    pub fn get(&self, path: &str) -> Option<Vec<u8>> {
        self.state().files.get(path).cloned()
    }

    /// Puts a model there: layers of a media type and bytes. Returns the name to pull it by.
    pub fn put_model(&self, repository: &str, tag: &str, layers: &[(&str, &[u8])]) -> String {
        let mut descriptors = Vec::new();
        for (media_type, bytes) in layers {
            let digest = digest(bytes);
            self.put(&format!("/v2/{repository}/blobs/{digest}"), bytes);
            descriptors
                .push(serde_json::json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() }));
        }
        let config = b"{\"model_format\":\"gguf\"}";
        self.put(&format!("/v2/{repository}/blobs/{}", digest(config)), config);
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {
                "mediaType": "application/vnd.docker.container.image.v1+json",
                "digest": digest(config), "size": config.len(),
            },
            "layers": descriptors,
        });
        self.put(&format!("/v2/{repository}/manifests/{tag}"), manifest.to_string().as_bytes());
        format!("http://{}/{repository}:{tag}", self.host)
    }

    /// Makes the next request whose method and path have this part fail.
    pub fn fail(&self, path: &str, fault: Fault) {
        self.state().faults.push((path.into(), fault));
    }

    /// Requires the token from now on.
    pub fn require_token(&self) {
        self.state().needs_token = true;
    }

    /// The query of the last request for a token.
    pub fn token_query(&self) -> String {
        self.state().token_query.clone()
    }

    /// The requests so far whose line has this part.
    pub fn requests(&self, part: &str) -> Vec<String> {
        self.state().log.iter().filter(|line| line.contains(part)).cloned().collect()
    }

    fn answer(&self, request: &Request) -> Response {
        let mut state = self.state();
        let range = request.header("range").map_or(String::new(), |range| format!(" {range}"));
        state.log.push(format!("{} {}{range}", request.method, request.path));
        if request.path == "/token" {
            state.token_query = request.query.clone();
            return Response::new(200, br#"{"token":"secret"}"#.to_vec());
        }
        if state.needs_token && request.header("authorization") != Some("Bearer secret") {
            let realm = format!("Bearer realm=\"http://{}/token\",service=\"s\",scope=\"a,b\"", self.host);
            return Response::new(401, Vec::new()).header("WWW-Authenticate", realm);
        }
        let line = format!("{} {}", request.method, request.path);
        let fault = state.faults.iter().position(|(part, _)| line.contains(part.as_str()));
        let fault = fault.map(|i| state.faults.remove(i).1);
        match fault {
            Some(Fault::Status(status)) => Response::new(status, b"a reason".to_vec()),
            Some(Fault::Redirect) => {
                Response::new(307, Vec::new()).header("Location", format!("/cdn{}", request.path))
            }
            Some(Fault::RedirectTo(url)) => Response::new(307, Vec::new()).header("Location", url),
            fault => state.serve(request, fault),
        }
    }
}

impl State {
    fn serve(&mut self, request: &Request, fault: Option<Fault>) -> Response {
        match request.method.as_str() {
            "GET" | "HEAD" => self.file(request, fault),
            "POST" => {
                let location = format!("{}{}", request.path, self.log.len());
                self.uploads.insert(location.clone(), Vec::new());
                Response::new(202, Vec::new()).header("Location", location)
            }
            "PATCH" => self.patch(request, fault),
            "PUT" => self.finish(request),
            _ => Response::new(405, Vec::new()),
        }
    }

    fn file(&mut self, request: &Request, fault: Option<Fault>) -> Response {
        if let Some(upload) = self.uploads.get(&request.path) {
            let range = format!("0-{}", upload.len().max(1) - 1);
            return Response::new(if upload.is_empty() { 404 } else { 204 }, Vec::new())
                .header("Location", request.path.clone())
                .header("Range", range);
        }
        let path = request.path.strip_prefix("/cdn").unwrap_or(&request.path);
        let Some(file) = self.files.get(path) else { return Response::new(404, Vec::new()) };
        let mut bytes = file.clone();
        match fault {
            Some(Fault::WrongByte) => *bytes.last_mut().unwrap() ^= 1,
            Some(Fault::Short) => drop(bytes.pop()),
            _ => {}
        }
        let begin = request
            .header("range")
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
        let begin = begin.filter(|_| !matches!(fault, Some(Fault::NoRange)));
        let total = bytes.len();
        let mut response = match begin {
            Some(begin) if begin >= total => Response::new(416, Vec::new()),
            Some(begin) => {
                let stated = if matches!(fault, Some(Fault::OtherRange)) { begin + 1 } else { begin };
                let range = format!("bytes {stated}-{}/{total}", total - 1);
                Response::new(206, bytes.split_off(begin)).header("Content-Range", range)
            }
            None => Response::new(200, bytes),
        };
        response.drop_after = if let Some(Fault::DropAfter(n)) = fault { Some(n) } else { None };
        response.pause = if let Some(Fault::Slow(pause)) = fault { Some(pause) } else { None };
        response
    }

    fn patch(&mut self, request: &Request, fault: Option<Fault>) -> Response {
        let Some(upload) = self.uploads.get_mut(&request.path) else { return Response::new(404, Vec::new()) };
        let begin = request.header("content-range").and_then(|range| range.split_once('-')?.0.parse().ok());
        if begin != Some(upload.len()) {
            return Response::new(416, Vec::new());
        }
        let mut response = Response::new(202, Vec::new()).header("Location", request.path.clone());
        match fault {
            Some(Fault::DropAfter(n)) => {
                upload.extend(&request.body[..n.min(request.body.len())]);
                response.is_hung_up = true;
            }
            _ => upload.extend(&request.body),
        }
        response
    }

    fn finish(&mut self, request: &Request) -> Response {
        let Some(mut bytes) = self.uploads.remove(&request.path) else {
            self.files.insert(request.path.clone(), request.body.clone());
            return Response::new(201, Vec::new());
        };
        bytes.extend(&request.body);
        let digest = digest(&bytes);
        if request.query != format!("digest={digest}") {
            return Response::new(400, b"another digest".to_vec());
        }
        let folder = request.path.split("uploads/").next().unwrap();
        self.files.insert(format!("{folder}{digest}"), bytes);
        Response::new(201, Vec::new())
    }
}

/// `sha256:HEX`.
pub fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
