//! Small good files of every kind, made here.

use llmrt_abi::DType;
use llmrt_gguf::checkpoint::Checkpoint;
use llmrt_gguf::writer::{Tables, to_vec};
use llmrt_gguf::{Array, Error, Flavour, Gguf, Metadata, TensorShape, Value};
use llmrt_models::Model;

/// Architectures that [`model`] makes.
pub const ARCHS: [&str; 7] = ["llama", "qwen2", "qwen3", "gemma2", "phi3", "gpt2", "falcon"];

/// A plugin's manifest.
pub const MANIFEST: &str = "abi=0\nname=sample\nversion=1.2\ngroup=g\ncpu=avx2, fma\npci=10de:*\nsonames=libc.so.6\npriority=-3\nhint=h\n";

/// A file of PowerInfer's flavour with a value of every type and two tensors.
pub fn gguf_with_every_type() -> Vec<u8> {
    let mut tables = Tables { flavour: Flavour::PowerInfer, version: 2, ..Tables::default() };
    let nested =
        vec![Array::Nested(vec![Array::U8(vec![1, 2])]), Array::String(vec!["a".into(), String::new()])];
    let values = [
        Value::U8(1),
        Value::I8(-1),
        Value::U16(2),
        Value::I16(-2),
        Value::U32(3),
        Value::I32(-3),
        Value::U64(4),
        Value::I64(-4),
        Value::F32(0.5),
        Value::F64(0.25),
        Value::Bool(true),
        Value::String("text".into()),
        Value::Array(Array::Nested(nested)),
        Value::Array(Array::Bool(vec![true, false])),
        Value::Array(Array::F64(vec![1.0])),
        Value::Array(Array::I64(vec![])),
    ];
    for (i, value) in values.into_iter().enumerate() {
        tables.metadata.set(format!("key.{i}"), value);
    }
    tables.metadata.set("general.alignment", 64u32);
    tables.tensors.extend(TensorShape::new("a", DType::Q4_0, &[32, 2]));
    tables.tensors.extend(TensorShape::new("b", DType::F32, &[3]));
    to_vec(&tables, &[&[1; 36], &[2; 12]]).expect("the tables are good")
}

/// The tables of a model of one layer, and the whole file with zeros for weights.
pub fn model(arch: &str) -> (Vec<u8>, Vec<u8>) {
    let mut tables = Tables { metadata: model_metadata(arch), ..Tables::default() };
    loop {
        // The error of the model names the tensor it lacks.
        let find = |name: &str| tables.tensors.iter().find(|t| t.name == name).map(|t| (t.dtype, t.ne));
        match Model::new(&tables.metadata, find) {
            Ok(_) => break,
            Err(llmrt_models::Error::MissingTensor { tensor, expected, .. }) => {
                let dtype = if expected.len() == 2 { DType::F16 } else { DType::F32 };
                tables.tensors.extend(TensorShape::new(tensor, dtype, &expected));
            }
            Err(other) => panic!("{arch}: {other}"),
        }
    }
    let zeros: Vec<Vec<u8>> =
        tables.tensors.iter().map(|t| vec![0; t.nbytes().expect("a small tensor") as usize]).collect();
    let zeros: Vec<&[u8]> = zeros.iter().map(Vec::as_slice).collect();
    let file = to_vec(&tables, &zeros).expect("the tables are good");
    let gguf = Gguf::parse(&file, file.len() as u64).expect("what is written can be read");
    (file[..gguf.data_offset as usize].to_vec(), file)
}

fn model_metadata(arch: &str) -> Metadata {
    let mut m = Metadata::new();
    m.set("general.architecture", arch);
    let numbers = [
        ("block_count", 1u32),
        ("context_length", 64),
        ("embedding_length", 8),
        ("feed_forward_length", 12),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("vocab_size", 16),
    ];
    for (key, n) in numbers {
        m.set(format!("{arch}.{key}"), n);
    }
    m.set(format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-5f32);
    m.set(format!("{arch}.attention.layer_norm_epsilon"), 1e-5f32);
    m.set(format!("{arch}.rope.freq_base"), 10000.0f32);
    m
}

