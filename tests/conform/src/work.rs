//! Work whose result counts how often it ran: two vectors computed from each other, over and over.

use crate::outcome::{Verdict, lacking, wrong};
use crate::raw::{self, RawNode};
use llmrt_abi::{DType, Op, types as c};
use llmrt_graph::{Graph, Tensor};
use llmrt_host::sched::bind::Place;
use llmrt_host::{Buffer, Device, RawGraph, Stream, TensorDesc};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Graphs over two vectors `a` and `b` of one buffer, and a third to copy to.
pub struct Chain {
    /// The memory.
    pub buffer: Buffer,
    /// b → a → b → …, an even number of steps: each run changes every element of `b` by a known amount.
    pub graph: RawGraph,
    /// One step from `b` to `out`.
    pub reader: RawGraph,
    op: Op,
    n: usize,
    n_nodes: usize,
    /// Offsets of a, b, the step vector, out.
    at: [u64; 4],
}

/// Ops a chain is made of, the first that the device runs.
const OPS: [Op; 3] = [Op::Add, Op::Sub, Op::Mul];

impl Chain {
    /// A chain of `n_nodes` (made even) steps over vectors of `n` elements.
    pub fn new(device: &Arc<Device>, n: usize, n_nodes: usize) -> Verdict<Chain> {
        let room = (n as u64 * 4).next_multiple_of(device.alignment());
        let at = [0, room, 2 * room, 3 * room];
        for op in OPS {
            let (g, [a, b, step, out]) = vectors(n);
            let node = |src: Tensor, dst: Tensor| {
                let (src, params) = (vec![Some(src), Some(step)], Vec::new());
                RawNode { op: op.id(), version: 1, src, dst, params }
            };
            let graph = raw::unbound(&g, &[node(b, a)])?;
            if device.supports(&graph, 0..1)?[0].support == 0 {
                continue;
            }
            let buffer = device.alloc(0, room * 4, c::USAGE_COMPUTE)?;
            let place = |t: Tensor| {
                let offset = at[t.0 as usize];
                Some(Place { buffer: buffer.clone(), offset, layout_id: 0 })
            };
            let n_nodes = n_nodes.max(2).next_multiple_of(2);
            let nodes: Vec<_> =
                (0..n_nodes).map(|i| if i % 2 == 0 { node(b, a) } else { node(a, b) }).collect();
            let graph = raw::build(&g, &nodes, &place)?.0;
            let reader = raw::build(&g, &[node(b, out)], &place)?.0;
            return Ok(Chain { buffer, graph, reader, op, n, n_nodes, at });
        }
        lacking("the device runs none of add, sub and mul on F32 vectors")
    }

    /// Writes the step and the first `b`, and gives that.
    pub fn start(&self, seed: u64) -> Verdict<Vec<f32>> {
        let step: Vec<f32> = (0..self.n).map(|i| self.step(i)).collect();
        self.buffer.write(self.at[2], &bytes_of(&step))?;
        let first = self.values(seed);
        self.buffer.write(self.at[1], &bytes_of(&first))?;
        self.buffer.write(self.at[3], &vec![0xff; self.n * 4])?;
        Ok(first)
    }

    /// Values that a `b` may have at first.
    pub fn values(&self, seed: u64) -> Vec<f32> {
        (0..self.n).map(|i| ((i as u64 * 7 + seed * 13) % 101) as f32 + 1.0).collect()
    }

    fn step(&self, i: usize) -> f32 {
        match self.op {
            Op::Mul => 1.0 + [1.0, -1.0][i % 2] / 64.0,
            _ => (i % 5) as f32 + 1.0,
        }
    }

    /// What `b` is after so many runs.
    pub fn after(&self, first: &[f32], n_runs: usize) -> Vec<f32> {
        self.steps(first, n_runs * self.n_nodes)
    }

    /// What `reader` makes of a `b`.
    pub fn read_of(&self, b: &[f32]) -> Vec<f32> {
        self.steps(b, 1)
    }

    fn steps(&self, first: &[f32], n: usize) -> Vec<f32> {
        let one = |(i, &v): (usize, &f32)| {
            let step = self.step(i);
            match self.op {
                // Small whole numbers: exact in any order.
                Op::Add => v + n as f32 * step,
                Op::Sub => v - n as f32 * step,
                _ => (0..n).fold(v, |v, _| v * step),
            }
        };
        first.iter().enumerate().map(one).collect()
    }

    /// `b`, to move bytes to and from.
    pub fn b(&self) -> TensorDesc<'static> {
        self.tensor(1)
    }

    /// `out`, to move bytes to and from.
    pub fn out(&self) -> TensorDesc<'static> {
        self.tensor(3)
    }

    fn tensor(&self, i: usize) -> TensorDesc<'static> {
        TensorDesc { offset: self.at[i], ..TensorDesc::contiguous(DType::F32, [self.n as u64, 1, 1, 1]) }
    }

    /// Fails unless a tensor holds these values.
    pub fn expect(&self, t: &TensorDesc<'_>, expected: &[f32], what: &str) -> Verdict {
        let mut bytes = vec![0; self.n * 4];
        self.buffer.get(t, &mut bytes, 0)?;
        near(&bytes, expected, what)
    }

    /// Enqueues runs that take about this long; returns how many they are. Nothing is waited for at the end.
    pub fn keep_busy(&self, stream: &Stream, time: Duration) -> Verdict<usize> {
        let started = Instant::now();
        stream.compute(&self.graph)?;
        stream.synchronize()?;
        let one = started.elapsed().max(Duration::from_micros(1));
        let n = (time.as_nanos() / one.as_nanos()).clamp(1, 40) as usize;
        for _ in 0..n {
            stream.compute(&self.graph)?;
        }
        Ok(n + 1)
    }
}

fn vectors(n: usize) -> (Graph, [Tensor; 4]) {
    let mut g = Graph::new();
    let vector = |g: &mut Graph, name| g.input(name, DType::F32, &[n as u64]);
    let tensors = [vector(&mut g, "a"), vector(&mut g, "b"), vector(&mut g, "step"), vector(&mut g, "out")];
    (g, tensors)
}

/// Little-endian bytes.
pub fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Fails unless these bytes are these values, up to rounding.
pub fn near(bytes: &[u8], expected: &[f32], what: &str) -> Verdict {
    let found = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let mut pairs = found.zip(expected).enumerate();
    match pairs
        .find(|(_, (found, expected))| (found - *expected).abs() > 1e-4 * expected.abs() || found.is_nan())
    {
        None => Ok(()),
        Some((i, (found, expected))) => wrong(format!("{what}: element {i} is {found}, expected {expected}")),
    }
}
