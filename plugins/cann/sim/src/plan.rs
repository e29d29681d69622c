//! The two phases of an operator. The first checks and plans, the second enqueues; a plan works once unless it is made
//! repeatable.

use crate::args::{Arg, Args, Value, value};
use crate::fault::{Answer, ensure, fault};
use crate::runtime::stream::resolve;
use crate::runtime::task::Task;
use crate::sys::*;
use crate::tensor::Tensor;
use crate::view::Run;
use crate::world::{World, put, status, world};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A row of the table of operators.
pub struct Op {
    /// As in the header.
    pub name: &'static str,
    /// Chips beside A2 and A3; see [`crate::chip::Chip::has`].
    pub chips: &'static str,
    /// A matrix product: its faults are those of the cube unit.
    pub cube: bool,
    /// Checks the parameters and returns what the kernel does.
    pub plan: fn(&Args) -> Answer<Kernel>,
}

/// What a kernel does when the stream reaches it.
pub type Kernel = Box<dyn Fn(&Run<'_>) -> Answer + Send + Sync>;

/// A plan.
pub struct Executor {
    op: &'static Op,
    workspace: u64,
    kernel: Arc<Kernel>,
    /// What the library's cache finds it by.
    pub(crate) key: String,
    /// It came from that cache.
    pub(crate) is_cached: bool,
    pub(crate) state: Mutex<State>,
}

/// What a repeatable plan may change.
pub(crate) struct State {
    pub(crate) args: Args,
    /// Tensors by parameter: which parameter, and the handle.
    pub(crate) tensors: Vec<(usize, usize)>,
    pub(crate) repeatable: bool,
}

const INNER_NULL: i32 = 561_103;

/// The first phase.
pub fn plan(
    op: &'static Op,
    args: Vec<(&'static str, Arg)>,
    size: *mut u64,
    executor: *mut *mut aclOpExecutor,
) -> i32 {
    let w = world();
    w.trace.count("plan", 1);
    let answer = make(&w, op, args).and_then(|made| {
        put(size, made.workspace)?;
        put(executor, w.objects.executors.insert(made) as *mut aclOpExecutor)
    });
    w.trace.line(|| {
        format!(
            "{}GetWorkspaceSize {}",
            op.name,
            answer.as_ref().map_or_else(|e| e.text.clone(), |()| "ok".into())
        )
    });
    w.trace.count("refused", answer.is_err().into());
    status(op.name, answer)
}

fn make(w: &Arc<World>, op: &'static Op, passed: Vec<(&'static str, Arg)>) -> Answer<Executor> {
    let on_chip = w.chip.has(op.chips, w.config.documented);
    ensure(on_chip, ACLNN_ERR_RUNTIME_ERROR, || format!("{} has no such operator", w.config.soc))?;
    let (mut tensors, mut outs) = (Vec::new(), Vec::new());
    let mut values = Vec::new();
    for (i, (name, arg)) in passed.into_iter().enumerate() {
        if let Arg::Tensor(handle) | Arg::Out(handle) = arg
            && handle != 0
        {
            tensors.push((i, handle));
            outs.extend(matches!(arg, Arg::Out(_)).then_some(i));
        }
        values.push((name, value(w, name, arg)?));
    }
    let args = Args { op, world: w.clone(), values };
    args.tensors().try_for_each(|t| check_dtype(w, t))?;
    let (refused, dtype, code) = &w.config.refuse;
    let is_refused = refused == op.name && dtype.is_none_or(|dtype| args.tensors().any(|t| t.dtype == dtype));
    ensure(!is_refused, *code, || "was to be refused".into())?;
    let kernel = (op.plan)(&args)?;
    outs.iter().try_for_each(|out| apart(w, &args, *out))?;
    // Random, but the same for the same shapes; at least what the kernel scribbles over.
    let shape = args.tensors().flat_map(|t| t.dims.iter().map(|n| *n as u64)).collect::<Vec<_>>();
    let is_empty = args.tensors().all(|t| t.n_elements() == 0);
    let workspace = if is_empty { 0 } else { 512 * (1 + w.random(&shape) % 8) };
    let key = crate::repeat::key(&args);
    let growth = if w.config.grow && workspace > 0 {
        let mut planned = w.n_planned.lock();
        let n = planned.entry(key.clone()).or_default();
        *n += 1;
        4096 * (*n - 1)
    } else {
        0
    };
    let workspace = workspace + growth;
    let state = Mutex::new(State { args, tensors, repeatable: false });
    let is_cached = w.op_cache.lock().contains(&(std::thread::current().id(), key.clone()));
    Ok(Executor { op, workspace, kernel: Arc::new(kernel), key, is_cached, state })
}

/// A kernel that writes some of what it reads, at other places, reads what it wrote.
fn apart(w: &World, args: &Args, out: usize) -> Answer {
    let (name, Value::Tensor(y)) = &args.values[out] else { return Ok(()) };
    let others = args.values.iter().enumerate().filter(|(i, _)| *i != out);
    for (other, value) in others.map(|(_, value)| value) {
        let inputs = match value {
            Value::Tensor(x) => std::slice::from_ref(x),
            Value::List(all) => all,
            _ => &[],
        };
        if inputs.iter().any(|x| crate::view::overlap(x, y)) {
            let text = format!("{}: `{name}` overlaps `{other}`, at other places", args.op.name);
            w.doubt(ACLNN_ERR_PARAM_INVALID, text)?;
        }
    }
    Ok(())
}

fn check_dtype(w: &World, t: &Tensor) -> Answer {
    let missing = match t.dtype {
        ACL_BF16 => !w.chip.bf16,
        ACL_INT4 => !w.chip.int4,
        _ => t.format == ACL_FORMAT_FRACTAL_NZ && !w.chip.nz,
    };
    ensure(!missing, ACLNN_ERR_PARAM_INVALID, || {
        format!("{} has no dtype {}, format {}", w.config.soc, t.dtype, t.format)
    })
}

/// The second phase.
pub fn launch(
    name: &'static str,
    workspace: *mut c_void,
    size: u64,
    executor: *mut aclOpExecutor,
    stream: aclrtStream,
) -> i32 {
    let w = world();
    w.trace.count("launch", 1);
    w.trace.count(name, 1);
    let answer = enqueue(&w, name, workspace as usize, size, executor as usize, stream);
    if let Ok(bytes) = &answer {
        w.trace.count(&format!("{name}.bytes"), *bytes);
    }
    w.trace.line(|| {
        let answer = answer.as_ref().map_or_else(|e| e.text.clone(), |bytes| format!("{bytes} bytes"));
        format!("{name} {stream:p} {answer}")
    });
    status(name, answer.map(|_| ()))
}

/// Enqueues a kernel; returns the bytes that it moves.
fn enqueue(
    w: &Arc<World>,
    name: &str,
    workspace: usize,
    size: u64,
    handle: usize,
    stream: aclrtStream,
) -> Answer<u64> {
    let Some(made) = w.objects.executors.get(handle) else {
        return fault(INNER_NULL, "the executor was used before, or never planned");
    };
    let args = {
        let state = made.state.lock();
        if !state.repeatable {
            w.objects.executors.remove(handle);
            if crate::repeat::is_on_ai_cpu(&state.args) {
                w.trace.count("ai_cpu", 1);
            } else if !crate::repeat::abandons_cache(&state.args) {
                w.op_cache.lock().insert((std::thread::current().id(), made.key.clone()));
            }
        }
        let alive = |(_, handle): &&(usize, usize)| w.objects.tensors.get(*handle).is_none();
        if let Some((i, _)) = state.tensors.iter().find(alive) {
            let parameter = state.args.values[*i].0;
            w.doubt(INNER_NULL, format!("{name}: `{parameter}` was destroyed between the phases"))?;
        }
        state.args.clone()
    };
    ensure(made.op.name == name, INNER_NULL, || format!("an executor of {}", made.op.name))?;
    ensure(made.workspace == 0 || workspace != 0, ACLNN_ERR_PARAM_NULLPTR, || "no workspace".into())?;
    if size < made.workspace {
        w.doubt(
            ACLNN_ERR_PARAM_INVALID,
            format!("{name}: a workspace of {size} bytes, expected {}", made.workspace),
        )?;
    }
    let stream = resolve(w, stream)?;
    if let Some(fault) = w.cards[stream.device].lock().broken.clone() {
        return Err(fault);
    }
    let n_bytes = crate::traffic::bytes(&args);
    let (kernel, needed, device) = (made.kernel.clone(), made.workspace as usize, stream.device);
    let layout = layout(&args);
    let weight_type = args.opt("weight").map_or(-1, |weight| weight.dtype);
    let is_slower = w.config.slower.0.split('+').any(|slower| match slower.split_once('@') {
        Some((slower, dtype)) => layout == Some(slower) && dtype.parse() == Ok(weight_type),
        None => layout == Some(slower),
    });
    if let Some(layout) = layout {
        w.trace.count(&format!("layout.{layout}"), 1);
    }
    let run = move |w: &Arc<World>| {
        let n_before = w.n_kernels.fetch_add(1, Relaxed);
        w.trace.count("kernel", 1);
        let (slow_from, micros) = w.config.slow;
        if slow_from > 0 && n_before + 1 >= slow_from {
            std::thread::sleep(std::time::Duration::from_micros(micros));
        }
        if is_slower {
            std::thread::sleep(std::time::Duration::from_micros(w.config.slower.1));
        }
        let is_faulty = w.config.fault > 0 && n_before + 1 == w.config.fault;
        ensure(!is_faulty, ACL_ERROR_RT_AICORE_EXCEPTION, || {
            format!("kernel {} was to fault", w.config.fault)
        })?;
        let run = Run { world: w, args: &args, device };
        run.scribble(workspace, needed)?;
        kernel(&run)?;
        run.scribble(workspace, needed)
    };
    stream.enqueue(w, Task::new(made.op.name, run)).map(|_| n_bytes)
}

/// The layout of a product's weight: `nz`, `nd`, or of few bits `rows` (turned around) and `columns`.
fn layout(args: &Args) -> Option<&'static str> {
    let weight = args.opt("weight").filter(|_| args.op.cube);
    match (weight, args.opt("mat2")) {
        (Some(weight), _) if weight.dims.len() == 2 => {
            Some(if crate::ops::quant::is_turned(weight) { "rows" } else { "columns" })
        }
        (_, Some(mat2)) => Some(if mat2.format == ACL_FORMAT_FRACTAL_NZ { "nz" } else { "nd" }),
        _ => None,
    }
}
