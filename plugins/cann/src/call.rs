//! The calls of one node: vendor objects and scratch memory live until its last operator is launched. What several
//! nodes of a graph need is computed by the first of them and lives until the graph's end.

use crate::buffer::CardMemory;
use crate::error::is_refusal;
use crate::operand::{Operand, element_bytes};
use crate::plan::{Recording, Step};
use crate::stream::CardStream;
use crate::sys::*;
use llmrt_plugin::{Error, Piece, Result, Scratch};
use std::cell::RefCell;
use std::ffi::c_void;

/// One node's calls.
pub struct Call<'s> {
    /// Where they go.
    pub stream: &'s mut CardStream,
    objects: Vec<Object>,
    pieces: Vec<Piece>,
}

/// What results that nodes share follow from: a name, the rows of tensors, numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key(pub &'static str, pub Vec<u32>, pub Vec<u8>);

/// Results that nodes of one graph share, and their memory.
#[derive(Default)]
pub struct Shared {
    known: Vec<(Key, Operand)>,
    pieces: Vec<Piece>,
}

impl Shared {
    /// Frees everything, last first: the graph is at its end.
    pub fn clear(&mut self, scratch: Option<&mut Scratch>) {
        self.known.clear();
        let pieces = std::mem::take(&mut self.pieces);
        if let Some(scratch) = scratch {
            pieces.into_iter().rev().for_each(|piece| scratch.free(piece));
        }
    }
}

/// Something of the vendor's that is to be destroyed.
pub enum Object {
    /// A view of memory.
    Tensor(*mut aclTensor),
    /// A number.
    Scalar(*mut aclScalar),
    /// Whole numbers.
    Ints(*mut aclIntArray),
    /// Tensors, which the list owns.
    Tensors(*mut aclTensorList),
}

impl Object {
    /// Destroys it.
    ///
    /// # Safety
    /// It is live, in no list, and no operator that was planned with it is launched any more.
    pub unsafe fn destroy(self, library: &cann_object) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Object::Tensor(t) => library.aclDestroyTensor.map(|f| f(t)),
                Object::Scalar(s) => library.aclDestroyScalar.map(|f| f(s)),
                Object::Ints(a) => library.aclDestroyIntArray.map(|f| f(a)),
                Object::Tensors(l) => library.aclDestroyTensorList.map(|f| f(l)),
            };
        }
    }
}

/// The second phase of an operator.
pub type Launch = unsafe extern "C" fn(*mut c_void, u64, *mut aclOpExecutor, aclrtStream) -> aclnnStatus;

/// The first phase of an operator with its arguments: writes the workspace's size and the executor. Objects of the arguments
/// are live when it is called.
pub type FirstPhase = Box<dyn Fn(*mut u64, *mut *mut aclOpExecutor) -> aclnnStatus>;

/// Plans and launches an operator of a library: `run!(call, math.aclnnAdd(a, b, alpha, y))?`.
macro_rules! run {
    ($call:expr, $library:ident.$name:ident($($arg:expr),* $(,)?)) => {{
        let op = $call.stream.runtime.cann.$library.$name;
        match (op.plan, op.launch) {
            (Some(plan), Some(launch)) => {
                // SAFETY: the arguments are objects of this call, numbers, or NULL where the operator takes it.
                let first = move |size: *mut u64, executor: *mut *mut crate::sys::aclOpExecutor| unsafe {
                    plan($($arg,)* size, executor)
                };
                $call.launch(stringify!($name), Box::new(first), launch)
            }
            _ => Err(llmrt_plugin::Error::unsupported(concat!(stringify!($name), " is not in this release"))),
        }
    }};
}
pub(crate) use run;

