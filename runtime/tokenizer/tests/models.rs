//! Small hand-made vocabularies: what each model does with a text.

use llmrt_tokenizer::{EncodeOptions, Limits, ModelKind, TokenKind, Tokenizer, Vocab};
use proptest::prelude::*;

/// `pieces` is what the ids of `text` spell, joined by `|`.
fn check(vocab: Vocab, text: &str, options: EncodeOptions, pieces: &str) {
    let tokenizer = Tokenizer::new(vocab).unwrap_or_else(|e| panic!("{e}"));
    let ids = tokenizer.encode(text, options).unwrap_or_else(|e| panic!("{e}"));
    let found: Vec<&str> = ids.iter().map(|id| tokenizer.piece(*id).unwrap_or("?")).collect();
    assert_eq!(found.join("|"), pieces, "{text:?}");
}

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const ADDED: EncodeOptions = EncodeOptions { add_special: true, parse_special: false };
const PARSED: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };

#[test]
fn spm_merges_the_best_score_first() {
    check(spm(), "abc", PLAIN, "▁|a|bc");
    check(spm(), "ab", PLAIN, "▁|ab");
    check(spm(), "aaaa", PLAIN, "▁|aa|aa");
}

#[test]
fn spm_writes_a_space_before_the_text_and_after_each_special() {
    check(spm(), " a", PLAIN, "▁|▁|a");
    check(spm(), "", PLAIN, "");
    check(spm(), "a<s>a", PARSED, "▁|a|<s>|▁|a");
    check(Vocab { add_space_prefix: Some(false), ..spm() }, "a a", PLAIN, "a|▁|a");
}

#[test]
fn spm_falls_back_to_bytes() {
    check(spm(), "é", PLAIN, "▁|<0xC3>|<0xA9>");
    check(spm(), "a\n🦙", PLAIN, "▁|a|<0x0A>|<0xF0>|<0x9F>|<0xA6>|<0x99>");
}

#[test]
fn spm_without_byte_tokens_uses_the_unknown_token() {
    let vocab = Vocab { unk: Some(0), ..small_spm(&["<unk>", "<s>", "</s>", "▁", "a"]) };
    check(vocab, "aé", PLAIN, "▁|a|<unk>|<unk>");
}

#[test]
fn what_no_token_covers_is_an_error_that_names_the_byte() {
    let tokens = ["a", "b", "c", "▁"].map(String::from).to_vec();
    let vocab = Vocab { unk: None, ..Vocab::new(ModelKind::Rwkv, tokens) };
    let tokenizer = Tokenizer::new(vocab).expect("a small vocabulary");
    let error = tokenizer.encode("ad", PLAIN).expect_err("d has no token").to_string();
    assert!(error.contains("the byte 0x64") && error.contains("unknown_token_id"), "{error}");
}

#[test]
fn bpe_leaves_out_bytes_without_a_token() {
    check(Vocab { unk: Some(0), ..Vocab::new(ModelKind::Bpe, vec!["a".into()]) }, "aba", PLAIN, "a|a");
}

#[test]
fn bos_and_eos_come_by_the_rule_of_the_model_or_of_the_file() {
    check(spm(), "a", ADDED, "<s>|▁|a");
    check(spm(), "", ADDED, "<s>");
    check(Vocab { add_bos: Some(false), add_eos: Some(true), ..spm() }, "a", ADDED, "▁|a|</s>");
    check(bpe(&[]), "a", ADDED, "a");
    check(Vocab { bos: Some(0), add_bos: Some(true), ..bpe(&[]) }, "a", ADDED, "Ā|a");
    check(Vocab { bos: Some(0), pre: Some("llama-bpe".into()), ..bpe(&[]) }, "a", ADDED, "Ā|a");
}

#[test]
fn a_prompt_gets_one_bos_even_if_its_text_has_one() {
    let tokenizer = Tokenizer::new(spm()).expect("a vocabulary");
    let encode = |text: &str| tokenizer.encode_prompt(&text.into(), Limits::NONE);
    assert_eq!(encode("<s>a"), encode("a"));
    assert_eq!(encode("a").map(|ids| ids[0]), Ok(1));
}

