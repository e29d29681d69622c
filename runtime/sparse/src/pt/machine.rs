//! Runs the pickle of a file. Objects are made once and referred to by number, so depth costs nothing, and each opcode
//! makes at most one: memory is bounded by the pickle's length.

use std::collections::HashMap;

use super::opcode::{Opcode, Operand};
use super::tensor::{MAX_DIMS, Number, Storage, Tensor};
use super::{Archive, Pt};
use crate::Error;

/// An object's number.
type Id = usize;

#[derive(Debug)]
enum Object {
    /// `None`, a bool or a float: nothing that a tensor is made of.
    Other,
    Int(i64),
    Text(String),
    Tuple(Vec<Id>),
    List,
    Dict(Vec<(Id, Id)>),
    Global(Global),
    Storage(Storage),
    Tensor(Tensor),
}

/// What a pickle may refer to by name.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Global {
    RebuildTensor,
    RebuildParameter,
    OrderedDict,
    Storage(Number),
}

impl Global {
    fn find(module: &str, name: &str) -> Result<Global, Error> {
        let storage = || name.strip_suffix("Storage").and_then(Number::of_storage).map(Global::Storage);
        let found = match (module, name) {
            ("torch._utils", "_rebuild_tensor_v2") => Some(Global::RebuildTensor),
            ("torch._utils", "_rebuild_parameter") => Some(Global::RebuildParameter),
            ("collections", "OrderedDict") => Some(Global::OrderedDict),
            ("torch", _) => storage(),
            _ => None,
        };
        found.ok_or_else(|| Error::BadGlobal { name: format!("{module}.{name}") })
    }
}

/// Bytes of a storage's key, which is a small number.
const MAX_KEY: usize = 64;

/// The state of a run.
pub struct Machine<'a> {
    archive: &'a Archive<'a>,
    objects: Vec<Object>,
    stack: Vec<Id>,
    /// Lengths of the stack at the marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    /// Where the opcode is that is run.
    at: usize,
}

