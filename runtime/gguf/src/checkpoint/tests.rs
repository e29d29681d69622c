//! Small checkpoints of the three formats, written here number by number.

use super::*;
use crate::Error;

/// dim 8, hidden 12, 2 layers, 2 heads, 1 kv head, 5 tokens, 3 positions.
const CONFIG: [i32; 7] = [8, 12, 2, 2, 1, 5, 3];
const GROUP: usize = 4;

/// Numbers counted up from 1, in the order of the file.
struct Numbers(Vec<u8>, u32);

impl Numbers {
    fn f32s(&mut self, n: usize) {
        for _ in 0..n {
            self.1 += 1;
            self.0.extend((self.1 as f32).to_le_bytes());
        }
    }

    /// All values of a group are the same number k, stored as 2 with scale k / 2.
    fn int8s(&mut self, n: usize) {
        self.0.extend(std::iter::repeat_n(2u8, n));
        for _ in 0..n / GROUP {
            self.1 += 1;
            self.0.extend((self.1 as f32 / 2.0).to_le_bytes());
        }
    }
}

/// A whole file of the format.
pub(crate) fn file(version: i32, shared: bool) -> Vec<u8> {
    let [d, h, l, _, _, v, s] = CONFIG.map(|n| n as usize);
    let kv = d / 2;
    let per_layer = |n: usize| std::iter::repeat_n(n, l);
    let mut numbers = Numbers(Vec::new(), 0);
    let mut config = CONFIG;

    if version == 0 {
        config[5] = if shared { config[5] } else { -config[5] };
        numbers.0.extend(config.iter().flat_map(|n| n.to_le_bytes()));
        numbers.f32s(v * d);
        let blocks = [d, d * d, d * kv, d * kv, d * d, d, d * h, d * h, d * h];
        blocks.into_iter().flat_map(per_layer).for_each(|n| numbers.f32s(n));
        numbers.f32s(d);
        numbers.f32s(2 * s * d / 2 / 2); // RoPE tables: two of seq_len rows of half a head
        numbers.f32s(if shared { 0 } else { v * d });
        return numbers.0;
    }

    numbers.0.extend(0x616b_3432u32.to_le_bytes());
    numbers.0.extend(version.to_le_bytes());
    numbers.0.extend(config.iter().flat_map(|n| n.to_le_bytes()));
    numbers.0.push(shared.into());
    numbers.0.extend(if version == 2 { GROUP as i32 } else { 0 }.to_le_bytes());
    numbers.0.resize(256, 0);
    per_layer(d).chain(per_layer(d)).chain([d]).for_each(|n| numbers.f32s(n));
    let matrices = [d * d, d * kv, d * kv, d * d, d * h, d * h, d * h].into_iter().flat_map(per_layer);
    for n in [v * d].into_iter().chain(matrices).chain((!shared).then_some(v * d)) {
        if version == 2 { numbers.int8s(n) } else { numbers.f32s(n) }
    }
    numbers.0
}

