//! The arguments of `cargo ci tokens`, and the vocabularies that they name.

use crate::{reference, root};
use llmrt_gguf::{Gguf, Metadata};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What is compared.
pub struct Options {
    /// llama.cpp's llama-server.
    pub peer: PathBuf,
    /// Of the texts.
    pub seed: u64,
    /// Texts of each vocabulary.
    pub n_texts: usize,
    pres: Vec<String>,
    files: Vec<PathBuf>,
}

/// A vocabulary, of a file as it is, or with another pre-tokenizer.
pub struct Vocabulary {
    /// As the table names it.
    pub name: String,
    /// The file, if nothing was changed.
    pub file: Option<PathBuf>,
    /// The keys of its tokenizer.
    pub metadata: Metadata,
}

impl Options {
    /// Reads flags and their values; other words are files, or folders of files.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        let (mut peer, mut seed, mut n_texts) = (None, 1, 200);
        let (mut pres, mut files) = (Vec::new(), Vec::new());
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            if !word.starts_with("--") {
                files.push(PathBuf::from(word));
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word}: expected a value after it"))?;
            let number = || value.parse().map_err(|_| format!("{word} {value}: expected a number"));
            match word {
                "--peer" => peer = Some(PathBuf::from(value)),
                "--seed" => seed = number()?,
                "--texts" => n_texts = number()? as usize,
                "--pre" => pres = value.split(',').map(String::from).collect(),
                _ => {
                    return Err(format!(
                        "tokens {word}: expected --peer, --seed, --texts, --pre, a file or a folder"
                    ));
                }
            }
        }
        let peer = peer.ok_or("tokens: --peer LLAMA_SERVER is missing")?;
        Ok(Options { peer, seed, n_texts, pres, files })
    }

    /// Vocabularies: of the files that are named, else of the fixtures; with each of the pre-tokenizers that are named.
    pub fn vocabularies(&self) -> Result<Vec<Vocabulary>, String> {
        let mut vocabularies = Vec::new();
        for (name, file) in self.files()? {
            let metadata = metadata(&file)?;
            for pre in &self.pres {
                let mut changed = metadata.clone();
                changed.set("tokenizer.ggml.pre", pre.as_str());
                vocabularies.push(Vocabulary {
                    name: format!("{name}, {pre}"),
                    file: None,
                    metadata: changed,
                });
            }
            if self.pres.is_empty() {
                vocabularies.push(Vocabulary { name, file: Some(file), metadata });
            }
        }
        Ok(vocabularies)
    }

    fn files(&self) -> Result<BTreeMap<String, PathBuf>, String> {
        let committed = root().join("tests/fixtures/tokenizers");
        let full = root().parent().map(|parent| parent.join("shared/fixtures/tokenizers"));
        let fixtures = || full.into_iter().filter(|dir| dir.is_dir()).chain([committed]).collect();
        let places: Vec<PathBuf> = if self.files.is_empty() { fixtures() } else { self.files.clone() };
        let mut files = BTreeMap::new();
        for place in places {
            if place.is_dir() {
                let names = reference::names(&place, "gguf")?.into_iter();
                files.extend(names.map(|name| (name.clone(), place.join(format!("{name}.gguf")))));
            } else {
                let stem = place.file_stem().unwrap_or_default().to_string_lossy();
                files.insert(stem.into_owned(), place);
            }
        }
        Ok(files)
    }
}

/// The keys of a file's tokenizer, and the name of its model, by which some special tokens are found.
fn metadata(file: &Path) -> Result<Metadata, String> {
    let problem = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let bytes = std::fs::read(file).map_err(|e| problem(&e))?;
    let whole = Gguf::parse(&bytes, bytes.len() as u64).map_err(|e| problem(&e))?.metadata;
    let mut metadata = Metadata::new();
    for (key, value) in whole.iter() {
        let is_tokenizer = key.starts_with("tokenizer.") && !key.starts_with("tokenizer.chat_template");
        if is_tokenizer || key == "general.name" {
            metadata.set(key, value.clone());
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_flags_with_values_and_files() {
        let options = Options::parse(&["--peer", "p", "a.gguf", "--texts", "3", "--pre", "x,y"]).unwrap();
        assert_eq!((options.seed, options.n_texts, options.pres.len()), (1, 3, 2));
        assert_eq!(options.files, [PathBuf::from("a.gguf")]);
        assert!(Options::parse(&["--seed", "1"]).is_err());
        assert!(Options::parse(&["--peer", "p", "--other", "1"]).is_err());
        assert!(Options::parse(&["--peer", "p", "--texts", "x"]).is_err());
    }
}