impl<'a> Machine<'a> {
    pub fn new(archive: &'a Archive<'a>) -> Machine<'a> {
        let (objects, stack, marks, memo) = Default::default();
        Machine { archive, objects, stack, marks, memo, at: 0 }
    }

    /// Runs all opcodes to the last, and gives what they made.
    pub fn run(mut self) -> Result<Pt, Error> {
        let mut rest = self.archive.pickle()?;
        let len = rest.len();
        while let Some((&byte, after)) = rest.split_first() {
            self.at = len - rest.len();
            let opcode = Opcode::of(byte);
            let opcode = opcode.ok_or(Error::BadOpcode { opcode: byte, at: self.at as u64 })?;
            if opcode == Opcode::Stop {
                let top = self.pop()?;
                return self.result(top);
            }
            let (operand, after) = self.operand(opcode.operand(), after)?;
            self.step(opcode, operand)?;
            rest = after;
        }
        self.at = len;
        Err(self.bad("the end is missing"))
    }

    /// The operand's bytes without its length, and what follows it.
    fn operand(&self, kind: Operand, rest: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Error> {
        let split = |rest: &'a [u8], n: usize| rest.split_at_checked(n);
        let split = match kind {
            Operand::None => Some((&rest[..0], rest)),
            Operand::Bytes(n) => split(rest, n),
            Operand::Short => rest.split_first().and_then(|(&n, rest)| split(rest, n.into())),
            Operand::Long => rest
                .split_first_chunk()
                .and_then(|(n, rest)| split(rest, usize::try_from(u32::from_le_bytes(*n)).ok()?)),
            Operand::Lines => {
                let mut ends = rest.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i);
                ends.nth(1).and_then(|end| Some((&rest[..end], rest.get(end + 1..)?)))
            }
        };
        split.ok_or(self.bad("an operand is cut off"))
    }

    fn step(&mut self, opcode: Opcode, operand: &[u8]) -> Result<(), Error> {
        match opcode {
            Opcode::Proto if operand[0] > 5 => return Err(self.bad("an unknown protocol")),
            Opcode::Proto | Opcode::Frame | Opcode::Stop => {}

            Opcode::Mark => self.marks.push(self.stack.len()),
            Opcode::Pop | Opcode::Append => {
                self.pop()?;
            }
            Opcode::PopMark | Opcode::Appends => drop(self.pop_to_mark()?),
            Opcode::Dup => self.stack.push(self.top()?),

            Opcode::None | Opcode::True | Opcode::False | Opcode::Float => self.push(Object::Other),
            Opcode::Int1 | Opcode::Int2 => self.push(Object::Int(self.int(operand, false)?)),
            Opcode::Int4 | Opcode::Long1 => self.push(Object::Int(self.int(operand, true)?)),
            Opcode::Text | Opcode::ShortText | Opcode::String | Opcode::ShortString => {
                self.push(Object::Text(String::from_utf8_lossy(operand).into_owned()));
            }

            Opcode::EmptyTuple => self.push(Object::Tuple(Vec::new())),
            Opcode::Tuple => {
                let items = self.pop_to_mark()?;
                self.push(Object::Tuple(items));
            }
            Opcode::Tuple1 => self.tuple(1)?,
            Opcode::Tuple2 => self.tuple(2)?,
            Opcode::Tuple3 => self.tuple(3)?,
            Opcode::EmptyList => self.push(Object::List),
            Opcode::EmptyDict => self.push(Object::Dict(Vec::new())),
            Opcode::SetItem => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(&[key, value])?;
            }
            Opcode::SetItems => {
                let items = self.pop_to_mark()?;
                self.set_items(&items)?;
            }

            Opcode::Global => {
                let lines = std::str::from_utf8(operand).ok().and_then(|text| text.split_once('\n'));
                let (module, name) = lines.ok_or(self.bad("a name that is no UTF-8"))?;
                self.push(Object::Global(Global::find(module, name)?));
            }
            Opcode::StackGlobal => {
                let (name, module) = (self.pop()?, self.pop()?);
                let global = Global::find(self.text(module)?, self.text(name)?)?;
                self.push(Object::Global(global));
            }
            Opcode::PersistentId => self.storage()?,
            Opcode::Reduce => self.call()?,
            Opcode::Build => self.build()?,

            Opcode::Put1 | Opcode::Put4 => self.put(self.int(operand, false)? as u32)?,
            Opcode::Memoize => self.put(self.memo.len() as u32)?,
            Opcode::Get1 | Opcode::Get4 => {
                let found = self.memo.get(&(self.int(operand, false)? as u32));
                let id = *found.ok_or(self.bad("a memo that was not set"))?;
                self.stack.push(id);
            }
        }
        Ok(())
    }

    fn push(&mut self, object: Object) {
        self.stack.push(self.objects.len());
        self.objects.push(object);
    }

    /// The topmost object above the last mark.
    fn top(&self) -> Result<Id, Error> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack[floor..].last().copied().ok_or(self.bad("an empty stack"))
    }

    fn pop(&mut self) -> Result<Id, Error> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, Error> {
        let mark = self.marks.pop().ok_or(self.bad("no mark"))?;
        Ok(self.stack.split_off(mark))
    }

    fn put(&mut self, slot: u32) -> Result<(), Error> {
        let top = self.top()?;
        self.memo.insert(slot, top);
        Ok(())
    }

    fn tuple(&mut self, n: usize) -> Result<(), Error> {
        let mut items = (0..n).map(|_| self.pop()).collect::<Result<Vec<_>, _>>()?;
        items.reverse();
        self.push(Object::Tuple(items));
        Ok(())
    }

    fn set_items(&mut self, items: &[Id]) -> Result<(), Error> {
        let dict = self.top()?;
        let pairs = items.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        match &mut self.objects[dict] {
            Object::Dict(held) if items.len().is_multiple_of(2) => held.extend(pairs),
            _ => return Err(self.bad("items of what is no dict")),
        }
        Ok(())
    }

    /// A storage from ('storage', its type, key, device, number of elements).
    fn storage(&mut self) -> Result<(), Error> {
        let id = self.pop()?;
        let storage = match self.tuple_of(id)? {
            &[kind, number, key, _, n] if self.text(kind)? == "storage" => match self.objects[number] {
                Object::Global(Global::Storage(number)) => {
                    let (n, key) = (self.count(n)?, self.text(key)?);
                    if key.len() > MAX_KEY {
                        return Err(self.bad("a storage with a long name"));
                    }
                    Storage::new(number, n, key, self.archive.member(&format!("data/{key}"))?)?
                }
                _ => return Err(self.bad("a storage without a type")),
            },
            _ => return Err(self.bad("an external object that is no storage")),
        };
        self.push(Object::Storage(storage));
        Ok(())
    }

    /// The three calls that are there: a tensor, a parameter of one, an empty dict.
    fn call(&mut self) -> Result<(), Error> {
        let (args, callee) = (self.pop()?, self.pop()?);
        let Object::Global(global) = self.objects[callee] else {
            return Err(self.bad("a call of no global"));
        };
        let args = self.tuple_of(args)?;
        let made = match (global, args) {
            (Global::OrderedDict, []) => Object::Dict(Vec::new()),
            (Global::RebuildParameter, &[tensor, ..]) => match &self.objects[tensor] {
                Object::Tensor(tensor) => Object::Tensor(tensor.clone()),
                _ => return Err(self.bad("a parameter that is no tensor")),
            },
            (Global::RebuildTensor, &[storage, offset, sizes, strides, ..]) => {
                let Object::Storage(storage) = &self.objects[storage] else {
                    return Err(self.bad("a tensor without a storage"));
                };
                let (sizes, strides) = (self.counts(sizes)?, self.counts(strides)?);
                Object::Tensor(Tensor::new(storage, self.count(offset)?, sizes, strides)?)
            }
            _ => return Err(self.bad("a call with other arguments")),
        };
        self.push(made);
        Ok(())
    }

    /// Attributes of a dict, such as `_metadata`: they hold nothing of interest.
    fn build(&mut self) -> Result<(), Error> {
        self.pop()?;
        match self.objects[self.top()?] {
            Object::Dict(_) => Ok(()),
            _ => Err(self.bad("attributes of what is no dict")),
        }
    }

    fn result(&self, top: Id) -> Result<Pt, Error> {
        let found = match &self.objects[top] {
            Object::Tensor(tensor) => return Ok(Pt::Tensor(tensor.clone())),
            Object::Dict(pairs) => {
                let tensor = |&(key, value): &(Id, Id)| match (&self.objects[key], &self.objects[value]) {
                    (Object::Text(key), Object::Tensor(tensor)) => Some((key.clone(), tensor.clone())),
                    _ => None,
                };
                return Ok(Pt::Dict(pairs.iter().filter_map(tensor).collect()));
            }
            Object::List => "a list",
            Object::Tuple(_) => "a tuple",
            Object::Storage(_) => "a storage without a shape",
            Object::Global(_) => "a name",
            Object::Other | Object::Int(_) | Object::Text(_) => "a single value",
        };
        Err(Error::Content { found: found.into(), expected: "a tensor or a dict of tensors" })
    }

    /// A little-endian number of at most 8 bytes.
    fn int(&self, bytes: &[u8], is_signed: bool) -> Result<i64, Error> {
        if bytes.len() > 8 {
            return Err(self.bad("a number of more than 64 bits"));
        }
        let is_negative = is_signed && bytes.last().is_some_and(|&b| b >= 0x80);
        let mut all = if is_negative { [0xff; 8] } else { [0; 8] };
        all[..bytes.len()].copy_from_slice(bytes);
        Ok(i64::from_le_bytes(all))
    }

    fn count(&self, id: Id) -> Result<u64, Error> {
        match self.objects[id] {
            Object::Int(n) if n >= 0 => Ok(n as u64),
            _ => Err(self.bad("a size that is no number of at least 0")),
        }
    }

    fn counts(&self, id: Id) -> Result<Vec<u64>, Error> {
        match self.tuple_of(id)? {
            dims if dims.len() <= MAX_DIMS => dims.iter().map(|&id| self.count(id)).collect(),
            _ => Err(self.bad("a tensor of too many dimensions")),
        }
    }

    fn text(&self, id: Id) -> Result<&str, Error> {
        match &self.objects[id] {
            Object::Text(text) => Ok(text),
            _ => Err(self.bad("a name that is no text")),
        }
    }

    fn tuple_of(&self, id: Id) -> Result<&[Id], Error> {
        match &self.objects[id] {
            Object::Tuple(items) => Ok(items),
            _ => Err(self.bad("what should be a tuple")),
        }
    }

    fn bad(&self, what: &'static str) -> Error {
        Error::BadPickle { what, at: self.at as u64 }
    }
}
