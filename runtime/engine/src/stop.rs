//! Why a text ends, and stop strings over streamed text.

use crate::error::{Error, Result};
use crate::sequence::TokenId;

/// Why a sequence ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finish {
    /// The requested number of tokens was generated, or the context is full.
    Length,
    /// This stop string was generated.
    Stop(String),
    /// This stop token was generated.
    StopToken(TokenId),
    /// The model gave an end-of-text (or end-of-turn) token.
    Eos,
    /// The caller cancelled the request.
    Cancelled,
}

/// Cuts a streamed text at the first stop string. Text that could still become one is held back, so that nothing is
/// shown that has to be taken back; the result does not depend on how the text was cut into pieces.
#[derive(Clone, Debug)]
pub struct StopFilter {
    stops: Vec<String>,
    held: String,
}

/// What a piece of text leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Streamed {
    /// Text to show now: whole characters, possibly none.
    pub text: String,
    /// The stop string that came after it; nothing more is shown.
    pub stop: Option<String>,
}

impl StopFilter {
    /// Stops at any of `stops`, none of which is empty.
    pub fn new(stops: Vec<String>) -> Result<Self> {
        if stops.iter().any(String::is_empty) {
            return Err(Error::EmptyStop);
        }
        Ok(Self { stops, held: String::new() })
    }

    /// Takes the next piece and returns what may be shown. After a stop string the filter is empty again.
    pub fn push(&mut self, piece: &str) -> Streamed {
        self.held.push_str(piece);
        if let Some((at, stop)) = self.first_stop() {
            let stop = Some(stop.to_owned());
            let text = self.held[..at].to_owned();
            self.held.clear();
            return Streamed { text, stop };
        }
        let kept = self.held.split_off(self.held.len() - self.n_undecided());
        Streamed { text: std::mem::replace(&mut self.held, kept), stop: None }
    }

    /// The text still held back, to be shown when no more comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Start and text of the stop string that is complete first; of two that end together, the longer one.
    fn first_stop(&self) -> Option<(usize, &str)> {
        let found =
            self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop.as_str())));
        found.min_by_key(|&(at, stop)| (at + stop.len(), at))
    }

    /// Bytes at the end of the held text that begin a stop string.
    fn n_undecided(&self) -> usize {
        self.stops.iter().map(|stop| n_begun(&self.held, stop)).max().unwrap_or(0)
    }
}

/// Bytes of the longest end of `text` that `stop` begins with, but that is not all of it.
fn n_begun(text: &str, stop: &str) -> usize {
    let mut cuts = stop.char_indices().map(|(at, _)| at).rev(); // whole characters of `stop` are before each
    cuts.find(|&at| text.ends_with(&stop[..at])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_without_a_stop_string_passes() {
        check("END", "a tale| of two", "a tale| of two");
    }

    #[test]
    fn the_text_ends_before_the_stop_string() {
        check("END", "a tale END more", "a tale !END");
    }

    #[test]
    fn what_could_become_a_stop_string_is_held_back() {
        check("END", "a E|N|D b", "a ||!END");
        check("END", "a E|N|d b", "a ||ENd b");
    }

    #[test]
    fn held_text_is_shown_at_the_end() {
        check("END", "a EN", "a +EN");
    }

    #[test]
    fn a_second_beginning_inside_the_first_counts() {
        check("aab", "a|a|a|b", "||a|!aab");
    }

    #[test]
    fn the_stop_string_that_is_complete_first_wins() {
        check("bc abcd", "abcd", "a!bc");
        check("bc abc", "abc", "!abc");
    }

    #[test]
    fn characters_stay_whole() {
        check("é好", "caf|é|x", "caf||éx");
        check("好", "你|好|", "你|!好");
        check("好的", "é好", "é+好");
    }

    #[test]
    fn without_stop_strings_nothing_is_held_back() {
        check("", "a|b", "a|b");
    }

    #[test]
    fn an_empty_stop_string_is_refused() {
        assert_eq!(StopFilter::new(vec!["a".into(), String::new()]).unwrap_err(), Error::EmptyStop);
    }

    /// `|` between pieces; in the outcome `!` before the stop string and `+` before text shown at the end.
    fn check(stops: &str, pieces: &str, outcome: &str) {
        let mut filter = StopFilter::new(stops.split_whitespace().map(String::from).collect()).unwrap();
        let mut shown = Vec::new();
        for piece in pieces.split('|') {
            let Streamed { text, stop } = filter.push(piece);
            if let Some(stop) = stop {
                shown.push(format!("{text}!{stop}"));
                break;
            }
            shown.push(text);
        }
        let rest = filter.finish();
        let rest = if rest.is_empty() { rest } else { format!("+{rest}") };
        assert_eq!(shown.join("|") + &rest, outcome, "{pieces} with {stops:?}");
    }

    fn run(stops: &[String], pieces: impl Iterator<Item = String>) -> (String, Option<String>) {
        let mut filter = StopFilter::new(stops.to_vec()).unwrap();
        let mut shown = String::new();
        for piece in pieces {
            let Streamed { text, stop } = filter.push(&piece);
            shown += &text;
            if stop.is_some() {
                return (shown, stop);
            }
        }
        (shown + &filter.finish(), None)
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_the_result(
            stops in prop::collection::vec("[aé好]{1,4}", 0..4),
            pieces in prop::collection::vec("[aé好]{0,5}", 0..10),
        ) {
            let text = pieces.concat();
            let by_piece = run(&stops, pieces.into_iter());
            prop_assert_eq!(&by_piece, &run(&stops, text.chars().map(String::from)));
            prop_assert_eq!(&by_piece, &run(&stops, std::iter::once(text.clone())));
            match by_piece.1 {
                None => prop_assert_eq!(by_piece.0, text),
                Some(stop) => prop_assert!(text.starts_with(&(by_piece.0 + &stop))),
            }
        }
    }
}