#[test]
fn control_tokens_in_the_text_of_a_user_stay_text() {
    let vocab = || with_specials(bpe(&[]));
    check(vocab(), "<|c|>", PLAIN, "<|||c|||>");
    check(vocab(), "a<|c|>b", PARSED, "a|<|c|>|b");
    check(vocab(), "a<u>b", PLAIN, "a|<u>|b");
}

#[test]
fn bpe_merges_the_lowest_rank_first_inside_words_only() {
    check(bpe(&["b c", "a b", "Ġ a", "bc d"]), "abcd a", PLAIN, "a|bcd|Ġa");
    check(bpe(&["a b", "b c"]), "abc", PLAIN, "ab|c");
    check(bpe(&["a Ġ"]), "a a", PLAIN, "a|Ġ|a");
}

#[test]
fn a_merge_whose_result_is_no_token_falls_apart_again() {
    let vocab = Vocab { merges: vec!["a b".into(), "x yz".into()], ..bpe(&[]) };
    check(vocab, "abc", PLAIN, "a|b|c");
}

#[test]
fn the_first_of_two_equal_merges_counts() {
    check(bpe(&["a b", "b c", "a b"]), "abc", PLAIN, "ab|c");
}

#[test]
fn llama3_takes_a_whole_word_before_it_merges() {
    let mut vocab = bpe(&["b c"]);
    vocab.tokens.push("abc".into());
    check(vocab.clone(), "abc", PLAIN, "a|bc");
    check(Vocab { pre: Some("llama3".into()), add_bos: Some(false), ..vocab }, "abc", PLAIN, "abc");
}

#[test]
fn a_missing_pretokenizer_is_a_warning() {
    let tokenizer = Tokenizer::new(Vocab { pre: None, ..bpe(&[]) }).expect("a vocabulary");
    assert!(tokenizer.warnings().iter().any(|w| w.contains("tokenizer.ggml.pre")));
    assert!(Tokenizer::new(bpe(&[])).expect("a vocabulary").warnings().is_empty());
}

#[test]
fn wpm_takes_the_longest_token_of_each_word() {
    check(wpm(), "Unhappy  cat!", PLAIN, "▁un|happy|▁cat|▁!");
    check(wpm(), "UN cat", ADDED, "[CLS]|▁un|▁cat|[SEP]");
}

#[test]
fn wpm_gives_a_word_it_cannot_make_up_to_the_unknown_token() {
    check(wpm(), "uncat cat", PLAIN, "[UNK]|▁cat");
}

#[test]
fn wpm_keeps_case_where_the_file_requires_it() {
    check(Vocab { lowercase: Some(false), ..wpm() }, "Cat cat", PLAIN, "[UNK]|▁cat");
}

#[test]
fn unigram_takes_the_likeliest_tokens_and_puts_eos_at_the_end() {
    check(unigram(), "abc", PLAIN, "▁|ab|c");
    check(unigram(), " ab  c ", PLAIN, "▁|ab|▁|c");
    check(unigram(), "ab", ADDED, "▁|ab|</s>");
    check(unigram(), "axyc", PLAIN, "▁|a|<unk>|c");
    check(unigram(), "</s>", PLAIN, "▁|<unk>");
    check(unigram(), "", PLAIN, "");
    let keeps_spaces = Vocab { remove_extra_whitespaces: None, ..unigram() };
    check(keeps_spaces.clone(), " ab  c ", PLAIN, "▁|▁|ab|▁|▁|c|▁");
    check(Vocab { add_space_prefix: None, ..keeps_spaces }, "ab c", PLAIN, "ab|▁|c");
}

