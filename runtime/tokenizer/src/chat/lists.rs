//! Lists that change, as in Python: templates keep queues of the ids of calls in them (Kimi K2).
//!
//! The engine's own lists never change. Templates that name one of [`METHODS`] get lists of another kind wherever one is
//! stored in a name or a namespace; all others keep the engine's.

use std::sync::{Arc, Mutex};

use minijinja::value::{Enumerator, Object, ObjectRepr, ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State, Value, functions};

use super::work::{ITEM, charge, charge_all, holds, invalid, is_namespace};

/// The methods that change a list.
pub(super) const METHODS: [&str; 4] = ["append", "extend", "insert", "pop"];

/// A list that its methods change.
#[derive(Debug)]
struct List(Mutex<Vec<Value>>);

/// A list that can change, if the value is a list; any other value as it is.
pub(super) fn changing(value: Value) -> Result<Value, Error> {
    let is_list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if !is_list || value.downcast_object_ref::<List>().is_some() {
        return Ok(value);
    }
    Ok(Value::from_object(List(Mutex::new(value.try_iter()?.collect()))))
}

/// `namespace(…)`, whose lists can change.
pub(super) fn namespace(state: &mut State, fields: Option<ValueOrKwargs>) -> Result<Value, Error> {
    let Some(fields) = fields.map(ValueOrKwargs::into_value) else { return functions::namespace(None) };
    charge_all(state, &fields)?;
    if fields.kind() != ValueKind::Map {
        return functions::namespace(Some(fields.into()));
    }
    let pair = |name: Value| changing(fields.get_item(&name)?).map(|value| (name, value));
    let fields = fields.try_iter()?.map(pair).collect::<Result<Vec<_>, Error>>()?;
    functions::namespace(Some(Value::from_pairs(fields).into()))
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items().get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items().len())
    }

    fn call_method(self: &Arc<Self>, state: &mut State, name: &str, args: &[Value]) -> Result<Value, Error> {
        let nothing = Ok(Value::from(()));
        match (name, args) {
            ("append", [item]) => {
                let item = kept(state, item)?;
                self.items().push(item);
                nothing
            }
            ("insert", [at, item]) => {
                let item = kept(state, item)?;
                let mut items = self.items();
                let at = place(at, items.len())?.clamp(0, items.len() as i64);
                charge(state, items.len().saturating_mul(ITEM))?;
                items.insert(at as usize, item);
                nothing
            }
            ("extend", [more]) => {
                let more = more.try_iter()?.map(|item| kept(state, &item)).collect::<Result<Vec<_>, _>>()?;
                self.items().extend(more);
                nothing
            }
            ("pop", [] | [_]) => {
                let mut items = self.items();
                let at = place(args.first().unwrap_or(&Value::from(-1)), items.len())?;
                let at = usize::try_from(at).ok().filter(|&at| at < items.len());
                let at =
                    at.ok_or_else(|| invalid(format!("pop: no such place in a list of {}", items.len())))?;
                charge(state, items.len().saturating_mul(ITEM))?;
                Ok(items.remove(at))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

impl List {
    /// What it holds. No template runs while it is borrowed, so it is never found in use.
    fn items(&self) -> std::sync::MutexGuard<'_, Vec<Value>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A place, counted from the end if it is below zero.
fn place(at: &Value, len: usize) -> Result<i64, Error> {
    let at = at.as_i64().ok_or_else(|| invalid("a place in a list must be a whole number".into()))?;
    Ok(if at < 0 { at.saturating_add(len as i64) } else { at })
}

/// What a list may hold: a list that can change is copied, so that none holds itself.
fn kept(state: &mut State, item: &Value) -> Result<Value, Error> {
    charge_all(state, item)?;
    let item = match item.downcast_object_ref::<List>() {
        Some(list) => Value::from(list.items().clone()),
        None => item.clone(),
    };
    match holds(&item, &|object| object.is::<List>() || is_namespace(object)) {
        true => Err(invalid("a list cannot take what holds a namespace or a list that can change".into())),
        false => Ok(item),
    }
}
