//! y = x sampled at another resolution: nearest in all dims, or bilinear (antialiased or not) or bicubic in dims 0
//! and 1.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, moves};
use crate::tensor::Tensor;
use llmrt_plugin::abi::op::UpscaleParams;
use llmrt_plugin::{NodeView, Reason};
use std::ops::Range;

const NEAREST: u32 = 0;
const BILINEAR: u32 = 1;
const BICUBIC: u32 = 2;
const ANTIALIASED: u32 = 3;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(UpscaleParams::from_bytes(node.params_bytes()))?;
    ensure(p.mode <= ANTIALIASED && p.align_corners < 2, Reason::Param)?;
    let x = check::numbers(node, 0)?;
    let ne = [p.ne0, p.ne1, p.ne2, p.ne3].map(|n| n as usize);
    ensure(!x.ne().contains(&0) || ne.contains(&0), Reason::Shape)?;
    check::result(node, x.dtype().ok_or(Reason::Type)?, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(UpscaleParams::from_bytes);
    let x = a.arg(0);
    let grid: [Axis; 4] =
        std::array::from_fn(|d| Axis::new(a.dst.ne[d], x.ne[d], d < 2 && p.align_corners == 1));
    for ([i1, i2, i3], part, y) in out.pieces() {
        let plane = Plane { x, at: [grid[2].nearest(i2), grid[3].nearest(i3)] };
        let elems = w.scratch.rows.take::<f32>(part.len());
        for (i0, elem) in part.zip(&mut *elems) {
            *elem = match p.mode {
                NEAREST => plane.element(grid[0].nearest(i0) as i64, grid[1].nearest(i1) as i64),
                BILINEAR => plane.bilinear(grid[0].place(i0), grid[1].place(i1)),
                BICUBIC => plane.bicubic(grid[0].place(i0), grid[1].place(i1)),
                _ => plane.antialiased([grid[0].covered(i0), grid[1].covered(i1)]),
            };
        }
        y.write(w.isa, elems);
    }
}

/// Positions in x of elements of a dim of the result.
#[derive(Clone, Copy)]
struct Axis {
    scale: f32,
    offset: f32,
    n: usize,
}

impl Axis {
    fn new(n_y: usize, n: usize, align: bool) -> Axis {
        let scale = match align && n_y > 1 && n > 1 {
            true => (n_y - 1) as f32 / (n - 1) as f32,
            false => n_y as f32 / n as f32,
        };
        Axis { scale, offset: if align { 0.0 } else { 0.5 }, n }
    }

    fn nearest(self, i: usize) -> usize {
        ((i as f32 / self.scale) as usize).min(self.n - 1)
    }

    fn place(self, i: usize) -> f32 {
        (i as f32 + self.offset) / self.scale - self.offset
    }

    /// What element `i` of the result covers, at least an element to each side.
    fn covered(self, i: usize) -> Covered {
        let (p, reach) = ((i as f32 + self.offset) / self.scale, (1.0 / self.scale).max(1.0));
        let first = (p - reach + self.offset) as usize;
        let end = ((p + reach + self.offset) as usize).min(self.n);
        Covered { elements: first..end, middle: p - self.offset, reach }
    }
}

/// Elements under a triangle, highest over its middle and 0 at its reach.
struct Covered {
    elements: Range<usize>,
    middle: f32,
    reach: f32,
}

impl Covered {
    fn weights(&self) -> impl Iterator<Item = (usize, f32)> {
        let weight = |j: usize| (1.0 - ((j as f32 - self.middle) / self.reach).abs()).max(0.0);
        self.elements.clone().map(move |j| (j, weight(j)))
    }
}

/// Dims 0 and 1 of x at one place of the others.
struct Plane<'a> {
    x: &'a Tensor,
    at: [usize; 2],
}

impl Plane<'_> {
    /// An element; past an edge that at the edge.
    fn element(&self, i0: i64, i1: i64) -> f32 {
        let clamped = |i: i64, n: usize| i.clamp(0, n as i64 - 1) as usize;
        let (i0, i1) = (clamped(i0, self.x.ne[0]), clamped(i1, self.x.ne[1]));
        moves::number(self.x, [i0, i1, self.at[0], self.at[1]])
    }

    fn bilinear(&self, p0: f32, p1: f32) -> f32 {
        let (i0, i1) = (p0.floor() as i64, p1.floor() as i64);
        let share = |p: f32, i: i64, n: usize| (p - i.clamp(0, n as i64 - 1) as f32).clamp(0.0, 1.0);
        let (d0, d1) = (share(p0, i0, self.x.ne[0]), share(p1, i1, self.x.ne[1]));
        let (a, b) = (self.element(i0, i1), self.element(i0 + 1, i1));
        let (c, d) = (self.element(i0, i1 + 1), self.element(i0 + 1, i1 + 1));
        a * (1.0 - d0) * (1.0 - d1) + b * d0 * (1.0 - d1) + c * (1.0 - d0) * d1 + d * d0 * d1
    }

    /// The mean of the elements under a pyramid, weighed by its height.
    fn antialiased(&self, covered: [Covered; 2]) -> f32 {
        let (mut sum, mut total) = (0.0, 0.0);
        for (i1, w1) in covered[1].weights() {
            for (i0, w0) in covered[0].weights() {
                sum += self.element(i0 as i64, i1 as i64) as f64 * (w0 * w1) as f64;
                total += (w0 * w1) as f64;
            }
        }
        if total > 0.0 { (sum / total) as f32 } else { 0.0 }
    }

    fn bicubic(&self, p0: f32, p1: f32) -> f32 {
        let (i0, i1) = (p0.floor() as i64, p1.floor() as i64);
        let (w0, w1) = (cubic_weights(p0 - i0 as f32), cubic_weights(p1 - i1 as f32));
        let row = |j: i64| (-1..3).zip(w0).map(|(i, w)| self.element(i0 + i, i1 + j) * w).sum::<f32>();
        (-1..3).zip(w1).map(|(j, w)| row(j) * w).sum()
    }
}

/// Weights of the elements at -1, 0, 1 and 2 for a place between 0 and 1, with a = -0.75.
fn cubic_weights(t: f32) -> [f32; 4] {
    const A: f32 = -0.75;
    let near = |t: f32| ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0;
    let far = |t: f32| ((A * t - 5.0 * A) * t + 8.0 * A) * t - 4.0 * A;
    [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
}
