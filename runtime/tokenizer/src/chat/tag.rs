//! One tag of a template: its tokens, which brackets belong together, and where an operand ends.

use minijinja::machinery::{Span, Token};

use crate::error::{Error, Result};

/// Words and signs in one tag: each may be a level of the recursion that compiles it.
const MAX_TOKENS: usize = 800;

/// Brackets inside each other.
const MAX_BRACKETS: usize = 24;

/// What stands between `{{` or `{%` and its end.
pub(super) struct Tag<'t> {
    pub tokens: &'t [(Token<'t>, Span)],
    /// Line of the template.
    pub line: usize,
    /// For each bracket the place of its counterpart.
    pairs: Vec<usize>,
    /// For each token the brackets around it.
    pub depths: Vec<usize>,
}

impl<'t> Tag<'t> {
    pub fn new(tokens: &'t [(Token<'t>, Span)], start: Span) -> Result<Self> {
        let line = usize::from(start.start_line);
        if tokens.len() > MAX_TOKENS {
            return Err(refused(line, format!("a tag has more than {MAX_TOKENS} words and signs")));
        }
        let mut pairs = vec![0; tokens.len()];
        let mut depths = Vec::with_capacity(tokens.len());
        let mut open = Vec::new();
        for (i, (token, _)) in tokens.iter().enumerate() {
            match token {
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => open.push(i),
                Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                    if let Some(start) = open.pop() {
                        (pairs[start], pairs[i]) = (i, start);
                    }
                }
                _ => {}
            }
            depths.push(open.len());
            if open.len() > MAX_BRACKETS {
                return Err(refused(line, format!("more than {MAX_BRACKETS} brackets inside each other")));
            }
        }
        Ok(Self { tokens, line, pairs, depths })
    }

    pub fn token(&self, i: usize) -> Option<&Token<'t>> {
        self.tokens.get(i).map(|(token, _)| token)
    }

    pub fn end(&self, i: usize) -> usize {
        self.tokens[i].1.end_offset as usize
    }

    pub fn is_word(&self, i: usize, words: &[&str]) -> bool {
        matches!(self.token(i), Some(Token::Ident(word)) if words.contains(word))
    }

    /// Where the `=` of a `set` stands.
    pub fn assigned(&self) -> Option<usize> {
        if !self.is_word(0, &["set"]) {
            return None;
        }
        (1..self.tokens.len()).find(|&i| self.depths[i] == 0 && matches!(self.token(i), Some(Token::Assign)))
    }

    /// `f(*list)`.
    pub fn is_splat(&self, i: usize) -> bool {
        i == 0 || matches!(self.token(i - 1), Some(Token::ParenOpen | Token::Comma))
    }

    /// The last token of the operand that begins at `i`, filters and tests not included.
    pub fn last_of_operand(&self, mut i: usize) -> Option<usize> {
        while matches!(self.token(i), Some(Token::Minus)) {
            i += 1;
        }
        let is_text = |i: usize| matches!(self.token(i), Some(Token::Str(_) | Token::String(_)));
        while is_text(i) && is_text(i + 1) {
            i += 1;
        }
        i = self.closing(i)?;
        while self.goes_on(i + 1) {
            i = match self.token(i + 1)? {
                Token::Dot => i + 2,
                _ => self.closing(i + 1)?,
            };
        }
        (i < self.tokens.len()).then_some(i)
    }

    /// The counterpart of an opening bracket; another token is its own.
    pub fn closing(&self, i: usize) -> Option<usize> {
        match self.token(i)? {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => {
                (self.pairs[i] > i).then_some(self.pairs[i])
            }
            _ => Some(i),
        }
    }

    /// Whether an operand goes on with this token.
    pub fn goes_on(&self, i: usize) -> bool {
        matches!(self.token(i), Some(Token::Dot | Token::BracketOpen | Token::ParenOpen))
    }

    /// Whether this bracket ends `x[a:b]`.
    pub fn is_slice(&self, close: usize) -> bool {
        let open = self.pairs[close];
        let is_colon =
            |i: usize| self.depths[i] == self.depths[open] && matches!(self.token(i), Some(Token::Colon));
        matches!(self.token(open), Some(Token::BracketOpen)) && (open + 1..close).any(is_colon)
    }
}

/// A template beyond a limit.
pub(super) fn refused(line: usize, reason: String) -> Error {
    Error::Template { line, reason }
}
