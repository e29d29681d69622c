//! What no float of a file may be, whichever architecture reads it.

use super::keys::Keys;
use crate::error::Result;
use llmrt_gguf::{Array, Value};

/// What keys end in whose numbers are not below zero: they are added under a root, divide, or are raised to a power.
const NOT_NEGATIVE: [&str; 5] = ["epsilon", "eps", "freq_base", "freq_base_swa", "scaling.factor"];

/// Refuses numbers of the architecture that are infinite or none at all, and those below zero of which that makes no sense.
pub(super) fn check_floats(keys: &Keys<'_>) -> Result<()> {
    let prefix = keys.name("");
    for (name, value) in keys.meta.iter() {
        let Some(key) = name.strip_prefix(&prefix) else { continue };
        let may_be_negative = !NOT_NEGATIVE.iter().any(|end| key.ends_with(end));
        let expected = if may_be_negative { "a finite number" } else { "a finite number of at least 0" };
        // Files write an infinite bound for none.
        let may_be_infinite = key.ends_with("bound");
        let is_wrong =
            |x: f64| x.is_nan() || x.is_infinite() && !may_be_infinite || x < 0.0 && !may_be_negative;
        let found = match value {
            Value::F32(x) => first(&[*x], is_wrong),
            Value::F64(x) => first(&[*x], is_wrong),
            Value::Array(Array::F32(all)) => first(all, is_wrong),
            Value::Array(Array::F64(all)) => first(all, is_wrong),
            _ => None,
        };
        if let Some(found) = found {
            return Err(keys.bad(key, found, expected));
        }
    }
    Ok(())
}

fn first<T: Copy + Into<f64> + ToString>(all: &[T], is_wrong: impl Fn(f64) -> bool) -> Option<String> {
    all.iter().find(|x| is_wrong((**x).into())).map(T::to_string)
}