/// A file that holds nothing but a vocabulary of all bytes, a few words and specials.
pub fn vocabulary(model: &str, pre: &str) -> Vec<u8> {
    let mut m = Metadata::new();
    m.set("tokenizer.ggml.model", model);
    let byte = |b: u8| match model {
        "gpt2" | "hybriddna" => char_of_byte(b).to_string(),
        "bert" => format!("\u{2581}{}", char::from(b)),
        "rwkv" => format!("\\x{b:02x}"),
        _ => format!("<0x{b:02X}>"),
    };
    let specials = ["<unk>", "<s>", "</s>", "<|im_start|>"];
    let words = match model {
        "gpt2" => ["he", "hel", "\u{120}t", "\u{120}the", "\u{120}th"], // U+0120: a space
        "hybriddna" => ["<dna>", "</dna>", "<oov>", "ACGTAC\u{E000}", "AAAAAA\u{E000}"],
        "rwkv" | "plamo2" => ["he", "hel", " t", " the", " th"],
        "bert" => ["he", "hel", "\u{2581}lo", "\u{2581}the", "\u{2581}th"],
        _ => ["he", "hel", "\u{2581}t", "\u{2581}the", "\u{2581}th"],
    };
    let bytes = (0..=255).map(byte);
    let tokens: Vec<String> =
        specials.map(String::from).into_iter().chain(bytes).chain(words.map(String::from)).collect();
    let types = |id: usize| match id {
        0 => 2,
        1..4 => 3,
        4..260 if !["gpt2", "hybriddna", "bert", "rwkv"].contains(&model) => 6,
        _ => 1,
    };
    m.set("tokenizer.ggml.scores", (0..tokens.len()).map(|id| -(id as f32)).collect::<Vec<_>>());
    m.set("tokenizer.ggml.token_type", (0..tokens.len()).map(types).collect::<Vec<i32>>());
    m.set("tokenizer.ggml.tokens", tokens);
    for (key, id) in [("unknown", 0u32), ("bos", 1), ("eos", 2), ("seperator", 2)] {
        m.set(format!("tokenizer.ggml.{key}_token_id"), id);
    }
    m.set("tokenizer.ggml.pre", pre);
    if model == "t5" {
        m.set("tokenizer.ggml.precompiled_charsmap", Array::U8(charsmap()));
    }
    if ["gpt2", "gemma4", "hybriddna", "whitespace"].contains(&model) {
        let space = if ["gemma4", "whitespace"].contains(&model) { "\u{2581}" } else { "\u{120}" };
        let merges = ["h e", "he l", "\u{120} t", "\u{120}t h", "\u{120}th e", "e x"];
        let merges = merges.map(|merge| merge.replace('\u{120}', space));
        m.set("tokenizer.ggml.merges", merges.to_vec());
    }
    m.set("tokenizer.chat_template", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    to_vec(&Tables { metadata: m, ..Tables::default() }, &[]).expect("the tables are good")
}

/// A map of characters that makes an A an a, of an e with acute accent an e, and of a tabulator a space.
fn charsmap() -> Vec<u8> {
    let mut nodes = vec![0u32; 1024];
    let offset = |from: u32, to: u32| (from ^ to) << 10;
    nodes[0] = offset(0, 256);
    for (place, byte, value) in [(256 ^ 0x41, 0x41, 1), (256 ^ 0x09, 0x09, 3), (512 ^ 0xA9, 0xA9, 5)] {
        nodes[place as usize] = byte | 1 << 8 | offset(place, 768 + value);
        nodes[768 + value as usize] = 1 << 31 | value;
    }
    nodes[256 ^ 0xC3] = 0xC3 | offset(256 ^ 0xC3, 512);
    let trie: Vec<u8> = nodes.iter().flat_map(|node| node.to_le_bytes()).collect();
    [&(trie.len() as u32).to_le_bytes()[..], &trie, b"\0a\0 \0e\0"].concat()
}

/// Byte-level BPE's alphabet: printable Latin-1 as it is, the rest counted up from U+0100.
fn char_of_byte(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..);
    let n_before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    if printable(byte) { char::from(byte) } else { char::from_u32(0x100 + n_before).unwrap_or('?') }
}

