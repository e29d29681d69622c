//! What a stream holds: work that was enqueued and may not have run.

use crate::emu::Kernel;
use crate::product::Product;

/// Work in the order of a stream.
#[derive(Clone)]
pub enum Task {
    /// A kernel over a grid.
    Launch {
        /// Which.
        kernel: &'static Kernel,
        /// Its argument.
        params: Vec<u8>,
        /// Blocks.
        grid: [u32; 3],
        /// Threads of a block.
        threads: u32,
        /// Bytes of shared memory beside what it declares.
        shared: u32,
    },
    /// A product of cuBLASLt.
    Product(Box<Product>),
    /// To the device, from bytes that were read already.
    Write(u64, Vec<u8>),
    /// To the device, from pinned memory, read when it runs.
    FromHost(u64, u64, usize),
    /// From the device, to pinned memory.
    ToHost(u64, u64, usize),
    /// On a device, or from one to another: to, from, bytes.
    Copy(u64, u64, usize),
    /// A byte, so many times.
    Fill(u64, u8, usize),
    /// Another stream's work up to a place in it.
    Wait(usize, u64),
    /// An instantiated graph's work.
    Graph(usize),
    /// Nothing: a place to be waited for.
    Mark,
}
