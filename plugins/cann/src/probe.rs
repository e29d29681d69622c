//! What this code and its simulator assume of a card and its release, tried on the card: with option `cann.probe=1`, when a
//! card is opened. Each probe is a line of the log with target `cann.probe`: "as simulated", or a warning with what differs.

use crate::buffer::CardMemory;
use crate::call::{Call, Launch};
use crate::chip::{Chip, Family};
use crate::memory::CardScratch;
use crate::operand::Operand;
use crate::runtime::{Runtime, acl};
use crate::stream::CardStream;
use crate::sys::*;
use llmrt_plugin::{Error, Host, Level, Result};
use std::sync::Arc;

/// Columns of the products: enough for every chip's units.
const K: i64 = 16;
/// Of x and w: the results are 90000, beyond F16.
const FACTOR: f32 = 75.0;

/// Runs the probes on an open card and logs what they find.
pub fn run(host: Host, runtime: &Arc<Runtime>, device: i32, chip: Chip) {
    let log = |level, text: &str| host.log(level, "cann.probe", &format!("card {device}: {text}"));
    let mut report = |what: &str, expected: &str, found: Result<String>| {
        let found = found.unwrap_or_else(|e| e.message);
        match found == expected {
            true => log(Level::Info, &format!("{what}: as simulated ({found})")),
            false => log(Level::Warn, &format!("{what}: differs: {found}, simulated as {expected}")),
        }
    };
    let stream = CardStream::new(host, runtime, device, chip, None, 0);
    match stream {
        Ok(mut stream) => operators(&mut stream, &mut report),
        Err(e) => report("a stream", "made", Err(e)),
    }
    let scratch = CardScratch::new(runtime, device);
    report("huge pages at addresses without a size of pages", "refused", Ok(mapped(&scratch, false)));
    report("huge pages at addresses for them", "mapped", Ok(mapped(&scratch, true)));
}

type Report<'r> = dyn FnMut(&str, &str, Result<String>) + 'r;

fn operators(stream: &mut CardStream, report: &mut Report<'_>) {
    let chip = stream.chip;
    report(
        "an operator planned before its first launch",
        "repeatable",
        of(stream, |bench| bench.repeatable(false)),
    );
    report(
        "an operator planned after a launch",
        "not repeatable",
        of(stream, |bench| bench.repeatable(true)),
    );
    report("rows written in place", "not repeatable", of(stream, |bench| bench.rows()));
    if chip.family != Family::B310 {
        report("a sort of one number", "not repeatable", of(stream, |bench| bench.sort()));
    }
    let rounded = if chip.f32_products { "inf" } else { "90000" };
    report(
        "F32 rows that a product rounds to F16",
        rounded,
        of(stream, |b| b.product(ACL_FLOAT, ACL_FLOAT16, 2)),
    );
    if chip.f32_products {
        report("F16 rows, F32 result", "90000", of(stream, |b| b.product(ACL_FLOAT16, ACL_FLOAT16, 0)));
    }
    if chip.bf16 {
        report(
            "BF16 rows and weights, F32 result",
            "90000",
            of(stream, |b| b.product(ACL_BF16, ACL_BF16, 0)),
        );
    }
}

/// Runs one probe with memory of its own.
fn of(stream: &mut CardStream, probe: impl FnOnce(&mut Bench<'_, '_>) -> Result<String>) -> Result<String> {
    let mut found = None;
    Call::new(stream).finish(|call| {
        found = Some(probe(&mut Bench { call, memory: Vec::new() }));
        Ok(())
    })?;
    found.unwrap_or_else(|| Err(Error::internal("a probe without a result")))
}

/// Objects and memory of a probe, which waits for its work before they go.
struct Bench<'b, 's> {
    call: &'b mut Call<'s>,
    memory: Vec<CardMemory>,
}

/// An operator after its first phase.
struct Planned {
    name: &'static str,
    launch: Launch,
    size: u64,
    executor: *mut aclOpExecutor,
}

/// The first phase of an operator: `plan!(bench, math.aclnnNeg(x, y))?`.
macro_rules! plan {
    ($bench:expr, $library:ident.$name:ident($($arg:expr),*)) => {{
        let op = $bench.call.stream.runtime.cann.$library.$name;
        let (mut size, mut executor) = (0, std::ptr::null_mut());
        match (op.plan, op.launch) {
            (Some(plan), Some(launch)) => {
                // SAFETY: the arguments are objects of this probe, or numbers.
                let code = unsafe { plan($($arg,)* &mut size, &mut executor) };
                let acl = &$bench.call.stream.runtime.cann.acl;
                crate::error::check_planned(acl, stringify!($name), code)
                    .map(|()| Planned { name: stringify!($name), launch, size, executor })
            }
            _ => Err(Error::unsupported(concat!(stringify!($name), " is not in this release"))),
        }
    }};
}

