//! Tests of graph building: views, mistakes, identity.

use super::*;

fn graph_with(build: impl FnOnce(&mut Graph, Tensor) -> Tensor) -> Result<Graph> {
    let mut g = Graph::new();
    let t = g.input("t", DType::F32, &[8, 6, 2]);
    let y = build(&mut g, t);
    g.output(y, "y");
    g.finish()
}

/// Shape, strides and offset of a view of F32 [8, 6, 2].
fn check(build: impl FnOnce(&mut Graph, Tensor) -> Tensor, ne: Shape, nb: Shape, offset: u64) {
    let g = graph_with(build).unwrap();
    let y = g.def(g.find("y").unwrap());
    assert_eq!((y.ne, y.nb, y.view), (ne, nb, Some((Tensor(0), offset))));
}

fn refuse(build: impl FnOnce(&mut Graph, Tensor) -> Tensor, message: &str) {
    assert_eq!(graph_with(build).unwrap_err().to_string(), message);
}

#[test]
fn a_slice_keeps_strides_and_moves_the_start() {
    check(|g, t| g.slice(t, 0, 2, 4), [4, 6, 2, 1], [4, 32, 192, 384], 8);
    check(|g, t| g.slice(t, 1, 5, 1), [8, 1, 2, 1], [4, 32, 192, 384], 160);
}

#[test]
fn a_view_of_a_view_is_a_view_of_its_owner() {
    let twice = |g: &mut Graph, t| {
        let u = g.slice(t, 2, 1, 1);
        g.slice(u, 1, 2, 3)
    };
    check(twice, [8, 3, 1, 1], [4, 32, 192, 384], 192 + 64);
}

#[test]
fn rows_are_cut_into_heads() {
    let heads = |g: &mut Graph, t| {
        let part = g.slice(t, 0, 4, 4);
        g.split_heads(part, 2)
    };
    check(heads, [2, 2, 6, 2], [4, 8, 32, 192], 16);
}

#[test]
fn permuted_dims_take_their_strides_along() {
    check(|g, t| g.permute(t, [2, 0, 1, 3]), [2, 8, 6, 1], [192, 4, 32, 384], 0);
}

#[test]
fn a_view_past_the_end_is_refused() {
    refuse(|g, t| g.slice(t, 1, 4, 3), "view of `t`: no 3 elements from 4 in dim 1 of [8, 6, 2, 1]");
    refuse(
        |g, t| g.view(t, [8, 6, 3, 1], [4, 32, 192, 384], 0),
        "view of `t`: [8, 6, 3, 1] with strides [4, 32, 192, 384] from byte 0 ends past the 384 bytes",
    );
}

#[test]
fn an_empty_slice_is_a_tensor_without_bytes() {
    check(|g, t| g.slice(t, 1, 6, 0), [8, 0, 2, 1], [4, 32, 192, 384], 192);
    check(|g, t| g.slice(t, 0, 8, 0), [0, 6, 2, 1], [4, 32, 192, 384], 32);
    let g = graph_with(|g, t| g.slice(t, 2, 1, 0)).unwrap();
    assert_eq!(g.def(g.find("y").unwrap()).n_bytes(), 0);
    refuse(|g, t| g.slice(t, 1, 7, 0), "view of `t`: no 0 elements from 7 in dim 1 of [8, 6, 2, 1]");
}

#[test]
fn empty_tensors_take_part_in_a_graph() {
    let mut g = Graph::new();
    let none = g.input("none", DType::F32, &[8, 0, 3]);
    let none = g.permute(none, [1, 0, 2, 3]);
    let none = g.slice(none, 1, 2, 6);
    let none = g.neg(none);
    let none = g.reshape(none, &[2, 0, 4]);
    let none = g.scale(none, 2.0);
    let y = g.sum_rows(none);
    assert_eq!((g.error(), g.ne(none), g.ne(y)), (None, [2, 0, 4, 1], [1, 0, 4, 1]));
    assert_eq!((g.def(none).n_bytes(), g.def(y).is_contiguous()), (0, true));
}

#[test]
fn a_zero_does_not_excuse_dims_too_big_to_count() {
    let mut g = Graph::new();
    g.input("t", DType::F32, &[0, 1 << 40, 1 << 40]);
    assert!(
        g.finish().unwrap_err().to_string().starts_with("tensor `t`: [0, 1099511627776, 1099511627776, 1]")
    );
}

#[test]
fn the_first_mistake_is_the_one_reported() {
    let twice = |g: &mut Graph, t| {
        let u = g.reshape(t, &[7]);
        g.reshape(u, &[5])
    };
    refuse(twice, "view of `t`: [8, 6, 2, 1] (contiguous: true) cannot become [7]");
}

#[test]
fn a_tensor_too_big_to_count_is_refused() {
    let mut g = Graph::new();
    g.weight("w", DType::F32, &[1 << 40, 1 << 40], Role::Matrix);
    assert!(
        g.finish().unwrap_err().to_string().starts_with("tensor `w`: [1099511627776, 1099511627776, 1, 1]")
    );
}

#[test]
fn names_of_results_do_not_change_the_identity_but_shapes_params_and_weights_do() {
    let uid = |weight: &str, n: u64, eps: f32, output: &str| {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[8, n]);
        let w = g.weight(weight, DType::F32, &[8], Role::Norm);
        let y = g.rms_norm(x, w, eps);
        g.output(y, output);
        g.uid()
    };
    let base = uid("a", 2, 1e-5, "y");
    assert_eq!(base, uid("a", 2, 1e-5, "z"));
    assert!(
        [uid("b", 2, 1e-5, "y"), uid("a", 3, 1e-5, "y"), uid("a", 2, 1e-6, "y")].iter().all(|u| *u != base)
    );
}
