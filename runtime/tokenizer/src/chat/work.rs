//! The work that one rendering does: every byte that a template allocates is charged, and what is charged is limited.
//!
//! Without it a template of a hundred bytes could fill the memory: a text that is joined with itself thirty times is
//! a billion times as long.

use minijinja::value::{DynObject, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// The most bytes that one rendering may make, those included that it throws away again.
pub(super) const MAX_BYTES: usize = 256 << 20;

/// How deeply values may hold each other: dropping and writing them recurses.
const DEEPEST: usize = 160;

/// Bytes of a value inside a list, its text aside.
pub(super) const ITEM: usize = 32;

/// What a rendering was charged so far.
#[derive(Default)]
struct Charged(usize);

/// How much there is of a value, all that it holds included.
#[derive(Clone, Copy, Default)]
pub(super) struct Weight {
    /// Of texts and list places.
    pub bytes: usize,
    /// Values.
    pub n_items: usize,
    /// Values inside each other.
    pub depth: usize,
}

/// Charges `n_bytes`; an error once that is too much.
pub(super) fn charge(state: &mut State, n_bytes: usize) -> Result<(), Error> {
    let charged = state.get_or_insert_extension_with(Charged::default);
    charged.0 = charged.0.saturating_add(n_bytes);
    if charged.0 > MAX_BYTES { Err(too_much()) } else { Ok(()) }
}

/// Charges a value with all that it holds.
pub(super) fn charge_all(state: &mut State, value: &Value) -> Result<Weight, Error> {
    let weight = weigh(value)?;
    charge(state, weight.bytes)?;
    Ok(weight)
}

/// Charges a text, or the places of a list; not what is in them, which is shared.
pub(super) fn charge_shallow(state: &mut State, value: &Value) -> Result<(), Error> {
    charge(state, shallow(value))
}

/// Bytes of a text, or of the places of a list.
pub(super) fn shallow(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String | ValueKind::Bytes => n_bytes(value),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            value.len().unwrap_or(0).saturating_mul(ITEM)
        }
        _ => 0,
    }
}

fn n_bytes(value: &Value) -> usize {
    value.as_str().map(str::len).or_else(|| value.as_bytes().map(<[u8]>::len)).unwrap_or(0)
}

/// How much there is of a value; an error if it is too much or too deep.
pub(super) fn weigh(value: &Value) -> Result<Weight, Error> {
    let mut weight = Weight::default();
    add(value, 1, &mut weight)?;
    Ok(weight)
}

fn add(value: &Value, depth: usize, weight: &mut Weight) -> Result<(), Error> {
    weight.n_items += 1;
    weight.depth = weight.depth.max(depth);
    weight.bytes = weight.bytes.saturating_add(ITEM + n_bytes(value));
    if depth > DEEPEST {
        let why = format!("values are more than {DEEPEST} deep inside each other");
        return Err(invalid(why));
    }
    if weight.bytes > MAX_BYTES {
        return Err(too_much());
    }
    if value.kind() == ValueKind::Map {
        for key in value.try_iter()? {
            add(&value.get_item(&key)?, depth + 1, weight)?;
            add(&key, depth + 1, weight)?;
        }
    } else if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        for item in value.try_iter()? {
            add(&item, depth + 1, weight)?;
        }
    }
    Ok(())
}

/// Whether such an object is this value or inside it. Its depth is known to be small.
pub(super) fn holds(value: &Value, is_one: &dyn Fn(&DynObject) -> bool) -> bool {
    let inside = |item: Value| holds(&item, is_one);
    value.as_object().is_some_and(is_one)
        || match value.kind() {
            ValueKind::Map => {
                value.try_iter().is_ok_and(|mut keys| keys.any(|key| value.get_item(&key).is_ok_and(inside)))
            }
            ValueKind::Seq | ValueKind::Iterable => value.try_iter().is_ok_and(|mut items| items.any(inside)),
            _ => false,
        }
}

/// Whether an object is what `namespace()` makes, whose type is the engine's own.
pub(super) fn is_namespace(object: &DynObject) -> bool {
    object.type_name().ends_with("::Namespace")
}

pub(super) fn too_much() -> Error {
    invalid(format!("makes more than {MAX_BYTES} bytes of text and lists"))
}

/// What a template cannot do.
pub(super) fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}