/// A llama2.c checkpoint of format 0, 1 or 2 with zeros for weights and 264 tokens.
pub fn checkpoint(version: i32) -> Vec<u8> {
    let config = [8, 12, 2, 2, 1, 264, 3]; // dim, hidden_dim, layers, heads, KV heads, vocabulary, positions
    let mut bytes = Vec::new();
    let mut number = |n: i32| bytes.extend(n.to_le_bytes());
    if version > 0 {
        number(0x616b_3432);
        number(version);
    }
    config.into_iter().for_each(&mut number);
    if version > 0 {
        bytes.push(1);
        bytes.extend(4i32.to_le_bytes());
        bytes.resize(256, 0);
    }
    // The error of the parser has the length that the file must have.
    let Err(Error::CheckpointSize { expected, .. }) = Checkpoint::parse(&bytes, bytes.len() as u64) else {
        panic!("a header alone is no checkpoint");
    };
    bytes.resize(expected as usize, 0);
    bytes
}

/// A tokenizer.bin: unknown, start, end, all bytes, then these pieces, best first.
pub fn tokenizer_bin(pieces: &[&str]) -> Vec<u8> {
    let fixed = ["<unk>".to_string(), "\n<s>\n".into(), "\n</s>\n".into()];
    let bytes = (0..=255).map(|b| format!("<0x{b:02X}>"));
    let all = fixed.into_iter().chain(bytes).chain(pieces.iter().map(|p| p.to_string()));
    let mut out = 8i32.to_le_bytes().to_vec();
    for (id, piece) in all.enumerate() {
        out.extend((-(id as f32)).to_le_bytes());
        out.extend((piece.len() as i32).to_le_bytes());
        out.extend(piece.as_bytes());
    }
    out
}

/// A file of `torch.save` with a tensor of four f32.
pub fn torch_tensor() -> Vec<u8> {
    let pickle = [&b"\x80\x02"[..], &torch_view("Float", "0", 4, &[4], &[1]), b"."].concat();
    archive(&[
        ("a/data.pkl", &pickle),
        ("a/byteorder", b"little"),
        ("a/data/0", &[0; 16]),
        ("a/version", b"3\n"),
    ])
}

/// A file of `torch.save` with a predictor: a dict of two matrices.
pub fn torch_dict() -> Vec<u8> {
    let text = |text: &str| [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let fc1 = [text("fc1.weight"), torch_view("Half", "0", 6, &[2, 3], &[3, 1])].concat();
    let fc2 = [text("fc2.weight"), torch_view("BFloat16", "1", 8, &[4, 2], &[1, 4])].concat();
    let pickle = [&b"\x80\x02ccollections\nOrderedDict\n)R("[..], &fc1, &fc2, b"u}b."].concat();
    archive(&[("a/data.pkl", &pickle), ("a/data/0", &[0; 12]), ("a/data/1", &[0; 16]), ("a/version", b"3\n")])
}

/// The opcodes that make a view of a storage.
fn torch_view(number: &str, key: &str, n: u8, sizes: &[u8], strides: &[u8]) -> Vec<u8> {
    let text = |text: &str| [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let tuple =
        |items: &[u8]| [&b"("[..], &items.iter().flat_map(|&n| [b'K', n]).collect::<Vec<_>>(), b"t"].concat();
    let storage = format!("ctorch\n{number}Storage\nq\x01").into_bytes();
    [
        &b"ctorch._utils\n_rebuild_tensor_v2\n(("[..],
        &[text("storage"), storage, text(key), text("cpu"), vec![b'K', n]].concat(),
        b"tQK\0",
        &tuple(sizes),
        &tuple(strides),
        b"\x89ccollections\nOrderedDict\n)RtR",
    ]
    .concat()
}

/// A ZIP archive of stored members.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let offset = out.len() as u32;
        let sizes = [data.len() as u32; 2].map(u32::to_le_bytes).concat();
        let names = [(name.len() as u16).to_le_bytes(), [0; 2]].concat();
        let common = [0; 14]; // version, flags, method, time, date, checksum
        out.extend([b"PK\x03\x04", &common[..], &sizes, &names, name.as_bytes(), data].concat());
        let place = [&[0; 10], &offset.to_le_bytes()[..]].concat();
        directory.extend([b"PK\x01\x02\0\0", &common[..], &sizes, &names, &place, name.as_bytes()].concat());
    }
    let n = (members.len() as u16).to_le_bytes();
    let place = [directory.len() as u32, out.len() as u32].map(u32::to_le_bytes).concat();
    [out, directory, [b"PK\x05\x06\0\0\0\0", &n[..], &n, &place, &[0; 2]].concat()].concat()
}

