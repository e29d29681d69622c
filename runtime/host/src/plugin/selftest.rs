//! Tries a device before anything relies on it (checklist step 17): memory, an empty graph, steady answers.

use crate::device::{Device, NodeDesc, RawGraphBuilder, TensorDesc};
use llmrt_abi::{DType, Op, types as c};
use std::sync::Arc;

/// Why the device is not fit for use, if it is not.
pub(crate) fn run(device: &Arc<Device>) -> Result<(), String> {
    let step = |name: &str, result: Result<(), String>| result.map_err(|e| format!("self-test, {name}: {e}"));
    step("memory", memory(device))?;
    step("empty graph", empty_graph(device))?;
    step("supports", steady_answers(device))
}

/// 64 bytes are read as they were filled and set.
fn memory(device: &Arc<Device>) -> Result<(), String> {
    const N: u64 = 64;
    let text = |e: crate::Error| e.to_string();
    let buffer = device.alloc(0, N, c::USAGE_ANY).map_err(text)?;
    buffer.fill(0, N, 0xa5).map_err(text)?;
    let mut expected: Vec<u8> = vec![0xa5; N as usize];
    let pattern: Vec<u8> = (0..23).map(|i| i * 11 + 1).collect();
    // An odd place and length, through a tensor that does not start at 0.
    buffer.set(&TensorDesc::bytes(16, 40), &pattern, 7).map_err(text)?;
    expected[23..46].copy_from_slice(&pattern);
    let mut found = vec![0; N as usize];
    buffer.read(0, &mut found).map_err(text)?;
    match expected.iter().zip(&found).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} of {N} is {:#04x}, expected {:#04x}", found[at], expected[at])),
    }
}

/// A graph without nodes is computed.
fn empty_graph(device: &Arc<Device>) -> Result<(), String> {
    let result = device.stream(1).and_then(|stream| {
        stream.compute(&RawGraphBuilder::new().build())?;
        stream.synchronize()
    });
    result.map_err(|e| e.to_string())
}

/// The same question gets the same answer.
fn steady_answers(device: &Arc<Device>) -> Result<(), String> {
    let query = || -> crate::Result<_> {
        let mut g = RawGraphBuilder::new();
        let x = TensorDesc::contiguous(DType::F32, [8, 2, 1, 1]);
        let (a, b, sum) = (g.tensor(&x)?, g.tensor(&x)?, g.tensor(&x)?);
        g.node(&NodeDesc {
            op: Op::Add.id(),
            op_version: 1,
            dst: sum,
            srcs: &[Some(a), Some(b)],
            params: &[],
        })?;
        let graph = g.build();
        Ok((device.supports(&graph, 0..1)?, device.supports(&graph, 0..1)?))
    };
    match query() {
        Err(e) => Err(e.to_string()),
        Ok((first, second)) if first != second => Err(format!("answered {first:?}, then {second:?}")),
        Ok(_) => Ok(()),
    }
}
