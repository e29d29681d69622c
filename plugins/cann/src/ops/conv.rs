//! Convolutions in one and two dims, plain, with a kernel per channel, and transposed. In F32, rounded to F16 on the way
//! in where the chip has no F32 units.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::{Conv1dParams, Conv2dParams};
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

/// The arguments of the library's operator; lists are of the outer dim first, of one dim or two.
#[derive(Debug)]
struct Form {
    stride: Vec<i64>,
    pad: Vec<i64>,
    dilation: Vec<i64>,
    transposed: bool,
    per_channel: bool,
}

fn form(node: &NodeView<'_>) -> std::result::Result<Form, Reason> {
    let (op, params) = (node.op().ok_or(Reason::Op)?, node.params_bytes());
    let transposed = matches!(op, Op::ConvTranspose1d | Op::ConvTranspose2d);
    let per_channel = matches!(op, Op::Conv1dDw | Op::Conv2dDw);
    let [stride, pad, dilation] = match op {
        Op::Conv1d | Op::Conv1dDw | Op::ConvTranspose1d => {
            let p = check::params(Conv1dParams::from_bytes(params))?;
            [p.stride, p.pad, p.dilation].map(|n| vec![n.into()])
        }
        _ => {
            let p = check::params(Conv2dParams::from_bytes(params))?;
            let two = |outer: u32, inner: u32| vec![outer.into(), inner.into()];
            [two(p.stride1, p.stride0), two(p.pad1, p.pad0), two(p.dilation1, p.dilation0)]
        }
    };
    let plain = !transposed || (pad.iter().all(|n: &i64| *n == 0) && dilation.iter().all(|n| *n == 1));
    let positive = stride.iter().chain(&dilation).all(|n| *n > 0);
    ensure(plain && positive, Reason::Param)?;
    Ok(Form { stride, pad, dilation, transposed, per_channel })
}

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, nn.aclnnConvolution, math.aclnnCast, math.aclnnInplaceCopy)?;
    let form = form(node)?;
    let (kernel, x) = (check::floats(chip, node, 0)?.ne(), check::floats(chip, node, 1)?.ne());
    let spatial = form.stride.len();
    let reaches = |d: usize| {
        let at = spatial - 1 - d;
        let reach = (kernel[d] as i64 - 1) * form.dilation[at] + 1;
        kernel[d] > 0 && (form.transposed || reach <= x[d] as i64 + 2 * form.pad[at])
    };
    ensure((0..spatial).all(reaches), Reason::Shape)?;
    let channels_match = match (form.transposed, form.per_channel) {
        (true, _) => kernel[spatial + 1] == x[spatial],
        (_, true) => kernel[spatial] == 1 && kernel[spatial + 1] == x[spatial],
        _ => kernel[spatial] == x[spatial],
    };
    ensure(
        channels_match && kernel[spatial + 2..].iter().chain(&x[spatial + 2..]).all(|n| *n == 1),
        Reason::Shape,
    )?;
    check::result(node, Some(DType::F32), node.dst().ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let Ok(form) = form(node) else { return Ok(()) };
    let rank = form.stride.len() + 2;
    let (kernel, x) = (source(node, 0)?.flat(rank), source(node, 1)?.flat(rank));
    let y = Operand::of(&node.dst())?.flat(rank);
    let groups = if form.per_channel { x.ne[rank - 2] } else { 1 };
    let (kernel, x) = (call.dense(&kernel, ACL_FLOAT)?, call.dense(&x, ACL_FLOAT)?);
    let placed = call.place(&y, ACL_FLOAT)?;
    let cube_math = if call.stream.chip.f32_products { 0 } else { 1 };
    let (stride, pad, dilation) =
        (call.ints(&form.stride)?, call.ints(&form.pad)?, call.ints(&form.dilation)?);
    let more = call.ints(&vec![0; rank - 2])?;
    let (w, x, out) = (call.image(&kernel)?, call.image(&x)?, call.image(&placed)?);
    let (none, transposed) = (std::ptr::null(), form.transposed);
    run!(
        call,
        nn.aclnnConvolution(x, w, none, stride, pad, dilation, transposed, more, groups, out, cube_math)
    )?;
    call.store(&placed, &y)
}
