//! PLaMo-2's tokenizer: of all ways to cut the text into tokens, the one of the highest sum of scores.

use crate::bytes::byte_of_hex_piece;
use crate::error::{Error, Result};
use crate::limits::{Output, reserve};
use crate::prefixes::Prefixes;

/// Tokens with their costs, and a token for each byte.
#[derive(Debug)]
pub(crate) struct Plamo2 {
    tokens: Prefixes,
    /// By id: the score, negated, in units of 1e-4. `None`: never chosen.
    costs: Vec<Option<i64>>,
    id_of_byte: Vec<u32>,
}

/// Costs above this are none at all.
const MAX_COST: f64 = 2e7;
/// What a character costs that is spelled in bytes.
const UNKNOWN_COST: i64 = 10_000_000;

/// The cheapest way from some place in the text to its end.
#[derive(Clone, Copy)]
struct Step {
    cost: i64,
    /// Of the token in bytes; 0: a character in bytes.
    len: u32,
    id: u32,
}

impl Plamo2 {
    /// `tokens` are those that text may become; `bytes` are the byte tokens. Scores are by id.
    pub fn new<'t>(
        tokens: impl Iterator<Item = (&'t str, u32)>,
        bytes: impl Iterator<Item = (&'t str, u32)>,
        scores: &[f32],
    ) -> Result<Self> {
        let mut id_of_byte = vec![None; 256];
        for (piece, id) in bytes {
            if let Some(byte) = byte_of_hex_piece(piece.as_bytes()) {
                id_of_byte[usize::from(byte)] = Some(id);
            }
        }
        let missing = |byte: usize| Error::NoByteToken { byte: byte as u8 };
        let found = id_of_byte.into_iter().enumerate().map(|(byte, id)| id.ok_or_else(|| missing(byte)));
        let cost = |score: &f32| {
            let cost = -(f64::from(*score) * 1e4).round();
            (score.is_finite() && cost < MAX_COST).then_some(cost as i64)
        };
        Ok(Self {
            id_of_byte: found.collect::<Result<_>>()?,
            tokens: Prefixes::new(tokens.map(|(piece, id)| (piece.as_bytes().into(), id))),
            costs: scores.iter().map(cost).collect(),
        })
    }

    /// Appends the ids of `text`. A byte order mark at its start is left out.
    pub fn encode(&self, text: &str, output: &mut Output) -> Result<()> {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let steps = self.cheapest(text, output)?;
        let mut at = 0;
        while at < text.len() {
            let Step { len, id, .. } = steps[at];
            if len > 0 {
                output.push(id)?;
                at += len as usize;
                continue;
            }
            let n = text[at..].chars().next().map_or(1, char::len_utf8);
            text.as_bytes()[at..at + n]
                .iter()
                .try_for_each(|byte| output.push(self.id_of_byte[usize::from(*byte)]))?;
            at += n;
        }
        Ok(())
    }

    /// The step to take at each byte where a character starts. Of equally cheap ones the longest token counts.
    fn cheapest(&self, text: &str, output: &mut Output) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        reserve(&mut steps, text.len() + 1)?;
        steps.resize(text.len() + 1, Step { cost: 0, len: 0, id: 0 });
        for (at, c) in text.char_indices().rev() {
            output.step()?;
            let cost = steps[at + c.len_utf8()].cost.saturating_add(UNKNOWN_COST);
            let mut best = Step { cost, len: 0, id: 0 };
            for (len, id) in self.tokens.of(&text.as_bytes()[at..]) {
                let Some(cost) = self.cost(id) else { continue };
                let cost = steps[at + len].cost.saturating_add(cost);
                if cost <= best.cost {
                    best = Step { cost, len: len as u32, id };
                }
            }
            steps[at] = best;
        }
        Ok(steps)
    }

    fn cost(&self, id: u32) -> Option<i64> {
        self.costs.get(id as usize).copied().unwrap_or(Some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    /// Ids of the pieces count from 256, after the bytes.
    fn check(pieces: &[(&str, f32)], text: &str, expected: &[u32]) {
        let bytes: Vec<String> = (0..=255).map(crate::bytes::hex_piece).collect();
        let scores: Vec<f32> = vec![0.0; 256].into_iter().chain(pieces.iter().map(|p| p.1)).collect();
        let tokens = pieces.iter().map(|p| p.0).zip(256..);
        let plamo =
            Plamo2::new(tokens, bytes.iter().map(String::as_str).zip(0..), &scores).expect("all bytes");
        let mut output = Output::new(Limits::NONE);
        plamo.encode(text, &mut output).expect("every byte has a token");
        assert_eq!(output.into_ids(), expected, "{text:?}");
    }

    #[test]
    fn the_highest_sum_of_scores_wins_and_the_longest_token_among_equals() {
        check(&[("a", -1.0), ("ab", -3.0), ("bc", -1.0), ("c", -1.0)], "abc", &[256, 258]);
        check(&[("a", -1.0), ("b", -1.0), ("ab", -2.0)], "ab", &[258]);
    }

    #[test]
    fn other_characters_are_bytes_and_a_byte_order_mark_is_none() {
        check(&[("a", -1.0)], "\u{FEFF}aé\u{FEFF}", &[256, 0xC3, 0xA9, 0xEF, 0xBB, 0xBF]);
    }

    #[test]
    fn scores_that_are_out_of_range_are_never_chosen() {
        check(&[("a", f32::NEG_INFINITY), ("b", -2500.0), ("c", -900.0)], "abc", &[0x61, 0x62, 258]);
    }

    #[test]
    fn a_byte_without_token_is_an_error() {
        let found = Plamo2::new([].into_iter(), [("<0x00>", 0)].into_iter(), &[]).expect_err("one byte only");
        assert_eq!(found, Error::NoByteToken { byte: 1 });
    }
}
