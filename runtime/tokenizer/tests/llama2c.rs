//! llama2.c's tokenizer: the merges of its plain loop, its byte fallback, its printing.

use llmrt_tokenizer::{EncodeOptions, Tokenizer};
use proptest::prelude::*;

/// `expected` are the pieces of `text`, joined by `,`.
fn check(text: &str, expected: &str) {
    let ids = tokenizer().encode(text, EncodeOptions::default()).expect("every byte has a token");
    let pieces: Vec<String> =
        ids.iter().map(|id| String::from_utf8_lossy(&pieces()[*id as usize].1).into_owned()).collect();
    assert_eq!(pieces.join(","), expected);
}

#[test]
fn a_space_goes_first_and_the_best_score_merges_first() {
    check("abc", " a,bc");
    check("cbc", " ,c,bc");
    check("ab", " ab");
    check("", "");
}

#[test]
fn a_character_without_piece_becomes_its_bytes() {
    check("aé", " a,<0xC3>,<0xA9>");
}

#[test]
fn scores_below_the_limit_never_merge() {
    check("cc", " ,c,c");
}

#[test]
fn bos_is_added_if_requested_and_eos_never() {
    let options = EncodeOptions { add_special: true, parse_special: true };
    assert_eq!(tokenizer().encode("", options), Ok(vec![1]));
}

#[test]
fn a_generation_ends_at_bos_and_goes_on_after_eos() {
    assert!(tokenizer().is_eog(1) && !tokenizer().is_eog(2));
    assert_eq!(tokenizer().decode(&[1, 2], false), Ok("\n</s>\n".into()));
}

#[test]
fn one_space_after_bos_is_not_printed() {
    let tokenizer = tokenizer();
    let id = |piece: &str| tokenizer.find(piece).expect("a known piece");
    let decode = |ids: &[u32]| tokenizer.decode(ids, false).expect("known ids");
    assert_eq!(decode(&[id(" ab"), id(" ab")]), "ab ab");
    assert_eq!(decode(&[id("a"), 1, id(" ab")]), "aab");
}

#[test]
fn hex_pieces_are_bytes_and_single_unprintable_ones_are_skipped() {
    let decode = |ids: &[u32]| tokenizer().decode(ids, true).expect("known ids");
    assert_eq!(decode(&[3 + 0x41, 3 + 0x0A, 3 + 0xC3, 3 + 0xA9, 3, 3 + 0x7F, 3 + 0x42]), "A\nB");
}

#[test]
fn a_vocabulary_without_a_byte_is_an_error_that_names_it() {
    let tokenizer = Tokenizer::llama2c(pieces()[..100].to_vec()).expect("a vocabulary");
    let error = tokenizer.encode("é", EncodeOptions::default()).expect_err("no such byte").to_string();
    assert!(error.contains("0xc3"), "{error}");
    assert!(Tokenizer::llama2c(Vec::new()).is_err());
}

proptest! {
    #[test]
    fn the_queue_merges_as_the_plain_loop_does(text in "[abc é]{0,40}") {
        let ids = tokenizer().encode(&text, EncodeOptions::default()).expect("every byte has a token");
        prop_assert_eq!(ids, plain_loop(&text));
    }
}

/// llama2.c's own way: look at all neighbours, merge the best, start again.
fn plain_loop(text: &str) -> Vec<u32> {
    let pieces = pieces();
    let find = |bytes: &[u8]| pieces.iter().position(|piece| piece.1 == bytes).map(|id| id as u32);
    if text.is_empty() {
        return Vec::new();
    }
    let mut ids = Vec::new();
    for c in format!(" {text}").chars() {
        match find(c.to_string().as_bytes()) {
            Some(id) => ids.push(id),
            None => ids.extend(c.to_string().bytes().map(|byte| 3 + u32::from(byte))),
        }
    }
    loop {
        let mut best = (-1e10, None);
        for at in 1..ids.len() {
            let joined = [ids[at - 1], ids[at]].map(|id| pieces[id as usize].1.clone()).concat();
            if let Some(id) = find(&joined).filter(|id| pieces[*id as usize].0 > best.0) {
                best = (pieces[id as usize].0, Some((at - 1, id)));
            }
        }
        let Some((at, id)) = best.1 else { return ids };
        ids[at] = id;
        ids.remove(at + 1);
    }
}

fn tokenizer() -> Tokenizer {
    Tokenizer::llama2c(pieces()).expect("a good vocabulary")
}

/// Score and bytes, as `tokenizer.bin` has them.
fn pieces() -> Vec<(f32, Vec<u8>)> {
    let mut pieces: Vec<(f32, Vec<u8>)> =
        ["<unk>", "\n<s>\n", "\n</s>\n"].map(|piece| (0.0, piece.into())).to_vec();
    pieces.extend((0..=255).map(|byte: u8| (0.0, format!("<0x{byte:02X}>").into_bytes())));
    let merged =
        [(-1.0, "bc"), (-2.0, "ab"), (-3.0, " ab"), (-4.0, " a"), (-2.0, "aa"), (-5.0, "aaa"), (-2e10, "cc")];
    pieces.extend([" ", "a", "b", "c"].map(|piece| (-9.0, piece.into())));
    pieces.extend(merged.map(|(score, piece)| (score, piece.into())));
    pieces
}
