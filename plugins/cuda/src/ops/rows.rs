//! Rows picked, written, copied and put together: kernels/rows.cu.

use super::check::{self, Answer, ensure, given, params};
use super::{Form, blocks, mul_mat, pieces, source};
use crate::call::{Args, Call, address};
use llmrt_plugin::abi::dtype::DTypeKind;
use llmrt_plugin::abi::op::*;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result, TensorView};

pub const GET_ROWS: Form = (supports_get, get);
pub const SET_ROWS: Form = (supports_set, set);
pub const COPY: Form = (supports_copy, copy);
pub const CPY: Form = (supports_cpy, copy);
pub const CONCAT: Form = (supports_concat, concat);
pub const REPEAT: Form = (supports_repeat, repeat);

fn supports_get(node: &NodeView<'_>) -> Answer {
    let is_int = given(node, 0)?.dtype() == Some(DType::I32);
    let table = if is_int { given(node, 0)? } else { mul_mat::weights(node, 0)? }.ne();
    let ids = check::of(node, 1, DType::I32)?.ne();
    ensure(ids[1] == table[2] && ids[2] == table[3] && ids[3] == 1, Reason::Shape)?;
    let dtype = if is_int { DType::I32 } else { DType::F32 };
    check::result(node, Some(dtype), [table[0], ids[0], ids[1], ids[2]])
}

fn get(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (table, y) = (source(node, 0)?, node.dst());
    let args = Args::default().tensor(&table)?.tensor(&source(node, 1)?)?.tensor(&y)?;
    match table.dtype().is_some_and(DType::is_quantised) {
        true => call.launch(("rows", "get_rows_packed"), blocks(y.n_elements() / 32, 128), 128, args),
        false => call.launch(("rows", "get_rows"), blocks(y.n_elements(), 256), 256, args),
    }
}

/// Dtypes that a cache may have.
fn is_written(t: &TensorView<'_>) -> bool {
    check::is_number(t) || t.dtype() == Some(DType::Q8_0)
}

fn supports_set(node: &NodeView<'_>) -> Answer {
    let (cache, rows, ids) = (given(node, 0)?, check::numbers(node, 1)?, given(node, 2)?);
    ensure(is_written(&cache), Reason::Type)?;
    check::dense_rows(&cache)?;
    ensure(matches!(ids.dtype(), Some(DType::I32 | DType::I64)), Reason::Type)?;
    let (ne, from, ids) = (cache.ne(), rows.ne(), ids.ne());
    ensure(ids[1] > 0 && ids[2] > 0 && ids[3] == 1, Reason::Shape)?;
    ensure(ne[2].is_multiple_of(ids[1]) && ne[3].is_multiple_of(ids[2]), Reason::Shape)?;
    let heads = ne[2..] == [1, 1] && from[0].checked_mul(from[1]) == Some(ne[0]) && from[2..] == [ids[0], 1];
    ensure(from == [ne[0], ids[0], ne[2], ne[3]] || heads, Reason::Shape)?;
    in_place(node)
}

/// The result is source 0 itself.
fn in_place(node: &NodeView<'_>) -> Answer {
    let (y, dst) = (given(node, 0)?, node.dst());
    check::result(node, y.dtype(), y.ne())?;
    ensure(dst.nb() == y.nb(), Reason::Stride)
}

fn set(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (cache, ids) = (source(node, 0)?, source(node, 2)?);
    let args = Args::default().tensor(&cache)?.tensor(&source(node, 1)?)?.tensor(&ids)?;
    let [_, _, b, c] = cache.ne();
    call.launch(("rows", "set_rows"), [ids.ne()[0] * b * c, 1, 1], 128, args)
}

/// How elements of one dtype become those of another.
#[derive(PartialEq)]
enum Way {
    Bytes,
    Numbers,
    Convert,
    Unpack,
    Pack,
}

