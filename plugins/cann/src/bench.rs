//! Single operators tried on a card, with memory of their own: for probes and measurements. All work is waited for.

use crate::buffer::CardMemory;
use crate::call::{Call, Launch};
use crate::operand::Operand;
use crate::runtime::{Runtime, acl};
use crate::stream::CardStream;
use crate::sys::*;
use llmrt_plugin::Result;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Objects and memory of a trial, which waits for its work before they go.
pub struct Bench<'b, 's> {
    /// Makes the vendor's objects.
    pub call: &'b mut Call<'s>,
    memory: Vec<CardMemory>,
}

/// An operator after its first phase.
pub struct Planned {
    /// Its name.
    pub name: &'static str,
    /// Its second phase.
    pub launch: Launch,
    /// Bytes of its workspace.
    pub size: u64,
    /// What the first phase made.
    pub executor: *mut aclOpExecutor,
}

/// The first phase of an operator: `plan!(bench, math.aclnnNeg(x, y))?`.
macro_rules! plan {
    ($bench:expr, $library:ident.$name:ident($($arg:expr),* $(,)?)) => {{
        let op = $bench.runtime().cann.$library.$name;
        let (mut size, mut executor) = (0, std::ptr::null_mut());
        match (op.plan, op.launch) {
            (Some(plan), Some(launch)) => {
                // SAFETY: the arguments are objects of this trial, numbers, or NULL where the operator takes it.
                let code = unsafe { plan($($arg,)* &mut size, &mut executor) };
                crate::error::check_planned(&$bench.runtime().cann.acl, stringify!($name), code)
                    .map(|()| crate::bench::Planned { name: stringify!($name), launch, size, executor })
            }
            _ => Err(llmrt_plugin::Error::unsupported(concat!(stringify!($name), " is not in this release"))),
        }
    }};
}
pub(crate) use plan;

/// Runs one trial on a stream. Its memory goes after its work has ended, also where it fails halfway.
pub fn trial<T>(stream: &mut CardStream, trial: impl FnOnce(&mut Bench<'_, '_>) -> Result<T>) -> Result<T> {
    let mut found = None;
    Call::new(stream).finish(|call| {
        let mut bench = Bench { call, memory: Vec::new() };
        let result = trial(&mut bench);
        let ended = bench.wait();
        found = Some(result.and_then(|found| ended.map(|()| found)));
        Ok(())
    })?;
    found.unwrap_or_else(|| Err(llmrt_plugin::Error::internal("a trial without a result")))
}

impl Bench<'_, '_> {
    /// The libraries.
    pub fn runtime(&self) -> Arc<Runtime> {
        self.call.stream.runtime.clone()
    }

    /// Memory that begins with these bytes.
    pub fn put(&mut self, bytes: &[u8]) -> Result<*mut std::ffi::c_void> {
        let (runtime, device) = (self.runtime(), self.call.stream.device);
        let memory = CardMemory::new(&runtime, device, bytes.len() as u64 + 64)?;
        let address = memory.address(0);
        self.memory.push(memory);
        // SAFETY: new memory of more bytes, which no work uses.
        unsafe { runtime.upload(address, bytes)? };
        Ok(address)
    }

    /// Memory with these bytes as an operand [inner, outer].
    pub fn operand(&mut self, dtype: aclDataType, ne: &[i64], bytes: &[u8]) -> Result<Operand> {
        Ok(Operand::contiguous(dtype, ne, self.put(bytes)?))
    }

    /// Memory with these bytes, and a tensor [inner, outer] of it.
    pub fn tensor(&mut self, dtype: aclDataType, ne: &[i64], bytes: &[u8]) -> Result<*mut aclTensor> {
        let operand = self.operand(dtype, ne, bytes)?;
        self.call.tensor(&operand)
    }

    /// Launches what was planned, and waits.
    pub fn launch(&mut self, planned: &Planned) -> Result<()> {
        let workspace = self.put(&vec![0; planned.size as usize])?;
        self.enqueue(planned, workspace)?;
        self.wait()
    }

    fn enqueue(&self, planned: &Planned, workspace: *mut std::ffi::c_void) -> Result<()> {
        let raw = self.call.stream.raw;
        // SAFETY: planned, and not launched before unless it may be repeated; the workspace has its size, and like all of this
        // trial lives until its work is done.
        let code = unsafe { (planned.launch)(workspace, planned.size, planned.executor, raw) };
        crate::error::check(&self.runtime().cann.acl, planned.name, code)
    }

    /// The time of `n` launches of what `plan` plans, planned once where that may be repeated. Plans and memory are made before
    /// it begins.
    pub fn time(&mut self, n: usize, mut plan: impl FnMut(&mut Self) -> Result<Planned>) -> Result<Duration> {
        let mut planned = vec![plan(self)?];
        let repeats = self.repeats(&planned[0]);
        let mut made = Ok(());
        while !repeats && planned.len() < n && made.is_ok() {
            made = plan(self).map(|next| planned.push(next));
        }
        let size = planned.iter().map(|next| next.size).max().unwrap_or(0);
        let workspace = match made.and_then(|()| self.put(&vec![0; size as usize])) {
            Ok(workspace) => workspace,
            Err(e) => {
                planned.iter().for_each(|next| self.destroy(next));
                return Err(e);
            }
        };
        let start = Instant::now();
        let mut n_tried = 0;
        let launched = (0..n).try_for_each(|i| {
            n_tried += 1;
            self.enqueue(&planned[i % planned.len()], workspace)
        });
        let launched = launched.and(self.wait());
        let time = start.elapsed();
        // A launch uses up a plan that may not be repeated.
        let left = if repeats { &planned[..] } else { &planned[n_tried..] };
        left.iter().for_each(|next| self.destroy(next));
        launched.map(|()| time)
    }

    /// Waits for all of this trial.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: a live stream of the entered card.
        unsafe { acl!(self.runtime(), aclrtSynchronizeStream(self.call.stream.raw)) }
    }

    /// Makes a plan repeatable, if the library lets it be.
    pub fn repeats(&self, planned: &Planned) -> bool {
        let runtime = self.runtime();
        // SAFETY: planned, and not launched.
        let code = runtime.cann.object.aclSetAclOpExecutorRepeatable.map(|f| unsafe { f(planned.executor) });
        code == Some(ACL_SUCCESS)
    }

    /// A plan that is launched no more.
    pub fn destroy(&self, planned: &Planned) {
        crate::plan::destroy(&self.runtime().cann.object, planned.executor);
    }

    /// Bytes of an operand's memory, whose work is done.
    pub fn read(&self, from: &Operand, n: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; n];
        // SAFETY: memory of this trial with as many bytes.
        unsafe { self.runtime().download(&mut bytes, from.base)? };
        Ok(bytes)
    }
}
