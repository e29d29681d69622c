//! RWKV's tokenizer: the longest token that the text starts with, again and again.

use crate::error::{Error, Result};
use crate::limits::Output;
use crate::prefixes::Prefixes;

/// The tokens by their bytes.
#[derive(Debug)]
pub(crate) struct Rwkv {
    tokens: Prefixes,
    unk: Option<u32>,
}

impl Rwkv {
    /// `tokens` are escaped: `\n`, `\t`, `\r`, `\x0a`, and a backslash before any other character stands for that.
    pub fn new<'t>(tokens: impl Iterator<Item = (&'t str, u32)>, unk: Option<u32>) -> Result<Self> {
        let bytes = |(token, id): (&str, u32)| Ok((unescaped(token, id)?.into_boxed_slice(), id));
        Ok(Self { tokens: Prefixes::new(tokens.map(bytes).collect::<Result<Vec<_>>>()?), unk })
    }

    /// Appends the ids of `text`. A byte that no token starts with gives the unknown token.
    pub fn encode(&self, text: &str, output: &mut Output) -> Result<()> {
        let mut rest = text.as_bytes();
        while let Some(byte) = rest.first() {
            let (len, id) = self.tokens.of(rest).last().map_or((1, self.unk), |(len, id)| (len, Some(id)));
            output.push(id.ok_or_else(|| Error::NoTokenFor { what: format!("the byte {byte:#04x}") })?)?;
            rest = &rest[len..];
        }
        Ok(())
    }
}

/// The bytes of an escaped token.
pub(crate) fn unescaped(token: &str, id: u32) -> Result<Vec<u8>> {
    let bad = || Error::BadEscape { id, found: token.to_string() };
    let mut bytes = Vec::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(c) = chars.next() {
        let c = if c == '\\' {
            chars.next().ok_or_else(bad)?
        } else {
            push_char(&mut bytes, c);
            continue;
        };
        match c {
            't' => bytes.push(b'\t'),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            'x' => {
                let mut digit = || chars.next().and_then(|c| c.to_digit(16)).ok_or_else(bad);
                bytes.push((digit()? * 16 + digit()?) as u8);
            }
            other => push_char(&mut bytes, other),
        }
    }
    Ok(bytes)
}

fn push_char(bytes: &mut Vec<u8>, c: char) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn check(tokens: &[&str], text: &str, expected: &[u32]) {
        let rwkv = Rwkv::new(tokens.iter().copied().zip(0..), None).expect("good tokens");
        let mut output = Output::new(Limits::NONE);
        rwkv.encode(text, &mut output).expect("every byte has a token");
        assert_eq!(output.into_ids(), expected, "{text:?}");
    }

    #[test]
    fn the_longest_token_goes_first_and_may_end_inside_a_character() {
        check(&["a", "ab", "b", "bcd", r"\xc3", r"\xa9"], "abcdé".trim_end_matches("cdé"), &[1]);
        check(&["a", "ab", "abc", "b", "c"], "abcab", &[2, 1]);
        check(&[r"a\xc3", r"\xa9", "é", "a"], "aéé", &[0, 1, 2]);
    }

    #[test]
    fn escapes_spell_bytes() {
        check(&[r"\n", r"\t\r", r"\\", r"\'", r"\x00", " "], "\n\t\r\\'\0 ", &[0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_bad_escape_names_its_token() {
        for token in [r"a\", r"\x0", r"\xg0", r"\x"] {
            let found = Rwkv::new([(token, 7)].into_iter(), None).expect_err(token);
            assert_eq!(found, Error::BadEscape { id: 7, found: token.into() });
        }
    }

    #[test]
    fn a_byte_without_token_is_an_error_or_the_unknown_token() {
        let encode = |unk| {
            let mut output = Output::new(Limits::NONE);
            let rwkv = Rwkv::new([("a", 0), ("bc", 1)].into_iter(), unk).expect("good tokens");
            rwkv.encode("ab", &mut output).map(|()| output.into_ids())
        };
        assert_eq!(encode(Some(9)), Ok(vec![0, 9]));
        assert_eq!(encode(None), Err(Error::NoTokenFor { what: "the byte 0x62".into() }));
    }
}
