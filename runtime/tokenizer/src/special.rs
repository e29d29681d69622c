//! Finds special tokens in a text, so that they are not cut up like the text around them.

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};

use crate::error::{Error, Result};
use crate::limits::Output;
use crate::vocab::{TokenKind, Vocab};

/// A part of a text.
#[derive(PartialEq, Debug)]
pub(crate) enum Part<'t> {
    /// Ordinary text, not empty.
    Text(&'t str),
    /// A special token that stood in the text.
    Token(u32),
}

/// Which special tokens count in a text.
#[derive(Clone, Copy)]
pub(crate) struct Parse<'t> {
    /// Control tokens as well as user-defined ones, which always count.
    pub control: bool,
    /// Where no control token may start: byte positions, ascending.
    pub literal: &'t [usize],
}

/// The special tokens of a vocabulary.
#[derive(Debug, Default)]
pub(crate) struct Specials {
    /// Control, unknown and user-defined tokens.
    all: Option<Searcher>,
    /// User-defined tokens.
    user_defined: Option<Searcher>,
    /// The characters that control and unknown tokens start with.
    control_starts: Vec<char>,
}

/// An Aho-Corasick automaton over the texts of `tokens`. Linear in the text but for what is beyond the end of a
/// match, which is shorter than the longest token.
#[derive(Debug)]
struct Searcher {
    automaton: AhoCorasick,
    tokens: Vec<Special>,
}

#[derive(Clone, Copy, Debug)]
struct Special {
    id: u32,
    is_user_defined: bool,
    strips_left: bool,
    strips_right: bool,
}

/// The most bytes of special tokens: an automaton of this size takes about 0.2 GB while it is built.
const MAX_BYTES: usize = 4 << 20;

impl Specials {
    /// Control, user-defined and unknown tokens of `vocab`.
    pub fn new(vocab: &Vocab, kinds: &[TokenKind]) -> Result<Self> {
        let strips = Strips::of(vocab);
        let mut tokens = Vec::new();
        for (id, (text, kind)) in (0..).zip(vocab.tokens.iter().zip(kinds)) {
            let is_user_defined = match kind {
                TokenKind::UserDefined => true,
                TokenKind::Control | TokenKind::Unknown => false,
                _ => continue,
            };
            if !text.is_empty() {
                let (strips_left, strips_right) = (strips.left(text), strips.right(text));
                tokens.push((text.as_str(), Special { id, is_user_defined, strips_left, strips_right }));
            }
        }
        let found = tokens.iter().map(|(text, _)| text.len()).sum();
        if found > MAX_BYTES {
            return Err(Error::TooManySpecials { found, most: MAX_BYTES });
        }
        let control = tokens.iter().filter(|(_, special)| !special.is_user_defined);
        let mut control_starts: Vec<char> = control.filter_map(|(text, _)| text.chars().next()).collect();
        control_starts.sort_unstable();
        control_starts.dedup();
        let all = Searcher::new(&tokens)?;
        tokens.retain(|(_, special)| special.is_user_defined);
        Ok(Self { all, user_defined: Searcher::new(&tokens)?, control_starts })
    }

    /// Cuts `text` at its special tokens, from the left, the longest first.
    pub fn split<'s, 't>(&'s self, text: &'t str, parse: Parse<'t>) -> Parts<'s, 't> {
        Parts { specials: self, text, parse, done: 0, at: 0, token: None }
    }

    /// The characters that control and unknown tokens start with, sorted.
    pub fn control_starts(&self) -> &[char] {
        &self.control_starts
    }

    /// The byte positions in `text` where a control or unknown token starts, overlapping ones included.
    pub fn control_positions(&self, text: &str) -> Vec<usize> {
        let Some(all) = &self.all else { return Vec::new() };
        let is_control = |at: usize| {
            let input = Input::new(&text[at..]).anchored(Anchored::Yes);
            all.find(input).is_some_and(|(_, special)| !special.is_user_defined)
        };
        let starts = text.char_indices().filter(|(_, c)| self.control_starts.binary_search(c).is_ok());
        starts.map(|(at, _)| at).filter(|&at| is_control(at)).collect()
    }
}

