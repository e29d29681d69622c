//! Metadata getters: lossless between integer widths, and errors that name key, found and expected.

use crate::{Array, Metadata, Value};

fn sample() -> Metadata {
    let mut m = Metadata::new();
    m.set("n", Value::U64(40));
    m.set("big", Value::I64(1 << 40));
    m.set("neg", Value::I8(-3));
    m.set("eps", Value::F64(0.5));
    m.set("name", "llama");
    m.set("flag", true);
    m.set("ids", Value::Array(Array::U16(vec![1, 2])));
    m.set("mixed", Value::Array(Array::I32(vec![-1, 2])));
    m.set("tokens", vec!["a".to_string()]);
    m
}

#[test]
fn integers_are_read_at_any_width_that_holds_them() {
    let m = sample();
    assert_eq!((m.u32("n"), m.u64("n"), m.i32("n")), (Some(40), Some(40), Some(40)));
    assert_eq!((m.u32("big"), m.i32("big"), m.u64("big")), (None, None, Some(1 << 40)));
    assert_eq!((m.u64("neg"), m.i32("neg")), (None, Some(-3)));
}

#[test]
fn numbers_are_read_as_f32_and_nothing_else_is() {
    let m = sample();
    assert_eq!((m.f32("eps"), m.f32("n"), m.f32("name")), (Some(0.5), Some(40.0), None));
    assert_eq!((m.u32("eps"), m.bool("n"), m.bool("flag")), (None, None, Some(true)));
}

#[test]
fn arrays_convert_if_every_element_does() {
    let m = sample();
    assert_eq!(m.u32s("ids"), Some(vec![1, 2]));
    assert_eq!((m.u32s("mixed"), m.i32s("mixed")), (None, Some(vec![-1, 2])));
    assert_eq!(m.f32s("ids"), Some(vec![1.0, 2.0]));
    assert_eq!(m.strings("tokens"), Some(&["a".to_string()][..]));
    assert_eq!(m.u32s("n"), None);
}

#[test]
fn a_required_key_that_is_missing_or_of_another_type_is_named() {
    let m = sample();
    let text = |e: crate::Error| e.to_string();
    assert_eq!(text(m.require_u32("x").unwrap_err()), "metadata key `x` is missing");
    let wrong = "metadata key `big` is i64 1099511627776: expected an integer that fits u32";
    assert_eq!(text(m.require_u32("big").unwrap_err()), wrong);
    let wrong = "metadata key `ids` is array of 2 u16: expected array of str";
    assert_eq!(text(m.require_strings("ids").unwrap_err()), wrong);
    assert_eq!(m.optional::<u32>("x"), Ok(None));
    assert!(m.optional::<u32>("name").is_err());
}

#[test]
fn order_and_index_outlive_removal_and_change() {
    let mut m = sample();
    assert_eq!(m.remove("big"), Some(Value::I64(1 << 40)));
    m.set("name", "gpt2");
    assert!(m.insert("flag", 3u32).is_err());
    let keys: Vec<&str> = m.iter().map(|(k, _)| k).collect();
    assert_eq!(keys, ["n", "neg", "eps", "name", "flag", "ids", "mixed", "tokens"]);
    assert_eq!((m.str("name"), m.len(), m.get("big")), (Some("gpt2"), 8, None));
}