fn way(x: &TensorView<'_>, y: &TensorView<'_>) -> Result<Way, Reason> {
    let (from, to) = (x.dtype().ok_or(Reason::Type)?, y.dtype().ok_or(Reason::Type)?);
    if from == to {
        let plain = !from.is_quantised();
        return if plain || (dense(x) && dense(y)) { Ok(Way::Bytes) } else { Err(Reason::Stride) };
    }
    match (check::is_number(x), check::is_number(y)) {
        (true, true) => Ok(Way::Numbers),
        (_, true) if mul_mat::name_of(from).is_some() && dense(x) => Ok(Way::Unpack),
        (is_float, false) if to == DType::Q8_0 && dense(y) => {
            let is_packed = mul_mat::name_of(from).is_some() && dense(x);
            if is_float || is_packed { Ok(Way::Pack) } else { Err(Reason::Type) }
        }
        _ if !from.is_quantised() && !to.is_quantised() => Ok(Way::Convert),
        _ => Err(Reason::Type),
    }
}

fn dense(t: &TensorView<'_>) -> bool {
    check::dense_rows(t).is_ok()
}

fn supports_copy(node: &NodeView<'_>) -> Answer {
    let p = params(CopyParams::from_bytes(node.params_bytes()))?;
    let (x, y) = (given(node, 0)?, node.dst());
    check::result(node, Some(DType::from_id(p.dtype).ok_or(Reason::Param)?), x.ne())?;
    way(&x, &y).map(|_| ())
}

fn supports_cpy(node: &NodeView<'_>) -> Answer {
    let (y, x) = (given(node, 0)?, given(node, 1)?);
    let count = |t: &TensorView<'_>| t.ne().iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    ensure(count(&x).is_some() && count(&x) == count(&y), Reason::Shape)?;
    way(&x, &y)?;
    in_place(node)
}

fn copy(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, node.n_src() - 1)?, node.dst());
    let (n, args) = (y.n_elements(), Args::default().tensor(&x)?.tensor(&y)?);
    match way(&x, &y) {
        Ok(Way::Numbers) => call.launch(("rows", "copy"), blocks(n, 256), 256, args),
        Ok(Way::Unpack) => call.launch(("rows", "unpack"), blocks(n / 32, 128), 128, args),
        Ok(Way::Convert) => call.launch(("rows", "convert"), blocks(n, 256), 256, args),
        Ok(Way::Pack) => {
            let args = unpacked(call, &x)?.tensor(&y)?;
            call.launch(("rows", "pack_q8_0"), blocks(n / 32, 128), 128, args)
        }
        _ => {
            let dtype = y.dtype().unwrap_or(DType::F32);
            let args = units(&x)?.then(units(&y)?).count(dtype.block_bytes());
            call.launch(("rows", "copy_bytes"), blocks(n / dtype.block_elems(), 256), 256, args)
        }
    }
}

/// Bytes of the floats between the packed numbers that a supported node copies.
pub fn workspace(node: &NodeView<'_>) -> Result<usize> {
    let (x, y) = (source(node, node.n_src() - 1)?, node.dst());
    Ok(if way(&x, &y) == Ok(Way::Pack) { unpacked_bytes(&x) } else { 0 })
}

/// Bytes that [`unpacked`] takes for a while.
pub fn unpacked_bytes(t: &TensorView<'_>) -> usize {
    if check::is_number(t) { 0 } else { pieces(&[t.n_elements() * 4]) }
}

/// A tensor as a kernel's argument: floats as they are, packed numbers made floats first.
pub fn unpacked(call: &mut Call<'_>, t: &TensorView<'_>) -> Result<Args> {
    if check::is_number(t) || t.n_elements() == 0 {
        return Args::default().tensor(t);
    }
    let floats = call.scratch(t.n_elements() * 4)?;
    let args = Args::default().tensor(t)?.floats(floats, t.ne());
    call.launch(("rows", "unpack"), blocks(t.n_elements() / 32, 128), 128, args)?;
    Ok(Args::default().floats(floats, t.ne()))
}

