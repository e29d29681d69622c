//! Quantised weights on simulated cards: what `seal` stores, what comes back, and products with it. Nothing here shows
//! what a real card does.

mod common;
#[path = "common/placed.rs"]
mod placed;

use common::Machine;
use llmrt_abi::DType;
use llmrt_abi::types::TENSOR_WEIGHT;
use llmrt_graph::Role;
use llmrt_graph::ops::case::Case;
use llmrt_host::TensorDesc;
use placed::run;

/// Whole and in part, at an offset, with nothing written outside of what `alloc_size` returned.
#[test]
fn sealed_weights_come_back_as_they_were() {
    let m = Machine::new("queue=now");
    let card = m.card(0);
    for dtype in [DType::Q4_0, DType::Q8_0, DType::Q5_0, DType::Q4_1, DType::Q6_K] {
        let plain = TensorDesc::contiguous(dtype, [256, 3, 1, 1]);
        let mut t = TensorDesc { role: Role::Matrix as u32, flags: TENSOR_WEIGHT, offset: 512, ..plain };
        let room = card.alloc_size(0, &t).unwrap();
        let buffer = card.alloc(0, 512 + room + 512, 0).unwrap();
        buffer.fill(0, buffer.size(), 0x5a).unwrap();
        let bytes: Vec<u8> = (0..t.nbytes().unwrap()).map(|i| (i * 37 + i / 11) as u8).collect();
        buffer.set(&t, &bytes, 0).unwrap();
        let layout = buffer.seal(&t).unwrap();
        assert_ne!(layout.id, 0, "{dtype}");
        assert!(room >= layout.stored_bytes + 32, "{dtype}: units read past the end");
        t.layout_id = layout.id;
        let mut back = vec![0; bytes.len()];
        buffer.get(&t, &mut back, 0).unwrap();
        assert!(back == bytes, "{dtype}");
        buffer.get(&t, &mut back[..10], 21).unwrap();
        assert_eq!(back[..10], bytes[21..31], "{dtype}");
        let mut all = vec![0; buffer.size() as usize];
        buffer.read(0, &mut all).unwrap();
        assert!(all[..512].iter().chain(&all[(512 + room) as usize..]).all(|b| *b == 0x5a), "{dtype}");
        assert!(all[512..][..bytes.len()] != bytes[..], "{dtype} is stored another way");
    }
    assert_eq!(m.reports(), [""; 0]);
}

/// One group per row, several, and more rows than the operator takes.
#[test]
fn products_of_sealed_weights_are_right() {
    for (dtype, [k, m, n]) in [DType::Q4_0, DType::Q8_0]
        .iter()
        .flat_map(|dtype| [[32, 5, 3], [128, 7, 2], [64, 65_600, 1]].map(|dims| (*dtype, dims)))
    {
        check(1e-4, dtype, [k, m, n]);
    }
}

/// A product of F32 keeps F32's precision: F16 would be a thousand times farther off.
#[test]
fn f32_products_stay_f32() {
    check(1e-10, DType::F32, [96, 7, 3]);
}

fn check(nmse: f64, dtype: DType, [k, m, n]: [u64; 3]) {
    let machine = Machine::new("queue=now,memory=1g");
    let card = machine.card(0);
    let stream = card.stream(1).unwrap();
    let case = Case::new(format!("{dtype} [{k}, {m}] times {n} rows"), |g, _| {
        let w = g.weight("w", dtype, &[k, m], Role::Matrix);
        let x = g.input("x", DType::F32, &[k, n]);
        g.mul_mat(w, x);
    });
    let error = run(&card, &stream, &case).unwrap().expect("the card takes it");
    assert!(error <= nmse, "{}: NMSE {error:e}", case.name);
    assert_eq!(machine.reports(), [""; 0]);
}
