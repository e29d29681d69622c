//! Metadata: the key-value pairs of a model file, in file order, with getters that convert losslessly.

use std::collections::HashMap;

use crate::error::Error;
use crate::value::{Array, Value};

/// Ordered key-value pairs; keys are unique.
#[derive(Clone, Default, Debug)]
pub struct Metadata {
    pairs: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// No pairs.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// The value of `key`, of any type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.pairs[i].1)
    }

    /// The value of `key` as a `T`; `None` if it is missing or no `T`.
    pub fn get_as<'a, T: FromValue<'a>>(&'a self, key: &str) -> Option<T> {
        self.get(key).and_then(T::from_value)
    }

    /// The value of `key` as a `T`; `None` if it is missing, an error if it is no `T`.
    pub fn optional<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match T::from_value(value) {
            Some(v) => Ok(Some(v)),
            None => Err(Error::WrongType { key: key.into(), found: value.describe(), expected: T::EXPECTED }),
        }
    }

    /// The value of `key` as a `T`; an error that names the key if it is missing or no `T`.
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, Error> {
        self.optional(key)?.ok_or_else(|| Error::MissingKey { key: key.into() })
    }

    /// Sets `key`, in its old place if it was there, else at the end.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.index.get(&key) {
            Some(&i) => self.pairs[i].1 = value,
            None => {
                self.index.insert(key.clone(), self.pairs.len());
                self.pairs.push((key, value));
            }
        }
    }

    /// Adds `key`; an error if it is there already.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Result<(), Error> {
        let key = key.into();
        if self.index.contains_key(&key) {
            return Err(Error::DuplicateKey { key });
        }
        self.set(key, value);
        Ok(())
    }

    /// Takes `key` out.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.index.remove(key)?;
        self.index.values_mut().filter(|i| **i > at).for_each(|i| *i -= 1);
        Some(self.pairs.remove(at).1)
    }

    /// Whether `key` is there.
    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// The pairs in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Metadata) -> bool {
        self.pairs == other.pairs
    }
}

/// A Rust type that a value can be read as.
pub trait FromValue<'a>: Sized {
    /// What error messages give as expected.
    const EXPECTED: &'static str;

    /// The value as this type, if nothing but float precision is lost.
    fn from_value(value: &'a Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($ty:ty, $expected:literal, |$v:ident| $convert:expr;)*) => {$(
        impl<'a> FromValue<'a> for $ty {
            const EXPECTED: &'static str = $expected;
            fn from_value($v: &'a Value) -> Option<Self> { $convert }
        }
    )*};
}

from_value! {
    u32, "an integer that fits u32", |v| v.as_int()?.try_into().ok();
    u64, "an integer that fits u64", |v| v.as_int()?.try_into().ok();
    usize, "an integer that fits usize", |v| v.as_int()?.try_into().ok();
    i32, "an integer that fits i32", |v| v.as_int()?.try_into().ok();
    i64, "an integer that fits i64", |v| v.as_int()?.try_into().ok();
    f32, "a number", |v| match v {
        Value::F32(x) => Some(*x),
        Value::F64(x) => Some(*x as f32),
        _ => Some(v.as_int()? as f32),
    };
    bool, "bool", |v| match v { Value::Bool(b) => Some(*b), _ => None };
    &'a str, "str", |v| match v { Value::String(s) => Some(s), _ => None };
    &'a [String], "array of str", |v| match v { Value::Array(Array::String(s)) => Some(s), _ => None };
    Vec<f32>, "array of numbers", |v| match v { Value::Array(a) => a.to_f32s(), _ => None };
    Vec<i32>, "array of integers that fit i32", |v| match v { Value::Array(a) => a.to_ints(), _ => None };
    Vec<u64>, "array of integers that fit u64", |v| match v { Value::Array(a) => a.to_ints(), _ => None };
    Vec<u32>, "array of integers that fit u32", |v| match v { Value::Array(a) => a.to_ints(), _ => None };
    Vec<bool>, "array of bool", |v| match v { Value::Array(Array::Bool(b)) => Some(b.clone()), _ => None };
}

macro_rules! getters {
    ($($get:ident $require:ident $ty:ty;)*) => {
        /// The getters by name: `x(key)` is `get_as`, `require_x(key)` is `require`.
        #[allow(missing_docs)]
        impl Metadata {$(
            pub fn $get(&self, key: &str) -> Option<$ty> { self.get_as(key) }
            pub fn $require(&self, key: &str) -> Result<$ty, Error> { self.require(key) }
        )*}
    };
}

getters! {
    u32 require_u32 u32;
    u64 require_u64 u64;
    usize require_usize usize;
    i32 require_i32 i32;
    i64 require_i64 i64;
    f32 require_f32 f32;
    bool require_bool bool;
    str require_str &str;
    strings require_strings &[String];
    f32s require_f32s Vec<f32>;
    i32s require_i32s Vec<i32>;
    u32s require_u32s Vec<u32>;
    bools require_bools Vec<bool>;
}

macro_rules! into_value {
    ($($ty:ty, |$v:ident| $convert:expr;)*) => {$(
        impl From<$ty> for Value {
            fn from($v: $ty) -> Value { $convert }
        }
    )*};
}

into_value! {
    u32, |v| Value::U32(v);
    u64, |v| Value::U64(v);
    i32, |v| Value::I32(v);
    f32, |v| Value::F32(v);
    bool, |v| Value::Bool(v);
    &str, |v| Value::String(v.to_string());
    String, |v| Value::String(v);
    Array, |v| Value::Array(v);
    Vec<String>, |v| Value::Array(Array::String(v));
    Vec<f32>, |v| Value::Array(Array::F32(v));
    Vec<i32>, |v| Value::Array(Array::I32(v));
    Vec<u32>, |v| Value::Array(Array::U32(v));
}
