//! A text's ids on both sides, and a short text of those that differ.

use super::known::{self, Known};
use crate::bench::client::post;
use crate::bench::server::{Server, free_port};
use crate::matrix::target;
use crate::templates::model;
use llmrt_gguf::Metadata;
use llmrt_tokenizer::{EncodeOptions, TokenKind, Tokenizer};
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// What two lists of ids are to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The same.
    Equal,
    /// Different for a reason of [`known::ALL`].
    Known,
    /// Different.
    Different,
}

/// Ids, or why there are none.
type Ids = Result<Vec<u32>, String>;

/// llmrt's tokenizer and a server of llama.cpp, of one vocabulary.
pub struct Sides {
    ours: Tokenizer,
    theirs: Server,
    /// What llama.cpp does otherwise on purpose, and a tokenizer that does so.
    known: Option<(Known, Tokenizer)>,
    pieces: Vec<String>,
    specials: Vec<String>,
}

impl Sides {
    /// Writes a model with this vocabulary, and starts the server with it.
    pub fn start(peer: &Path, name: &str, metadata: Metadata) -> Result<Sides, String> {
        let ours = Tokenizer::from_metadata(&metadata).map_err(|e| e.to_string())?;
        let kind = metadata.str("tokenizer.ggml.model").unwrap_or_default();
        let known = known::ALL.into_iter().find(|known| known.model == kind);
        let known = known.map(|known| {
            let mut other = metadata.clone();
            (known.vocabulary)(&mut other);
            Tokenizer::from_metadata(&other).map(|other| (known, other))
        });
        let known = known.transpose().map_err(|e| e.to_string())?;
        let out = target().join("tokens");
        std::fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
        let file = model::write(&out.join(format!("{}.gguf", name.replace(", ", "."))), metadata)?;
        let port = free_port()?;
        let mut command = Command::new(peer);
        command.args(["--port", &port.to_string(), "--no-warmup", "--no-ui", "-t", "1", "-np", "1", "-m"]);
        let theirs = Server::start(command.arg(&file), port);
        std::fs::remove_file(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let (pieces, specials) = texts(&ours);
        Ok(Sides { ours, theirs: theirs?, known, pieces, specials })
    }

    /// Texts of tokens that are no special ones.
    pub fn pieces(&self) -> &[String] {
        &self.pieces
    }

    /// Special tokens, as a text spells them.
    pub fn specials(&self) -> &[String] {
        &self.specials
    }

    /// Encodes a text on both sides; `special`: special tokens are parsed and put around it.
    pub fn compare(&self, text: &str, special: bool) -> Result<Outcome, String> {
        let (ours, theirs) = (self.ours(text, special), self.theirs(text, special)?);
        let as_known =
            |(known, other): &(Known, Tokenizer)| ids(other, &(known.text)(text), special) == theirs;
        Ok(match &self.known {
            _ if ours.is_err() => Outcome::Different,
            _ if ours == theirs => Outcome::Equal,
            Some(known) if as_known(known) => Outcome::Known,
            _ => Outcome::Different,
        })
    }

    /// The difference of a text, which is made as short as it goes.
    pub fn example(&self, text: &str, special: bool) -> Result<String, String> {
        let text = shortest(text, |text| Ok(self.compare(text, special)? == Outcome::Different))?;
        let (ours, theirs) = (self.ours(&text, special), self.theirs(&text, special)?);
        Ok(format!("  text      \"{}\"\n  llmrt     {ours:?}\n  llama.cpp {theirs:?}", text.escape_default()))
    }

    fn ours(&self, text: &str, special: bool) -> Ids {
        ids(&self.ours, text, special)
    }

    /// The outer error: the server does not answer.
    fn theirs(&self, text: &str, special: bool) -> Result<Ids, String> {
        let body = json!({ "content": text, "add_special": special, "parse_special": special });
        let failed = |e| format!("{e}; the text was \"{}\"", text.escape_default());
        let (status, answer) = post(self.theirs.address(), "/tokenize", &body).map_err(failed)?;
        let ids = answer["tokens"].as_array().filter(|_| status == "200").map(|ids| {
            ids.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect::<Option<_>>()
        });
        Ok(ids.flatten().ok_or_else(|| format!("{status}: {answer}")))
    }
}

fn ids(tokenizer: &Tokenizer, text: &str, special: bool) -> Ids {
    let options = EncodeOptions { add_special: special, parse_special: special };
    tokenizer.encode(text, options).map_err(|e| e.to_string())
}

/// What tokens write: those of plain text, and special ones.
fn texts(tokenizer: &Tokenizer) -> (Vec<String>, Vec<String>) {
    let (mut pieces, mut specials) = (Vec::new(), Vec::new());
    for id in 0..tokenizer.n_tokens() as u32 {
        match tokenizer.kind(id) {
            Some(TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined) => {
                specials.extend(tokenizer.piece(id).map(String::from));
            }
            _ => {
                let bytes = tokenizer.token_bytes(id).map(|bytes| bytes.into_owned()).unwrap_or_default();
                pieces.extend(String::from_utf8(bytes));
            }
        }
    }
    specials.retain(|text| !text.is_empty());
    (pieces, specials)
}

/// Leaves out what can be left out of a text that differs.
fn shortest(text: &str, differs: impl Fn(&str) -> Result<bool, String>) -> Result<String, String> {
    let mut chars: Vec<char> = text.chars().collect();
    let mut n = chars.len() / 2;
    while n > 0 {
        let mut at = 0;
        while at + n <= chars.len() {
            let shorter = [&chars[..at], &chars[at + n..]].concat();
            if differs(&shorter.iter().collect::<String>())? {
                chars = shorter;
            } else {
                at += n;
            }
        }
        n /= 2;
    }
    Ok(chars.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shortened_to_what_makes_the_difference() {
        let shorter = |text| shortest(text, |text| Ok(text.contains('x') && text.contains("yz")));
        assert_eq!(shorter("abxcdyzef").as_deref(), Ok("xyz"));
        assert_eq!(shorter("xyz").as_deref(), Ok("xyz"));
    }
}
