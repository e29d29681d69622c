//! Products with weights in one of two layouts, tried on a card: whether the results are right, and how long they take.

use crate::bench::{Bench, Planned, plan, trial};
use crate::layout::GROUP;
use crate::operand::Operand;
use crate::repack;
use crate::stream::CardStream;
use crate::sys::*;
use half::f16;
use llmrt_plugin::{Error, Result};
use std::fmt;
use std::time::Duration;

/// Launches that are timed together, so that waiting for them weighs little, and how often.
const LAUNCHES: usize = 16;
const ROUNDS: usize = 5;

/// Results that are compared with ones computed here.
const COMPARED: usize = 64;

/// Results of F16 are off by 2⁻¹¹ at most, squared 2.4e-7.
const NMSE: f64 = 1e-6;

/// A product: rows of `k` numbers, `m` of them, with `n` columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Numbers of a row.
    pub k: i64,
    /// Rows of the weight.
    pub m: i64,
    /// Columns of the activations.
    pub n: i64,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.k, self.m, self.n)
    }
}

/// What weights are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// F16.
    Half,
    /// Values of 4 bits and scales.
    Int4,
    /// Values of 8 bits and scales.
    Int8,
}

impl Kind {
    /// A layout for people: the usual one, or the other.
    pub fn name(self, other: bool) -> &'static str {
        match (self, other) {
            (Kind::Half, false) => "F16 as in the file",
            (Kind::Half, true) => "F16 as FRACTAL_NZ",
            (_, false) => "quantised by rows",
            (_, true) => "quantised by columns",
        }
    }

    fn dtype(self) -> aclDataType {
        if self == Kind::Half { ACL_FLOAT } else { ACL_FLOAT16 }
    }
}

/// An error that names what is wrong with products of the usual or the other layout.
pub fn check(stream: &mut CardStream, kind: Kind, other: bool, shape: Shape) -> Result<()> {
    trial(stream, |bench| {
        let product = Product::new(bench, kind, other, shape)?;
        product.is_right(bench)
    })
}

/// Whether the other layout is right and takes less time in sum; and the times, for people.
pub fn faster(stream: &mut CardStream, kind: Kind, shapes: &[Shape]) -> (bool, String) {
    let mut time = |other: bool| {
        let one = |shape: &Shape| {
            trial(stream, |bench| {
                let product = Product::new(bench, kind, other, *shape)?;
                product.is_right(bench)?;
                product.time(bench)
            })
        };
        shapes.iter().map(one).sum::<Result<Duration>>()
    };
    let (usual, other) = (time(false), time(true));
    let words = |is_other: bool, time: &Result<Duration>| match time {
        Ok(time) => format!("{} {time:.1?}", kind.name(is_other)),
        Err(e) => format!("{}: {}", kind.name(is_other), e.message),
    };
    let text = format!("{}, {}", words(false, &usual), words(true, &other));
    // Where the usual one is refused, what computes it instead was not measured.
    let is_faster = matches!((&usual, &other), (Ok(usual), Ok(other)) if other < usual);
    (is_faster, text)
}

/// A product whose operands are on the card.
struct Product {
    kind: Kind,
    other: bool,
    shape: Shape,
    x: Operand,
    w: Operand,
    /// Of weights with scales.
    scales: Operand,
    y: Operand,
}

/// A weight. The first row is the largest, so that F32 results of F16 numbers are beyond F16 there.
fn weight(kind: Kind, row: i64, column: i64) -> f64 {
    match kind {
        Kind::Half if row == 0 => 8.0,
        Kind::Half => ((row * 7 + column * 3) % 17 - 8) as f64,
        _ => value(row, column) as f64 * scale(row, column / GROUP as i64),
    }
}

/// Of 4 bits, whatever they are stored in.
fn value(row: i64, column: i64) -> i8 {
    ((row * 5 + column * 3 + column / 32) % 16 - 8) as i8
}

fn scale(row: i64, group: i64) -> f64 {
    (1 + (row + group) % 3) as f64 / 64.0
}

fn activation(kind: Kind, row: i64, column: i64) -> f64 {
    match kind {
        Kind::Half if column == 0 => 75.0,
        _ => ((row * 5 + column) % 13 - 6) as f64 / 8.0,
    }
}

