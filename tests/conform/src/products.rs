//! Matrix products for which devices take scratch memory, if they ever do. Each moves the elements of every row by one,
//! so results are exact, and count the products.

use crate::outcome::{Verdict, lacking};
use crate::raw::{self, RawNode};
use crate::work::{bytes_of, near};
use llmrt_abi::{DType, Op, types as c};
use llmrt_graph::{Graph, Tensor};
use llmrt_host::sched::bind::Place;
use llmrt_host::{Buffer, Device, RawGraph, TensorDesc};
use std::sync::Arc;

/// Elements of a row, rows, and products of one run: an even number.
const N: usize = 96;
const ROWS: usize = 32;
const PRODUCTS: usize = 8;

/// Graphs over two matrices `a` and `b`, made of each other.
pub struct Products {
    /// a → b → a → …: each run turns the rows of `a` by [`PRODUCTS`] elements.
    pub graph: RawGraph,
    buffer: Buffer,
    /// Offsets of a, b, and the matrix that turns.
    at: [u64; 3],
}

impl Products {
    /// Products on this device, which has to run them in F32.
    pub fn new(device: &Arc<Device>) -> Verdict<Products> {
        let mut g = Graph::new();
        let rows = [N as u64, ROWS as u64];
        let [a, b] = ["a", "b"].map(|name| g.input(name, DType::F32, &rows));
        let turn = g.input("turn", DType::F32, &[N as u64, N as u64]);
        let node = |src: Tensor, dst: Tensor| {
            let (src, params) = (vec![Some(turn), Some(src)], Vec::new());
            RawNode { op: Op::MulMat.id(), version: 1, src, dst, params }
        };
        let graph = raw::unbound(&g, &[node(a, b)])?;
        if device.supports(&graph, 0..1)?[0].support == 0 {
            return lacking("the device runs no matrix product of F32 with F32");
        }
        let room = (N * N.max(ROWS) * 4) as u64;
        let room = room.next_multiple_of(device.alignment());
        let at = [0, room, 2 * room];
        let buffer = device.alloc(0, 3 * room, c::USAGE_COMPUTE)?;
        let place =
            |t: Tensor| Some(Place { buffer: buffer.clone(), offset: at[t.0 as usize], layout_id: 0 });
        let nodes: Vec<_> = (0..PRODUCTS).map(|i| if i % 2 == 0 { node(a, b) } else { node(b, a) }).collect();
        let graph = raw::build(&g, &nodes, &place)?.0;
        Ok(Products { graph, buffer, at })
    }

    /// Writes the operands. Nothing that uses them may be in flight.
    pub fn start(&self, seed: usize) -> Verdict {
        let turn: Vec<f32> = (0..N * N).map(|at| f32::from(u8::from(at % N == (at / N + 1) % N))).collect();
        self.buffer.write(self.at[2], &bytes_of(&turn))?;
        self.buffer.write(self.at[1], &vec![0xff; N * ROWS * 4])?;
        Ok(self.buffer.write(self.at[0], &bytes_of(&first(seed)))?)
    }

    /// Fails unless `a` is what so many runs made of it.
    pub fn expect(&self, seed: usize, n_runs: usize, what: &str) -> Verdict {
        let first = first(seed);
        let turned = |at: usize| first[at / N * N + (at + n_runs * PRODUCTS) % N];
        let expected: Vec<f32> = (0..N * ROWS).map(turned).collect();
        let mut bytes = vec![0; N * ROWS * 4];
        let a = TensorDesc {
            offset: self.at[0],
            ..TensorDesc::contiguous(DType::F32, [N as u64, ROWS as u64, 1, 1])
        };
        self.buffer.get(&a, &mut bytes, 0)?;
        near(&bytes, &expected, what)
    }
}

/// Whole numbers, exact in every float type.
fn first(seed: usize) -> Vec<f32> {
    (0..N * ROWS).map(|i| ((i * 31 + seed * 17) % 127) as f32 + 1.0).collect()
}