/// A shared object of this machine with section names, a manifest, a build id and one undefined symbol.
pub fn elf() -> Vec<u8> {
    let names = b"\0.shstrtab\0.llmrtmf\0.note.gnu.build-id\0.dynsym\0.dynstr\0";
    let name_at = |name: &[u8]| names.windows(name.len()).position(|w| w == name).unwrap_or(0) as u32;
    let note =
        [&4u32.to_ne_bytes()[..], &4u32.to_ne_bytes(), &3u32.to_ne_bytes(), b"GNU\0", &[1, 2, 3, 4]].concat();
    let symbols = [vec![0; 24], 1u32.to_ne_bytes().to_vec(), vec![0; 20]].concat();
    let sections: [(&[u8], u32, &[u8]); 6] = [
        (b"\0", 0, b""),
        (b".shstrtab", 3, names),
        (b".llmrtmf", 1, MANIFEST.as_bytes()),
        (b".note.gnu.build-id", 7, &note),
        (b".dynsym", 11, &symbols),
        (b".dynstr", 3, b"\0symbol\0"),
    ];

    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(3u16.to_ne_bytes());
    file.extend(machine.to_ne_bytes());
    file.resize(40, 0);
    file.extend(64u64.to_ne_bytes()); // the section headers follow the file's
    file.resize(58, 0);
    [64, sections.len() as u16, 1].iter().for_each(|n| file.extend(n.to_ne_bytes()));
    let mut at = 64 + 64 * sections.len() as u64;
    for (name, kind, content) in &sections {
        let start = file.len();
        file.extend(name_at(name).to_ne_bytes());
        file.extend(kind.to_ne_bytes());
        file.resize(start + 24, 0);
        file.extend(at.to_ne_bytes());
        file.extend((content.len() as u64).to_ne_bytes());
        file.extend(5u32.to_ne_bytes()); // names of symbols: the last section
        file.resize(start + 64, 0);
        at += content.len() as u64;
    }
    sections.iter().for_each(|(.., content)| file.extend(*content));
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_host::plugin::{elf::Elf, manifest::Manifest};

    #[test]
    fn the_sample_plugin_has_all_that_is_read_of_one() {
        let file = elf();
        let elf = Elf::parse(&file).unwrap();
        assert_eq!(Manifest::read(&elf).unwrap().name, "sample");
        assert_eq!(elf.build_id(), Some(&[1, 2, 3, 4][..]));
        assert_eq!(elf.undefined_symbol("s").unwrap().as_deref(), Some("symbol"));
    }

    #[test]
    fn the_other_samples_are_accepted() {
        for version in 0..3 {
            let file = checkpoint(version);
            assert!(Checkpoint::parse(&file, file.len() as u64).is_ok());
        }
        for (model, pre) in [("llama", ""), ("gpt2", "falcon"), ("bert", "")] {
            let file = vocabulary(model, pre);
            let gguf = Gguf::parse(&file, file.len() as u64).unwrap();
            llmrt_tokenizer::Tokenizer::from_metadata(&gguf.metadata).unwrap();
        }
        for arch in ARCHS {
            model(arch);
        }
        llmrt_sparse::Predictor::from_pt(&torch_dict()).unwrap();
        llmrt_sparse::Counts::from_pt(&torch_tensor()).unwrap();
        gguf_with_every_type();
    }
}