impl Searcher {
    fn new(tokens: &[(&str, Special)]) -> Result<Option<Self>> {
        if tokens.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .start_kind(StartKind::Both)
            .build(tokens.iter().map(|(text, _)| text))
            .map_err(|e| Error::SpecialTokens { reason: e.to_string() })?;
        Ok(Some(Self { automaton, tokens: tokens.iter().map(|(_, special)| *special).collect() }))
    }

    /// The first match and its token.
    fn find(&self, input: Input) -> Option<(std::ops::Range<usize>, Special)> {
        let found = self.automaton.find(input)?;
        Some((found.range(), self.tokens[found.pattern()]))
    }
}

/// A text on its way to [`Part`]s.
pub(crate) struct Parts<'s, 't> {
    specials: &'s Specials,
    text: &'t str,
    parse: Parse<'t>,
    /// All before this was given out.
    done: usize,
    /// All before this was searched.
    at: usize,
    /// Follows the text before it.
    token: Option<u32>,
}

impl<'t> Parts<'_, 't> {
    /// The next part; `None` at the end.
    pub fn next(&mut self, output: &mut Output) -> Result<Option<Part<'t>>> {
        if let Some(id) = self.token.take() {
            return Ok(Some(Part::Token(id)));
        }
        let Some((place, special)) = self.find(output)? else {
            let rest = &self.text[self.done..];
            self.done = self.text.len();
            return Ok((!rest.is_empty()).then_some(Part::Text(rest)));
        };
        let before = &self.text[self.done..place.start];
        let before = if special.strips_left { before.trim_end_matches(is_c_space) } else { before };
        let after = &self.text[place.end..];
        let after = if special.strips_right { after.trim_start_matches(is_c_space) } else { after };
        self.at = self.text.len() - after.len();
        self.done = self.at;
        if before.is_empty() {
            return Ok(Some(Part::Token(special.id)));
        }
        self.token = Some(special.id);
        Ok(Some(Part::Text(before)))
    }

    /// The next special token that counts.
    fn find(&mut self, output: &mut Output) -> Result<Option<(std::ops::Range<usize>, Special)>> {
        let Specials { all, user_defined, .. } = self.specials;
        let searcher = if self.parse.control { all } else { user_defined };
        let Some(searcher) = searcher else { return Ok(None) };
        loop {
            output.step()?;
            let found = searcher.find(Input::new(self.text).range(self.at..));
            let Some((place, special)) = found else { return Ok(None) };
            let is_literal = self.parse.literal.binary_search(&place.start).is_ok();
            if special.is_user_defined || !is_literal {
                return Ok(Some((place, special)));
            }
            let here = Input::new(self.text).range(place.start..).anchored(Anchored::Yes);
            if let Some(found) = user_defined.as_ref().and_then(|searcher| searcher.find(here)) {
                return Ok(Some(found));
            }
            self.at = place.start + self.text[place.start..].chars().next().map_or(1, char::len_utf8);
        }
    }
}

/// What C calls a space.
fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// Families whose special tokens strip the spaces beside them. Files have no key for it; their names show it.
enum Strips {
    None,
    /// Phi-3: all but three strip what follows.
    Phi3,
    /// These strip what comes before.
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
    use crate::limits::Limits;
    use crate::vocab::ModelKind;
    use proptest::prelude::*;

    /// The parts of a text, joined by spaces.
    fn split(vocab: &Vocab, kinds: &[TokenKind], text: &str, parse: Parse) -> String {
        let specials = Specials::new(vocab, kinds).expect("few tokens");
        let mut parts = specials.split(text, parse);
        let mut output = Output::new(Limits::NONE);
        let mut shown = Vec::new();
        while let Some(part) = parts.next(&mut output).expect("no limit") {
            shown.push(match part {
                Part::Text(text) => format!("{text:?}"),
                Part::Token(id) => id.to_string(),
            });
        }
        shown.join(" ")
    }

