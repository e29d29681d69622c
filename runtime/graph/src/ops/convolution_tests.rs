//! Convolutions and their like compute what ggml does: numbers that its CPU kernels gave for the same operands.

use super::super::conv_2d::params;
use super::super::im2col::{one_dim, two_dims};
use super::super::tests::{check, floats};
use crate::graph::Graph;
use crate::tensor::{Tensor, shape};
use llmrt_abi::{DType, op};

/// What `build` makes of a kernel and x, whose element i is (7i + 3) mod 11 - 5.
fn check_as_ggml(
    build: impl FnOnce(&mut Graph, Tensor, Tensor) -> Tensor,
    kernel: &[u64],
    x: &[u64],
    expected: &[f32],
) {
    let ramp = |ne: &[u64]| {
        let n = shape(ne).iter().product::<u64>();
        floats(&(0..n).map(|i| ((i * 7 + 3) % 11) as f32 - 5.0).collect::<Vec<_>>())
    };
    let graph = |g: &mut Graph| {
        let kernel = g.input("kernel", DType::F32, kernel);
        let x = g.input("x", DType::F32, x);
        build(g, kernel, x)
    };
    check(graph, &[("kernel", ramp(kernel)), ("x", ramp(x))], expected);
}

#[test]
fn columns_are_taps_before_channels() {
    check_as_ggml(
        |g, kernel, x| g.im2col(kernel, x, &one_dim(2, 1, 1)),
        &[2, 2, 1],
        &[3, 2, 2],
        &[0., -2., 0., -3., 5., 1., 4., 0., 0., -4., 0., -5., 3., -1., 2., -2.],
    );
    check_as_ggml(
        |g, kernel, x| g.im2col(kernel, x, &two_dims([2, 1], [1, 0], [2, 1])),
        &[2, 1, 2],
        &[3, 2, 2],
        &[0., 5., 0., 3., 5., 0., 3., 0., 0., 4., 0., 2., 4., 0., 2., 0.],
    );
}

#[test]
fn a_signal_under_kernels_of_two_channels() {
    let p = op::Conv1dParams { stride: 1, pad: 1, dilation: 2 };
    let one = [25., 25., -34., -6., 0., -36., 29., 20.];
    check_as_ggml(|g, kernel, x| g.conv_1d(kernel, x, &p), &[2, 2, 2], &[4, 2, 1], &one);
    // Of two batches ggml's own result has the batches before the channels, under dims of the other order.
    let two = [25., 25., -34., -6., 0., -36., 29., 20., -28., 26., -11., -7., 3., -33., -12., 20.];
    check_as_ggml(|g, kernel, x| g.conv_1d(kernel, x, &p), &[2, 2, 2], &[4, 2, 2], &two);
}

#[test]
fn an_image_under_kernels_of_two_channels_or_one() {
    let p = params([2, 1], [1, 0], [1, 1]);
    check_as_ggml(
        |g, kernel, x| g.conv_2d(kernel, x, &p),
        &[2, 2, 2, 2],
        &[3, 3, 2, 2],
        &[14., -6., 9., -10., 31., -9., 44., -10., 6., -30., 1., -23., -23., 18., -21., -71.],
    );
    check_as_ggml(
        |g, kernel, x| g.conv_2d_dw(kernel, x, &p),
        &[2, 2, 1, 2],
        &[3, 3, 2, 2],
        &[-1., -1., -3., -2., 15., -5., 12., -8., 9., -40., 7., 14., -3., 10., -6., -37.],
    );
}

#[test]
fn a_signal_under_kernels_of_its_channels() {
    let p = op::Conv1dParams { stride: 1, pad: 1, dilation: 1 };
    check_as_ggml(
        |g, kernel, x| g.conv_1d_dw(kernel, x, &p),
        &[2, 1, 3],
        &[4, 3],
        &[-10., 29., -5., -17., 6., -12., 4., 12., -13., 3., 0., -4., -20., 8., -8.],
    );
}

#[test]
fn transposed_kernels_add_up_over_the_input_channels() {
    check_as_ggml(
        |g, kernel, x| g.conv_transpose_1d(kernel, x, 2),
        &[3, 2, 2],
        &[3, 2],
        &[16., -19., -25., 37., -1., 5., 1., 21., -14., -29., 28., -11., 4., 0.],
    );
    check_as_ggml(
        |g, kernel, x| g.conv_transpose_2d(kernel, x, [2, 2]),
        &[2, 3, 2, 2],
        &[2, 2, 2],
        &[
            24., -6., -10., 25., -14., 22., 5., -15., -30., -15., 41., -12., 13., -19., -12., 21., 4., 16.,
            -12., -12., 20., -10., -20., 15., -18., 18., -5., -25., -28., 31., 31., -22., 19., -13., -12.,
            21., 10., -22., -12., 21.,
        ],
    );
}

#[test]
fn pools_and_norms() {
    let pool = |kind| move |g: &mut Graph, _: Tensor, x| g.pool_1d(x, kind, 3, 2, 1);
    check_as_ggml(pool(1), &[1], &[5], &[1.5, 1., 0.5]);
    check_as_ggml(pool(0), &[1], &[5], &[5., 5., 4.]);
    let pool = |kind| {
        let p = op::PoolParams { kind, kernel0: 2, kernel1: 3, stride0: 2, stride1: 1, pad0: 1, pad1: 1 };
        move |g: &mut Graph, _: Tensor, x| g.pool_2d(x, &p)
    };
    check_as_ggml(pool(1), &[1], &[3, 3], &[-0.833_333_3, 1.666_666_6, -1.5, 2., -1.166_666_6, 1.]);
    check_as_ggml(pool(0), &[1], &[3, 3], &[-2., 5., -2., 5., -3., 4.]);
    for n_groups in [3, 4] {
        check_as_ggml(
            |g, _, x| g.group_norm(x, n_groups, 0.5),
            &[1],
            &[2, 1, 5],
            &[
                -0.704_934_4,
                1.488_195,
                0.234_978_1,
                -1.018_239,
                1.018_239,
                -0.234_978_1,
                -1.488_195,
                0.704_934_4,
                0.942_809_1,
                -0.942_809_1,
            ],
        );
    }
}
