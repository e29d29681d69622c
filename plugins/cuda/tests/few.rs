//! Products with few columns, and the layout that weights get for them at `seal`: which bytes come back, what may read them,
//! rows and columns that fill no warp, the same bits whatever else is computed. Kernels run as plain C++.

mod common;
#[path = "../../cann/tests/common/placed.rs"]
mod placed;

use common::{Machine, bind};
use llmrt_abi::DType;
use llmrt_abi::types::TENSOR_WEIGHT;
use llmrt_graph::ops::{case::Case, value::Value};
use llmrt_graph::{Role, Tensor};
use llmrt_host::TensorDesc;
use placed::run_with;

/// Whole and in part, at an offset, with nothing written outside.
#[test]
fn sealed_weights_come_back_as_they_were() {
    let m = Machine::new("queue=now");
    let card = m.card(0);
    for dtype in [DType::Q4_0, DType::Q8_0] {
        let plain = TensorDesc::contiguous(dtype, [512, 3, 1, 1]);
        let mut t = TensorDesc { role: Role::Matrix as u32, flags: TENSOR_WEIGHT, offset: 512, ..plain };
        let n = t.nbytes().unwrap();
        assert_eq!(card.alloc_size(0, &t).unwrap(), n, "{dtype}: no byte more than the file");
        let buffer = card.alloc(0, 512 + n + 512, 0).unwrap();
        buffer.fill(0, buffer.size(), 0x5a).unwrap();
        let bytes: Vec<u8> = (0..n).map(|i| (i * 37 + i / 11) as u8).collect();
        buffer.set(&t, &bytes, 0).unwrap();
        let layout = buffer.seal(&t).unwrap();
        assert_eq!((layout.stored_bytes, layout.row_granularity), (n, 1), "{dtype}");
        t.layout_id = layout.id;
        let mut back = vec![0; bytes.len()];
        buffer.get(&t, &mut back, 0).unwrap();
        assert!(back == bytes, "{dtype}");
        buffer.get(&t, &mut back[..300], 201).unwrap();
        assert_eq!(back[..300], bytes[201..501], "{dtype}");
        // The last row, by itself.
        let row = n / 3;
        let last = TensorDesc { ne: [512, 1, 1, 1], offset: 512 + 2 * row, ..t };
        buffer.get(&last, &mut back[..20], 5).unwrap();
        assert_eq!(back[..20], bytes[2 * row as usize + 5..][..20], "{dtype}: a row");
        let mut all = vec![0; buffer.size() as usize];
        buffer.read(0, &mut all).unwrap();
        assert!(all[..512].iter().chain(&all[(512 + n) as usize..]).all(|b| *b == 0x5a), "{dtype}");
        assert!(all[512..][..bytes.len()] != bytes[..], "{dtype} is stored another way");
        assert!(buffer.set(&t, &bytes, 0).is_err(), "{dtype} is written when sealed");
    }
    assert_eq!(m.reports(), [""; 0]);
}

#[test]
fn weights_that_no_kernel_needs_otherwise_keep_the_files_layout() {
    let m = Machine::new("queue=now");
    let card = m.card(0);
    let id = |dtype, ne, role: Role, flags| {
        let t = TensorDesc { role: role as u32, flags, ..TensorDesc::contiguous(dtype, ne) };
        let buffer = card.alloc(0, t.nbytes().unwrap(), 0).unwrap();
        buffer.seal(&t).unwrap().id
    };
    assert_eq!(id(DType::Q4_0, [256, 4, 1, 1], Role::Matrix, TENSOR_WEIGHT), 1);
    assert_eq!(id(DType::Q8_0, [256, 4, 3, 1], Role::Experts, TENSOR_WEIGHT), 1);
    assert_eq!(
        id(DType::Q4_0, [288, 4, 1, 1], Role::Matrix, TENSOR_WEIGHT),
        0,
        "rows that are no whole eights"
    );
    assert_eq!(id(DType::Q4_K, [256, 4, 1, 1], Role::Matrix, TENSOR_WEIGHT), 0);
    assert_eq!(id(DType::Q8_0, [256, 4, 1, 1], Role::Matrix, 0), 0, "no weight");
}

/// A row of x that is longer than what shared memory takes at once, with any number of columns; rows that fill no block, and rows
/// enough for two per warp.
#[test]
fn rows_of_every_length_are_right_in_both_layouts() {
    let m = Machine::new("queue=late,memory=2g,sm=80");
    let stream = m.card(0).stream(1).unwrap();
    let packed = DType::ALL.iter().copied().filter(|dtype| dtype.is_quantised());
    for dtype in packed.chain([DType::F32, DType::F16, DType::BF16]) {
        for (k, rows, n) in
            [(8448, 3, 1), (256, 9, 2), (4352, 5, 3), (2304, 17, 8), (2304, 1, 5), (256, 130, 1)]
        {
            let case = Case::new(format!("{dtype} [{k}, {rows}] times {n}"), |g, _| {
                let w = g.weight("w", dtype, &[k, rows], Role::Matrix);
                let x = g.input("x", DType::F32, &[k, n]);
                g.mul_mat(w, x);
            });
            for seal in [true, false] {
                let Some(error) = run_with(&m.card(0), &stream, &case, seal).unwrap() else { continue };
                assert!(error <= 5e-4, "{}, sealed {seal}: NMSE {error:e}", case.name);
            }
        }
    }
    assert_eq!(m.reports(), [""; 0]);
}

