//! The checking layer between host and plugin, on with `LLMRT_VALIDATE=1`: every call passes [`enter`] and
//! [`Entered::leave`].
//!
//! What is checked: the object called is alive and its table untouched, and a stream is called by one thread at a time
//! ([`live`]); return values are valid ([`answers`]); nothing outside the host's outputs was written ([`fence`]); the
//! plugin calls the host only from allowed contexts ([`inside`]). A violation is logged with plugin, call and reason,
//! and becomes an error: of plugin scope where memory or an object was corrupted, of call scope where only this return
//! value is invalid. Off, a call costs one test of a pointer.

pub(crate) mod answers;
pub(crate) mod fence;
pub(crate) mod inside;
pub(crate) mod live;

use crate::device::Device;
use crate::error::{CallError, Error, Result};
use crate::plugin::loaded::Loaded;
use llmrt_abi::{Scope, Status, types as c};

/// A call that passed the checks before it; [`Entered::leave`] checks its result. `None` when nothing is checked.
pub(crate) struct Entered<'a>(Option<Checked<'a>>);

struct Checked<'a> {
    plugin: &'a Loaded,
    call: &'static str,
    /// The object, if it is one that only one thread may call.
    turn: Option<live::Turn>,
    _inside: inside::Inside,
}

/// Before a call of `object`, whose first field is its table.
pub(crate) fn enter<'a, T>(plugin: &'a Loaded, call: &'static str, object: *const T) -> Result<Entered<'a>> {
    if !plugin.services.validate {
        return Ok(Entered(None));
    }
    let turn = live::check(plugin.key, object as usize, call)
        .map_err(|(scope, text)| violation(plugin, call, scope, text))?;
    Ok(Entered(Some(Checked { plugin, call, turn, _inside: inside::enter() })))
}

impl Entered<'_> {
    /// After the call: the result, or what is wrong with it.
    pub(crate) fn leave(self, status: i32, err: &fence::FencedError, result: Result<()>) -> Result<()> {
        let Some(Checked { plugin, call, turn, .. }) = self.0 else { return result };
        drop(turn);
        if !err.is_whole() {
            return Err(violation(
                plugin,
                call,
                Scope::Plugin,
                "wrote outside the error it was given".into(),
            ));
        }
        match answers::status(call, status, &err.error) {
            Some(text) => Err(violation(plugin, call, Scope::Call, text)),
            None => result,
        }
    }
}

/// Logs a violation and makes it an error.
pub(crate) fn violation(plugin: &Loaded, call: &'static str, scope: Scope, text: String) -> Error {
    let name = &plugin.desc.name;
    plugin.services.log_line(1, &format!("LLMRT_VALIDATE: {name}: {call}: {text}"));
    let error = CallError {
        who: name.clone(),
        call,
        status: Status::Internal,
        scope,
        vendor_code: 0,
        node: None,
        bytes_requested: 0,
        bytes_available: 0,
        message: format!("LLMRT_VALIDATE: {text}"),
    };
    if scope == Scope::Plugin {
        let _ = plugin.quarantined.set(error.to_string());
    }
    error.into()
}

impl Device {
    /// Whether calls are checked.
    pub(crate) fn validates(&self) -> bool {
        self.plugin.services.validate
    }

    /// Turns a complaint about an answer into an error, when calls are checked.
    pub(crate) fn check_answer(
        &self,
        call: &'static str,
        scope: Scope,
        complaint: impl FnOnce() -> Option<String>,
    ) -> Result<()> {
        match self.validates().then(complaint).flatten() {
            Some(text) => Err(violation(&self.plugin, call, scope, text)),
            None => Ok(()),
        }
    }

    /// Notes what is free before anybody allocates, on devices whose memory is not the machine's.
    pub(crate) fn note_free(&self) {
        let is_own = !matches!(self.info().kind, c::DEVICE_CPU | c::DEVICE_IGPU);
        if is_own
            && self.validates()
            && self.alive().is_ok()
            && let Ok((free, _)) = self.memory()
        {
            let _ = self.free_at_start.set(free);
        }
    }

    /// All buffers are gone: as much is free as there was. Only logged, since other processes may use the card too.
    pub(crate) fn check_leaks(&self) {
        if let Some(&before) = self.free_at_start.get()
            && let Ok((free, _)) = self.memory()
            && free < before
        {
            let text = format!("close: {} bytes are still counted as in use", before - free);
            self.plugin.services.log_line(2, &format!("LLMRT_VALIDATE: {}: {text}", self.plugin.desc.name));
        }
    }

    /// Calls a second time and compares, with guard rows around the answers that must stay as they are.
    ///
    /// # Safety
    /// As for the device's `supports`, whose arguments these are.
    pub(crate) unsafe fn supports_fenced(
        &self,
        graph: *const c::Graph,
        first: u32,
        n: u32,
    ) -> Result<Vec<c::Verdict>> {
        let mut answers = [fence::Fenced::new(n as usize), fence::Fenced::new(n as usize)];
        for rows in &mut answers {
            // SAFETY: the caller's promise; `rows` has `n` rows between its fences.
            unsafe {
                crate::device::call!(self, self.vt, supports(self.raw, graph, first, n, rows.as_mut_ptr()))?
            };
            let damaged = || (!rows.is_whole()).then(|| format!("wrote outside the {n} verdicts requested"));
            self.check_answer("supports", Scope::Plugin, damaged)?;
        }
        let [mut rows, second] = answers;
        self.check_answer("supports", Scope::Call, || answers::verdicts(rows.rows(), second.rows()))?;
        Ok(rows.take())
    }
}