#[test]
fn rwkv_and_plamo_have_nothing_around_a_text_and_no_control_token_inside() {
    let tokens = ["<s>", "a", "ab", "<", "s", ">", r"\n"].map(String::from).to_vec();
    let rwkv = Vocab {
        bos: Some(0),
        add_bos: Some(true),
        token_types: vec![3, 1, 1, 1, 1, 1, 1],
        ..Vocab::new(ModelKind::Rwkv, tokens)
    };
    check(rwkv.clone(), "ab<s>\n", ADDED, r"ab|<|s|>|\n");
    check(rwkv, "ab<s>\n", PARSED, r"ab|<s>|\n");

    let tokens: Vec<String> = bytes().into_iter().chain(["<s>", "a", "ab"].map(String::from)).collect();
    let types = [vec![6; 256], vec![3, 1, 1]].concat();
    let plamo = Vocab {
        bos: Some(256),
        add_bos: Some(true),
        token_types: types,
        ..Vocab::new(ModelKind::Plamo2, tokens)
    };
    check(plamo.clone(), "ab<", ADDED, "ab|<0x3C>");
    check(plamo.clone(), "<s>a", PLAIN, "<0x3C>|<0x73>|<0x3E>|a");
    check(plamo, "<s>a", PARSED, "<s>|a");
}

#[test]
fn gemma4_merges_characters_of_a_whole_line_and_always_starts_with_bos() {
    let tokens =
        ["<bos>", "a", "b", "▁", "a▁", "a▁b", "\n", "\n\n", "<0xC3>", "<0xA9>"].map(String::from).to_vec();
    let merges = ["a ▁", "a▁ b", "\n \n"].map(String::from).to_vec();
    let vocab = Vocab { bos: Some(0), add_bos: Some(false), merges, ..Vocab::new(ModelKind::Gemma4, tokens) };
    check(vocab.clone(), "a ba", ADDED, "<bos>|a▁b|a");
    check(vocab.clone(), "é a", PLAIN, "<0xC3>|<0xA9>|▁|a");
    check(vocab.clone(), "a\n\n\na", PLAIN, "a|\n\n|\n|a");
    let tokenizer = Tokenizer::new(vocab).expect("a small vocabulary");
    assert_eq!(tokenizer.decode(&[5, 7, 1], false).as_deref(), Ok("a b\n\na"));
}

#[test]
fn dna_is_cut_into_groups_of_six_bases() {
    let mut vocab = Vocab { model: ModelKind::Dna, ..bpe(&["A C"]) };
    vocab.tokens.extend(["<dna>", "</dna>", "<oov>", "ACGTAC\u{E000}", "GAAAAA\u{E000}"].map(String::from));
    check(vocab.clone(), "AC<dna>acgtacG</dna>A", PLAIN, "AC|<dna>|ACGTAC\u{E000}|GAAAAA\u{E000}|</dna>|A");
    check(vocab.clone(), "<dna>ACGTNNT", PLAIN, "<dna>|<oov>|<oov>");
    let tokenizer = Tokenizer::new(vocab).expect("a small vocabulary");
    let ids = tokenizer.encode("<dna>ACGTAC</dna>", PLAIN).expect("a text");
    assert_eq!(tokenizer.decode(&ids, false).as_deref(), Ok("<dna>ACGTAC</dna>"));
}

#[test]
fn a_whitespace_model_forgets_spaces_and_maybe_case() {
    let tokens = ["<unk>", "a", "b", "ab", "B"].map(String::from).to_vec();
    let whitespace = Vocab {
        pre: Some("whitespace".into()),
        merges: vec!["a b".into()],
        unk: Some(0),
        ..Vocab::new(ModelKind::Whitespace, tokens)
    };
    check(whitespace.clone(), " ab\u{3000}a\nB ", PLAIN, "ab|a|B");
    check(Vocab { lowercase: Some(true), ..whitespace }, "aB b", PLAIN, "ab|b");
}

