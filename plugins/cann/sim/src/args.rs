//! Parameters of operators: as they are passed, as they are used, and by name.

use crate::fault::{Answer, Fault, ensure, fault};
use crate::object::Scalar;
use crate::plan::Op;
use crate::sys::*;
use crate::tensor::Tensor;
use crate::world::World;
use std::ffi::{CStr, c_char};
use std::sync::Arc;

/// A parameter as it is passed.
pub enum Arg {
    /// The handle of a tensor that is read.
    Tensor(usize),
    /// The handle of one that is written.
    Out(usize),
    /// A number's.
    Scalar(usize),
    /// An array's.
    Ints(usize),
    /// A list's.
    List(usize),
    /// A whole number, or true and false.
    Int(i64),
    /// A number.
    Double(f64),
    /// A text.
    Text(*const c_char),
}

/// A parameter as it is used.
#[derive(Clone)]
pub enum Value {
    /// NULL.
    Absent,
    /// A tensor.
    Tensor(Tensor),
    /// A number.
    Scalar(Scalar),
    /// An array.
    Ints(Vec<i64>),
    /// Tensors.
    List(Vec<Tensor>),
    /// A whole number.
    Int(i64),
    /// A number.
    Double(f64),
    /// A text.
    Text(String),
}

/// The parameters of one plan, by name.
#[derive(Clone)]
pub struct Args {
    /// The operator.
    pub op: &'static Op,
    /// The machine's chip and configuration.
    pub world: Arc<World>,
    /// Names and values in order.
    pub values: Vec<(&'static str, Value)>,
}

impl Args {
    fn value(&self, name: &str) -> Answer<&Value> {
        let found = self.values.iter().find(|(n, _)| *n == name).map(|(_, value)| value);
        found.map_or_else(|| fault(ACLNN_ERR_INNER, format!("the simulator has no parameter `{name}`")), Ok)
    }

    fn wrong<T>(&self, name: &str, what: &str) -> Answer<T> {
        fault(ACLNN_ERR_PARAM_NULLPTR, format!("{}: `{name}` is no {what}", self.op.name))
    }

    /// A tensor.
    pub fn tensor(&self, name: &str) -> Answer<&Tensor> {
        if let Value::Tensor(t) = self.value(name)? { Ok(t) } else { self.wrong(name, "tensor") }
    }

    /// A tensor that may be NULL.
    pub fn opt(&self, name: &str) -> Option<&Tensor> {
        self.tensor(name).ok()
    }

    /// The tensors of a list; none if it is NULL.
    pub fn list(&self, name: &str) -> Answer<&[Tensor]> {
        match self.value(name)? {
            Value::List(all) => Ok(all),
            Value::Absent => Ok(&[]),
            _ => self.wrong(name, "list"),
        }
    }

    /// A scalar.
    pub fn scalar(&self, name: &str) -> Answer<f64> {
        if let Value::Scalar(s) = self.value(name)? { Ok(s.value) } else { self.wrong(name, "scalar") }
    }

    /// An array.
    pub fn ints(&self, name: &str) -> Answer<&[i64]> {
        if let Value::Ints(v) = self.value(name)? { Ok(v) } else { self.wrong(name, "array") }
    }

    /// A whole number.
    pub fn int(&self, name: &str) -> Answer<i64> {
        if let Value::Int(n) = self.value(name)? { Ok(*n) } else { self.wrong(name, "whole number") }
    }

    /// A number.
    pub fn double(&self, name: &str) -> Answer<f64> {
        if let Value::Double(x) = self.value(name)? { Ok(*x) } else { self.wrong(name, "number") }
    }

    /// A text; empty if it is NULL.
    pub fn text(&self, name: &str) -> Answer<&str> {
        match self.value(name)? {
            Value::Text(text) => Ok(text),
            _ => Ok(""),
        }
    }

    /// A dim that may count from the end.
    pub fn dim(&self, name: &str, rank: usize) -> Answer<usize> {
        let (dim, rank) = (self.int(name)?, rank as i64);
        ensure((-rank..rank).contains(&dim), ACLNN_ERR_PARAM_INVALID, || format!("dim {dim} of {rank}"))?;
        Ok(dim.rem_euclid(rank) as usize)
    }

    /// Every tensor, those of lists too.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.values.iter().flat_map(|(_, value)| match value {
            Value::Tensor(t) => std::slice::from_ref(t),
            Value::List(all) => all.as_slice(),
            _ => &[],
        })
    }
}

/// What a parameter stands for. NULL is for those whose name marks them optional.
pub fn value(w: &World, name: &str, arg: Arg) -> Answer<Value> {
    let dead =
        |what: &str| Fault { code: ACLNN_ERR_PARAM_INVALID, text: format!("`{name}` is no live {what}") };
    let known = &w.objects;
    Ok(match arg {
        Arg::Tensor(0) | Arg::Out(0) | Arg::Scalar(0) | Arg::Ints(0) | Arg::List(0) => {
            let optional = name.ends_with("_opt");
            ensure(optional, ACLNN_ERR_PARAM_NULLPTR, || format!("`{name}` is NULL"))?;
            Value::Absent
        }
        Arg::Tensor(handle) | Arg::Out(handle) => {
            Value::Tensor((*known.tensors.get(handle).ok_or_else(|| dead("tensor"))?).clone())
        }
        Arg::Scalar(handle) => Value::Scalar(*known.scalars.get(handle).ok_or_else(|| dead("scalar"))?),
        Arg::Ints(handle) => Value::Ints((*known.ints.get(handle).ok_or_else(|| dead("array"))?).clone()),
        Arg::List(handle) => {
            let members = known.lists.get(handle).ok_or_else(|| dead("list"))?;
            let tensor =
                |handle: &usize| known.tensors.get(*handle).map(|t| (*t).clone()).ok_or_else(|| dead("list"));
            Value::List(members.iter().map(tensor).collect::<Answer<_>>()?)
        }
        Arg::Int(n) => Value::Int(n),
        Arg::Double(x) => Value::Double(x),
        Arg::Text(text) if text.is_null() => Value::Absent,
        // SAFETY: the header declares it a NUL-terminated text.
        Arg::Text(text) => Value::Text(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()),
    })
}
