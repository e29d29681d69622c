//! How an event loop hears of streams: a socket that the loop watches, and the keys of the streams that have news. The engine's
//! thread never takes the interpreter's lock.

use parking_lot::Mutex;
use pyo3::prelude::*;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The streams of one event loop.
#[pyclass(frozen, module = "llmrt._llmrt")]
pub struct Mailbox {
    reader: UnixStream,
    post: Arc<Post>,
}

/// The engine's end.
pub struct Post {
    ready: Mutex<Vec<u64>>,
    writer: UnixStream,
}

impl Post {
    /// The stream with this key has news.
    pub fn notify(&self, key: u64) {
        let mut ready = self.ready.lock();
        if ready.is_empty() {
            // A full socket has been written to already; a closed one has no reader.
            let _ = (&self.writer).write(&[0]);
        }
        ready.push(key);
    }
}

impl Mailbox {
    /// The end for streams.
    pub fn post(&self) -> Arc<Post> {
        self.post.clone()
    }
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Mailbox> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Mailbox { reader, post: Arc::new(Post { ready: Mutex::default(), writer }) })
    }

    /// The socket to watch; readable while there are keys.
    fn fileno(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    /// The keys of streams with news since the last call.
    fn take(&self) -> Vec<u64> {
        let mut ready = self.post.ready.lock();
        let mut bytes = [0; 16];
        while (&self.reader).read(&mut bytes).is_ok_and(|n| n == bytes.len()) {}
        std::mem::take(&mut *ready)
    }
}
