//! Small models described by text: `tests/fixtures/models/NAME.txt`, whose README has the format.

use super::file::Tensors;
use crate::fixtures::{files, root};
use llmrt_abi::DType;
use llmrt_gguf::{Array, Metadata, Value};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::LazyLock;

/// The folder of the descriptions and of what llama.cpp computes of their models.
pub fn descriptions() -> PathBuf {
    root().join("tests/fixtures/models")
}

/// Writes the model that a description describes to `dir`, under the description's name; returns the file.
pub fn write(description: &Path, dir: &Path) -> PathBuf {
    let bytes = bytes(description);
    let file = dir.join(description.file_name().unwrap()).with_extension("gguf");
    std::fs::write(&file, bytes).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    file
}

/// The bytes of the model that a description describes.
pub fn bytes(description: &Path) -> Vec<u8> {
    let text =
        std::fs::read_to_string(description).unwrap_or_else(|e| panic!("{}: {e}", description.display()));
    model(&text).unwrap_or_else(|e| panic!("{}: {e}", description.display()))
}

/// Models of the descriptions, written once to a folder of this process, each with the file of llama.cpp's results: logits, or
/// the embeddings of each token.
pub fn with_results() -> &'static [(PathBuf, PathBuf)] {
    static MODELS: LazyLock<(tempfile::TempDir, Vec<(PathBuf, PathBuf)>)> =
        LazyLock::new(|| written_with(&["logits.f32", "embeddings.f32"]));
    &MODELS.1
}

/// The same of those that rank, each with the scores of one text.
pub fn with_scores() -> &'static [(PathBuf, PathBuf)] {
    static MODELS: LazyLock<(tempfile::TempDir, Vec<(PathBuf, PathBuf)>)> =
        LazyLock::new(|| written_with(&["scores.f32"]));
    &MODELS.1
}

/// A folder with the models that have results of these kinds.
fn written_with(kinds: &[&str]) -> (tempfile::TempDir, Vec<(PathBuf, PathBuf)>) {
    let dir = tempfile::tempdir().unwrap();
    let models = files(&descriptions(), ".txt").into_iter().filter_map(|description| {
        let mut results = kinds.iter().map(|kind| description.with_extension(kind));
        let results = results.find(|file| file.exists())?;
        Some((write(&description, dir.path()), results))
    });
    let models = models.collect();
    (dir, models)
}

/// The file's bytes.
fn model(text: &str) -> Result<Vec<u8>, String> {
    let mut metadata = Metadata::default();
    let mut tensors = Tensors::new();
    for (i, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let read = match words[..] {
            [] => Ok(()),
            [first, ..] if first.starts_with('#') => Ok(()),
            ["results", "logits" | "flash" | "embeddings" | "scores" | "none"] | ["results", "drafts", _] => {
                Ok(())
            }
            ["tensor", name, ref rest @ ..] => add(&mut tensors, name, rest),
            [key, kind, ref values @ ..] => value(kind, values).map(|value| metadata.set(key, value)),
            _ => Err("expected a key, its type and its value".into()),
        };
        read.map_err(|e| format!("line {}: {e}", i + 1))?;
    }
    if metadata.get("tokenizer.ggml.model").is_none() {
        metadata.set("tokenizer.ggml.model", "no_vocab");
    }
    Ok(tensors.file(metadata))
}

/// Adds the tensors that a line stands for: name, dims and, after a colon, mean and spread of their numbers.
fn add(tensors: &mut Tensors, name: &str, rest: &[&str]) -> Result<(), String> {
    let (dims, numbers) = match rest.iter().position(|word| *word == ":") {
        Some(colon) => (&rest[..colon], &rest[colon + 1..]),
        None => (rest, &[][..]),
    };
    let dims = parsed::<u64>(dims)?;
    let (mean, spread) = match (&parsed::<f32>(numbers)?[..], &dims[..]) {
        (&[mean, spread], _) => (mean, spread),
        ([], [n_in, _, ..]) => (0.0, 1.0 / (*n_in as f32).sqrt()),
        ([], _) => return Err(format!("{name}: expected ': MEAN SPREAD' for one dim")),
        _ => return Err(format!("{name}: expected ': MEAN SPREAD'")),
    };
    for name in names(name)? {
        tensors.add(name, DType::F32, &dims, spread, mean);
    }
    Ok(())
}

