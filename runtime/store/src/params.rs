//! Parameters of a model: the names that `PARAMETER` and the layer of parameters have, and their types.

use serde_json::{Map, Number, Value};

/// Parameters by name. `stop` is an array of texts.
pub type Params = Map<String, Value>;

/// What a parameter's value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole number.
    Int,
    /// Any finite number.
    Float,
    /// `true` or `false`.
    Bool,
    /// A text; each line of a Modelfile adds one.
    Texts,
}

/// Every parameter of a Modelfile.
pub const PARAMS: &[(&str, Kind)] = &[
    ("temperature", Kind::Float),
    ("top_k", Kind::Int),
    ("top_p", Kind::Float),
    ("min_p", Kind::Float),
    ("typical_p", Kind::Float),
    ("repeat_last_n", Kind::Int),
    ("repeat_penalty", Kind::Float),
    ("presence_penalty", Kind::Float),
    ("frequency_penalty", Kind::Float),
    ("seed", Kind::Int),
    ("stop", Kind::Texts),
    ("num_ctx", Kind::Int),
    ("num_predict", Kind::Int),
    ("num_keep", Kind::Int),
    ("num_batch", Kind::Int),
    ("num_gpu", Kind::Int),
    ("main_gpu", Kind::Int),
    ("num_thread", Kind::Int),
    ("use_mmap", Kind::Bool),
];

/// Sets a parameter from a Modelfile's text; the error is what is wrong with it.
pub(crate) fn set(params: &mut Params, name: &str, text: &str) -> Result<(), String> {
    let Some((_, kind)) = PARAMS.iter().find(|(param, _)| *param == name) else {
        let names: Vec<_> = PARAMS.iter().map(|(name, _)| *name).collect();
        return Err(format!("PARAMETER {}: expected one of {}", name.escape_debug(), names.join(", ")));
    };
    let parsed = match kind {
        Kind::Int => text.parse::<i64>().map(Value::from).map_err(|_| "a whole number"),
        Kind::Float => float(text).ok_or("a number"),
        Kind::Bool => text.parse::<bool>().map(Value::from).map_err(|_| "true or false"),
        Kind::Texts => Ok(Value::from(text)),
    };
    let value = parsed
        .map_err(|expected| format!("PARAMETER {name} {}: expected {expected}", text.escape_debug()))?;
    match (kind, params.get_mut(name)) {
        (Kind::Texts, Some(Value::Array(texts))) => texts.push(value),
        (Kind::Texts, _) => drop(params.insert(name.into(), Value::Array(vec![value]))),
        _ => drop(params.insert(name.into(), value)),
    }
    Ok(())
}

fn float(text: &str) -> Option<Value> {
    Number::from_f64(text.parse().ok()?).map(Value::Number)
}

/// The parameters as a Modelfile has them: name and text of each line. Values of other forms are left out.
pub(crate) fn lines(params: &Params) -> Vec<(String, String)> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    };
    let texts = |value: &Value| match value {
        Value::Array(values) => values.iter().filter_map(text).collect(),
        value => text(value).into_iter().collect::<Vec<_>>(),
    };
    params
        .iter()
        .flat_map(|(name, value)| texts(value).into_iter().map(|text| (name.clone(), text)))
        .collect()
}
