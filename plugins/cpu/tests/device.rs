//! The device's own behaviour: options, memory, what it refuses.

mod common;

use common::{Bound, Plugin, Stream};
use llmrt_abi::DType;
use llmrt_graph::{Graph, Role};

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
