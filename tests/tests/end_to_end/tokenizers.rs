//! Real vocabularies: every stored text gives the stored ids, and the ids give the text back.

use std::path::{Path, PathBuf};

use llmrt_gguf::Gguf;
use llmrt_tests::fixtures::{files, fixture, fixtures, root};
use llmrt_tokenizer::{EncodeOptions, Tokenizer};

const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

/// Encodes every text of `NAME.gguf.inp` without special tokens and compares with its line in `NAME.gguf.out`.
fn check(name: &str) {
    let Some((tokenizer, cases)) = open(name) else { return };
    for (text, expected) in &cases {
        let ids = tokenizer.encode(text, EncodeOptions::default()).expect("every text can be encoded");
        assert_eq!(&ids, expected, "{name}: {text:?} in pieces {:?}", pieces(&tokenizer, &ids));
    }
}

/// The ids give back the very text.
fn check_back(name: &str) {
    let Some((tokenizer, cases)) = open(name) else { return };
    for (text, ids) in &cases {
        assert_eq!(&tokenizer.decode(ids, true).expect("every id exists"), text, "{name}");
    }
}

#[test]
fn llama_spm_gives_the_ids_of_llama_cpp_and_the_text_back() {
    check("llama-spm");
    check_back("llama-spm");
}

#[test]
fn phi_3_gives_the_ids_of_llama_cpp_and_the_text_back() {
    check("phi-3");
    check_back("phi-3");
}

#[test]
fn llama_bpe_gives_the_ids_of_llama_cpp_and_the_text_back() {
    check("llama-bpe");
    check_back("llama-bpe");
}

#[test]
fn gpt_2_gives_the_ids_of_llama_cpp_and_the_text_back() {
    check("gpt-2");
    check_back("gpt-2");
}

#[test]
fn qwen2_gives_the_ids_of_llama_cpp_and_the_text_back() {
    check("qwen2");
    check_back("qwen2");
}

#[test]
fn deepseek_coder_gives_the_ids_of_llama_cpp_and_the_text_back() {
    check("deepseek-coder");
    check_back("deepseek-coder");
}

/// The vocabularies that are committed: tiny ones of our own, with llama.cpp's ids. They cover models and kinds of BPE that
/// no published file of a small size has.
#[test]
fn tiny_vocabularies_give_the_ids_of_llama_cpp() {
    let dir = root().join("tests/fixtures/tokenizers");
    let tiny = files(&dir, ".gguf").into_iter().filter(|file| file.to_string_lossy().contains("/tiny-"));
    let mut n_checked = 0;
    for path in tiny {
        let around = EncodeOptions { add_special: true, parse_special: true };
        for (out, options) in [("out", EncodeOptions::default()), ("special.out", around)] {
            let (tokenizer, cases) = read_cases(&path, out);
            for (text, expected) in &cases {
                let ids = tokenizer.encode(text, options).expect("every text can be encoded");
                let pieces = pieces(&tokenizer, &ids);
                assert_eq!(&ids, expected, "{}, {out}: {text:?} in pieces {pieces:?}", path.display());
            }
            n_checked += cases.len();
        }
    }
    assert!(n_checked > 300, "{n_checked} texts");
}

/// As llama.cpp's ids do: its encoder was trained on texts with an end.
#[test]
fn prompts_of_t5_end_with_the_end_of_a_text() {
    for name in ["tiny-t5", "tiny-t5-keeps-spaces"] {
        let path = root().join(format!("tests/fixtures/tokenizers/{name}.gguf"));
        let (tokenizer, cases) = read_cases(&path, "special.out");
        let end = tokenizer.find("</s>");
        assert!(end.is_some() && end == tokenizer.eos(), "{name}");
        for (text, expected) in cases.iter().map(|(text, ids)| (text.as_str(), ids.last().copied())) {
            let ids = |add_special| {
                let options = EncodeOptions { add_special, parse_special: false };
                tokenizer.encode(text, options).expect("every text can be encoded")
            };
            let (plain, prompt) = (ids(false), ids(true));
            assert_eq!(
                (prompt.last().copied(), prompt.strip_suffix(&[1])),
                (end, Some(&plain[..])),
                "{name}: {text:?}"
            );
            assert_eq!(expected, end, "{name}: {text:?}");
        }
    }
}