    fn check(name: &str, text: &str, control: bool, expected: &str) {
        let tokens = ["<s>", "<|a|>", "<|a|><|b|>", "[MASK]", "  "].map(String::from).to_vec();
        let kinds = [TokenKind::Control, TokenKind::Control, TokenKind::Control, TokenKind::Control];
        let kinds = [&kinds[..], &[TokenKind::UserDefined]].concat();
        let vocab = Vocab { name: name.to_string(), ..Vocab::new(ModelKind::Spm, tokens) };
        assert_eq!(split(&vocab, &kinds, text, Parse { control, literal: &[] }), expected);
    }

    #[test]
    fn control_tokens_are_found_only_with_parse_special() {
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
    fn phi3_strips_the_space_after_its_specials() {
        check("Phi-3-mini", "<|a|> \n x<s> y", true, r#"1 "x" 0 " y""#);
        check("other", "<|a|> x", true, r#"1 " x""#);
    }

    #[test]
    fn a_mask_strips_the_space_before_it() {
        check("modern-bert-base", "x [MASK] y", true, r#""x" 3 " y""#);
    }

    #[test]
    fn no_control_token_starts_where_the_text_is_literal() {
        let tokens = ["<s>", "<s>!", "<"].map(String::from).to_vec();
        let kinds = [TokenKind::Control, TokenKind::Control, TokenKind::UserDefined];
        let vocab = Vocab::new(ModelKind::Spm, tokens);
        let check = |literal: &[usize], expected: &str| {
            assert_eq!(split(&vocab, &kinds, "a<s>!b<s>", Parse { control: true, literal }), expected);
        };
        check(&[], r#""a" 1 "b" 0"#);
        check(&[1], r#""a" 2 "s>!b" 0"#);
        check(&[1, 6], r#""a" 2 "s>!b" 2 "s>""#);
        check(&[0, 2, 3], r#""a" 1 "b" 0"#);
    }

    /// The same by trying every token at every position.
    fn naive(tokens: &[String], kinds: &[TokenKind], text: &str, parse: Parse) -> String {
        let mut shown = Vec::new();
        let (mut done, mut at) = (0, 0);
        while at < text.len() {
            let counts = |id: usize| {
                kinds[id] == TokenKind::UserDefined || (parse.control && !parse.literal.contains(&at))
            };
            let fits = |id: &usize| counts(*id) && text.as_bytes()[at..].starts_with(tokens[*id].as_bytes());
            let Some(id) = (0..tokens.len()).filter(fits).max_by_key(|id| tokens[*id].len()) else {
                at += 1;
                continue;
            };
            if done < at {
                shown.push(format!("{:?}", &text[done..at]));
            }
            shown.push(id.to_string());
            at += tokens[id].len();
            done = at;
        }
        if done < text.len() {
            shown.push(format!("{:?}", &text[done..]));
        }
        shown.join(" ")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_automaton_finds_what_a_naive_search_finds(
            tokens in proptest::collection::btree_set("[abé<]{1,4}", 1..8),
            user_defined in proptest::collection::vec(any::<bool>(), 8),
            text in "[abé<]{0,24}",
            literal in proptest::collection::btree_set(0_usize..32, 0..8),
            control in any::<bool>(),
        ) {
            let tokens: Vec<String> = tokens.into_iter().collect();
            let kind = |is: &bool| if *is { TokenKind::UserDefined } else { TokenKind::Control };
            let kinds: Vec<_> = user_defined[..tokens.len()].iter().map(kind).collect();
            let literal: Vec<usize> = literal.into_iter().collect();
            let parse = Parse { control, literal: &literal };
            let vocab = Vocab::new(ModelKind::Spm, tokens.clone());
            prop_assert_eq!(split(&vocab, &kinds, &text, parse), naive(&tokens, &kinds, &text, parse));
        }
    }

    #[test]
    fn more_special_tokens_than_any_vocabulary_has_are_refused() {
        let tokens: Vec<String> = (0..3000).map(|i| format!("{i:02000}")).collect();
        let kinds = vec![TokenKind::UserDefined; tokens.len()];
        let found =
            Specials::new(&Vocab::new(ModelKind::Spm, tokens), &kinds).expect_err("6 MB of special tokens");
        assert_eq!(found, Error::TooManySpecials { found: 6_000_000, most: MAX_BYTES });
    }
}