impl Product {
    fn new(bench: &mut Bench<'_, '_>, kind: Kind, other: bool, shape: Shape) -> Result<Product> {
        let Shape { k, m, n } = shape;
        let halves = |outer: i64, inner: i64, f: &dyn Fn(i64, i64) -> f64| -> Vec<u8> {
            let row = |i: i64| (0..inner).flat_map(move |j| f16::from_f64(f(i, j)).to_le_bytes());
            (0..outer).flat_map(row).collect()
        };
        let x = halves(n, k, &|column, i| activation(kind, i, column));
        let x = bench.operand(ACL_FLOAT16, &[k, n], &x)?;
        let (w, scales) = match kind {
            Kind::Half => {
                let plain = halves(m, k, &|row, i| weight(kind, row, i));
                let stored = if other { repack::blocks(&plain, k as usize, m as usize) } else { plain };
                (bench.operand(ACL_FLOAT16, &[k, m], &stored)?, x.clone())
            }
            _ => {
                let (per_row, across) =
                    (k / GROUP as i64, move |a: i64, b: i64| if other { (b, a) } else { (a, b) });
                let (inner, outer) = across(k, m);
                let at = |i: i64| {
                    let (i, row) = across(i % inner, i / inner);
                    value(row, i) as u8
                };
                let stored: Vec<u8> = match kind {
                    Kind::Int4 => (0..k * m / 2).map(|i| at(2 * i) & 15 | at(2 * i + 1) << 4).collect(),
                    _ => (0..k * m).map(at).collect(),
                };
                let dtype = if kind == Kind::Int4 { ACL_INT4 } else { ACL_INT8 };
                let w = bench.operand(dtype, &[inner, outer], &stored)?;
                let (inner, outer) = across(per_row, m);
                let scales = halves(outer, inner, &|outer, inner| {
                    let (group, row) = across(inner, outer);
                    scale(row, group)
                });
                (w, bench.operand(ACL_FLOAT16, &[inner, outer], &scales)?)
            }
        };
        let y = bench.operand(kind.dtype(), &[m, n], &vec![0; (m * n * 4) as usize])?;
        Ok(Product { kind, other, shape, x, w, scales, y })
    }

    /// The first phase, of tensors as products of a graph have them.
    fn plan(&self, bench: &mut Bench<'_, '_>) -> Result<Planned> {
        let (x, y) = (bench.call.tensor(&self.x)?, bench.call.tensor(&self.y)?);
        let turned = |t: &Operand| if self.other { t.clone() } else { t.permute(&[1, 0]) };
        if self.kind == Kind::Half {
            let w = match self.other {
                true => bench.call.blocks(&self.w)?,
                false => bench.call.tensor(&self.w.permute(&[1, 0]))?,
            };
            return plan!(bench, nn.aclnnMm(x, w, y, 0));
        }
        let (w, scales) = (bench.call.tensor(&turned(&self.w))?, bench.call.tensor(&turned(&self.scales))?);
        let none = std::ptr::null();
        let group = GROUP as i32;
        plan!(bench, nn.aclnnWeightQuantBatchMatmulV2(x, w, scales, none, none, none, none, group, y))
    }

    /// Compares some results, the first and the last among them, with those computed here.
    fn is_right(&self, bench: &mut Bench<'_, '_>) -> Result<()> {
        let planned = self.plan(bench)?;
        bench.launch(&planned)?;
        let Shape { k, m, n } = self.shape;
        let size = if self.kind == Kind::Half { 4 } else { 2 };
        let bytes = bench.read(&self.y, m as usize * n as usize * size)?;
        let found = |i: usize| match size {
            4 => f64::from(f32::from_le_bytes(std::array::from_fn(|b| bytes[4 * i + b]))),
            _ => f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f64(),
        };
        let last = (m * n - 1) as usize;
        let (mut error, mut sum) = (0.0, 0.0);
        for i in (0..COMPARED).map(|i| i * last / (COMPARED - 1)) {
            let (row, column) = (i as i64 % m, i as i64 / m);
            let product = |i| weight(self.kind, row, i) * activation(self.kind, i, column);
            let expected: f64 = (0..k).map(product).sum();
            if row == 0 && (found(i) - expected).abs() > 0.01 * expected.abs() + 0.01 {
                return Err(Error::internal(format!("result {i} is {}, expected {expected}", found(i))));
            }
            error += (found(i) - expected).powi(2);
            sum += expected.powi(2);
        }
        match error <= NMSE * sum {
            true => Ok(()),
            false => Err(Error::internal(format!("results are off by {:e} (NMSE)", error / sum))),
        }
    }

    /// The least time of a launch. By the host's clock: launches of planned operators cost it less than kernels of this size take.
    fn time(&self, bench: &mut Bench<'_, '_>) -> Result<Duration> {
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            best = best.min(bench.time(LAUNCHES, |bench| self.plan(bench))?);
        }
        Ok(best / LAUNCHES as u32)
    }
}
