//! Files with one thing wrong, each refused with the error that names it.

use crate::{Error, Gguf};

/// A file by its fields, so that each can be wrong.
struct File {
    magic: &'static [u8],
    version: u32,
    n_tensors: Option<u64>,
    n_pairs: Option<u64>,
    pairs: Vec<(&'static str, Vec<u8>)>,
    tensors: Vec<Entry>,
    data: usize,
}

struct Entry {
    name: String,
    n_dims: Option<u32>,
    dims: Vec<i64>,
    type_id: u32,
    offset: u64,
}

/// Two pairs; `a` is F32 [8, 2] in bytes 0 to 64, `b` is Q4_0 [32] in bytes 64 to 82.
fn good() -> File {
    let entry = |name: &str, dims: &[i64], type_id, offset| Entry {
        name: name.into(),
        n_dims: None,
        dims: dims.into(),
        type_id,
        offset,
    };
    File {
        magic: b"GGUF",
        version: 3,
        n_tensors: None,
        n_pairs: None,
        pairs: vec![("n", value(4, &7u32.to_le_bytes())), ("s", value(8, &string("llama")))],
        tensors: vec![entry("a", &[8, 2], 0, 0), entry("b", &[32], 2, 64)],
        data: 82,
    }
}

fn value(type_id: u32, bytes: &[u8]) -> Vec<u8> {
    [&type_id.to_le_bytes(), bytes].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// An array's element type, count, and the bytes that follow.
fn array(type_id: u32, n: u64, bytes: &[u8]) -> Vec<u8> {
    value(9, &[&type_id.to_le_bytes(), &n.to_le_bytes()[..], bytes].concat())
}

impl File {
    fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_pairs.unwrap_or(self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            out.extend(string(key));
            out.extend(value);
        }
        for t in &self.tensors {
            out.extend(string(&t.name));
            out.extend(t.n_dims.unwrap_or(t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|n| out.extend(n.to_le_bytes()));
            out.extend(t.type_id.to_le_bytes());
            out.extend(t.offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(32) + self.data, 0);
        out
    }

    fn parse(&self) -> Result<Gguf, Error> {
        let bytes = self.bytes();
        Gguf::parse(&bytes, bytes.len() as u64)
    }
}

/// The error of a good file after `spoil`.
fn error(spoil: impl FnOnce(&mut File)) -> Error {
    let mut file = good();
    spoil(&mut file);
    file.parse().unwrap_err()
}

fn refused(spoil: impl FnOnce(&mut File), expected: Error) {
    assert_eq!(error(spoil), expected);
}

fn refused_with(spoil: impl FnOnce(&mut File), expected: &str) {
    let message = error(spoil).to_string();
    assert!(message.contains(expected), "{message}");
}

/// Adds one pair.
fn with(key: &'static str, value: Vec<u8>) -> impl FnOnce(&mut File) {
    move |f| f.pairs.push((key, value))
}

fn a() -> String {
    "a".into()
}

#[test]
fn the_good_file_is_good() {
    let gguf = good().parse().unwrap();
    assert_eq!(gguf.metadata.u32("n"), Some(7));
    assert_eq!(gguf.tensor("b").unwrap().offset, gguf.data_offset + 64);
    assert_eq!(gguf.tensor("b").unwrap().nbytes, 18);
}

#[test]
fn wrong_magic_and_versions() {
    refused(|f| f.magic = b"GGML", Error::BadMagic { found: "GGML".into() });
    refused(|f| f.magic = b"\0\xff\n~", Error::BadMagic { found: r"\x00\xff\n~".into() });
    refused(|f| f.version = 0, Error::BadVersion { found: 0 });
    refused(|f| f.version = 1, Error::BadVersion { found: 1 });
    refused(|f| f.version = 4, Error::BadVersion { found: 4 });
    refused(|f| f.version = 3u32.swap_bytes(), Error::WrongEndianness { found: 0x0300_0000 });
}

#[test]
fn counts_that_the_file_cannot_hold() {
    refused_with(|f| f.n_tensors = Some(u64::MAX), "tensor count claims 18446744073709551615 entries");
    refused_with(|f| f.n_tensors = Some(10), "tensor count claims 10 entries");
    refused_with(|f| f.n_pairs = Some(1 << 63), "metadata count claims 9223372036854775808 entries");
    refused_with(|f| f.n_pairs = Some(3), "needs"); // the tensor table read as a pair
    refused_with(|f| f.n_tensors = Some(3), "tensor `a` ends at byte"); // the table grew into the data
}

#[test]
fn lengths_that_the_file_cannot_hold() {
    refused_with(
        with("k", value(8, &u64::MAX.to_le_bytes())),
        "needs 18446744073709551615 bytes, the file has",
    );
    refused_with(with("k", value(8, &10_000u64.to_le_bytes())), "value of metadata key `k` at byte");
    refused_with(with("k", array(4, u64::MAX, &[])), "array of metadata key `k` claims 18446744073709551615");
    refused_with(with("k", array(12, 1 << 61, &[])), "array of metadata key `k` claims");
    refused_with(with("k", array(8, 1 << 40, &[])), "array of metadata key `k` claims 1099511627776");
    refused_with(with("k", array(9, 1 << 40, &[])), "array of metadata key `k` claims 1099511627776");
}

#[test]
fn bad_metadata() {
    refused(with("n", value(0, &[1])), Error::DuplicateKey { key: "n".into() });
    refused(with("k", value(13, &[1])), Error::BadValueType { key: "k".into(), found: 13 });
    refused(with("k", array(99, 1, &[1])), Error::BadValueType { key: "k".into(), found: 99 });
    let deep: Vec<u8> = [9u32, 1, 0].map(u32::to_le_bytes).concat().repeat(1000);
    refused(with("k", value(9, &deep)), Error::NestedTooDeep { key: "k".into(), limit: 4 });
}

#[test]
fn bad_alignments() {
    for (bytes, found) in [
        (value(4, &0u32.to_le_bytes()), "u32 0"),
        (value(4, &48u32.to_le_bytes()), "u32 48"),
        (value(10, &32u64.to_le_bytes()), "u64 32"),
        (value(8, &string("32")), "str"),
    ] {
        refused(with("general.alignment", bytes), Error::BadAlignment { found: found.into() });
    }
    refused_with(with("general.alignment", value(4, &(1u32 << 31).to_le_bytes())), "ends at byte 2147483712");
}

#[test]
fn bad_names_and_shapes() {
    refused_with(|f| f.tensors[0].name = "x".repeat(64), "the name has 64 bytes");
    refused(|f| f.tensors[1].name = a(), Error::DuplicateTensor { tensor: a() });
    refused(|f| f.tensors[0].n_dims = Some(5), Error::TooManyDims { tensor: a(), found: 5 });
    refused(|f| f.tensors[0].n_dims = Some(u32::MAX), Error::TooManyDims { tensor: a(), found: u32::MAX });
    refused(|f| f.tensors[0].dims[1] = 0, Error::BadDim { tensor: a(), dim: 1, found: 0 });
    refused(|f| f.tensors[0].dims[0] = -8, Error::BadDim { tensor: a(), dim: 0, found: -8 });
    let huge = 1 << 62;
    let ne = [huge as u64, 2, 1, 1];
    refused(|f| f.tensors[0].dims[0] = huge, Error::TooManyElements { tensor: a(), ne });
    refused_with(|f| f.tensors[0].dims = vec![1 << 32; 4], "more elements or bytes");
}

#[test]
fn bad_types() {
    for found in [4, 5, 31, 36, 43, u32::MAX] {
        refused(|f| f.tensors[0].type_id = found, Error::BadTensorType { tensor: a(), found });
    }
    let partial = Error::PartialBlock { tensor: "b".into(), found: 33, dtype: "Q4_0", block: 32 };
    refused(|f| f.tensors[1].dims[0] = 33, partial);
}

#[test]
fn bad_places() {
    let b = || "b".to_string();
    refused(|f| f.tensors[1].offset = 65, Error::MisalignedTensor { tensor: b(), found: 65, alignment: 32 });
    refused(|f| f.tensors[1].offset = 32, Error::OutOfOrder { tensor: b(), found: 32, expected: 64 }); // overlap
    refused(|f| f.tensors[1].offset = 96, Error::OutOfOrder { tensor: b(), found: 96, expected: 64 }); // gap
    refused(|f| f.tensors.swap(0, 1), Error::OutOfOrder { tensor: b(), found: 64, expected: 0 });
    let far = u64::MAX - 31;
    refused(|f| f.tensors[1].offset = far, Error::OutOfOrder { tensor: b(), found: far, expected: 64 });
    let file_len = good().bytes().len() as u64 - 1;
    refused(|f| f.data -= 1, Error::PastEnd { tensor: b(), end: file_len + 1, file_len });
    refused_with(|f| f.data = 0, "tensor `a` ends at byte");
}

#[test]
fn powerinfer_files_number_integers_in_their_own_way() {
    let mut file = good();
    (file.magic, file.tensors[0].type_id) = (b"PWRI", 18);
    let gguf = file.parse().unwrap();
    assert_eq!(gguf.flavour, crate::Flavour::PowerInfer);
    assert_eq!(gguf.tensors[0].dtype, llmrt_abi::DType::I32);
}

#[test]
fn only_indexes_of_powerinfer_have_empty_rows() {
    let with = |magic, arch| {
        let mut file = good();
        file.magic = magic;
        file.pairs.push(("general.architecture", value(8, &string(arch))));
        file.tensors[0].dims = vec![0];
        file.tensors[1].offset = 0;
        file.data = 18;
        file.parse()
    };
    let empty = with(b"PWRI", crate::NEURON_INDEX_ARCH).unwrap();
    assert_eq!((empty.tensors[0].nbytes, empty.tensors[0].offset), (0, empty.tensors[1].offset));
    let refusal = Error::BadDim { tensor: a(), dim: 0, found: 0 };
    assert_eq!(with(b"GGUF", crate::NEURON_INDEX_ARCH), Err(refusal.clone()));
    assert_eq!(with(b"PWRI", "llama"), Err(refusal));
}
