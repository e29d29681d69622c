//! tokenizer.bin: the longest token's length, then for every token its score, length and bytes.

use crate::error::Error;
use crate::reader::Reader;

/// The vocabulary beside a llama2.c checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct TokenizerBin {
    /// Bytes of the longest token.
    pub max_token_length: u32,
    /// Merge score and bytes, by token id.
    pub tokens: Vec<(f32, Vec<u8>)>,
}

impl TokenizerBin {
    /// Reads a whole file; the number of tokens is what it holds.
    pub fn parse(bytes: &[u8]) -> Result<TokenizerBin, Error> {
        let mut r = Reader::new(bytes, bytes.len() as u64);
        let max = r.i32(format_args!("max_token_length"))?;
        let Some(max_token_length) = u32::try_from(max).ok().filter(|&n| n > 0) else {
            return Err(Error::BadTokenizer(format!(
                "max_token_length is {max}: expected a positive number"
            )));
        };

        let mut tokens = Vec::new();
        while r.pos() < bytes.len() as u64 {
            tokens.push(token(&mut r, tokens.len(), max_token_length)?);
        }
        Ok(TokenizerBin { max_token_length, tokens })
    }
}

fn token(r: &mut Reader<'_>, id: usize, max: u32) -> Result<(f32, Vec<u8>), Error> {
    let score = r.f32(format_args!("score of token {id}"))?;
    if score.is_nan() {
        return Err(Error::BadTokenizer(format!("the score of token {id} is not a number")));
    }
    let n = r.i32(format_args!("length of token {id}"))?;
    let Some(n) = u32::try_from(n).ok().filter(|&n| n <= max) else {
        return Err(Error::BadTokenizer(format!("token {id} has length {n}: expected 0 to {max}")));
    };
    Ok((score, r.take(n.into(), format_args!("token {id}"))?.to_vec()))
}
