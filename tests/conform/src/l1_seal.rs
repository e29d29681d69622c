//! L1: weights of every dtype go through `seal` and read back as their layout promises.

use crate::catalogue::Fixed;
use crate::outcome::{Verdict, insist, wrong};
use crate::session::Session;
use llmrt_abi::{DType, DTypeKind, types as c};
use llmrt_graph::ops::case::Case;
use llmrt_graph::{Role, quant};
use llmrt_host::sched::bind::describe;

/// The cases.
pub const CASES: &[Fixed] = &[
    ("matrices of every type read back", |s| round_trips(s, Role::Matrix, &[512, 33])),
    ("matrices for zeros read back", |s| {
        round_trips(s, Role::MatrixOfZeros, &[512, 48])?;
        round_trips(s, Role::MatrixOfZeros, &[512, 256])?;
        round_trips(s, Role::PickedRows, &[512, 48])
    }),
    ("matrices of one row read back", |s| round_trips(s, Role::Matrix, &[256, 1])),
    ("expert matrices of every type read back", |s| round_trips(s, Role::Experts, &[256, 5, 3])),
    ("embeddings of every type read back", |s| round_trips(s, Role::Embedding, &[256, 64])),
    ("norms and biases read back", |s| {
        round_trips(s, Role::Norm, &[768])?;
        round_trips(s, Role::Bias, &[768])
    }),
    ("a weight that came in odd pieces reads back in odd pieces", odd_pieces),
    ("sealed weights side by side keep to themselves", neighbours),
];

/// Dtypes that weights have.
fn dtypes(role: Role) -> impl Iterator<Item = DType> {
    let plain = matches!(role, Role::Norm | Role::Bias);
    DType::ALL.iter().copied().filter(move |&t| {
        let is_weight = quant::is_supported(t) && ![DType::F64, DType::Q8_1, DType::Q8_K].contains(&t);
        is_weight && (!plain || t.info().kind == DTypeKind::Float)
    })
}

/// Valid bytes of a weight: the values of a case that has just it.
pub fn weight(dtype: DType, role: Role, dims: &[u64], seed: u64) -> Verdict<(Case, Vec<u8>)> {
    let case = Case::new("", |g, _| {
        g.weight("w", dtype, dims, role);
    });
    let memory = case.values(seed)?;
    let bytes = memory.bytes(llmrt_graph::Tensor(0)).unwrap_or_default().to_vec();
    Ok((case, bytes))
}

fn round_trips(session: &mut Session, role: Role, dims: &[u64]) -> Verdict {
    for dtype in dtypes(role) {
        let n = dims[0] as usize;
        if !n.is_multiple_of(dtype.block_elems()) {
            continue;
        }
        round_trip(session, dtype, role, dims, usize::MAX).map_err(|t| t.during(dtype.name()))?;
    }
    Ok(())
}

fn odd_pieces(session: &mut Session) -> Verdict {
    for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::Q6_K] {
        round_trip(session, dtype, Role::Matrix, &[512, 9], 1001).map_err(|t| t.during(dtype.name()))?;
    }
    Ok(())
}

/// Sets a weight in pieces, seals it, and reads it in pieces.
fn round_trip(session: &mut Session, dtype: DType, role: Role, dims: &[u64], piece: usize) -> Verdict {
    let device = session.device()?;
    let (case, bytes) = weight(dtype, role, dims, 5)?;
    let desc = describe(&case.graph.tensors[0], None);
    for bt in 0..device.info().buffer_types.len() as u32 {
        let buffer = device.alloc(bt, device.alloc_size(bt, &desc)?, c::USAGE_WEIGHTS)?;
        for (i, part) in bytes.chunks(piece.min(bytes.len())).enumerate() {
            buffer.set(&desc, part, (i * piece.min(bytes.len())) as u64)?;
        }
        let layout = buffer.seal(&desc)?;
        let sealed = llmrt_host::TensorDesc { layout_id: layout.id, ..desc };
        let (invertible, opaque) =
            (layout.flags & c::LAYOUT_INVERTIBLE != 0, layout.flags & c::LAYOUT_OPAQUE != 0);
        insist(invertible != opaque, || {
            format!("layout `{}` has flags {:#x}; expected INVERTIBLE or OPAQUE", layout.name, layout.flags)
        })?;
        insist(layout.id != 0 || invertible, || {
            "layout 0 is the canonical one, and is called opaque".into()
        })?;
        let mut back = vec![0; bytes.len()];
        let step = piece.min(bytes.len());
        for (i, part) in back.chunks_mut(step).enumerate() {
            match buffer.get(&sealed, part, (i * step) as u64) {
                Err(e) if opaque && e.is_unsupported() => return Ok(()),
                Ok(()) if opaque => {
                    return wrong(format!("layout `{}` is opaque, and get gave bytes", layout.name));
                }
                other => other?,
            }
        }
        if let Some(i) = bytes.iter().zip(&back).position(|(a, b)| a != b) {
            return wrong(format!(
                "get after seal: layout `{}` is invertible, and byte {i} of {} is {:#04x}, was {:#04x}",
                layout.name,
                bytes.len(),
                back[i],
                bytes[i]
            ));
        }
    }
    Ok(())
}

fn neighbours(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let mut at = 0;
    let mut weights = Vec::new();
    for (i, dtype) in [DType::Q4_0, DType::F32, DType::Q8_0, DType::Q6_K, DType::F16].into_iter().enumerate()
    {
        let (case, bytes) = weight(dtype, Role::Matrix, &[256, 7], i as u64)?;
        let size = device.alloc_size(0, &describe(&case.graph.tensors[0], None))?;
        weights.push((case, bytes, at));
        at = (at + size).next_multiple_of(device.alignment());
    }
    let buffer = device.alloc(0, at, c::USAGE_WEIGHTS)?;
    let desc = |case: &Case, offset| -> llmrt_host::TensorDesc<'static> {
        let def = &case.graph.tensors[0];
        llmrt_host::TensorDesc { offset, name: "", ..describe_static(def) }
    };
    let mut layouts = Vec::new();
    for (case, bytes, offset) in &weights {
        let t = desc(case, *offset);
        buffer.set(&t, bytes, 0)?;
        layouts.push(buffer.seal(&t)?);
    }
    for ((case, bytes, offset), layout) in weights.iter().zip(layouts).filter(|(_, l)| l.is_readable()) {
        let t = llmrt_host::TensorDesc { layout_id: layout.id, ..desc(case, *offset) };
        let mut back = vec![0; bytes.len()];
        buffer.get(&t, &mut back, 0)?;
        insist(&back == bytes, || format!("{} changed", case.graph.tensors[0].dtype))?;
    }
    Ok(())
}

fn describe_static(def: &llmrt_graph::TensorDef) -> llmrt_host::TensorDesc<'static> {
    llmrt_host::TensorDesc {
        role: def.role as u32,
        flags: c::TENSOR_WEIGHT,
        ..llmrt_host::TensorDesc::contiguous(def.dtype, def.ne)
    }
}
