//! The device's own behaviour: options, memory, what it refuses.

mod common;

use common::{Bound, Plugin, Stream};
use llmrt_abi::DType;
use llmrt_graph::{Graph, Role, Tensor};

#[test]
fn an_unknown_instruction_set_is_refused_with_the_known_ones() {
    let problem = Plugin::open("mmx").err().unwrap();
    assert!(problem.contains("`mmx`") && problem.contains("scalar"), "{problem}");
}

#[test]
fn without_the_option_the_best_instruction_set_is_taken() {
    assert!(Plugin::open("").is_ok());
}

#[test]
fn operands_of_the_wrong_kind_are_refused_before_they_run() {
    let plugin = Plugin::open("scalar").unwrap();
    let refused = |build: &dyn Fn(&mut Graph)| {
        let mut g = Graph::new();
        build(&mut g);
        let bound = Bound::new(&plugin, &g);
        let refused = bound.supported().is_err();
        assert_eq!(Stream::new(&plugin, 1).compute(&bound).is_err(), refused);
        refused
    };
    assert!(!refused(&|g| {
        let x = g.input("x", DType::F32, &[32, 2]);
        g.silu(x);
    }));
    assert!(refused(&|g| {
        let x = g.input("x", DType::F32, &[32, 2]);
        let y = g.silu(x);
        g.tensors[y.0 as usize].ne = [32, 3, 1, 1];
    }));
    assert!(refused(&|g| {
        let x = g.input("x", DType::F32, &[32, 2]);
        g.silu(x);
        g.tensors[x.0 as usize].dtype = DType::F16;
    }));
    assert!(refused(&|g| {
        let w = g.weight("w", DType::Q4_0, &[32, 2], Role::Matrix);
        let x = g.input("x", DType::F32, &[32, 2]);
        g.mul_mat(w, x);
        g.tensors[w.0 as usize].nb[0] = 20;
        g.tensors[w.0 as usize].ne[0] = 64;
    }));
}

#[test]
fn a_graph_that_moved_is_computed_where_it_is_now() {
    let plugin = Plugin::open("scalar").unwrap();
    let mut g = Graph::new();
    let (x, other) = (g.input("x", DType::F32, &[4]), g.input("other", DType::F32, &[4]));
    let y = g.neg(x);
    let stream = Stream::new(&plugin, 1);
    let mut bound = Bound::new(&plugin, &g);
    let bytes = |number: f32| [number; 4].map(f32::to_ne_bytes).concat();
    bound.write(x.0 as usize, &bytes(1.0));
    bound.write(other.0 as usize, &bytes(2.0));
    for (moves, expected) in [(false, -1.0), (false, -1.0), (true, -2.0), (true, -1.0)] {
        if moves {
            bound.swap([x, other]);
        }
        stream.compute(&bound).unwrap();
        assert_eq!(bound.read()[y.0 as usize], bytes(expected));
    }
}

#[test]
fn full_panels_of_weights_are_sealed_for_products_and_rows() {
    let plugin = Plugin::open("scalar").unwrap();
    let check = |n_rows: u64, layouts: &[u32], build: &dyn Fn(&mut Graph, Tensor)| {
        let mut g = Graph::new();
        let w = g.weight("w", DType::Q8_0, &[32, n_rows], Role::Matrix);
        build(&mut g, w);
        let mut bound = Bound::new(&plugin, &g);
        bound.seal();
        assert!(bound.layouts().eq(layouts.iter().copied()));
        bound.supported().is_ok()
    };
    let product = |g: &mut Graph, w: Tensor| {
        let x = g.input("x", DType::F32, &[32, 2]);
        g.mul_mat(w, x);
    };
    assert!(check(17, &[1, 0, 0], &product));
    assert!(check(15, &[0, 0, 0], &product), "no panel is full");
    assert!(check(16, &[1, 0, 0], &|g, w| {
        let ids = g.input("ids", DType::I32, &[2]);
        g.get_rows(w, ids);
    }));
}

#[test]
fn an_op_without_support_for_the_layout_refuses_a_sealed_weight() {
    let plugin = Plugin::open("scalar").unwrap();
    let mut g = Graph::new();
    let w = g.weight("w", DType::Q8_0, &[32, 16], Role::Matrix);
    let y = g.input("y", DType::F32, &[32, 16]);
    g.cpy(w, y);
    let mut bound = Bound::new(&plugin, &g);
    assert!(bound.supported().is_ok());
    bound.set_layout(w, 1);
    assert!(bound.supported().is_err());
}

#[test]
fn a_read_only_import_is_read_in_place_at_any_offset_and_never_written() {
    use llmrt_cpu::{device::Cpu, simd::Isa};
    use llmrt_plugin::{Device, Host, TensorView, abi::types as c};

    let cpu = Cpu::new(Host::none(), Isa::best());
    let file: Vec<u8> = (0..100).collect();
    // SAFETY: `file` outlives the buffer and is not written.
    let buffer = unsafe { cpu.import_host(file.as_ptr().cast_mut(), file.len() as u64, true) }.unwrap();
    let tensor = c::Tensor {
        id: 0,
        dtype: DType::F32.id(),
        role: 0,
        flags: 0,
        n_dims: 1,
        layout_id: 0,
        ne: [2, 1, 1, 1],
        nb: [4, 8, 8, 8],
        buffer: std::ptr::null_mut(),
        offset: 33,
        nbytes: 8,
        view_offset: 0,
        view_src: c::NO_TENSOR,
        reserved: 0,
        name: c::Str::EMPTY,
    };
    // SAFETY: the tensor has no buffer and does not change.
    let tensor = unsafe { TensorView::new(&tensor) };
    let mut read = [0; 5];
    buffer.get(&tensor, &mut read, 3).unwrap();
    assert_eq!(read, [36, 37, 38, 39, 40]);
    assert!(buffer.set(&tensor, &[1], 0).is_err());
    assert!(buffer.fill(0, 1, 0).is_err());
    assert!(buffer.get(&tensor, &mut [0; 8], 60).is_err());
    assert_eq!(buffer.host_ptr(), None);
    assert!(cpu.alloc(0, 1 << 62, 0).is_err());
}