impl<'s> Call<'s> {
    /// No object yet.
    pub fn new(stream: &'s mut CardStream) -> Call<'s> {
        Call { stream, objects: Vec::new(), pieces: Vec::new() }
    }

    /// Runs `body`; then everything it made goes, scratch memory in the reverse order.
    pub fn finish(mut self, body: impl FnOnce(&mut Call<'_>) -> Result<()>) -> Result<()> {
        let result = body(&mut self);
        self.free_from(0);
        result
    }

    /// What `fill` writes into `dtype` [ne], once per graph: the key names the tensors and numbers it follows from.
    /// Call it before taking any temporary, so that memory stays a stack; after one it is an intermediate result.
    pub fn shared(
        &mut self,
        key: Key,
        dtype: aclDataType,
        ne: &[i64],
        fill: impl FnOnce(&mut Call<'_>, &Operand) -> Result<()>,
    ) -> Result<Operand> {
        if let Some((_, known)) = self.stream.shared.known.iter().find(|(other, _)| *other == key) {
            return Ok(known.clone());
        }
        let first = self.pieces.len();
        let made = self.temporary(dtype, ne)?;
        if first > 0 {
            fill(self, &made)?;
            return Ok(made);
        }
        self.stream.shared.pieces.append(&mut self.pieces);
        fill(self, &made)?;
        // Launched work goes on with what is freed here, and whatever takes its place comes after it in the stream.
        self.free_from(0);
        self.stream.shared.known.push((key, made.clone()));
        Ok(made)
    }

    fn free_from(&mut self, first: usize) {
        let pieces = self.pieces.split_off(first);
        if let Some(scratch) = &mut self.stream.scratch {
            pieces.into_iter().rev().for_each(|piece| scratch.free(piece));
        }
    }

    /// Runs `body` and frees the intermediate results it made.
    pub fn scoped<T>(&mut self, body: impl FnOnce(&mut Call<'_>) -> Result<T>) -> Result<T> {
        let first = self.pieces.len();
        let result = body(self);
        self.free_from(first);
        result
    }

    /// As [`Call::scoped`], of one way to compute a node: whether it could be gone. Where an operator refuses, what was recorded
    /// of the way is taken back.
    pub fn attempt(&mut self, way: impl FnOnce(&mut Call<'_>) -> Result<()>) -> Result<bool> {
        let n_steps = self.stream.recording.as_ref().map_or(0, Recording::n_steps);
        let n_known = self.stream.shared.known.len();
        match self.scoped(way) {
            Err(e) if is_refusal(&e) => {
                self.stream.runtime.refused(self.stream.host, &e);
                if let Some(recording) = &mut self.stream.recording {
                    recording.truncate(n_steps);
                    self.stream.shared.known.truncate(n_known);
                }
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// The vendor's object of an operand.
    pub fn tensor(&mut self, t: &Operand) -> Result<*mut aclTensor> {
        self.tensor_as(t, ACL_FORMAT_ND)
    }

    /// As [`Call::tensor`], of an image [width, height, channels, n] or a signal [length, channels, n].
    pub fn image(&mut self, t: &Operand) -> Result<*mut aclTensor> {
        self.tensor_as(t, if t.ne.len() == 3 { ACL_FORMAT_NCL } else { ACL_FORMAT_NCHW })
    }

    /// The vendor's object of a matrix [k, m] whose blocks of 16 by 16 are stored one after the other, as its product takes it:
    /// turned around. The dims of the storage are those of the blocks (the vendor's page of aclnnMatmulWeightNz, 9.1).
    pub fn blocks(&mut self, t: &Operand) -> Result<*mut aclTensor> {
        let (block, [k, m]) = (crate::layout::NZ_BLOCK as i64, [t.ne[0], t.ne[1]]);
        let turned = t.permute(&[1, 0]);
        self.make(&turned, ACL_FORMAT_FRACTAL_NZ, &[k / block, m / block, block, block])
    }

    fn tensor_as(&mut self, t: &Operand, format: aclFormat) -> Result<*mut aclTensor> {
        let last: i64 = t.ne.iter().zip(&t.stride).map(|(n, stride)| (n - 1).max(0) * stride).sum();
        self.make(t, format, &[t.origin().1 + last + 1])
    }

    fn make(&mut self, t: &Operand, format: aclFormat, storage: &[i64]) -> Result<*mut aclTensor> {
        let outer_first = |v: &[i64]| v.iter().rev().copied().collect::<Vec<_>>();
        let (ne, stride) = (outer_first(&t.ne), outer_first(&t.stride));
        let (base, offset) = t.origin();
        let (n, n_storage) = (ne.len() as u64, storage.len() as u64);
        let create = self.stream.runtime.cann.object.aclCreateTensor;
        // SAFETY: the arrays have `n` and `n_storage` elements and are copied.
        let tensor = create.map_or(std::ptr::null_mut(), |create| unsafe {
            create(
                ne.as_ptr(),
                n,
                t.dtype,
                stride.as_ptr(),
                offset,
                format,
                storage.as_ptr(),
                n_storage,
                base,
            )
        });
        if tensor.is_null() {
            return Err(Error::invalid(format!("the library makes no tensor of {t:?}")));
        }
        self.objects.push(Object::Tensor(tensor));
        Ok(tensor)
    }

    /// A list of operands. The list owns its tensors.
    pub fn tensors(&mut self, all: &[Operand]) -> Result<*mut aclTensorList> {
        let first = self.objects.len();
        let tensors =
            all.iter().map(|t| self.tensor(t).map(|t| t.cast_const())).collect::<Result<Vec<_>>>()?;
        let create = self.stream.runtime.cann.object.aclCreateTensorList;
        // SAFETY: live tensors, as many as passed.
        let list =
            create.map_or(std::ptr::null_mut(), |f| unsafe { f(tensors.as_ptr(), tensors.len() as u64) });
        if list.is_null() {
            return Err(Error::internal("the library makes no list of tensors"));
        }
        self.objects.truncate(first);
        self.objects.push(Object::Tensors(list));
        Ok(list)
    }

    /// A number.
    pub fn float(&mut self, mut value: f32) -> Result<*mut aclScalar> {
        self.scalar((&raw mut value).cast(), ACL_FLOAT)
    }

    /// A whole number.
    pub fn int(&mut self, mut value: i64) -> Result<*mut aclScalar> {
        self.scalar((&raw mut value).cast(), ACL_INT64)
    }

    /// A number of double precision.
    pub fn double(&mut self, mut value: f64) -> Result<*mut aclScalar> {
        self.scalar((&raw mut value).cast(), ACL_DOUBLE)
    }

    fn scalar(&mut self, value: *mut c_void, dtype: aclDataType) -> Result<*mut aclScalar> {
        let create = self.stream.runtime.cann.object.aclCreateScalar;
        // SAFETY: `value` points to a number of this dtype, which is copied.
        let scalar = create.map_or(std::ptr::null_mut(), |create| unsafe { create(value, dtype) });
        if scalar.is_null() {
            return Err(Error::internal("the library makes no scalar"));
        }
        self.objects.push(Object::Scalar(scalar));
        Ok(scalar)
    }

    /// Whole numbers on the host.
    pub fn ints(&mut self, values: &[i64]) -> Result<*mut aclIntArray> {
        let create = self.stream.runtime.cann.object.aclCreateIntArray;
        // SAFETY: the array has as many numbers as passed and is copied.
        let array =
            create.map_or(std::ptr::null_mut(), |f| unsafe { f(values.as_ptr(), values.len() as u64) });
        if array.is_null() {
            return Err(Error::internal("the library makes no array"));
        }
        self.objects.push(Object::Ints(array));
        Ok(array)
    }

    /// Scratch memory for an intermediate result, without gaps.
    pub fn temporary(&mut self, dtype: aclDataType, ne: &[i64]) -> Result<Operand> {
        let n: i64 = ne.iter().product();
        let base = self.scratch((n * element_bytes(dtype)) as u64)?;
        Ok(Operand::contiguous(dtype, ne, base))
    }

    /// Scratch memory. Kernels read in pieces of 32 bytes and up to 32 bytes past the end; plain allocations of the
    /// vendor's start at multiples of 64.
    fn scratch(&mut self, size: u64) -> Result<*mut c_void> {
        let none = || Error::internal("the host gave this stream no scratch memory");
        let piece =
            self.stream.scratch.as_mut().ok_or_else(none)?.alloc(size.next_multiple_of(32) + 32, 64)?;
        self.pieces.push(piece);
        Ok(piece.addr as *mut c_void)
    }

    /// Both phases of an operator. Use [`run!`].
    pub fn launch(&mut self, name: &'static str, plan: FirstPhase, launch: Launch) -> Result<()> {
        let (size, executor) = self.planned(name, &plan)?;
        let workspace = match size {
            0 => std::ptr::null_mut(),
            _ => self.scratch(size).inspect_err(|_| self.destroy(executor))?,
        };
        if let Some(recording) = &mut self.stream.recording {
            let (executor, larger) = (Some(executor), RefCell::default());
            recording.keep(Step { name, plan, launch, workspace, size, executor, larger });
            return Ok(());
        }
        self.second(name, launch, (workspace, size), executor)
    }

    /// Both phases of a step of a plan, whose executor could not be kept. The scratch memory that is free now has what the plan's
    /// other steps compute, so a workspace larger than the first one is memory of its own.
    pub fn launch_again(&mut self, step: &Step) -> Result<()> {
        let (size, executor) = self.planned(step.name, &step.plan)?;
        let mut workspace = step.workspace;
        if size > step.size {
            let mut larger = step.larger.borrow_mut();
            if larger.last().is_none_or(|memory| memory.size() < size) {
                let (runtime, device) = (&self.stream.runtime, self.stream.device);
                let memory = CardMemory::new(runtime, device, size.next_multiple_of(32) + 32);
                larger.push(memory.inspect_err(|_| self.destroy(executor))?);
            }
            workspace = larger.last().map_or(workspace, |memory| memory.address(0));
        }
        self.second(step.name, step.launch, (workspace, size), executor)
    }

    /// Destroys an executor that is not launched.
    fn destroy(&self, executor: *mut aclOpExecutor) {
        crate::plan::destroy(&self.stream.runtime.cann.object, executor);
    }

    fn planned(&self, name: &'static str, plan: &FirstPhase) -> Result<(u64, *mut aclOpExecutor)> {
        let (mut size, mut executor) = (0, std::ptr::null_mut());
        let planned = plan(&mut size, &mut executor);
        crate::error::check_planned(&self.stream.runtime.cann.acl, name, planned)?;
        Ok((size, executor))
    }

    fn second(
        &mut self,
        name: &'static str,
        launch: Launch,
        (workspace, size): (*mut c_void, u64),
        executor: *mut aclOpExecutor,
    ) -> Result<()> {
        // SAFETY: the executor was planned just now, with objects that live to the end of this call; the workspace has
        // the size it requested and is used in stream order.
        let launched = unsafe { launch(workspace, size, executor, self.stream.raw) };
        self.stream.n_launched += 1;
        crate::error::check(&self.stream.runtime.cann.acl, name, launched)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(recording) = &mut self.stream.recording {
            return recording.objects.append(&mut self.objects);
        }
        let library = &self.stream.runtime.cann.object;
        for object in self.objects.drain(..).rev() {
            // SAFETY: each object was made by this call, is in no list, and no operator of this call comes any more.
            unsafe { object.destroy(library) };
        }
    }
}
