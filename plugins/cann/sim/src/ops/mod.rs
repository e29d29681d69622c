//! The operators, a file per family. A row has the operator as the header declares it, the chips that have it beside A2
//! and A3, and what its two phases do.

pub mod check;

pub mod arithmetic;
pub mod unary;

pub mod shape;

pub mod index;
pub mod select;

pub mod reduce;
pub mod sort;

pub mod norm;

pub mod matmul;
pub mod nz;
pub mod quant;

pub mod attend;
pub mod attention;
pub mod experts;
pub mod rope;

pub mod image;

use crate::args::Arg;
use crate::sys::*;
use std::ffi::c_char;

/// A tensor that is read.
pub type In = *const aclTensor;
/// A tensor that is written.
pub type Out = *mut aclTensor;
/// A number on the host.
pub type Num = *const aclScalar;
/// Whole numbers on the host.
pub type Ints = *const aclIntArray;
/// Tensors.
pub type List = *const aclTensorList;
/// A text.
pub type Text = *mut c_char;

/// Exports both functions of each operator and fills their places in the header's table, which fails to compile when a
/// signature differs. `cube` stands before matrix products.
macro_rules! ops {
    ($table:ident; $($(#[$cube:ident])? $name:ident($($arg:ident: $ty:ty),* $(,)?) $chips:literal => $plan:expr;)*) => {
        $(
            #[allow(non_snake_case)]
            mod $name {
                use super::*;
                static OP: $crate::plan::Op = $crate::plan::Op {
                    name: stringify!($name),
                    chips: $chips,
                    cube: $crate::ops::is_cube(&[$(stringify!($cube))?]),
                    plan: $plan,
                };
                #[unsafe(export_name = concat!("llmrt_sim_", stringify!($name), "GetWorkspaceSize"))]
                pub unsafe extern "C" fn plan(
                    $($arg: $ty,)*
                    size: *mut u64,
                    executor: *mut *mut $crate::sys::aclOpExecutor,
                ) -> i32 {
                    $crate::plan::plan(&OP, vec![$((stringify!($arg), $crate::args::Arg::from($arg))),*], size, executor)
                }
                #[unsafe(export_name = concat!("llmrt_sim_", stringify!($name)))]
                pub unsafe extern "C" fn launch(
                    workspace: *mut std::ffi::c_void,
                    size: u64,
                    executor: *mut $crate::sys::aclOpExecutor,
                    stream: $crate::sys::aclrtStream,
                ) -> i32 {
                    $crate::plan::launch(stringify!($name), workspace, size, executor, stream)
                }
            }
        )*
        /// Names and chips.
        pub(crate) const ROWS: &[(&str, &str)] = &[$((stringify!($name), $chips)),*];
        pub(crate) fn fill(table: &mut $crate::sys::$table) {
            $(
                table.$name.plan = Some($name::plan);
                table.$name.launch = Some($name::launch);
            )*
        }
    };
}
pub(crate) use ops;

/// Whether a row has `cube`.
const fn is_cube(marks: &[&str]) -> bool {
    !marks.is_empty()
}

/// The chips that have an operator beside A2 and A3, as [`crate::chip::Chip::has`] reads them; `None`: no kernel is needed.
pub fn chips(name: &str) -> Option<&'static str> {
    let families = [
        arithmetic::ROWS,
        unary::ROWS,
        unary::activation::ROWS,
        shape::ROWS,
        index::ROWS,
        select::ROWS,
        reduce::ROWS,
        sort::ROWS,
        norm::ROWS,
        matmul::ROWS,
        nz::ROWS,
        quant::ROWS,
        attention::ROWS,
        rope::ROWS,
        experts::ROWS,
        image::ROWS,
        image::resize::ROWS,
        image::columns::ROWS,
    ];
    families.into_iter().flatten().find(|(op, _)| *op == name).map(|(_, chips)| *chips)
}

/// Fills the tables of the four libraries.
pub(crate) fn fill(
    math: &mut cann_math,
    nn: &mut cann_nn,
    cv: &mut cann_cv,
    transformer: &mut cann_transformer,
) {
    arithmetic::fill(math);
    unary::fill(math);
    unary::activation::fill(nn);
    shape::fill(math);
    index::fill(nn);
    select::fill(math);
    reduce::fill(math);
    sort::fill(math);
    norm::fill(nn);
    matmul::fill(nn);
    nz::fill(nn);
    quant::fill(nn);
    attention::fill(transformer);
    rope::fill(transformer);
    experts::fill(transformer);
    image::fill(nn);
    image::resize::fill(cv);
    image::columns::fill(math);
}

macro_rules! arg {
    ($($ty:ty: $arg:ident => $make:expr),* $(,)?) => {
        $(impl From<$ty> for Arg {
            fn from($arg: $ty) -> Arg {
                $make
            }
        })*
    };
}
arg! {
    In: t => Arg::Tensor(t as usize),
    Out: t => Arg::Out(t as usize),
    Num: s => Arg::Scalar(s as usize),
    Ints: a => Arg::Ints(a as usize),
    List: l => Arg::List(l as usize),
    Text: t => Arg::Text(t),
    i64: n => Arg::Int(n),
    i32: n => Arg::Int(n.into()),
    i8: n => Arg::Int(n.into()),
    bool: b => Arg::Int(b.into()),
    f64: x => Arg::Double(x),
}
