//! Kernels that no card has run yet are tried on each card before they are used: a product whose sums are exact is
//! compared with the host's. A kernel whose result is wrong, or that is refused, is not used, with one line in the log.
//!
//! A kernel that faults destroys the context, which cannot be recovered: the error names the option that leaves it out.

use crate::call::{Args, dense_strides};
use crate::driver::cu;
use crate::gpu::Gpu;
use crate::modules::Modules;
use crate::ops::{Operands, Variant};
use crate::sys::*;
use llmrt_plugin::{DType, Error, Result, Scope};
use parking_lot::Mutex;

/// What came of the trials of a device.
pub struct Trials {
    /// Whether the kernels are enabled at all.
    is_enabled: bool,
    /// By name, whether they passed.
    found: Mutex<Vec<(&'static str, bool)>>,
}

/// Numbers of a row, rows of w, columns, matrices: some tiles of every kernel are full, more of them than are in shared memory
/// at once, and some are not.
const SHAPE: [usize; 4] = [584, 136, 264, 2];

impl Trials {
    /// None was made.
    pub fn new(is_enabled: bool) -> Trials {
        Trials { is_enabled, found: Mutex::default() }
    }

    /// Whether a kernel passed. It is tried at first use, on the entered device, on which the thread captures nothing.
    pub fn passed(&self, gpu: &Gpu, modules: &Modules, by: &'static Variant) -> Result<bool> {
        if !self.is_enabled || gpu.driver.cuda.cuTensorMapEncodeTiled.is_none() {
            return Ok(false);
        }
        let mut found = self.found.lock();
        if let Some((_, passed)) = found.iter().find(|(name, _)| *name == by.name) {
            return Ok(*passed);
        }
        let problem = match differing(gpu, modules, by) {
            Ok(0) => None,
            Ok(n) => Some(format!(
                "{n} of {} numbers of its trial are wrong",
                SHAPE[1..].iter().product::<usize>()
            )),
            Err(e) if e.scope == Scope::Call => Some(e.message),
            Err(e) => {
                let text =
                    "the trial of wgmma ended the card's context; LLMRT_CUDA_WGMMA=0 leaves that kernel out";
                return Err(Error { message: format!("{text}: {}", e.message), ..e });
            }
        };
        if let Some(problem) = &problem {
            modules.warn(&format!("kernel `{}` is not used: {problem}", by.name));
        }
        found.push((by.name, problem.is_none()));
        Ok(problem.is_none())
    }
}

/// Memory and a stream for a trial.
struct Bench<'a> {
    gpu: &'a Gpu,
    at: CUdeviceptr,
    stream: CUstream,
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        // SAFETY: memory and a stream of the entered device, if one was made, given back once; nothing runs on them, or the
        // device is lost.
        unsafe {
            if !self.stream.is_null() {
                let _ = cu!(self.gpu.driver, cuStreamSynchronize(self.stream));
                let _ = cu!(self.gpu.driver, cuStreamDestroy_v2(self.stream));
            }
            self.gpu.free(self.at);
        }
    }
}

/// Sixty-fourths from -1 to 1, which F16 and BF16 have, as numbers and as halves; thousands of products of theirs are added up
/// without rounding, in any order.
fn numbers(n: usize, dtype: DType, mut seed: u32) -> (Vec<f32>, Vec<u8>) {
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((seed >> 16) % 129) as i32 - 64
    };
    let whole: Vec<i32> = (0..n).map(|_| next()).collect();
    let half = |n: &i32| {
        let bits = (*n as f32 / 64.0).to_bits();
        match (dtype, *n) {
            (DType::F16, 0) => 0,
            // The exponent's bias is 15 and not 127, and 10 bits follow it.
            (DType::F16, _) => {
                ((bits >> 16 & 0x8000) | ((bits & 0x7fff_ffff) >> 13).wrapping_sub(112 << 10)) as u16
            }
            _ => (bits >> 16) as u16,
        }
    };
    let halves = whole.iter().flat_map(|n| half(n).to_ne_bytes()).collect();
    (whole.iter().map(|n| *n as f32 / 64.0).collect(), halves)
}

/// How many numbers of a product by the kernel are wrong.
fn differing(gpu: &Gpu, modules: &Modules, by: &'static Variant) -> Result<usize> {
    let ([k, m, n, batches], dtype) = (SHAPE, by.dtype);
    let (parts, columns) = (by.parts, n * batches);
    let (w, w_halves) = numbers(k * m * batches, dtype, 1);
    let (x, x_halves) = numbers(columns * parts * k, dtype, 2);
    // What columns and rows are multiplied by in the end; BF16's are not.
    let is_scaled = dtype == DType::F16;
    let units: Vec<f32> =
        (0..columns).map(|i| if is_scaled { [1.0, 0.25, 8.0][i % 3] } else { 1.0 }).collect();
    let row_units: Vec<f32> = (0..m).map(|i| if is_scaled { [2.0, 1.0][i % 2] } else { 1.0 }).collect();
    let of_bytes = |units: &[f32]| units.iter().flat_map(|unit| unit.to_ne_bytes()).collect::<Vec<u8>>();
    let (unit_bytes, row_unit_bytes) = (of_bytes(&units), of_bytes(&row_units));
    let results = vec![0xff; columns * m * 4];
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    for part in [&w_halves, &x_halves, &unit_bytes, &row_unit_bytes, &results] {
        bytes.resize(bytes.len().next_multiple_of(256), 0);
        starts.push(bytes.len() as u64);
        bytes.extend_from_slice(part);
    }
    let mut bench = Bench { gpu, at: gpu.alloc(bytes.len() as u64)?, stream: std::ptr::null_mut() };
    // SAFETY: the output is ours.
    unsafe { cu!(gpu.driver, cuStreamCreateWithPriority(&mut bench.stream, CU_STREAM_NON_BLOCKING, 0))? };
    // SAFETY: as many bytes, which nothing uses.
    unsafe { gpu.upload(bench.at, &bytes)? };
    let at = |i: usize| bench.at + starts[i];
    let ne = [k, m, batches, 1];
    let operands =
        Operands { by, w: at(0), ne, nb: dense_strides(ne, dtype), x: at(1), columns: [n, batches] };
    let args = Args::default().dense(at(0), ne, dtype).floats(0, [k, n, batches, 1]);
    let args = args.floats(at(4), [m, n, batches, 1]).optional(None)?.address(at(1));
    let row_units_at = if is_scaled { at(3) } else { 0 };
    if let Some(launch) = operands.launch(gpu, modules, args, [at(2), row_units_at])? {
        launch.enqueue(gpu, bench.stream)?;
    }
    let mut found = results;
    // SAFETY: a live stream; as many bytes, which its work, that is done then, has written.
    unsafe {
        cu!(gpu.driver, cuStreamSynchronize(bench.stream))?;
        gpu.download(&mut found, at(4))?;
    }
    let found = found.as_chunks::<4>().0;
    let expected = x.chunks(parts * k).zip(&units).enumerate().flat_map(|(i, (x, unit))| {
        let dot =
            |w: &[f32]| x.chunks(k).map(|x| w.iter().zip(x).map(|(w, x)| w * x).sum::<f32>()).sum::<f32>();
        let rows = w[i / n * m * k..][..m * k].chunks(k).zip(&row_units);
        rows.map(move |(w, row_unit)| dot(w) * unit * row_unit)
    });
    Ok(expected.zip(found).filter(|(expected, found)| *expected != f32::from_ne_bytes(**found)).count())
}
