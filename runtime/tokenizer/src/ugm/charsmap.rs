//! SentencePiece's precompiled map of characters: a double-array trie over the bytes of what is replaced, then the
//! replacements, each with a zero byte after it.

use crate::error::{Error, Result};

/// Replaces the longest beginning of a text that the map has. All of its numbers come from a file: each is checked
/// where it is used.
#[derive(Debug, Default)]
pub(crate) struct CharsMap {
    nodes: Vec<u32>,
    replacements: Vec<u8>,
}

/// One node. Its child for byte b is the node at its place xor its offset xor b; if it ends an entry, the node at its
/// place xor its offset is the value.
#[derive(Clone, Copy)]
struct Node(u32);

impl Node {
    /// Bits 10 to 30, which count by 256 where bit 9 is set.
    fn offset(self) -> u32 {
        (self.0 >> 10) << ((self.0 & (1 << 9)) >> 6)
    }

    /// The byte that leads here; bit 31 marks values, which no byte leads to.
    fn label(self) -> u32 {
        self.0 & (1 << 31 | 0xFF)
    }

    fn ends_entry(self) -> bool {
        self.0 & (1 << 8) != 0
    }

    fn value(self) -> u32 {
        self.0 & !(1 << 31)
    }
}

impl CharsMap {
    /// Four bytes with the length of the trie, the trie, the replacements. An empty map replaces nothing.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let bad = |reason| Error::BadCharsMap { reason };
        let (len, rest) = bytes.split_first_chunk().ok_or(bad("it has no length"))?;
        let len = u32::from_le_bytes(*len) as usize;
        if len >= rest.len() {
            return Err(bad("its trie ends past its end"));
        }
        let (trie, replacements) = rest.split_at(len);
        if replacements.last() != Some(&0) {
            return Err(bad("its last replacement has no end"));
        }
        let nodes = trie.as_chunks().0.iter().map(|node| u32::from_le_bytes(*node)).collect();
        Ok(Self { nodes, replacements: replacements.to_vec() })
    }

    /// What stands for the beginning of `text`, which is not empty, and how many bytes that is. A character that the
    /// map lacks stands for itself, and a byte that is no character for U+FFFD.
    pub fn replace<'a>(&'a self, text: &'a [u8]) -> Result<(&'a [u8], usize)> {
        if let Some((len, value)) = self.longest(text)? {
            let replacement = self.replacements.get(value as usize..);
            let end = replacement.and_then(|bytes| Some((bytes, bytes.iter().position(|b| *b == 0)?)));
            let (bytes, end) =
                end.ok_or(Error::BadCharsMap { reason: "a replacement starts past its end" })?;
            return Ok((&bytes[..end], len));
        }
        let len = len_of_char(text[0]);
        match text.get(..len) {
            Some(c) if std::str::from_utf8(c).is_ok() => Ok((c, len)),
            _ => Ok(("\u{FFFD}".as_bytes(), 1)),
        }
    }

    /// Length and value of the longest entry that `text` starts with.
    fn longest(&self, text: &[u8]) -> Result<Option<(usize, u32)>> {
        if self.nodes.is_empty() {
            return Ok(None);
        }
        let mut longest = None;
        let mut place = self.node(0)?.offset();
        for (at, &byte) in text.iter().enumerate().take_while(|(_, byte)| **byte != 0) {
            place ^= u32::from(byte);
            let node = self.node(place)?;
            if node.label() != u32::from(byte) {
                break;
            }
            place ^= node.offset();
            if node.ends_entry() {
                longest = Some((at + 1, self.node(place)?.value()));
            }
        }
        Ok(longest)
    }

    fn node(&self, place: u32) -> Result<Node> {
        let node = self.nodes.get(place as usize).copied();
        node.map(Node).ok_or(Error::BadCharsMap { reason: "a node of its trie points past the trie" })
    }
}

/// Bytes of the character that starts with `byte`, as its first four bits have it.
pub(crate) fn len_of_char(byte: u8) -> usize {
    match byte >> 4 {
        0..12 => 1,
        12 | 13 => 2,
        14 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A map of single bytes: the root's children are the nodes at 256 xor b, and the value of each follows them.
    fn map(entries: &[(u8, &str)]) -> Vec<u8> {
        let mut nodes = vec![0u32; 1024];
        nodes[0] = 256 << 10;
        let mut replacements = vec![0];
        for (i, (byte, replacement)) in entries.iter().enumerate() {
            let place = 256 ^ u32::from(*byte);
            let value_place = 512 + i as u32;
            nodes[place as usize] = u32::from(*byte) | 1 << 8 | (place ^ value_place) << 10;
            nodes[value_place as usize] = 1 << 31 | replacements.len() as u32;
            replacements.extend(replacement.bytes());
            replacements.push(0);
        }
        let trie: Vec<u8> = nodes.iter().flat_map(|node| node.to_le_bytes()).collect();
        [&(trie.len() as u32).to_le_bytes()[..], &trie, &replacements].concat()
    }

    fn check(entries: &[(u8, &str)], text: &[u8], expected: &str) {
        let map = CharsMap::new(&map(entries)).expect("a good map");
        let mut rest = text;
        let mut out = Vec::new();
        while !rest.is_empty() {
            let (replacement, n) = map.replace(rest).expect("a good map");
            out.extend_from_slice(replacement);
            rest = &rest[n..];
        }
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn entries_are_replaced_and_the_rest_stays() {
        check(&[(b'a', "xyz"), (b'\n', " "), (b'q', "")], "a\nbqé東".as_bytes(), "xyz bé東");
        check(&[], "aé".as_bytes(), "aé");
    }

    #[test]
    fn bytes_that_are_no_character_are_replaced() {
        check(&[], b"a\xE6\x9D", "a\u{FFFD}\u{FFFD}");
        check(&[(0xC3, "x")], "é".as_bytes(), "x\u{FFFD}");
    }

    fn check_fails(bytes: &[u8], expected: &str) {
        let found = CharsMap::new(bytes).and_then(|map| map.replace(b"abc").map(|_| ()));
        let message = found.map_err(|e| e.to_string()).expect_err(expected);
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn a_map_that_points_outside_itself_is_an_error() {
        let good = map(&[(b'a', "x")]);
        check_fails(&good[..3], "it has no length");
        check_fails(&good[..4096], "its trie ends past its end");
        check_fails(&good[..good.len() - 1], "its last replacement has no end");
        let damaged = |node: usize, value: u32| {
            let mut bytes = good.clone();
            bytes[4 + 4 * node..8 + 4 * node].copy_from_slice(&value.to_le_bytes());
            bytes
        };
        check_fails(&damaged(0, u32::MAX), "a node of its trie points past the trie");
        check_fails(&damaged(512, 1 << 31 | 99), "a replacement starts past its end");
    }

    proptest! {
        #[test]
        fn no_map_makes_it_panic(
            damage in proptest::collection::vec((0usize..4200, any::<u8>()), 0..40),
            text in proptest::collection::vec(any::<u8>(), 1..40),
        ) {
            let mut bytes = map(&[(b'a', "x"), (0xC3, "yy"), (b' ', "")]);
            for (at, byte) in damage {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            if let Ok(map) = CharsMap::new(&bytes) {
                let mut rest = &text[..];
                while let Ok((_, n @ 1..)) = map.replace(rest) {
                    rest = &rest[n..];
                    if rest.is_empty() {
                        break;
                    }
                }
            }
        }
    }
}