#[test]
fn what_ends_a_file_in_a_code_model_ends_a_generation() {
    let tokens = ["a", "<|repo_name|>", "<fim-pad>", "<PAD>", "x"].map(String::from).to_vec();
    let vocab = Vocab { fim_sep: Some(4), ..Vocab::new(ModelKind::Rwkv, tokens) };
    let tokenizer = Tokenizer::new(vocab).expect("a small vocabulary");
    let ends: Vec<u32> = (0..5).filter(|id| tokenizer.is_eog(*id)).collect();
    assert_eq!(ends, [1, 2, 4]);
}

#[test]
fn ids_are_looked_up_by_piece_and_back() {
    let tokenizer = Tokenizer::new(with_specials(spm())).expect("a vocabulary");
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.find("<s>")), (Some(1), Some(2), Some(1)));
    assert_eq!((tokenizer.find("nothing"), tokenizer.piece(1 << 20)), (None, None));
    assert!(tokenizer.is_eog(2) && !tokenizer.is_eog(1) && tokenizer.is_special(1));
    assert_eq!(tokenizer.token_bytes(3 + 0xC3).expect("a byte token").as_ref(), [0xC3]);
    assert!(tokenizer.token_bytes(u32::MAX).is_err());
    assert!(tokenizer.decode(&[u32::MAX], true).is_err());
}

/// One word of a million letters and a million spaces each take far less than quadratic time.
#[test]
fn a_giant_word_is_not_quadratic() {
    let start = std::time::Instant::now();
    for vocab in [bpe(&["a a", "aa aa", "Ġ Ġ", "aaaa aaaa"]), spm()] {
        let tokenizer = Tokenizer::new(vocab).expect("a vocabulary");
        for text in ["a".repeat(1_000_000), " ".repeat(1_000_000)] {
            let ids = tokenizer.encode(&text, PLAIN).expect("a text");
            assert!(tokenizer.decode(&ids, false).expect("its ids") == text);
        }
    }
    assert!(start.elapsed().as_secs() < 60, "took {:?}", start.elapsed());
}

proptest! {
    #[test]
    fn bpe_over_the_full_byte_alphabet_loses_nothing(text in any::<String>(), pre in 0usize..9) {
        let names = ["default", "gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "deepseek-coder", "falcon",
            "starcoder", "deepseek-v3"];
        let merges = ["Ġ a", "a b", "Ã ©", "Ċ Ċ", "1 2", "12 3"];
        let vocab = Vocab { pre: Some(names[pre].into()), add_bos: Some(false), ..bpe(&merges) };
        let tokenizer = Tokenizer::new(vocab).expect("a vocabulary");
        let ids = tokenizer.encode(&text, PLAIN).expect("every byte has a token");
        prop_assert_eq!(tokenizer.decode(&ids, false).expect("its ids"), text);
    }

    #[test]
    fn spm_with_byte_tokens_loses_nothing(text in "[^▁]*") {
        let tokenizer = Tokenizer::new(spm()).expect("a vocabulary");
        let ids = tokenizer.encode(&text, PLAIN).expect("every byte has a token");
        prop_assert_eq!(tokenizer.decode(&ids, false).expect("its ids"), text);
    }

    #[test]
    fn no_vocabulary_makes_it_panic(
        model in 0usize..9,
        tokens in prop::collection::vec("[ab<0xF>▁Ġ ]{0,6}", 0..12),
        merges in prop::collection::vec("[ab Ġ]{0,5}", 0..6),
        scores in prop::collection::vec(any::<f32>(), 0..12),
        types in prop::collection::vec(-1i32..9, 0..12),
        ids in prop::array::uniform6(prop::option::of(0u32..14)),
        flags in prop::array::uniform4(prop::option::of(any::<bool>())),
        charsmap in prop::collection::vec(0u8..8, 0..40),
        text in any::<String>(),
    ) {
        use ModelKind::*;
        let model = [Spm, Bpe, Gemma4, Dna, Whitespace, Wpm, Ugm, Rwkv, Plamo2][model];
        let tokens = if model == Plamo2 { bytes().into_iter().chain(tokens).collect() } else { tokens };
        let vocab = Vocab {
            scores, token_types: types, merges, charsmap,
            bos: ids[0], eos: ids[1], unk: ids[2], sep: ids[3], eot: ids[4], pad: ids[5],
            add_bos: flags[0], add_eos: flags[1], add_space_prefix: flags[2], remove_extra_whitespaces: flags[3],
            ..Vocab::new(model, tokens)
        };
        if let Ok(tokenizer) = Tokenizer::new(vocab) {
            let both = EncodeOptions { add_special: true, parse_special: true };
            if let Ok(ids) = tokenizer.encode(&format!("ab <0x0F> {text}"), both) {
                let _ = tokenizer.decode(&ids, true).expect("ids of the tokenizer itself");
            }
        }
    }
}