/// WordPiece forgets case, accents and spaces: what it decodes to must mean the same ids.
#[test]
fn bert_gives_the_ids_of_llama_cpp_and_a_text_with_the_same_ids_back() {
    check("bert-bge");
    let Some((tokenizer, cases)) = open("bert-bge") else { return };
    for (text, ids) in cases.iter().filter(|(_, ids)| !ids.contains(&100)) {
        let decoded = tokenizer.decode(ids, true).expect("every id exists");
        let again = tokenizer.encode(&decoded, EncodeOptions::default()).expect("every text can be encoded");
        assert_eq!(&again, ids, "{text:?} came back as {decoded:?}");
    }
}

#[test]
fn decoding_one_id_at_a_time_gives_the_same_text() {
    for name in ["llama-spm", "llama-bpe", "qwen2"] {
        let Some((tokenizer, cases)) = open(name) else { return };
        for (text, ids) in &cases {
            let mut decoder = tokenizer.decoder(true);
            let mut streamed = String::new();
            for id in ids {
                let part = decoder.push(*id).expect("every id exists");
                assert!(
                    !part.contains(char::REPLACEMENT_CHARACTER),
                    "{name}: {text:?} gave half a character"
                );
                streamed.push_str(&part);
            }
            assert_eq!(&(streamed + &decoder.flush()), text, "{name}");
        }
    }
}

#[test]
fn what_is_put_around_a_text_follows_the_file() {
    let around = EncodeOptions { add_special: true, parse_special: false };
    for (name, first, last) in [
        ("llama-spm", Some("<s>"), None),
        ("llama-bpe", Some("<|begin_of_text|>"), None),
        ("gpt-2", None, None),
        ("qwen2", None, None),
        ("bert-bge", Some("[CLS]"), Some("[SEP]")),
    ] {
        let Some((tokenizer, _)) = open(name) else { return };
        let plain = tokenizer.encode("hello", EncodeOptions::default()).expect("a text");
        let ids = tokenizer.encode("hello", around).expect("a text");
        let first = first.map(|piece| tokenizer.find(piece).expect("a known piece"));
        let last = last.map(|piece| tokenizer.find(piece).expect("a known piece"));
        let expected: Vec<u32> = first.into_iter().chain(plain).chain(last).collect();
        assert_eq!(ids, expected, "{name}");
    }
}

/// A text and its ids.
type Case = (String, Vec<u32>);

/// The vocabulary and its cases; `None`, with a message, where the fixtures are absent.
fn open(name: &str) -> Option<(Tokenizer, Vec<Case>)> {
    Some(read_cases(&fixture(&fixtures("tokenizers")?, &format!("ggml-vocab-{name}.gguf"))?, "out"))
}

/// The vocabulary and its cases, with the ids of the file that ends in `out`.
fn read_cases(path: &Path, out: &str) -> (Tokenizer, Vec<Case>) {
    let bytes = std::fs::read(path).expect("the fixture can be read");
    let gguf = Gguf::parse(&bytes, bytes.len() as u64).expect("the fixture is a GGUF file");
    let tokenizer = Tokenizer::from_metadata(&gguf.metadata).expect("the fixture has a vocabulary");

    let texts = read(path, "inp");
    let lines = read(path, out);
    let texts: Vec<&str> = texts.strip_suffix(SEPARATOR).unwrap_or(&texts).split(SEPARATOR).collect();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(texts.len(), lines.len(), "{}: one line of ids per text", path.display());
    let ids = |line: &str| line.split_whitespace().map(|id| id.parse().expect("an id")).collect();
    (tokenizer, texts.iter().zip(lines).map(|(text, line)| (text.to_string(), ids(line))).collect())
}

fn read(gguf: &Path, suffix: &str) -> String {
    let path = PathBuf::from(format!("{}.{suffix}", gguf.display()));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn pieces<'t>(tokenizer: &'t Tokenizer, ids: &[u32]) -> Vec<&'t str> {
    ids.iter().map(|id| tokenizer.piece(*id).unwrap_or("?")).collect()
}
