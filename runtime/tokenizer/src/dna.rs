//! BPE with stretches of DNA: what stands between `<dna>` and `</dna>` is cut into groups of six bases, a token each.

use crate::bpe::Bpe;
use crate::error::Result;
use crate::limits::Output;
use crate::tokenizer::Index;

/// Ends a token that is a group of bases, so that it differs from a word of the same letters. It is no part of its text.
const MARK: char = '\u{E000}';
const GROUP: usize = 6;
const OPEN: &str = "<dna>";
const CLOSE: &str = "</dna>";

/// BPE, and the tokens of DNA if the vocabulary has them.
#[derive(Debug)]
pub(crate) struct Dna {
    bpe: Bpe,
    tags: Option<Tags>,
}

#[derive(Clone, Copy, Debug)]
struct Tags {
    open: u32,
    close: u32,
    /// Stands for a group that has no token.
    unknown: u32,
}

impl Dna {
    pub fn new(bpe: Bpe, index: &Index) -> Self {
        let tags = || {
            let id = |piece| index.get(piece).copied();
            Some(Tags { open: id(OPEN)?, close: id(CLOSE)?, unknown: id("<oov>")? })
        };
        Self { bpe, tags: tags() }
    }

    /// Appends the ids of `text`. DNA without end ends with the text.
    pub fn encode(&self, text: &str, index: &Index, output: &mut Output) -> Result<()> {
        let Some(tags) = self.tags else { return self.bpe.encode(text, index, output) };
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            self.bpe.encode(before, index, output)?;
            output.push(tags.open)?;
            let (bases, after) = after.split_once(CLOSE).map_or((after, None), |(b, a)| (b, Some(a)));
            encode_bases(bases, tags, index, output)?;
            let Some(after) = after else { return Ok(()) };
            output.push(tags.close)?;
            rest = after;
        }
        self.bpe.encode(rest, index, output)
    }

    /// The text of a piece that is not a control token.
    pub fn text_of_piece(&self, piece: &str, id: u32) -> Vec<u8> {
        let is_group = self.tags.is_some_and(|tags| id > tags.unknown);
        self.bpe.text_of_piece(piece.strip_suffix(MARK).filter(|_| is_group).unwrap_or(piece))
    }
}

/// Bases in either case; the last group is filled up with A.
fn encode_bases(bases: &str, tags: Tags, index: &Index, output: &mut Output) -> Result<()> {
    for group in bases.as_bytes().chunks(GROUP) {
        let mut piece = String::from_utf8_lossy(group).to_ascii_uppercase();
        piece.extend(std::iter::repeat_n('A', GROUP - group.len()));
        piece.push(MARK);
        output.push(index.get(piece.as_str()).copied().unwrap_or(tags.unknown))?;
    }
    Ok(())
}
