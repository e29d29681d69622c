//! Decoding one id at a time: never half a character, and nothing is lost.

use llmrt_tokenizer::{EncodeOptions, ModelKind, TokenKind, Tokenizer, Vocab};
use proptest::prelude::*;

/// Pushes the bytes one by one; `expected` has what each push gave, joined by `|`, and last what the end gave.
fn check(bytes: &[u8], expected: &str) {
    let tokenizer = byte_tokenizer();
    let mut decoder = tokenizer.decoder(false);
    let mut parts: Vec<String> =
        bytes.iter().map(|b| decoder.push(FIRST_BYTE + u32::from(*b)).expect("a byte token")).collect();
    parts.push(decoder.flush());
    assert_eq!(parts.join("|"), expected);
}

#[test]
fn a_character_waits_for_its_last_byte() {
    check("é!".as_bytes(), "|é|!|");
    check("🦙".as_bytes(), "|||🦙|");
}

#[test]
fn half_a_character_at_the_end_becomes_a_replacement() {
    check(b"a\xF0\x9F", "a|||\u{FFFD}");
    check(b"", "");
}

#[test]
fn bytes_that_cannot_become_a_character_are_replaced_at_once() {
    check(b"\xFFa", "\u{FFFD}|a|");
    check(b"\xC3a", "|\u{FFFD}a|");
    check(b"\x80", "\u{FFFD}|");
}

#[test]
fn the_space_that_encoding_added_is_taken_off_once() {
    let tokenizer = byte_tokenizer();
    let space = tokenizer.find("▁").expect("a space");
    let decode = |ids: &[u32]| tokenizer.decode(ids, false).expect("known ids");
    assert_eq!(decode(&[space, space]), " ");
    assert_eq!(decode(&[BOS, space, space]), " ");

    let mut going_on = tokenizer.decoder(false).continuing();
    assert_eq!(going_on.push(space).expect("a space"), " ");
}

#[test]
fn control_tokens_are_written_only_if_requested() {
    let tokenizer = byte_tokenizer();
    let a = FIRST_BYTE + u32::from(b'a');
    assert_eq!(tokenizer.decode(&[BOS, a], false).expect("known ids"), "a");
    assert_eq!(tokenizer.decode(&[BOS, a], true).expect("known ids"), "<s>a");
}

proptest! {
    #[test]
    fn the_stream_is_the_lossy_text_of_all_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let tokenizer = byte_tokenizer();
        let mut decoder = tokenizer.decoder(false).continuing();
        let mut text = String::new();
        for byte in &bytes {
            text.push_str(&decoder.push(FIRST_BYTE + u32::from(*byte)).expect("a byte token"));
        }
        text.push_str(&decoder.flush());
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn a_text_comes_back_whole(text in any::<String>()) {
        let tokenizer = byte_tokenizer();
        let ids = tokenizer.encode(&text, EncodeOptions::default()).expect("every byte has a token");
        prop_assert_eq!(tokenizer.decode(&ids, false).expect("its ids"), text.replace('\u{2581}', " "));
    }
}

const BOS: u32 = 1;
const FIRST_BYTE: u32 = 3;

/// An SPM vocabulary of nothing but bytes and the space.
fn byte_tokenizer() -> Tokenizer {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    tokens.extend((0..=255).map(|byte: u8| format!("<0x{byte:02X}>")));
    tokens.push("▁".into());
    let mut types = vec![TokenKind::Unknown as i32, TokenKind::Control as i32, TokenKind::Control as i32];
    types.resize(259, TokenKind::Byte as i32);
    types.push(TokenKind::Normal as i32);
    let vocab = Vocab { token_types: types, ..Vocab::new(ModelKind::Spm, tokens) };
    Tokenizer::new(vocab).expect("a good vocabulary")
}
