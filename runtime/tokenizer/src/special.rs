//! Finds special tokens in a text, so that they are not cut up like the text around them.

use std::collections::HashMap;

use crate::vocab::{TokenKind, Vocab};

/// A part of a text.
#[derive(PartialEq, Debug)]
pub(crate) enum Part<'t> {
    /// Ordinary text, not empty.
    Text(&'t str),
    /// A special token that stood in the text.
    Token(u32),
}

/// The special tokens, by the first byte and the length of their text.
#[derive(Debug, Default)]
pub(crate) struct Specials {
    by_text: HashMap<Box<str>, Special>,
    /// For each first byte the lengths that occur, longest first.
    lengths: HashMap<u8, Vec<usize>>,
}

#[derive(Debug)]
struct Special {
    id: u32,
    /// Found even where the text's specials are not to be parsed.
    always: bool,
    strips_left: bool,
    strips_right: bool,
}

impl Specials {
    /// Control, user-defined and unknown tokens of `vocab`.
    pub fn new(vocab: &Vocab, kinds: &[TokenKind]) -> Self {
        let strips = Strips::of(vocab);
        let mut specials = Self::default();
        for (id, (text, kind)) in vocab.tokens.iter().zip(kinds).enumerate() {
            let always = match kind {
                TokenKind::UserDefined => true,
                TokenKind::Control | TokenKind::Unknown => false,
                _ => continue,
            };
            let Some(first) = text.as_bytes().first() else { continue };
            let lengths = specials.lengths.entry(*first).or_default();
            if !lengths.contains(&text.len()) {
                lengths.push(text.len());
            }
            let (strips_left, strips_right) = (strips.left(text), strips.right(text));
            specials
                .by_text
                .insert(text.as_str().into(), Special { id: id as u32, always, strips_left, strips_right });
        }
        specials.lengths.values_mut().for_each(|lengths| lengths.sort_unstable_by(|a, b| b.cmp(a)));
        specials
    }

    /// Cuts `text` at its special tokens, from the left, the longest first. Control tokens count only with
    /// `parse_special`; user-defined ones always do.
    pub fn split<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let (mut done, mut at) = (0, 0);
        while at < text.len() {
            let Some((len, special)) = self.starting_at(text, at, parse_special) else {
                at += 1;
                continue;
            };
            let before = &text[done..at];
            let before = if special.strips_left { before.trim_end_matches(is_c_space) } else { before };
            if !before.is_empty() {
                parts.push(Part::Text(before));
            }
            parts.push(Part::Token(special.id));
            at += len;
            if special.strips_right {
                at = text.len() - text[at..].trim_start_matches(is_c_space).len();
            }
            done = at;
        }
        if done < text.len() {
            parts.push(Part::Text(&text[done..]));
        }
        parts
    }

    fn starting_at(&self, text: &str, at: usize, parse_special: bool) -> Option<(usize, &Special)> {
        let lengths = self.lengths.get(&text.as_bytes()[at])?;
        lengths.iter().find_map(|len| {
            let special = self.by_text.get(text.get(at..at + len)?)?;
            (parse_special || special.always).then_some((*len, special))
        })
    }
}

/// What C calls a space.
fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// Families whose special tokens swallow the spaces beside them. Files do not say so; their names do.
enum Strips {
    None,
    /// Phi-3: all but three swallow what follows.
    Phi3,
    /// These swallow what comes before.
    Before(&'static str),
}

impl Strips {
    fn of(vocab: &Vocab) -> Self {
        let pre = vocab.pre.as_deref().unwrap_or("");
        let name = vocab.name.to_lowercase();
        let masks_jina = ["jina-v2-de", "jina-v2-es", "jina-v2-code"].iter().any(|p| pre.contains(p));
        if masks_jina || ["nomic-bert-moe", "jina-bert-v3"].iter().any(|a| vocab.arch.contains(a)) {
            Strips::Before("<mask>")
        } else if name.contains("phi-3") || name.contains("phi3") {
            Strips::Phi3
        } else if name.contains("modern-bert") {
            Strips::Before("[MASK]")
        } else {
            Strips::None
        }
    }

    fn left(&self, text: &str) -> bool {
        matches!(self, Strips::Before(token) if *token == text)
    }

    fn right(&self, text: &str) -> bool {
        matches!(self, Strips::Phi3) && !["<unk>", "<s>", "<|endoftext|>"].contains(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::ModelKind;

    fn check(name: &str, text: &str, parse_special: bool, expected: &str) {
        let tokens = ["<s>", "<|a|>", "<|a|><|b|>", "[MASK]", "  "].map(String::from).to_vec();
        let kinds = [TokenKind::Control, TokenKind::Control, TokenKind::Control, TokenKind::Control];
        let kinds = [&kinds[..], &[TokenKind::UserDefined]].concat();
        let vocab = Vocab { name: name.to_string(), ..Vocab::new(ModelKind::Spm, tokens) };
        let show = |part: &Part| match part {
            Part::Text(text) => format!("{text:?}"),
            Part::Token(id) => id.to_string(),
        };
        let parts: Vec<String> =
            Specials::new(&vocab, &kinds).split(text, parse_special).iter().map(show).collect();
        assert_eq!(parts.join(" "), expected);
    }

    #[test]
    fn control_tokens_are_found_only_when_asked_for() {
        check("", "x<s>y", true, r#""x" 0 "y""#);
        check("", "x<s>y", false, r#""x<s>y""#);
        check("", "<s><s>", true, "0 0");
        check("", "", true, "");
    }

    #[test]
    fn user_defined_tokens_are_always_found() {
        check("", "a  b", false, r#""a" 4 "b""#);
    }

    #[test]
    fn the_longest_token_wins() {
        check("", "<|a|><|b|><|a|>é", true, r#"2 1 "é""#);
    }

    #[test]
    fn phi3_swallows_the_space_behind_its_specials() {
        check("Phi-3-mini", "<|a|> \n x<s> y", true, r#"1 "x" 0 " y""#);
        check("other", "<|a|> x", true, r#"1 " x""#);
    }

    #[test]
    fn a_mask_swallows_the_space_before_it() {
        check("modern-bert-base", "x [MASK] y", true, r#""x" 3 " y""#);
    }
}