/// `blk.{0,1}.x` is `blk.0.x` and `blk.1.x`, `blk.{0,1}.{x,y}` four names.
fn names(name: &str) -> Result<Vec<String>, String> {
    let Some((head, rest)) = name.split_once('{') else { return Ok(vec![name.into()]) };
    let (list, tail) = rest.split_once('}').ok_or_else(|| format!("{name}: '{{' without '}}'"))?;
    let tails = names(tail)?;
    Ok(list.split(',').flat_map(|i| tails.iter().map(move |tail| format!("{head}{i}{tail}"))).collect())
}

fn value(kind: &str, values: &[&str]) -> Result<Value, String> {
    let array = match kind {
        "[str]" | "str" => Array::String(parsed(values)?),
        "[u32]" | "u32" => Array::U32(parsed(values)?),
        "[u64]" | "u64" => Array::U64(parsed(values)?),
        "[i32]" | "i32" => Array::I32(parsed(values)?),
        "[f32]" | "f32" => Array::F32(parsed(values)?),
        "[bool]" | "bool" => Array::Bool(parsed(values)?),
        _ => return Err(format!("no type '{kind}'")),
    };
    if kind.starts_with('[') {
        return Ok(Value::Array(array));
    }
    let one = match array {
        Array::String(x) if x.len() == 1 => Value::String(x[0].clone()),
        Array::U32(x) if x.len() == 1 => Value::U32(x[0]),
        Array::U64(x) if x.len() == 1 => Value::U64(x[0]),
        Array::I32(x) if x.len() == 1 => Value::I32(x[0]),
        Array::F32(x) if x.len() == 1 => Value::F32(x[0]),
        Array::Bool(x) if x.len() == 1 => Value::Bool(x[0]),
        _ => return Err(format!("expected one value of type '{kind}'")),
    };
    Ok(one)
}

fn parsed<T: FromStr>(words: &[&str]) -> Result<Vec<T>, String> {
    words
        .iter()
        .map(|word| word.parse().map_err(|_| format!("'{word}' is not a value of its type")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::model;
    use llmrt_gguf::Gguf;

    #[test]
    fn a_text_is_a_file() {
        let text = "# two layers\ngeneral.architecture str llama\nllama.heads [u32] 4 2\n\
                    tensor blk.{0,1}.{v,w} 8 4\ntensor blk.0.norm 8 : 1 0.1\n";
        let bytes = model(text).unwrap();
        let gguf = Gguf::parse(&bytes, bytes.len() as u64).unwrap();
        assert_eq!(gguf.metadata.require::<&str>("general.architecture").unwrap(), "llama");
        assert_eq!(gguf.metadata.require::<&str>("tokenizer.ggml.model").unwrap(), "no_vocab");
        let names: Vec<_> = gguf.tensors.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["blk.0.v", "blk.0.w", "blk.1.v", "blk.1.w", "blk.0.norm"]);
        assert_eq!(bytes, model(text).unwrap(), "the same numbers each time");
    }

    #[test]
    fn a_line_of_no_item_is_named() {
        for (text, error) in [
            ("x\n", "line 1: expected a key"),
            ("\nx u32 a\n", "line 2: 'a' is not a value"),
            ("x u32 1 2\n", "line 1: expected one value"),
            ("x u9 1\n", "line 1: no type 'u9'"),
            ("tensor x 8\n", "line 1: x: expected ': MEAN SPREAD'"),
            ("tensor x{0 8 8\n", "line 1: x{0: '{' without '}'"),
        ] {
            let found = model(text).unwrap_err();
            assert!(found.starts_with(error), "{text:?}: {found}");
        }
    }
}
