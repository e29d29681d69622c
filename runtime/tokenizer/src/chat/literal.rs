//! Finds the parts of a rendered chat that came from messages, so that no control token is parsed in them.
//!
//! Templates trim, split and join what messages hold, so their output does not show what came from where. Therefore the
//! chat is rendered again with each character that could start a control token replaced, in the messages only, by a
//! character that occurs nowhere else. Where the two outputs differ, the character came from a message. They can also
//! differ in other places, if the template tests a message for one of those characters (`</think>`); then only whole
//! control tokens are marked.

use std::collections::HashSet;

use serde_json::{Map, Value as Json};

use crate::error::{Error, Result};
use crate::special::Specials;

/// What a template is rendered with.
#[derive(Clone)]
pub(super) struct Inputs {
    pub messages: Vec<Json>,
    pub extra: Map<String, Json>,
}

/// The byte positions in `text`, which is `inputs` rendered, where control tokens are text of a message.
pub(super) fn positions(
    specials: &Specials,
    inputs: &Inputs,
    text: &str,
    render: impl Fn(Inputs) -> Result<String>,
) -> Result<Vec<usize>> {
    let starts = specials.control_starts();
    let is_start = |c: char| starts.binary_search(&c).is_ok();
    let mut texts = Texts::default();
    let _ = inputs.map(&mut |text| {
        texts.add(text, &is_start);
        text.to_string()
    });
    if !texts.has_start {
        return Ok(Vec::new());
    }
    let find = |mark: char, map: &mut dyn FnMut(&str) -> String| match render(inputs.map(map)) {
        Ok(marked) => Ok(differences(text, &marked, mark)),
        Err(Error::Cancelled) => Err(Error::Cancelled),
        Err(_) => Ok(None),
    };
    texts.add(text, &is_start);
    let mark = texts.unused().ok_or_else(|| Error::ControlInMessage { token: starts.iter().collect() })?;
    let mark_starts = &mut |text: &str| text.chars().map(|c| if is_start(c) { mark } else { c }).collect();
    if let Some(found) = find(mark, mark_starts)? {
        return Ok(found);
    }

    let mut token = None;
    let found = find(mark, &mut |text| {
        let mut positions = specials.control_positions(text).into_iter().peekable();
        let mut mark_at = |at: usize, c: char| match positions.next_if_eq(&at) {
            Some(at) => {
                token.get_or_insert_with(|| text[at..].chars().take(40).collect::<String>());
                mark
            }
            None => c,
        };
        text.char_indices().map(|(at, c)| mark_at(at, c)).collect()
    })?;
    match (found, token) {
        (_, None) => Ok(Vec::new()),
        (Some(found), _) => Ok(found),
        (None, Some(token)) => Err(Error::ControlInMessage { token }),
    }
}

impl Inputs {
    /// The inputs with every text of a message changed by `map`; roles are not texts, nor are names of fields.
    fn map(&self, map: &mut dyn FnMut(&str) -> String) -> Inputs {
        let message = |message: &Json, map: &mut dyn FnMut(&str) -> String| match message {
            Json::Object(fields) => fields
                .iter()
                .map(|(name, value)| {
                    let value = if name == "role" { value.clone() } else { mapped(value, map) };
                    (name.clone(), value)
                })
                .collect(),
            other => mapped(other, map),
        };
        Inputs {
            messages: self.messages.iter().map(|m| message(m, map)).collect(),
            extra: self.extra.iter().map(|(name, value)| (name.clone(), mapped(value, map))).collect(),
        }
    }
}

fn mapped(value: &Json, map: &mut dyn FnMut(&str) -> String) -> Json {
    match value {
        Json::String(text) => Json::String(map(text)),
        Json::Array(items) => items.iter().map(|item| mapped(item, map)).collect(),
        Json::Object(fields) => fields.iter().map(|(name, v)| (name.clone(), mapped(v, map))).collect(),
        other => other.clone(),
    }
}

/// What the texts hold.
#[derive(Default)]
struct Texts {
    has_start: bool,
    private: HashSet<char>,
}

impl Texts {
    fn add(&mut self, text: &str, is_start: &dyn Fn(char) -> bool) {
        self.has_start |= text.chars().any(is_start);
        self.private.extend(text.chars().filter(|c| PRIVATE.iter().any(|range| range.contains(c))));
    }

    /// A character of private use that occurs in none of the texts.
    fn unused(&self) -> Option<char> {
        PRIVATE.into_iter().flatten().find(|c| !self.private.contains(c))
    }
}

const PRIVATE: [std::ops::RangeInclusive<char>; 2] = ['\u{e000}'..='\u{f8ff}', '\u{f0000}'..='\u{ffffd}'];

/// The byte positions in `text` where `marked` has the mark; `None` if the two differ otherwise.
fn differences(text: &str, marked: &str, mark: char) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    let mut others = marked.chars();
    for (at, c) in text.char_indices() {
        match others.next()? {
            other if other == mark => found.push(at),
            other if other != c => return None,
            _ => {}
        }
    }
    others.next().is_none().then_some(found)
}
