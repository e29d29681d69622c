//! The `tojson` of chat templates: JSON as Python writes it, without HTML escapes.

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde_json::Value as Json;

/// `value|tojson(indent=None, ensure_ascii=False, separators=None, sort_keys=False)`.
pub(crate) fn tojson(value: Value, indent: Option<Value>, options: Kwargs) -> Result<String, Error> {
    let indent = match indent {
        Some(given) => Some(given),
        None => options.get::<Option<Value>>("indent")?,
    };
    let separators: Option<Vec<String>> = options.get("separators")?;
    let style = Style {
        indent: indent.filter(|i| !i.is_none()).map(|i| spaces(&i)).transpose()?,
        separators: separators
            .map(|pair| <[String; 2]>::try_from(pair).map_err(|_| two_separators()))
            .transpose()?,
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sorted: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    if style.separators.as_ref().is_some_and(|pair| pair.iter().any(|text| text.len() > 64)) {
        return Err(two_separators());
    }

    let json = serde_json::to_value(&value)
        .map_err(|e| Error::new(ErrorKind::BadSerialization, format!("tojson: {e}")))?;
    let mut text = String::new();
    style.write(&json, 0, &mut text);
    Ok(text)
}

struct Style {
    indent: Option<String>,
    /// Between items, and between key and value.
    separators: Option<[String; 2]>,
    ascii: bool,
    sorted: bool,
}

impl Style {
    fn write(&self, json: &Json, depth: usize, text: &mut String) {
        match json {
            Json::String(s) => self.write_str(s, text),
            Json::Array(items) => {
                self.write_items(['[', ']'], items.iter(), depth, text, |item, text| {
                    self.write(item, depth + 1, text);
                });
            }
            Json::Object(map) => {
                let mut pairs: Vec<(&String, &Json)> = map.iter().collect();
                if self.sorted {
                    pairs.sort_by_key(|(key, _)| *key);
                }
                self.write_items(['{', '}'], pairs.into_iter(), depth, text, |(key, value), text| {
                    self.write_str(key, text);
                    text.push_str(self.separators.as_ref().map_or(": ", |pair| &pair[1]));
                    self.write(value, depth + 1, text);
                });
            }
            simple => text.push_str(&simple.to_string()),
        }
    }

    fn write_items<T>(
        &self,
        brackets: [char; 2],
        items: impl ExactSizeIterator<Item = T>,
        depth: usize,
        text: &mut String,
        mut write: impl FnMut(T, &mut String),
    ) {
        let n_items = items.len();
        let between = match (&self.separators, &self.indent) {
            (Some(pair), _) => pair[0].as_str(),
            (None, Some(_)) => ",",
            (None, None) => ", ",
        };
        text.push(brackets[0]);
        for (at, item) in items.enumerate() {
            if at > 0 {
                text.push_str(between);
            }
            self.new_line(depth + 1, text);
            write(item, text);
        }
        if n_items > 0 {
            self.new_line(depth, text);
        }
        text.push(brackets[1]);
    }

    fn new_line(&self, depth: usize, text: &mut String) {
        if let Some(indent) = &self.indent {
            text.push('\n');
            text.push_str(&indent.repeat(depth));
        }
    }

    fn write_str(&self, s: &str, text: &mut String) {
        text.push('"');
        for c in s.chars() {
            match c {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\u{8}' => text.push_str("\\b"),
                '\u{c}' => text.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        text.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => text.push(c),
            }
        }
        text.push('"');
    }
}

/// An indent is a number of spaces or the text itself.
fn spaces(indent: &Value) -> Result<String, Error> {
    match (indent.as_str(), indent.as_usize()) {
        (Some(text), _) if text.len() <= 64 => Ok(text.to_string()),
        (None, Some(n)) if n <= 64 => Ok(" ".repeat(n)),
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            "tojson: indent must be a text of at most 64 bytes or at most 64 spaces",
        )),
    }
}

fn two_separators() -> Error {
    Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two texts of at most 64 bytes")
}
