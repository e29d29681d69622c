//! Calls that may never return: with a time limit they run on a thread of their own, which is abandoned on timeout.

use super::Device;
use crate::error::{Error, Result};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Makes a call of a device; `body` keeps alive whatever the call uses. Without a limit it runs on this thread.
/// `grace` is time that the call takes by right, on top of the limit.
///
/// When time is up the device is given up: nothing of it is called again, nor freed, since the call may still use it.
pub(super) fn watched<T: Send + 'static>(
    device: &Device,
    call: &'static str,
    grace: Duration,
    body: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let Some(limit) = device.plugin.services.watchdog else { return body() };
    let (sender, receiver) = channel();
    // After the timeout the receiver is gone, so the result of `send` is ignored.
    let run = move || drop(sender.send(body()));
    let thread = std::thread::Builder::new().name(format!("llmrt {call}")).spawn(run);
    thread.map_err(|e| Error::Threads { problem: format!("no thread to watch {call} from: {e}") })?;
    match receiver.recv_timeout(limit.saturating_add(grace)) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => {
            Err(device.give_up(call, format!("has not returned within {limit:?}")))
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(Error::Threads { problem: format!("the thread that called {call} is gone") })
        }
    }
}
