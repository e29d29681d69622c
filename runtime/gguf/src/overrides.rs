//! `--override-kv KEY=TYPE:VAL`: a metadata value given by the user.

use crate::error::Error;
use crate::metadata::Metadata;
use crate::value::Value;

impl Metadata {
    /// Sets one key from `KEY=TYPE:VAL`, TYPE being int, float, bool or str.
    ///
    /// A number keeps the width that the key has in the file if it fits; else ints are i64 and floats f32.
    pub fn apply_override(&mut self, given: &str) -> Result<(), Error> {
        let bad = |reason: String| Error::BadOverride { given: given.into(), reason };
        let (key, rest) = given.split_once('=').ok_or_else(|| bad("there is no `=`".into()))?;
        let (ty, text) = rest.split_once(':').ok_or_else(|| bad("there is no `:` after the type".into()))?;
        if key.is_empty() {
            return Err(bad("the key is empty".into()));
        }
        let old = self.get(key);
        let value = match ty {
            "int" => int(text, old).ok_or_else(|| bad(format!("`{text}` is no integer of 64 bits")))?,
            "float" => float(text, old).ok_or_else(|| bad(format!("`{text}` is no number")))?,
            "bool" => Value::Bool(text.parse().map_err(|_| bad(format!("`{text}` is not true or false")))?),
            "str" => Value::String(text.into()),
            other => return Err(bad(format!("the type is `{other}`"))),
        };
        self.set(key, value);
        Ok(())
    }
}

fn int(text: &str, old: Option<&Value>) -> Option<Value> {
    let v: i128 = text.parse().ok()?;
    let same_width = match old {
        Some(Value::U8(_)) => v.try_into().map(Value::U8).ok(),
        Some(Value::I8(_)) => v.try_into().map(Value::I8).ok(),
        Some(Value::U16(_)) => v.try_into().map(Value::U16).ok(),
        Some(Value::I16(_)) => v.try_into().map(Value::I16).ok(),
        Some(Value::U32(_)) => v.try_into().map(Value::U32).ok(),
        Some(Value::I32(_)) => v.try_into().map(Value::I32).ok(),
        Some(Value::U64(_)) => v.try_into().map(Value::U64).ok(),
        _ => None,
    };
    same_width.or(v.try_into().map(Value::I64).ok()).or(v.try_into().map(Value::U64).ok())
}

fn float(text: &str, old: Option<&Value>) -> Option<Value> {
    let v: f64 = text.parse().ok()?;
    Some(if matches!(old, Some(Value::F64(_))) { Value::F64(v) } else { Value::F32(v as f32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies `given` to a file with `n` u16, `eps` f64 and `arch` str; the value of `key` afterwards.
    fn check(given: &str, key: &str, expected: Value) {
        let mut m = Metadata::new();
        m.set("n", Value::U16(3));
        m.set("eps", Value::F64(0.5));
        m.set("arch", "llama");
        m.apply_override(given).unwrap();
        assert_eq!(m.get(key), Some(&expected), "{given}");
    }

    #[test]
    fn an_int_keeps_the_width_of_the_file_if_it_fits() {
        check("n=int:65535", "n", Value::U16(65535));
        check("n=int:65536", "n", Value::I64(65536));
        check("n=int:-1", "n", Value::I64(-1));
        check("new=int:18446744073709551615", "new", Value::U64(u64::MAX));
    }

    #[test]
    fn floats_bools_and_strings_replace_or_insert() {
        check("eps=float:1e-5", "eps", Value::F64(1e-5));
        check("new=float:10000", "new", Value::F32(10000.0));
        check("new=bool:false", "new", Value::Bool(false));
        check("arch=str:a=b:c", "arch", Value::String("a=b:c".into()));
        check("arch=str:", "arch", Value::String("".into()));
    }

    #[test]
    fn malformed_overrides_are_refused_with_the_reason() {
        for (given, why) in [
            ("n", "no `=`"),
            ("n=3", "no `:`"),
            ("=int:3", "key is empty"),
            ("n=u32:3", "type is `u32`"),
            ("n=int:3.5", "`3.5` is no integer"),
            ("n=float:x", "`x` is no number"),
            ("n=bool:1", "`1` is not true or false"),
        ] {
            let mut m = Metadata::new();
            let message = m.apply_override(given).unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
            assert!(m.is_empty());
        }
    }
}
