//! TLS: the certificate and its key, read once at start.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, InconsistentKeys, ServerConfig};

/// Files in PEM form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate, then those between it and the root.
    pub cert: PathBuf,
    /// The private key of the certificate, without a password.
    pub key: PathBuf,
}

const CERT: &str = "--tls-cert";
const KEY: &str = "--tls-key";
const EXPECTED_CERT: &str = "expected PEM with `-----BEGIN CERTIFICATE-----`, the server's own first, then those between it and the root";
const EXPECTED_KEY: &str = "expected PEM with `-----BEGIN PRIVATE KEY-----`, without a password";

/// What accepts TLS connections (1.2 and 1.3, HTTP/1.1) with these files.
///
/// Fails where a file cannot be read, contains no certificate or no key, or the key is of another certificate.
pub fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor> {
    let of_cert = |problem: String| refusal(CERT, &files.cert, problem, EXPECTED_CERT);
    let of_key = |problem: String| refusal(KEY, &files.key, problem, EXPECTED_KEY);

    let certs = CertificateDer::pem_slice_iter(&read(CERT, &files.cert)?).collect::<Result<Vec<_>, _>>();
    let certs = certs.map_err(|e| of_cert(format!("it is no PEM: {e}")))?;
    if certs.is_empty() {
        return Err(of_cert("there is no certificate in it".into()));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(KEY, &files.key)?);
    let key = key.map_err(|e| of_key(format!("there is no private key in it: {e}")))?;

    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Start { problem: e.to_string() })?;
    let config = config.with_no_client_auth().with_single_cert(certs, key);
    let mut config = config.map_err(|e| match e {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let remedy = format!("give the key that the certificate {} was made with", files.cert.display());
            refusal(KEY, &files.key, "the key is of another certificate".into(), &remedy)
        }
        rustls::Error::InvalidCertificate(_) => of_cert(e.to_string()),
        e => of_key(e.to_string()),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| {
        refusal(flag, path, format!("the file cannot be read: {e}"), "give a file that this user can read")
    })
}

fn refusal(flag: &'static str, path: &Path, problem: String, remedy: &str) -> Error {
    Error::Tls { flag, path: path.into(), problem, remedy: remedy.into() }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A certificate for `localhost` that signed itself, and its key.
    pub fn self_signed() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn files_that_do_not_fit_are_refused_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let file = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let ((cert, key), (_, other)) = (self_signed(), self_signed());
        let (cert, key) = (file("cert", &cert), file("key", &key));
        let refused = |cert: &Path, key: &Path| {
            let files = TlsFiles { cert: cert.into(), key: key.into() };
            acceptor(&files).map(|_| ()).unwrap_err().to_string()
        };
        acceptor(&TlsFiles { cert: cert.clone(), key: key.clone() }).map(|_| ()).unwrap();
        let missing = refused(&dir.join("none"), &key);
        assert!(missing.starts_with("--tls-cert") && missing.contains("cannot be read"), "{missing}");
        let swapped = refused(&key, &cert);
        assert!(swapped.contains("no certificate in it; expected PEM"), "{swapped}");
        let no_key = refused(&cert, &cert);
        assert!(no_key.starts_with("--tls-key") && no_key.contains("no private key in it"), "{no_key}");
        let mismatch = refused(&cert, &file("other", &other));
        assert!(mismatch.contains("the key is of another certificate; give the key"), "{mismatch}");
        let damaged = file("damaged", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        assert!(refused(&damaged, &key).starts_with("--tls-cert"), "{}", refused(&damaged, &key));
    }
}