/// Floats that begin between multiples of 16, in rows that are no multiples of it, and x in every dtype and with gaps.
#[test]
fn floats_at_any_strides_are_right() {
    let m = Machine::new("queue=late,memory=2g,sm=80");
    let stream = m.card(0).stream(1).unwrap();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (k, first, n) in [(90, 1, 3), (96, 4, 64), (100, 0, 100), (96, 8, 64)] {
            for of_x in [DType::F32, DType::F16, DType::BF16] {
                let case = Case::new(format!("{dtype} {first}..+{n} of {k}, x {of_x}"), |g, _| {
                    let w = g.weight("w", dtype, &[k, 7], Role::Matrix);
                    let w = g.slice(w, 0, first, n);
                    let x = g.input("x", of_x, &[k, 3]);
                    let x = g.slice(x, 0, first, n);
                    g.mul_mat(w, x);
                });
                let error = run_with(&m.card(0), &stream, &case, true).unwrap().expect("it is taken");
                assert!(error <= 1e-9, "{}: NMSE {error:e}", case.name);
            }
        }
    }
    assert_eq!(m.reports(), [""; 0]);
}

/// w [k, 13] times each of 8 columns, or 20 where weights are packed, and times the first n of them.
#[test]
fn a_column_has_the_same_bits_whatever_is_beside_it() {
    for sm in [75, 80] {
        same_bits(&Machine::new(&format!("queue=late,memory=1g,sm={sm}")));
    }
}

fn same_bits(m: &Machine) {
    let stream = m.card(0).stream(1).unwrap();
    let packed = DType::ALL.iter().copied().filter(|dtype| dtype.is_quantised());
    let mut taken = 0;
    for dtype in packed.chain([DType::F32, DType::F16, DType::BF16]) {
        let is_taken = Case::new("product", |g, _| {
            let w = g.weight("w", dtype, &[2304, 13], Role::Matrix);
            let x = g.input("x", DType::F32, &[2304, 8]);
            g.mul_mat(w, x);
        });
        if !placed::is_taken(&m.card(0), &is_taken).unwrap() {
            continue;
        }
        taken += 1;
        let columns = |n: u64| {
            let case = Case::new("columns", |g, _| {
                let w = g.weight("w", dtype, &[2304, 13], Role::Matrix);
                let x = g.input("x", DType::F32, &[2304, n]);
                g.mul_mat(w, x);
            });
            let mut memory = case.values(7).unwrap();
            let x = (0..2304 * n).map(|i| (i * 7919 % 2003) as f32 / 1001.0 - 1.0).collect();
            memory.set(&case.graph, Tensor(1), &Value::f32([2304, n, 1, 1], x)).unwrap();
            let bound = bind(&m.card(0), &case.graph, &memory).unwrap();
            stream.compute(&bound.raw).unwrap();
            bound.read(&stream, &case.graph, case.graph.nodes.last().unwrap().dst).unwrap()
        };
        let most = if dtype.is_quantised() { 20 } else { 8 };
        let all = columns(most);
        for n in (1..8).chain([9, 16]).filter(|n| *n < most) {
            let some = columns(n);
            assert!(some == all[..some.len()], "{dtype}: {n} of {most} columns");
        }
    }
    assert!(taken >= 16, "{taken} types");
    assert_eq!(m.reports(), [""; 0]);
}

/// A fault of addresses shows as one: rows of a sealed matrix are read by themselves, and experts.
#[test]
fn rows_of_sealed_weights_are_picked_and_multiplied() {
    let m = Machine::new("queue=late,memory=1g,sm=80");
    let stream = m.card(0).stream(1).unwrap();
    for dtype in [DType::Q4_0, DType::Q8_0] {
        let part = Case::new(format!("rows 3 to 7 of {dtype}"), |g, _| {
            let w = g.weight("w", dtype, &[512, 9], Role::Matrix);
            let w = g.slice(w, 1, 3, 5);
            let x = g.input("x", DType::F32, &[512, 2]);
            g.mul_mat(w, x);
        });
        let picked = Case::new(format!("an embedding of {dtype}"), |g, ints| {
            let w = g.weight("w", dtype, &[512, 9], Role::Embedding);
            let ids = g.input("ids", DType::I32, &[4]);
            ints.push((ids, vec![8, 0, 3, 3]));
            g.get_rows(w, ids);
        });
        for case in [part, picked] {
            for seal in [true, false] {
                let error = run_with(&m.card(0), &stream, &case, seal).unwrap().expect("it is taken");
                assert!(error <= 5e-4, "{}, sealed {seal}: NMSE {error:e}", case.name);
            }
        }
    }
    assert_eq!(m.reports(), [""; 0]);
}

/// What cannot read the layout is refused, and the host takes the op elsewhere.
#[test]
fn other_ops_refuse_a_sealed_weight() {
    let m = Machine::new("queue=late,memory=1g,sm=80");
    let stream = m.card(0).stream(1).unwrap();
    let case = Case::new("a copy", |g, _| {
        let w = g.weight("w", DType::Q8_0, &[256, 4], Role::Matrix);
        g.cast(w, DType::F32);
    });
    let error = run_with(&m.card(0), &stream, &case, true).unwrap_err();
    assert!(error.to_string().contains("sealed"), "{error}");
    assert!(run_with(&m.card(0), &stream, &case, false).unwrap().is_some());
}
