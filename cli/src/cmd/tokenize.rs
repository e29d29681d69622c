//! `llmrt tokenize` and `llmrt detokenize`: text to ids and back.

use crate::args::{Detokenize, Tokenize};
use crate::error::{Error, Result};
use crate::model::OpenModel;
use crate::{output, text, tokens};
use llmrt_engine::TokenId;
use llmrt_host::load::OpenOptions;
use llmrt_tokenizer::{EncodeOptions, Tokenizer};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Prints the ids of a text, exactly as it is given.
pub fn tokenize(args: &Tokenize) -> Result<()> {
    let tokenizer = open(args.model.as_deref(), &args.tokenizer)?;
    let text = match (args.text.as_ref().or(args.prompt.as_ref()), &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => text::of_file(path)?,
        (None, None) => text::of_stdin()?,
    };
    let options = EncodeOptions { add_special: !args.no_bos, parse_special: !args.no_parse_special };
    let ids = tokenizer.encode(&text, options)?;

    if args.json {
        let rows = ids.iter().map(|&id| Ok(json!({ "id": id, "piece": piece_json(&tokenizer, id)? })));
        return Ok(output::json(&Value::Array(rows.collect::<Result<_>>()?))?);
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if args.ids {
        let words: Vec<_> = ids.iter().map(TokenId::to_string).collect();
        writeln!(out, "{}", words.join(" "))?;
    } else {
        for &id in &ids {
            writeln!(out, "{id:>7}  {:?}", String::from_utf8_lossy(&tokenizer.token_bytes(id)?))?;
        }
    }
    Ok(out.flush()?)
}

/// Prints the text of ids; a line end follows only on a terminal.
pub fn detokenize(args: &Detokenize) -> Result<()> {
    let tokenizer = open(args.model.as_deref(), &args.tokenizer)?;
    let (given, source) = match args.ids.is_empty() {
        true => (text::of_stdin()?, "stdin"),
        false => (args.ids.join(" "), "IDS"),
    };
    let ids = tokens::parse(&given, source)?;
    tokens::check(&ids, tokenizer.n_tokens() as u64, source)?;
    let mut out = std::io::stdout().lock();
    out.write_all(tokenizer.decode(&ids, args.special)?.as_bytes())?;
    if out.is_terminal() {
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

fn open(model: Option<&Path>, tokenizer_bin: &Option<PathBuf>) -> Result<Tokenizer> {
    let options = OpenOptions { tokenizer: tokenizer_bin.clone(), ..OpenOptions::default() };
    OpenModel::open(model, &options)?.tokenizer()
}

/// The text that a token writes, or its bytes if they are no text.
fn piece_json(tokenizer: &Tokenizer, id: TokenId) -> Result<Value> {
    let bytes = tokenizer.token_bytes(id).map_err(Error::from)?;
    Ok(match std::str::from_utf8(&bytes) {
        Ok(text) => json!(text),
        Err(_) => json!(bytes),
    })
}