impl Bench<'_, '_> {
    /// Memory with these bytes, and a tensor [inner, outer] of it.
    fn tensor(&mut self, dtype: aclDataType, ne: &[i64], bytes: &[u8]) -> Result<*mut aclTensor> {
        let (runtime, device) = (self.call.stream.runtime.clone(), self.call.stream.device);
        let memory = CardMemory::new(&runtime, device, bytes.len() as u64 + 64)?;
        let address = memory.address(0);
        self.memory.push(memory);
        // SAFETY: new memory of more bytes, which no work uses.
        unsafe { runtime.upload(address, bytes)? };
        self.call.tensor(&Operand::contiguous(dtype, ne, address))
    }

    fn launch(&mut self, planned: &Planned) -> Result<()> {
        let (runtime, device, raw) =
            (self.call.stream.runtime.clone(), self.call.stream.device, self.call.stream.raw);
        let workspace = CardMemory::new(&runtime, device, planned.size.max(64))?;
        let address = workspace.address(0);
        self.memory.push(workspace);
        // SAFETY: planned just now; the workspace has its size and lives until the wait below.
        let code = unsafe { (planned.launch)(address, planned.size, planned.executor, raw) };
        crate::error::check(&runtime.cann.acl, planned.name, code)?;
        // SAFETY: a live stream of the entered card.
        unsafe { acl!(runtime, aclrtSynchronizeStream(raw)) }
    }

    /// Whether the library makes it repeatable; it is not launched any more.
    fn may_repeat(&self, planned: &Planned) -> String {
        let library = &self.call.stream.runtime.cann.object;
        // SAFETY: planned just now, and not launched.
        let code = library.aclSetAclOpExecutorRepeatable.map(|f| unsafe { f(planned.executor) });
        // SAFETY: destroyed once. A failure has no reader.
        let _ = library.aclDestroyAclOpExecutor.map(|f| unsafe { f(planned.executor) });
        if code == Some(ACL_SUCCESS) { "repeatable".into() } else { "not repeatable".into() }
    }

    fn repeatable(&mut self, launched: bool) -> Result<String> {
        // Dims that no model has, so that nothing is in the library's cache.
        let ne = [if launched { 1013 } else { 1009 }];
        let zeros = vec![0; 4 * 1013];
        let (x, y) = (self.tensor(ACL_FLOAT, &ne, &zeros)?, self.tensor(ACL_FLOAT, &ne, &zeros)?);
        if launched {
            let first = plan!(self, math.aclnnNeg(x, y))?;
            self.launch(&first)?;
        }
        let planned = plan!(self, math.aclnnNeg(x, y))?;
        Ok(self.may_repeat(&planned))
    }

    fn rows(&mut self) -> Result<String> {
        let cache = self.tensor(ACL_FLOAT, &[64, 8], &[0; 4 * 64 * 8])?;
        let (index, rows) =
            (self.tensor(ACL_INT32, &[1], &[0; 4])?, self.tensor(ACL_FLOAT, &[64, 1], &[0; 4 * 64])?);
        let planned = plan!(self, nn.aclnnInplaceIndexCopy(cache, 0, index, rows))?;
        Ok(self.may_repeat(&planned))
    }

    fn sort(&mut self) -> Result<String> {
        let (x, y) = (self.tensor(ACL_FLOAT, &[1], &[0; 4])?, self.tensor(ACL_INT64, &[1], &[0; 8])?);
        let planned = plan!(self, math.aclnnArgsort(x, -1, false, y))?;
        Ok(self.may_repeat(&planned))
    }

    /// The sum of 16 products of 75 and 75.
    fn product(&mut self, x_type: aclDataType, w_type: aclDataType, cube_math: i8) -> Result<String> {
        let numbers = |dtype: aclDataType, n: i64| {
            let one = match dtype {
                ACL_FLOAT => FACTOR.to_le_bytes().to_vec(),
                ACL_FLOAT16 => half::f16::from_f32(FACTOR).to_le_bytes().to_vec(),
                _ => half::bf16::from_f32(FACTOR).to_le_bytes().to_vec(),
            };
            one.repeat(n as usize)
        };
        let x = self.tensor(x_type, &[K, K], &numbers(x_type, K * K))?;
        let w = self.tensor(w_type, &[K, K], &numbers(w_type, K * K))?;
        let y = self.tensor(ACL_FLOAT, &[K, K], &[0; 4 * (K * K) as usize])?;
        let result = self.memory.last().map(|memory| memory.address(0));
        let planned = plan!(self, nn.aclnnMm(x, w, y, cube_math))?;
        self.launch(&planned)?;
        let mut bytes = [0; 4];
        if let Some(address) = result {
            // SAFETY: memory of the result; its work is done.
            unsafe { self.call.stream.runtime.download(&mut bytes, address)? };
        }
        Ok(f32::from_le_bytes(bytes).to_string())
    }
}

fn mapped(scratch: &CardScratch, for_huge: bool) -> String {
    match scratch.can_map(for_huge) {
        true => "mapped".into(),
        false => "refused".into(),
    }
}