/// As [`Args::tensor`], dim 0 counting blocks.
pub fn units(t: &TensorView<'_>) -> Result<Args> {
    let (mut ne, mut nb) = (t.ne(), t.nb());
    let dtype = t.dtype().unwrap_or(DType::F32);
    ne[0] /= dtype.block_elems();
    // Of one block the stride may be anything.
    if ne[0] == 1 {
        nb[0] = dtype.block_bytes();
    }
    let at = if t.n_elements() == 0 { 0 } else { address(t)? };
    let args = ne.into_iter().chain(nb).fold(Args::default().address(at), Args::count);
    Ok(args.count(0))
}

/// Source `i`: of a dtype without blocks.
pub fn plain<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    let t = given(node, i)?;
    ensure(t.dtype().is_some_and(|dtype| dtype.info().kind != DTypeKind::Quant), Reason::Type)?;
    Ok(t)
}

/// Source `i`: of any dtype; packed numbers in dense rows.
pub fn any<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    let t = given(node, i)?;
    if t.dtype().is_some_and(DType::is_quantised) {
        check::dense_rows(&t)?;
    }
    Ok(t)
}

fn supports_concat(node: &NodeView<'_>) -> Answer {
    let dim = params(ConcatParams::from_bytes(node.params_bytes()))?.dim as usize;
    let (a, b) = (any(node, 0)?, any(node, 1)?);
    ensure(dim < 4, Reason::Param)?;
    ensure(a.dtype() == b.dtype(), Reason::Type)?;
    let mut ne = a.ne();
    ensure((0..4).all(|d| d == dim || ne[d] == b.ne()[d]), Reason::Shape)?;
    ne[dim] += b.ne()[dim];
    check::result(node, a.dtype(), ne)
}

fn concat(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let dim = ConcatParams::from_bytes(node.params_bytes()).unwrap_or_default().dim;
    let (a, y) = (source(node, 0)?, node.dst());
    let args = units(&a)?.then(units(&source(node, 1)?)?).then(units(&y)?);
    let args = args.count(dim as usize).count(bytes(&y));
    call.launch(("rows", "concat"), blocks(n_units(&y), 256), 256, args)
}

/// Elements or blocks.
pub fn n_units(t: &TensorView<'_>) -> usize {
    t.n_elements() / t.dtype().map_or(1, DType::block_elems)
}

/// Bytes of an element or block.
pub fn bytes(t: &TensorView<'_>) -> usize {
    t.dtype().map_or(1, DType::block_bytes)
}

fn supports_repeat(node: &NodeView<'_>) -> Answer {
    let (x, y) = (any(node, 0)?, node.dst());
    let mut ne = x.ne();
    ensure(!ne.contains(&0), Reason::Shape)?;
    if node.op() == Some(Op::RepeatInterleave) {
        let p = params(RepeatInterleaveParams::from_bytes(node.params_bytes()))?;
        ensure(p.dim < 4 && p.n > 0, Reason::Param)?;
        // Numbers do not move within blocks.
        ensure(p.dim > 0 || x.dtype().is_some_and(|dtype| !dtype.is_quantised()), Reason::Type)?;
        ne[p.dim as usize] *= p.n as usize;
    } else {
        let p = params(ShapeParams::from_bytes(node.params_bytes()))?;
        ne = [p.ne0, p.ne1, p.ne2, p.ne3].map(|n| n as usize);
    }
    ensure(ne.iter().zip(x.ne()).all(|(y, x)| y.is_multiple_of(x)), Reason::Shape)?;
    check::result(node, x.dtype(), ne)?;
    ensure(y.ne() == ne, Reason::Shape)
}

fn repeat(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, node.dst());
    let (dim, each) = match node.op() {
        Some(Op::RepeatInterleave) => {
            let p = RepeatInterleaveParams::from_bytes(node.params_bytes()).unwrap_or_default();
            (p.dim as usize, p.n as usize)
        }
        _ => (0, 0),
    };
    let args = units(&x)?.then(units(&y)?).count(bytes(&y)).count(dim).count(each);
    call.launch(("rows", "repeat"), blocks(n_units(&y), 256), 256, args)
}