fn bytes() -> Vec<String> {
    (0..=255).map(|byte: u8| format!("<0x{byte:02X}>")).collect()
}

/// `<unk> <s> </s>`, the 256 bytes, and some pieces, the best last.
fn spm() -> Vocab {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    tokens.extend(bytes());
    tokens.extend(["▁", "a", "b", "c", "aa", "ab", "bc"].map(String::from));
    let mut types = vec![TokenKind::Unknown as i32, TokenKind::Control as i32, TokenKind::Control as i32];
    types.resize(259, TokenKind::Byte as i32);
    types.resize(tokens.len(), TokenKind::Normal as i32);
    let scores = (0..tokens.len()).map(|id| id as f32 / 1000.0).collect();
    Vocab { token_types: types, scores, ..Vocab::new(ModelKind::Spm, tokens) }
}

/// `<pad> </s> <unk>` and some pieces with their log probabilities.
fn unigram() -> Vocab {
    let tokens = ["<pad>", "</s>", "<unk>", "▁", "a", "b", "c", "ab", "bc", "abc"].map(String::from).to_vec();
    let scores = vec![0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -2.0, -3.0, -5.5, -9.0];
    Vocab {
        scores,
        token_types: vec![3, 3, 2, 1, 1, 1, 1, 1, 1, 1],
        add_space_prefix: Some(true),
        remove_extra_whitespaces: Some(true),
        ..Vocab::new(ModelKind::Ugm, tokens)
    }
}

fn small_spm(tokens: &[&str]) -> Vocab {
    Vocab::new(ModelKind::Spm, tokens.iter().map(|t| (*t).to_string()).collect())
}

/// The 256 bytes and the results of the merges, if those name two pieces.
fn bpe(merges: &[&str]) -> Vocab {
    let own = |byte: u8| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut free = 0x100..;
    let mut tokens: Vec<String> = (0..=255u8)
        .map(|byte| if own(byte) { u32::from(byte) } else { free.next().unwrap_or(0) })
        .map(|code| char::from_u32(code).map(String::from).unwrap_or_default())
        .collect();
    for joined in merges.iter().map(|merge| merge.replace(' ', "")) {
        if !tokens.contains(&joined) {
            tokens.push(joined);
        }
    }
    let merges = merges.iter().map(|merge| (*merge).to_string()).collect();
    Vocab { pre: Some("gpt-2".into()), merges, ..Vocab::new(ModelKind::Bpe, tokens) }
}

/// A control token `<|c|>` and a user-defined token `<u>` more.
fn with_specials(mut vocab: Vocab) -> Vocab {
    vocab.token_types.resize(vocab.tokens.len(), TokenKind::Normal as i32);
    vocab.scores.resize(vocab.tokens.len() + 2, 0.0);
    vocab.tokens.extend(["<|c|>".into(), "<u>".into()]);
    vocab.token_types.extend([TokenKind::Control as i32, TokenKind::UserDefined as i32]);
    vocab
}

fn wpm() -> Vocab {
    let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁un", "▁u", "happy", "▁cat", "▁!", "hap"];
    let tokens = tokens.map(String::from).to_vec();
    Vocab { bos: Some(2), unk: Some(1), sep: Some(3), ..Vocab::new(ModelKind::Wpm, tokens) }
}
