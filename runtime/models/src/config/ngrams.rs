//! Embeddings of n-grams: the `ple.*` keys.

use super::{Keys, MAX_DIM};
use crate::error::Result;
use llmrt_gguf::{FromValue, Metadata};

/// How the last tokens up to each one are hashed to rows of a table. Empty in models without embeddings of n-grams.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NgramConfig {
    /// The layer that reads the embeddings.
    pub il: usize,
    /// Elements of a row of the table.
    pub n_embd: u64,
    /// Taps of the convolution over what the layer makes of them.
    pub n_taps: u64,
    /// What tokens are multiplied with, the last one first: as many as the longest n-gram has tokens.
    multipliers: Vec<u64>,
    /// First row and number of rows of the parts of the table: as many for each length of n-grams, from 2 on.
    parts: Vec<[u64; 2]>,
    /// The token that n-grams do not reach across.
    end: i32,
}

/// Tokens of the longest n-gram that any model has.
pub const MAX_NGRAM: usize = 8;
const MAX_PARTS: usize = 64;

impl NgramConfig {
    /// `None` where files have no such layer.
    pub(crate) fn read(keys: &Keys<'_>, n_layer: usize) -> Result<Option<NgramConfig>> {
        let layers: Vec<u64> = keys.optional("ple.layers")?.unwrap_or_default();
        let il = match layers[..] {
            [] => return Ok(None),
            [il] if il < n_layer as u64 => il as usize,
            _ => return Err(keys.bad("ple.layers", format!("{layers:?}"), format!("one below {n_layer}"))),
        };
        let n = keys.count("ple.ngram_size", 2..=MAX_NGRAM as u64)? as usize;
        let n_parts = (n - 1) * keys.count("ple.heads_per_ngram", 1..=(MAX_PARTS / (n - 1)) as u64)? as usize;
        let starts: Vec<u64> = array(keys, "ple.head_offsets", n_parts)?;
        let sizes: Vec<u64> = array(keys, "ple.head_vocab_sizes", n_parts)?;
        let parts: Vec<[u64; 2]> = starts.into_iter().zip(sizes).map(|(start, n)| [start, n]).collect();
        // Rows are numbers of type i32.
        let fits = |&[start, n]: &[u64; 2]| n > 0 && start.saturating_add(n) <= i32::MAX as u64;
        if let Some([start, n]) = parts.iter().find(|part| !fits(part)) {
            let found = format!("{n} rows from {start} on");
            return Err(keys.bad("ple.head_vocab_sizes", found, "1 or more rows, below 2^31"));
        }
        Ok(Some(NgramConfig {
            il,
            n_embd: keys.count("embedding_length_per_layer_input", 1..=MAX_DIM)?,
            n_taps: keys.count("ple.conv_kernel", 2..=1 << 10)?,
            multipliers: array(keys, "ple.layer_multipliers", n)?,
            parts,
            end: keys.count("ple.eos_token_id", 0..=i32::MAX as u64)? as i32,
        }))
    }

    /// Tokens of the longest n-gram.
    pub fn n(&self) -> usize {
        self.multipliers.len()
    }

    /// Rows of each token.
    pub fn n_rows(&self) -> usize {
        self.parts.len()
    }

    /// The rows of a token with those before it, the nearest first; -1 where there is none.
    pub fn rows<'a>(&'a self, token: i32, before: &'a [i32]) -> impl Iterator<Item = i32> + 'a {
        let mut is_cut = false;
        let before = before.iter().map(move |&t| {
            is_cut |= t < 0 || t == self.end;
            if is_cut { self.end } else { t }
        });
        let terms = std::iter::once(token).chain(before).zip(&self.multipliers);
        let hashes = terms.map(|(t, m)| (t as i64 as u64).wrapping_mul(*m)).scan(0, |hash, term| {
            *hash ^= term;
            Some(*hash)
        });
        let each = self.parts.len() / self.multipliers.len().saturating_sub(1).max(1);
        let parts = self.parts.chunks(each.max(1));
        hashes
            .skip(1)
            .zip(parts)
            .flat_map(|(hash, parts)| parts.iter().map(move |[start, n]| (hash % n + start) as i32))
    }
}

/// An array of at least `n` numbers, cut to `n`.
fn array<'m, T>(keys: &Keys<'m>, key: &str, n: usize) -> Result<Vec<T>>
where
    Vec<T>: FromValue<'m>,
{
    let meta: &'m Metadata = keys.meta;
    let mut found: Vec<T> = meta.require(&keys.name(key))?;
    if found.len() < n {
        return Err(keys.bad(key, format!("an array of {}", found.len()), format!("{n} numbers")));
    }
    found.truncate(n);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_of_the_last_two_and_three_tokens_up_to_an_end() {
        let hash = NgramConfig {
            multipliers: vec![1, 3, 5],
            parts: vec![[0, 100], [100, 7], [200, 100], [300, 7]],
            end: 2,
            ..NgramConfig::default()
        };
        let rows = |token, before: [i32; 2]| hash.rows(token, &before).collect::<Vec<_>>();
        let of = |two: u64, three: u64| {
            [two % 100, 100 + two % 7, 200 + three % 100, 300 + three % 7].map(|row| row as i32).to_vec()
        };
        assert_eq!(rows(9, [8, 7]), of(9 ^ 24, 9 ^ 24 ^ 35));
        assert_eq!(rows(9, [8, 2]), of(9 ^ 24, 9 ^ 24 ^ 10), "an end");
        assert_eq!(rows(9, [2, 7]), of(9 ^ 6, 9 ^ 6 ^ 10), "nothing before an end");
        assert_eq!(rows(9, [-1, -1]), of(9 ^ 6, 9 ^ 6 ^ 10), "the first token");
        assert_eq!(rows(2, [8, 7]), of(2 ^ 24, 2 ^ 24 ^ 35), "an end has those before it");
    }
}