/// A tokenizer.bin of `n` tokens ` tID` with score -ID.
pub(crate) fn tokenizer(n: i32) -> Vec<u8> {
    let mut bytes = 8i32.to_le_bytes().to_vec();
    for id in 0..n {
        let text = format!(" t{id}");
        bytes.extend((-id as f32).to_le_bytes());
        bytes.extend((text.len() as i32).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn parse(bytes: &[u8]) -> Result<Checkpoint, Error> {
    Checkpoint::parse(bytes, bytes.len() as u64)
}

/// The first and last number of a tensor.
fn check(version: i32, shared: bool, tensor: &str, dims: &[u64], first: f32, last: f32) {
    let bytes = file(version, shared);
    let checkpoint = parse(&bytes).unwrap();
    let t = checkpoint.tensor(tensor).unwrap();
    assert_eq!(t.shape.dims(), dims, "{tensor}");
    let values = t.read_f32(&bytes).unwrap();
    assert_eq!((values[0], values[values.len() - 1]), (first, last), "v{version} {tensor}");
}

#[test]
fn format_0_begins_with_the_embedding_and_ends_with_the_classifier() {
    check(0, true, "token_embd.weight", &[8, 5], 1.0, 40.0);
    check(0, true, "blk.0.attn_norm.weight", &[8], 41.0, 48.0);
    check(0, true, "blk.1.attn_q.weight", &[8, 8], 121.0, 184.0);
    check(0, true, "blk.0.attn_k.weight", &[8, 4], 185.0, 216.0);
    check(0, true, "blk.1.ffn_down.weight", &[12, 8], 745.0, 840.0);
    check(0, true, "output_norm.weight", &[8], 1033.0, 1040.0);
    check(0, false, "output.weight", &[8, 5], 1053.0, 1092.0); // after 12 numbers of RoPE tables
}

#[test]
fn format_1_begins_with_the_norms() {
    check(1, true, "blk.1.attn_norm.weight", &[8], 9.0, 16.0);
    check(1, true, "blk.0.ffn_norm.weight", &[8], 17.0, 24.0);
    check(1, true, "output_norm.weight", &[8], 33.0, 40.0);
    check(1, true, "token_embd.weight", &[8, 5], 41.0, 80.0);
    check(1, false, "output.weight", &[8, 5], 1041.0, 1080.0);
}

#[test]
fn format_2_stores_scales_after_every_matrix() {
    check(2, true, "output_norm.weight", &[8], 33.0, 40.0);
    check(2, true, "token_embd.weight", &[8, 5], 41.0, 50.0); // ten groups of four
    check(2, true, "blk.0.attn_q.weight", &[8, 8], 51.0, 66.0);
    check(2, true, "blk.1.attn_q.weight", &[8, 8], 67.0, 82.0);
    check(2, false, "output.weight", &[8, 5], 291.0, 300.0);
}

#[test]
fn only_an_unshared_classifier_is_a_tensor_and_rope_tables_never_are() {
    for version in 0..=2 {
        assert_eq!(parse(&file(version, true)).unwrap().tensors.len(), 9 * 2 + 2);
        assert_eq!(parse(&file(version, false)).unwrap().tensors.len(), 9 * 2 + 3);
    }
}

#[test]
fn f32_tensors_can_be_used_in_place_and_int8_ones_cannot() {
    let bytes = file(1, true);
    let tensors = parse(&bytes).unwrap().f32_tensors().unwrap();
    let embd = tensors.iter().find(|t| t.name == "token_embd.weight").unwrap();
    assert_eq!(bytes[embd.offset as usize..][..4], 41f32.to_le_bytes());
    assert_eq!(embd.nbytes, 160);
    assert_eq!(parse(&file(2, true)).unwrap().f32_tensors(), None);
}

#[test]
fn a_file_of_another_length_is_refused_with_the_expected_one() {
    for (version, name) in [(0, "without magic (v0)"), (1, "v1"), (2, "v2")] {
        let mut bytes = file(version, true);
        let expected = bytes.len() as u64;
        bytes.push(0);
        let found = expected + 1;
        assert_eq!(parse(&bytes), Err(Error::CheckpointSize { version: name, found, expected }));
    }
}

#[test]
fn impossible_configurations_are_refused() {
    let spoiled = |version, at: usize, number: i32| {
        let mut bytes = file(version, true);
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        parse(&bytes).unwrap_err().to_string()
    };
    for (version, at, number, why) in [
        (0, 0, 0, "dim is 0"),
        (0, 0, -8, "dim is -8"),
        (0, 0, 7, "dim 7 is no multiple of n_heads 2"),
        (0, 0, 6, "head size 3 is odd"),
        (0, 16, 3, "n_heads 2 is no multiple of n_kv_heads 3"),
        (0, 20, i32::MIN, "its header requires 137438957484"),
        (0, 8, 4097, "n_layers is 4097: expected at most 4096"),
        (0, 24, i32::MAX, "its header requires"),
        (1, 4, 3, "version 3 is not supported"),
        (1, 28, -5, "vocab_size is -5"),
        (1, 36, 2, "shared flag is 2"),
        (2, 37, 0, "group size is 0"),
        (2, 37, 7, "no multiple of the group size 7"),
    ] {
        let message = spoiled(version, at, number);
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn a_prefix_of_256_bytes_is_enough_and_a_shorter_one_requests_it() {
    let bytes = file(2, true);
    let file_len = bytes.len() as u64;
    assert_eq!(Checkpoint::parse(&bytes[..20], file_len), Err(Error::NeedMore { at_least: 256 }));
    assert!(Checkpoint::parse(&bytes[..256], file_len).is_ok());
}

#[test]
fn kinds_of_files_are_recognised_by_their_first_bytes() {
    use crate::FileKind::*;
    for (bytes, kind) in [
        (file(0, true), Llama2cV0Maybe),
        (file(0, false), Llama2cV0Maybe),
        (file(1, true), Llama2cV1),
        (file(2, true), Llama2cV2),
        (b"GGUF\x03\0\0\0".to_vec(), Gguf),
        (b"PWRI".to_vec(), PowerInfer),
        (tokenizer(20), Unknown),
        (b"GG".to_vec(), Unknown),
    ] {
        assert_eq!(crate::sniff(&bytes), kind);
    }
}

#[test]
fn int8_groups_are_multiplied_by_their_scales() {
    let scales = [0.5f32, 2.0].map(f32::to_le_bytes).concat();
    assert_eq!(dequantise(&[2, 0xff, 0x7f, 0x80], &scales, 2), [1.0, -0.5, 254.0, -256.0]);
}

#[test]
fn metadata_speaks_ggufs_llama() {
    let mut config = parse(&file(0, true)).unwrap().config;
    config.vocab_size = 270;
    let vocabulary = TokenizerBin::parse(&tokenizer(300)).unwrap();
    let m = to_metadata(&config, Some(&vocabulary)).unwrap();
    assert_eq!(m.str("general.architecture"), Some("llama"));
    assert_eq!(m.u32("llama.attention.head_count_kv"), Some(1));
    assert_eq!(m.u32("llama.rope.dimension_count"), Some(4));
    let tokens = m.strings("tokenizer.ggml.tokens").unwrap();
    let types = m.i32s("tokenizer.ggml.token_type").unwrap();
    assert_eq!((tokens.len(), types.len()), (270, 270));
    let token = |id: usize| (tokens[id].as_str(), types[id]);
    assert_eq!([token(0), token(1), token(2)], [("<unk>", 2), ("<s>", 3), ("</s>", 3)]);
    assert_eq!([token(3), token(258)], [("<0x00>", 6), ("<0xFF>", 6)]);
    assert_eq!(token(259), ("\u{2581}t259", 1));
    assert_eq!(m.f32s("tokenizer.ggml.scores").unwrap()[269], -269.0);
}

#[test]
fn a_vocabulary_that_is_too_short_or_broken_is_refused() {
    let config = parse(&file(0, true)).unwrap().config;
    let short = TokenizerBin::parse(&tokenizer(4)).unwrap();
    let message = to_metadata(&config, Some(&short)).unwrap_err().to_string();
    assert!(message.contains("holds 4 tokens, the checkpoint's vocab_size is 5"), "{message}");

    let good = tokenizer(20);
    assert!(matches!(TokenizerBin::parse(&good[..good.len() - 1]), Err(Error::Truncated { .. })));
    for (at, number, why) in
        [(0, 0, "max_token_length is 0"), (8, -1, "length -1"), (8, 9, "expected 0 to 8")]
    {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&i32::to_le_bytes(number));
        let message = TokenizerBin::parse(&bytes).unwrap_err().to_string();
        assert!(message.contains(why), "{message}");
    }
}
