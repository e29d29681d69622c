//! Clients that are slow, silent or many, over sockets.

use super::Connections;
use crate::options::{Limits, ServerOptions};
use crate::server::{App, routes};
use crate::stored::ModelStore;
use crate::tls::tests::self_signed;
use crate::tls::{TlsFiles, acceptor};
use llmrt_store::{Client, ClientOptions, Store};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const SHORT: Duration = Duration::from_millis(200);
/// Longer than any test: what is closed before was closed for another reason.
const LONG: Duration = Duration::from_secs(600);
const GET: &str = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";

/// A server without models on a thread of its own.
struct Running {
    address: SocketAddr,
    drain: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

fn start(limits: Limits, tls: Option<TlsAcceptor>) -> Running {
    start_with(limits, tls, None)
}

fn start_with(limits: Limits, tls: Option<TlsAcceptor>, store: Option<ModelStore>) -> Running {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = ServerOptions { limits, ..ServerOptions::at(address) };
    let (drain, draining) = watch::channel(false);
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind(address).await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            let router = routes(Arc::new(App::new(options, Vec::new(), store)), None);
            Connections { router, tls, limits, draining }.serve(listener).await;
        });
    });
    Running { address: receiver.recv().unwrap(), drain, thread }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }
}

/// Sends a text, and reads until the server closes the connection.
fn exchange(mut stream: impl Read + Write, text: &str) -> String {
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Sends a request, and reads its answer; the connection stays open.
fn answered(stream: &mut (impl Read + Write)) {
    stream.write_all(GET.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"{\"status\":\"ok\"}") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
}

fn acceptor_and_client() -> (TlsAcceptor, ClientConfig) {
    let (cert, key) = self_signed();
    let dir = tempfile::tempdir().unwrap();
    let files = TlsFiles { cert: dir.path().join("cert"), key: dir.path().join("key") };
    std::fs::write(&files.cert, &cert).unwrap();
    std::fs::write(&files.key, &key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    (acceptor(&files).unwrap(), client.with_root_certificates(roots).with_no_client_auth())
}

#[test]
fn a_head_that_stalls_is_closed() {
    let server = start(Limits { head_timeout: SHORT, ..Limits::default() }, None);
    assert_eq!(exchange(server.connect(), "GET /health HTT"), "");
    assert_eq!(exchange(server.connect(), "GET /health HTTP/1.1\r\nhost: x\r\nx-a: "), "");
    assert_eq!(exchange(server.connect(), ""), "");
    // After an answer too.
    assert!(exchange(server.connect(), GET).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_body_that_stalls_is_answered_with_408_and_closed() {
    let server = start(Limits { head_timeout: LONG, body_timeout: SHORT, ..Limits::default() }, None);
    for path in ["/tokenize", "/api/generate", "/v1/messages"] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n");
        let answer = exchange(server.connect(), &(head + "{\"content\": "));
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(answer.contains("did not come in time"), "{answer}");
    }
}

#[test]
fn a_body_that_trickles_is_answered_with_408() {
    let server = start(Limits { head_timeout: LONG, body_timeout: SHORT, ..Limits::default() }, None);
    let mut stream = server.connect();
    stream.write_all(b"POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n").unwrap();
    let mut reader = stream.try_clone().unwrap();
    let answer = std::thread::spawn(move || exchange(&mut reader, ""));
    // Never a pause of `SHORT`, until the server closes.
    while stream.write_all(b" ").is_ok() && !answer.is_finished() {
        std::thread::sleep(SHORT / 10);
    }
    let answer = answer.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[test]
fn a_client_that_does_not_read_is_closed() {
    const N: usize = 2000;
    let server = start(Limits { head_timeout: LONG, write_timeout: SHORT, ..Limits::default() }, None);
    let length = exchange(server.connect(), "GET /openapi.json HTTP/1.0\r\n\r\n").len();
    let mut stream = server.connect();
    // More than buffers of sockets hold.
    let _ = stream.write_all("GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(N).as_bytes());
    std::thread::sleep(5 * SHORT);
    let mut answers = Vec::new();
    // An end or a reset.
    let _ = stream.read_to_end(&mut answers);
    assert!(answers.len() < N * length / 2, "{} bytes", answers.len());
}

#[test]
fn a_blob_that_stalls_is_answered_with_408_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = ModelStore {
        store: Store::at(dir.path()),
        source: Box::new(|_, _| unreachable!("no model is served")),
        client: Box::new(|_| Client::new(ClientOptions::default())),
    };
    let limits = Limits { head_timeout: LONG, body_timeout: SHORT, ..Limits::default() };
    let server = start_with(limits, None, Some(store));
    let path = format!("/api/blobs/sha256:{}", "a".repeat(64));
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n");
    let answer = exchange(server.connect(), &(head + "the beginning"));
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[test]
fn a_silent_client_holds_up_no_handshake() {
    let (tls, client) = acceptor_and_client();
    let server = start(Limits { head_timeout: LONG, ..Limits::default() }, Some(tls));
    let silent = server.connect();
    let connection = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
    answered(&mut StreamOwned::new(connection, server.connect()));
    drop(silent);
}

#[test]
fn a_handshake_that_stalls_or_is_none_is_closed() {
    let (tls, _) = acceptor_and_client();
    let server = start(Limits { head_timeout: SHORT, ..Limits::default() }, Some(tls));
    assert_eq!(exchange(server.connect(), ""), "");
    let mut plain = server.connect();
    plain.write_all(GET.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // An alert of TLS, then the end.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[test]
fn connections_over_the_limit_wait() {
    let limits = Limits { max_connections: 1, head_timeout: LONG, ..Limits::default() };
    let server = start(limits, None);
    let mut first = server.connect();
    answered(&mut first);
    let mut second = server.connect();
    second.write_all(GET.as_bytes()).unwrap();
    second.set_read_timeout(Some(SHORT)).unwrap();
    let waits = second.read(&mut [0]).unwrap_err();
    assert!(matches!(waits.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{waits}");
    drop(first);
    second.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(second.read(&mut [0]).unwrap(), 1);
}

#[test]
fn idle_connections_end_when_the_server_drains() {
    let server = start(Limits { head_timeout: LONG, ..Limits::default() }, None);
    let (mut idle, mut fresh) = (server.connect(), server.connect());
    answered(&mut idle);
    server.drain.send(true).unwrap();
    server.thread.join().unwrap();
    assert_eq!(idle.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(fresh.read(&mut [0]).unwrap_or(0), 0);
}
