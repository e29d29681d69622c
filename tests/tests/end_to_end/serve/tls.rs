//! TLS: a client that trusts the certificate is answered, one that does not is not, and files that do not fit end the start.

use super::client::Server;
use llmrt_tests::build::{fail, llmrt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// A certificate for `localhost` that signed itself, and its key.
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

impl Files {
    fn new(dir: &TempDir, name: &str) -> Files {
        let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
        let write = |kind: &str, text: String| {
            let path = dir.path().join(format!("{name}.{kind}"));
            std::fs::write(&path, text).expect("a file");
            path
        };
        Files { cert: write("cert", made.cert.pem()), key: write("key", made.signing_key.serialize_pem()) }
    }

    fn server(&self) -> Server {
        Server::start(&["--tls-cert", text(&self.cert), "--tls-key", text(&self.key)])
    }

    /// A client that trusts this certificate alone.
    fn client(&self) -> Agent {
        let pem = std::fs::read(&self.cert).expect("the certificate");
        let root = Certificate::from_pem(&pem).expect("PEM");
        let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[root])).build();
        let config = Agent::config_builder().tls_config(tls).timeout_global(Some(Duration::from_secs(120)));
        config.build().into()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The server's address by the name in the certificate.
fn at(server: &Server, path: &str) -> String {
    let port = server.url.rsplit(':').next().expect("a port");
    assert!(server.url.starts_with("https://"), "{}", server.url);
    format!("https://localhost:{port}{path}")
}

#[test]
fn requests_and_streams_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::new(&dir, "own");
    let server = files.server();
    let client = files.client();
    let mut health = client.get(at(&server, "/health")).call().expect("an answer");
    assert_eq!(health.body_mut().read_to_string().unwrap(), r#"{"status":"ok"}"#);
    let body = r#"{"prompt": "Once", "max_tokens": 4, "stream": true}"#;
    let mut stream = client.post(at(&server, "/v1/completions")).send(body).expect("a stream");
    let events = stream.body_mut().read_to_string().unwrap();
    assert!(events.ends_with("data: [DONE]\n\n"), "{events}");
    let stranger = Files::new(&dir, "other").client();
    let refused = stranger.get(at(&server, "/health")).call().unwrap_err().to_string();
    assert!(refused.contains("certificate"), "{refused}");
}

#[test]
fn files_that_do_not_fit_end_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let (files, other) = (Files::new(&dir, "own"), Files::new(&dir, "other"));
    let (cert, key) = (text(&files.cert), text(&files.key));
    let serve = |flags: &[&str], exit: i32| fail(llmrt(["serve", "--port", "0"]).args(flags), exit);
    let alone = serve(&["--tls-cert", cert], 2);
    assert!(alone.contains("--tls-key"), "{alone}");
    let missing = serve(&["--tls-cert", "nope.pem", "--tls-key", key], 3);
    assert!(missing.contains("--tls-cert nope.pem: the file cannot be read"), "{missing}");
    let swapped = serve(&["--tls-cert", key, "--tls-key", cert], 3);
    assert!(swapped.contains("there is no certificate in it; expected PEM"), "{swapped}");
    let mismatch = serve(&["--tls-cert", cert, "--tls-key", text(&other.key)], 3);
    assert!(mismatch.contains("the key is of another certificate"), "{mismatch}");
}
