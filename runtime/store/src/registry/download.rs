//! A blob's bytes: continued where an earlier run or a broken connection ended, verified before they have a name.

use super::http::{Request, header, without_query};
use super::session::{Session, Tries, expect};
use crate::blobs::{Blobs, Partial, Slot};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::watch::{Event, Watch};
use std::io::Read;
use ureq::Body;
use ureq::http::{HeaderMap, Response};

/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;

/// What is downloaded.
pub(super) struct Download<'a> {
    /// From where.
    pub url: &'a str,
    /// The name of the unfinished file: a digest's, or one made of what identifies the bytes.
    pub stem: String,
    /// The digest, if it is stated.
    pub digest: Option<Digest>,
    /// The length, if it is stated.
    pub size: Option<u64>,
}

impl Download<'_> {
    /// Brings the blob into the store; returns its digest and size.
    pub fn run(
        &self,
        session: &mut Session<'_>,
        blobs: &Blobs,
        watch: &mut Watch<'_>,
    ) -> Result<(Digest, u64)> {
        let stated = self.digest.as_ref().zip(self.size);
        let mut partial = match Partial::open(blobs, &self.stem, stated, watch)? {
            Slot::Open(partial) => partial,
            Slot::Exists => {
                let Some((&digest, size)) = stated else { unreachable!("only a stated digest is looked up") };
                watch.show(Event::Exists { digest });
                return Ok((digest, size));
            }
        };
        // Bytes of an earlier run may be wrong: then all are received again, once.
        let is_continued = partial.len() > 0;
        self.receive(session, &mut partial, watch)?;
        if is_continued && self.mismatch(&partial).is_some() {
            partial.restart()?;
            self.receive(session, &mut partial, watch)?;
        }
        if let Some(e) = self.mismatch(&partial) {
            partial.discard();
            return Err(e);
        }
        let size = partial.len();
        Ok((partial.commit(blobs, self.digest.as_ref())?, size))
    }

    fn mismatch(&self, partial: &Partial) -> Option<Error> {
        let (expected, found) = (self.digest?, partial.digest());
        (expected != found).then(|| Error::DigestMismatch { url: without_query(self.url), expected, found })
    }

    /// Receives what is missing.
    fn receive(&self, session: &mut Session<'_>, partial: &mut Partial, watch: &mut Watch<'_>) -> Result<()> {
        let mut tries = session.tries();
        loop {
            if self.size.is_some_and(|size| partial.len() > size) {
                partial.restart()?;
            }
            if self.size == Some(partial.len()) {
                return Ok(());
            }
            let mut request = Request::new("GET", self.url);
            if partial.len() > 0 {
                request = request.header("range", format!("bytes={}-", partial.len()));
            }
            let response = session.exchange_within(&request, &mut tries, watch)?;
            let Some((response, total)) = self.begin(response, partial, &mut tries, watch)? else { continue };
            match self.stream(response, total, partial, &mut tries, watch)? {
                None => return Ok(()),
                Some(cause) => tries.failed(self.url, cause, watch)?,
            }
        }
    }

    /// Checks the head of an answer against what is there: the answer and the length of all. `None`: try again from the
    /// beginning.
    fn begin(
        &self,
        response: Response<Body>,
        partial: &mut Partial,
        tries: &mut Tries,
        watch: &mut Watch<'_>,
    ) -> Result<Option<(Response<Body>, Option<u64>)>> {
        let total = match response.status().as_u16() {
            206 => match content_range(response.headers()) {
                Some((start, total)) if start == partial.len() => total,
                _ => return self.begin_again("another range than was requested", partial, tries, watch),
            },
            416 => return self.begin_again("no such range", partial, tries, watch),
            200 => {
                partial.restart()?;
                header(response.headers(), "content-length").and_then(|n| n.parse().ok())
            }
            _ => return expect(self.url, response, &[200, 206]).map(|_| None),
        };
        match (self.size, total) {
            (Some(expected), Some(found)) if expected != found => {
                Err(Error::WrongLength { url: without_query(self.url), expected, found })
            }
            (stated, total) => Ok(Some((response, stated.or(total)))),
        }
    }

    fn begin_again<T>(
        &self,
        problem: &str,
        partial: &mut Partial,
        tries: &mut Tries,
        watch: &mut Watch<'_>,
    ) -> Result<Option<T>> {
        partial.restart()?;
        tries.failed(self.url, format!("the server has {problem}"), watch).map(|()| None)
    }

    /// Writes the body. `Some` is why it ended too early.
    fn stream(
        &self,
        response: Response<Body>,
        total: Option<u64>,
        partial: &mut Partial,
        tries: &mut Tries,
        watch: &mut Watch<'_>,
    ) -> Result<Option<String>> {
        let mut body = response.into_body().into_reader();
        let mut chunk = vec![0; CHUNK];
        loop {
            watch.check()?;
            let n = match body.read(&mut chunk) {
                Ok(n) => n,
                Err(e) => return Ok(Some(e.to_string())),
            };
            if n == 0 {
                let is_short = total.is_some_and(|total| partial.len() < total);
                return Ok(is_short.then(|| "the connection ended before the last byte".into()));
            }
            let found = partial.len() + n as u64;
            if let Some(expected) = total.filter(|&total| found > total) {
                return Err(Error::WrongLength { url: without_query(self.url), expected, found });
            }
            partial.append(&chunk[..n])?;
            tries.progressed();
            watch.show(Event::Transfer { digest: self.digest, done: partial.len(), total });
        }
    }
}

/// Begin and total of `bytes BEGIN-END/TOTAL`.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let range = header(headers, "content-range")?.strip_prefix("bytes ")?;
    let (range, total) = range.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}
