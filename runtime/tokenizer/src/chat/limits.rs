//! What a template's source may be, and the charges that are written into it before it is compiled.
//!
//! The engine parses and compiles by recursion, so a tag of a hundred thousand signs overflows its stack; and it has no
//! limit on the texts that operators make. Here the tokens are counted, and the operands of `~`, `+` and `*`, what
//! `set` stores and what a slice copies each get a filter after them that charges it to the rendering.

use std::collections::BTreeSet;

use minijinja::machinery::{Span, Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::lists;
use super::tag::{Tag, refused};
use super::to_error;
use crate::error::{Error, Result};

/// Longest template, in bytes.
const LONGEST_SOURCE: usize = 512 << 10;

/// Statements inside each other; each `elif` counts as one.
const MAX_STATEMENTS: usize = 64;

/// Filters that charge: an operand of `~` or `+`, one of `*`, what `set` stores in a name or in a namespace, a slice.
pub(super) const JOINED: &str = "_joined";
pub(super) const REPEATED: &str = "_repeated";
pub(super) const STORED: &str = "_stored";
pub(super) const STORED_INSIDE: &str = "_stored_inside";
pub(super) const SLICED: &str = "_sliced";

/// A template that can be compiled.
pub(super) struct Guarded {
    /// With charges.
    pub source: String,
    /// Bytes of its longest text outside tags.
    pub longest_text: usize,
    /// Whether it calls a method that changes a list.
    pub changes_lists: bool,
}

/// The template with charges; an error that names the limit if it is beyond one.
pub(super) fn guarded(source: &str, syntax: SyntaxConfig) -> Result<Guarded> {
    if source.len() > LONGEST_SOURCE {
        let reason = format!("the template is {} bytes long, at most {LONGEST_SOURCE} can be", source.len());
        return Err(Error::Template { line: 1, reason });
    }
    let tokens =
        tokenize(source, false, syntax).collect::<std::result::Result<Vec<_>, _>>().map_err(to_error)?;
    let mut charges = BTreeSet::new();
    let (mut longest_text, mut changes_lists) = (0, false);
    let mut n_open = 0; // statements
    let mut elifs = Vec::new(); // in each of them
    let mut rest = tokens.as_slice();
    while let [(token, span), ..] = rest {
        let n_taken = match token {
            Token::TemplateData(text) => {
                longest_text = longest_text.max(text.len());
                1
            }
            Token::VariableStart | Token::BlockStart => {
                let is_end = |t: &(Token, Span)| matches!(t.0, Token::VariableEnd | Token::BlockEnd);
                let n = rest.iter().position(is_end).unwrap_or(rest.len());
                let tag = Tag::new(&rest[1..n.max(1)], *span)?;
                tag.charge(&mut charges)?;
                changes_lists |= tag.changes_list();
                if matches!(token, Token::BlockStart) {
                    tag.count_statement(&mut n_open, &mut elifs)?;
                }
                n.max(1)
            }
            _ => 1,
        };
        rest = &rest[n_taken..];
    }
    Ok(Guarded { source: with_charges(source, charges), longest_text, changes_lists })
}

/// Where a charge stands: what an operand needs comes before what closes the tag.
type Charge = (usize, Kind, &'static str);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// After an operand.
    Operand,
    /// Before what is stored.
    Open,
    /// After what is stored.
    Close,
}

fn with_charges(source: &str, charges: BTreeSet<Charge>) -> String {
    let mut text = String::with_capacity(source.len() + 16 * charges.len());
    let mut done = 0;
    for (at, kind, filter) in charges {
        text.push_str(&source[done..at]);
        text.push_str(match kind {
            Kind::Operand => "|",
            Kind::Open => " (",
            Kind::Close => ")|",
        });
        text.push_str(filter);
        done = at;
    }
    text + &source[done..]
}

impl Tag<'_> {
    /// Whether it calls a method that changes a list.
    fn changes_list(&self) -> bool {
        let is_call = |i: usize| {
            matches!(self.token(i - 1), Some(Token::Dot))
                && self.is_word(i, &lists::METHODS)
                && matches!(self.token(i + 1), Some(Token::ParenOpen))
        };
        (1..self.tokens.len()).any(is_call)
    }

    /// Counts what it opens or closes.
    fn count_statement(&self, n_open: &mut usize, elifs: &mut Vec<usize>) -> Result<()> {
        const BLOCKS: [&str; 8] = ["if", "for", "with", "macro", "call", "filter", "autoescape", "set"];
        let Some(Token::Ident(word)) = self.token(0) else { return Ok(()) };
        match *word {
            "include" | "import" | "from" | "extends" | "block" => {
                return Err(refused(self.line, format!("{word}: a chat template stands alone")));
            }
            "set" if self.assigned().is_some() => {}
            word if BLOCKS.contains(&word) => {
                *n_open += 1;
                elifs.push(0);
            }
            "elif" => {
                *n_open += 1;
                elifs.last_mut().into_iter().for_each(|n| *n += 1);
            }
            word if word.starts_with("end") => *n_open -= elifs.pop().map_or(0, |n| n + 1),
            _ => {}
        }
        if *n_open > MAX_STATEMENTS {
            return Err(refused(
                self.line,
                format!("more than {MAX_STATEMENTS} statements inside each other"),
            ));
        }
        Ok(())
    }

    fn charge(&self, charges: &mut BTreeSet<Charge>) -> Result<()> {
        for i in 0..self.tokens.len() {
            match self.token(i) {
                Some(Token::Plus | Token::Tilde) => self.charge_operands(i, JOINED, charges),
                Some(Token::Mul) if !self.is_splat(i) => {
                    self.check_product(i)?;
                    self.charge_operands(i, REPEATED, charges);
                }
                Some(Token::BracketClose) if self.is_slice(i) && !self.goes_on(i + 1) => {
                    charges.insert((self.end(i), Kind::Operand, SLICED));
                }
                _ => {}
            }
        }
        if let Some(at) = self.assigned().filter(|at| at + 1 < self.tokens.len()) {
            let is_dotted = (1..at).any(|i| matches!(self.token(i), Some(Token::Dot)));
            let filter = if is_dotted { STORED_INSIDE } else { STORED };
            charges.insert((self.end(at), Kind::Open, ""));
            charges.insert((self.end(self.tokens.len() - 1), Kind::Close, filter));
        }
        Ok(())
    }

    /// The factors are charged, not the product, so that there must be two of them and nothing else.
    fn check_product(&self, at: usize) -> Result<()> {
        let is_other = |i: usize| match self.token(i) {
            Some(Token::Mul) => i != at && !self.is_splat(i),
            Some(Token::Pow) => !self.is_splat(i),
            Some(Token::Div | Token::FloorDiv | Token::Mod) => true,
            _ => false,
        };
        match (0..self.tokens.len()).any(is_other) {
            true => Err(refused(
                self.line,
                "a tag with `*` cannot have another `*`, `**`, `/`, `//` or `%`".into(),
            )),
            false => Ok(()),
        }
    }

    fn charge_operands(&self, operator: usize, filter: &'static str, charges: &mut BTreeSet<Charge>) {
        if operator > 0 {
            charges.insert((self.end(operator - 1), Kind::Operand, filter));
        }
        if let Some(last) = self.last_of_operand(operator + 1) {
            charges.insert((self.end(last), Kind::Operand, filter));
        }
    }
}
