//! The state of a device after failed calls: which calls are still allowed, and which objects a failure ends.

use super::Device;
use crate::error::{CallError, Error, Result};
use llmrt_abi::{Scope, Status, types as c};
use std::sync::atomic::Ordering;

impl Device {
    /// Refuses when the device or its plugin is not to be called.
    pub(crate) fn alive(&self) -> Result<()> {
        self.plugin.alive()?;
        if let Some(reason) = self.broken.get() {
            return Err(Error::Quarantined { what: self.id.clone(), reason: reason.clone() });
        }
        match self.unused.get() {
            Some(reason) => Err(Error::Unused { device: self.id.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Turns an answer into a result; failures of device scope end the device, those of plugin scope the plugin.
    pub(crate) fn check(&self, call: &'static str, status: i32, err: &c::Error) -> Result<()> {
        let result = self.plugin.check(&self.id, call, status, err);
        if let Err(e) = &result
            && e.scope() == Scope::Device
        {
            let _ = self.broken.set(e.to_string());
        }
        result
    }

    /// An error in the words of a plugin: for objects that break the contract.
    pub(crate) fn breach(&self, call: &'static str, message: String) -> Error {
        let e = self.failure(call, Status::Internal, Scope::Plugin, message);
        let _ = self.plugin.quarantined.set(e.to_string());
        e.into()
    }

    /// Ends the use of a device that hangs in a call.
    pub(crate) fn give_up(&self, call: &'static str, message: String) -> Error {
        self.hangs.store(true, Ordering::Release);
        let e = self.failure(call, Status::DeviceLost, Scope::Device, message);
        let _ = self.broken.set(e.to_string());
        e.into()
    }

    /// Whether what was made on the device may be destroyed: nothing of a broken plugin is called, and nothing that a
    /// hanging call may use is freed.
    pub(crate) fn may_destroy(&self) -> bool {
        self.plugin.quarantined.get().is_none() && !self.hangs.load(Ordering::Acquire)
    }

    fn failure(&self, call: &'static str, status: Status, scope: Scope, message: String) -> CallError {
        CallError {
            who: self.id.clone(),
            call,
            status,
            scope,
            vendor_code: 0,
            node: None,
            bytes_requested: 0,
            bytes_available: 0,
            message,
        }
    }
}
