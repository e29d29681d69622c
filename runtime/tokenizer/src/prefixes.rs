//! The tokens that a text starts with, found by a search through the sorted tokens that narrows byte by byte.

/// Its bytes and its id.
type Piece = (Box<[u8]>, u32);

/// Pieces with their ids, sorted. As small as the pieces themselves, whatever they are.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    pieces: Vec<Piece>,
    /// `pieces[by_first[b]..by_first[b + 1]]` start with the byte b.
    by_first: Vec<u32>,
}

impl Prefixes {
    /// Of two equal pieces the last one counts. Empty pieces start no text.
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let mut pieces: Vec<_> = pieces.into_iter().filter(|(piece, _)| !piece.is_empty()).collect();
        pieces.reverse();
        pieces.sort_by(|a, b| a.0.cmp(&b.0)); // stable: the last one is now the first of its equals
        pieces.dedup_by(|later, first| later.0 == first.0);
        let start = |byte: u16| pieces.partition_point(|(piece, _)| u16::from(piece[0]) < byte) as u32;
        let by_first = (0..=256).map(start).collect();
        Self { pieces, by_first }
    }

    /// Length and id of each piece that `text` starts with, the shortest first.
    pub fn of<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (usize, u32)> + 'a {
        self.narrowed(text).filter_map(|(len, range)| {
            let (piece, id) = range.first()?;
            (piece.len() == len).then_some((len, *id))
        })
    }

    /// How many bytes of `text` are the beginning of some piece.
    pub fn n_shared(&self, text: &[u8]) -> usize {
        self.narrowed(text).last().map_or(0, |(len, _)| len)
    }

    /// For each length from 1 on, the pieces that share so many first bytes with `text`, as long as there are any.
    fn narrowed<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (usize, &'a [Piece])> + 'a {
        let mut range: &[Piece] = &self.pieces;
        (0..).zip(text).map_while(move |(at, byte)| {
            range = match at {
                0 => self.starting_with(*byte),
                _ => narrow(range, at, *byte),
            };
            (!range.is_empty()).then_some((at + 1, range))
        })
    }

    fn starting_with(&self, byte: u8) -> &[Piece] {
        let bound = |i: usize| self.by_first.get(i).map_or(0, |place| *place as usize);
        &self.pieces[bound(usize::from(byte))..bound(usize::from(byte) + 1)]
    }
}

/// The pieces of `range`, which share their first `at` bytes, with `byte` at `at`.
fn narrow(range: &[Piece], at: usize, byte: u8) -> &[Piece] {
    let next = |piece: &[u8]| piece.get(at).copied();
    let start = range.partition_point(|(piece, _)| next(piece) < Some(byte));
    let range = &range[start..];
    &range[..range.partition_point(|(piece, _)| next(piece) == Some(byte))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefixes(pieces: &[&str]) -> Prefixes {
        let boxed = |piece: &&str| piece.as_bytes().into();
        Prefixes::new(pieces.iter().map(boxed).zip(0..))
    }

    #[test]
    fn all_pieces_that_start_a_text_are_found_the_shortest_first() {
        let found = prefixes(&["ab", "a", "abcd", "b", "", "abd"]);
        assert_eq!(found.of(b"abcde").collect::<Vec<_>>(), [(1, 1), (2, 0), (4, 2)]);
        assert_eq!(found.of(b"c").count() + found.of(b"").count() + Prefixes::default().of(b"a").count(), 0);
    }

    #[test]
    fn the_last_of_equal_pieces_counts() {
        assert_eq!(prefixes(&["a", "a"]).of(b"a").collect::<Vec<_>>(), [(1, 1)]);
    }

    #[test]
    fn beginnings_of_pieces_count_too() {
        let found = prefixes(&["<mask>", "b"]);
        assert_eq!([found.n_shared(b"<max"), found.n_shared(b"<mask>x"), found.n_shared(b"x")], [3, 6, 0]);
    }

    proptest! {
        #[test]
        fn narrowing_finds_what_trying_every_piece_finds(
            pieces in proptest::collection::btree_set("[abé]{1,4}", 0..12),
            text in "[abé]{0,8}",
        ) {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let tried = pieces.iter().zip(0..).filter(|(piece, _)| text.starts_with(**piece));
            let mut tried: Vec<(usize, u32)> = tried.map(|(piece, id)| (piece.len(), id)).collect();
            tried.sort_unstable();
            prop_assert_eq!(prefixes(&pieces).of(text.as_bytes()).collect::<Vec<_>>(), tried);
        }
    }
}
