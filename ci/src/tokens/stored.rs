//! Ids that llama.cpp stores beside its vocabularies: `NAME.gguf.inp` has texts, `NAME.gguf.out` a line of ids for each.

use llmrt_gguf::Metadata;
use llmrt_tokenizer::{EncodeOptions, Tokenizer};
use std::path::Path;

/// Between two texts.
const BETWEEN: &str = "\n__ggml_vocab_test__\n";

/// How many of the texts beside a vocabulary have the stored ids, and of how many; none without such files.
pub fn equal(file: &Path, metadata: &Metadata) -> Result<Option<[usize; 2]>, String> {
    let beside = |end: &str| file.with_extension(format!("gguf.{end}"));
    let [texts, ids] = [beside("inp"), beside("out")];
    if !texts.exists() || !ids.exists() {
        return Ok(None);
    }
    let read = |file: &Path| std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()));
    let tokenizer = Tokenizer::from_metadata(metadata).map_err(|e| e.to_string())?;
    count(&read(&texts)?, &read(&ids)?, |text| {
        let options = EncodeOptions { add_special: false, parse_special: false };
        tokenizer.encode(text, options).map_err(|e| e.to_string())
    })
    .map(Some)
}

fn count(
    texts: &str,
    ids: &str,
    encode: impl Fn(&str) -> Result<Vec<u32>, String>,
) -> Result<[usize; 2], String> {
    let (texts, ids): (Vec<_>, Vec<_>) = (texts.split(BETWEEN).collect(), ids.lines().collect());
    // The file of texts ends with what is between two.
    let n = ids.len();
    if ![n, n + 1].contains(&texts.len()) {
        return Err(format!("{} texts and {n} lines of ids", texts.len()));
    }
    let mut n_equal = 0;
    for (text, ids) in texts.iter().zip(&ids) {
        let expected: Result<Vec<u32>, _> = ids.split_whitespace().map(str::parse).collect();
        let expected = expected.map_err(|e| format!("{ids}: {e}"))?;
        n_equal += usize::from(encode(text)? == expected);
    }
    Ok([n_equal, n])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_lines_of_ids_are_compared_one_by_one() {
        let encode = |text: &str| Ok(text.bytes().map(u32::from).collect());
        let texts = format!("ab{BETWEEN}{BETWEEN}\n{BETWEEN}");
        assert_eq!(count(&texts, " 97 98\n\n 11\n", encode), Ok([2, 3]));
        assert!(count(&texts, " 97\n", encode).is_err_and(|e| e.contains("4 texts and 1 lines")));
    }
}
