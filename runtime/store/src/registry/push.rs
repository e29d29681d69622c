//! Sends a model of the store to a registry.

use super::http::{Request, header, without_query};
use super::session::{Session, expect};
use super::{Client, Source};
use crate::error::{Error, Result};
use crate::manifest::{Layer, media};
use crate::store::Store;
use crate::watch::{Event, Watch};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use ureq::Body;
use ureq::http::Response;

/// Bytes of a request that sends a part of a blob.
const CHUNK: u64 = 8 << 20;

impl Client {
    /// Pushes a model under its own name. Blobs that the registry has are not sent.
    pub fn push(&self, store: &Store, source: &Source, watch: &mut Watch<'_>) -> Result<()> {
        let name = &source.name;
        let (manifest, text) = store.manifest(name)?;
        if name.is_on_hub() {
            let problem =
                "is a name of a hub, which is no registry to push to: copy it to another name".into();
            return Err(Error::Unsupported { name: name.clone(), problem });
        }
        let mut session = Session::new(self, &self.registry(source)?, None);
        let repository = format!("{}/v2/{}/{}", session.base(), name.namespace(), name.model());
        let mut seen = HashSet::new();
        for layer in manifest.blobs().filter(|layer| seen.insert(layer.digest)) {
            let url = format!("{repository}/blobs/{}", layer.digest);
            let head = session.exchange(&Request::new("HEAD", &url), watch)?;
            match head.status().as_u16() {
                200 => watch.show(Event::Exists { digest: layer.digest }),
                404 => {
                    let path = store.blob(name, layer)?;
                    let file = File::open(&path).map_err(Error::io(&path, "read"))?;
                    Upload { repository: &repository, layer, file }.run(&mut session, watch)?;
                }
                _ => drop(expect(&url, head, &[200])?),
            }
        }
        watch.show(Event::Finish);
        let url = format!("{repository}/manifests/{}", name.tag());
        let request = Request::new("PUT", &url).header("content-type", media::MANIFEST).body(&text);
        expect(&url, session.exchange(&request, watch)?, &[200, 201, 202]).map(drop)
    }
}

/// A blob on its way to a registry.
struct Upload<'a> {
    repository: &'a str,
    layer: &'a Layer,
    file: File,
}

impl Upload<'_> {
    /// Sends the blob in parts. Where a connection breaks, the registry is queried for what it has.
    fn run(&self, session: &mut Session<'_>, watch: &mut Watch<'_>) -> Result<()> {
        let mut tries = session.tries();
        let mut location = self.begin(session, watch)?;
        let mut done = 0;
        while done < self.layer.size {
            let sent = self.send_part(session, &location, done)?;
            match sent {
                Ok(next) => {
                    done += self.part_len(done);
                    location = next;
                    tries.progressed();
                    let (digest, total) = (Some(self.layer.digest), Some(self.layer.size));
                    watch.show(Event::Transfer { digest, done, total });
                }
                Err(cause) => {
                    tries.failed(&location, cause, watch)?;
                    (location, done) = self.state(session, location, watch)?;
                }
            }
            watch.check()?;
        }
        let separator = if location.contains('?') { '&' } else { '?' };
        let url = format!("{location}{separator}digest={}", self.layer.digest);
        expect(&url, session.exchange(&Request::new("PUT", &url).body(&[]), watch)?, &[200, 201, 204])
            .map(drop)
    }

    /// Begins an upload; returns where its bytes go.
    fn begin(&self, session: &mut Session<'_>, watch: &mut Watch<'_>) -> Result<String> {
        let url = format!("{}/blobs/uploads/", self.repository);
        let response = session.exchange(&Request::new("POST", &url).body(&[]), watch)?;
        location(session, &url, &expect(&url, response, &[202])?)
    }

    fn part_len(&self, done: u64) -> u64 {
        CHUNK.min(self.layer.size - done)
    }

    /// Sends the part that begins at `done`; the inner error is why it may be sent again.
    fn send_part(
        &self,
        session: &mut Session<'_>,
        url: &str,
        done: u64,
    ) -> Result<std::result::Result<String, String>> {
        let mut part = vec![0; self.part_len(done) as usize];
        let read = self.file.read_exact_at(&mut part, done);
        read.map_err(Error::io(self.layer.digest.file_name().as_ref(), "read"))?;
        let range = format!("{done}-{}", done + part.len() as u64 - 1);
        let request = Request::new("PATCH", url)
            .header("content-type", "application/octet-stream")
            .header("content-range", range)
            .body(&part);
        match session.send(&request)? {
            Err(cause) => Ok(Err(cause)),
            Ok(response) if matches!(response.status().as_u16(), 404 | 408 | 416 | 429 | 500..) => {
                Ok(Err(format!("the server answered with status {}", response.status().as_u16())))
            }
            Ok(response) => location(session, url, &expect(url, response, &[202, 204])?).map(Ok),
        }
    }

    /// Where an interrupted upload stands; a new one if the registry has lost it.
    fn state(&self, session: &mut Session<'_>, url: String, watch: &mut Watch<'_>) -> Result<(String, u64)> {
        let response = session.exchange(&Request::new("GET", &url), watch)?;
        let last = |range: &str| range.strip_prefix("0-")?.parse::<u64>().ok();
        let last = header(response.headers(), "range").and_then(last);
        match (response.status().as_u16(), last) {
            (204, Some(last)) if last < self.layer.size => {
                Ok((location(session, &url, &response)?, last + 1))
            }
            _ => Ok((self.begin(session, watch)?, 0)),
        }
    }
}

/// The header `Location`, whole.
fn location(session: &Session<'_>, url: &str, response: &Response<Body>) -> Result<String> {
    match header(response.headers(), "location") {
        Some(path) if path.starts_with('/') => Ok(format!("{}{path}", session.base())),
        Some(location) => Ok(location.into()),
        None => Err(Error::BadAnswer { url: without_query(url), problem: "has no Location".into() }),
    }
}
