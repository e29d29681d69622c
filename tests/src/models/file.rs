//! Tensors with seeded numbers, a vocabulary, and the file they make.

use llmrt_abi::DType;
use llmrt_gguf::{Array, Gguf, Metadata, TensorShape, Value, writer};
use llmrt_graph::quant;

/// A file's tensors.
pub struct Tensors {
    shapes: Vec<TensorShape>,
    data: Vec<Vec<u8>>,
    seed: u64,
}

impl Tensors {
    /// None yet.
    pub fn new() -> Tensors {
        Tensors { shapes: vec![], data: vec![], seed: 1 }
    }

    /// Adds one with numbers in `bias` ± `scale`.
    pub fn add(&mut self, name: impl Into<String>, dtype: DType, dims: &[u64], scale: f32, bias: f32) {
        let n = dims.iter().product::<u64>() as usize;
        let values: Vec<f32> = (0..n).map(|_| bias + scale * next(&mut self.seed)).collect();
        self.shapes.push(TensorShape::new(name.into(), dtype, dims).unwrap());
        self.data.push(quant::quantise(dtype, &values));
    }

    /// The file's bytes.
    pub fn file(self, metadata: Metadata) -> Vec<u8> {
        let tables = writer::Tables { metadata, tensors: self.shapes, ..Default::default() };
        let slices: Vec<&[u8]> = self.data.iter().map(Vec::as_slice).collect();
        writer::to_vec(&tables, &slices).unwrap()
    }
}

/// An SPM vocabulary: unknown, BOS, EOS, the bytes, then letters.
pub fn vocabulary(m: &mut Metadata, n_vocab: u64) {
    let mut tokens = vec!["<unk>".to_string(), "<s>".into(), "</s>".into()];
    let mut types = vec![2, 3, 3];
    for byte in 0..256 {
        tokens.push(format!("<0x{byte:02X}>"));
        types.push(6);
    }
    let mut letters = "▁abcdefghijklmnopqrstuvwxyz".chars();
    while tokens.len() < n_vocab as usize {
        let i = tokens.len();
        tokens.push(letters.next().map_or(format!("w{i}"), String::from));
        types.push(1);
    }
    m.set("tokenizer.ggml.model", "llama");
    m.set("tokenizer.ggml.scores", Value::Array(Array::F32(tokens.iter().map(|_| 0.0).collect())));
    m.set("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    m.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    m.set("tokenizer.ggml.bos_token_id", 1u32);
    m.set("tokenizer.ggml.eos_token_id", 2u32);
}

/// A number in -1..1 (splitmix64).
fn next(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// A GGUF file with a vocabulary of letters and words in place of its own, as many as its embeddings have rows.
pub fn with_vocabulary(file: &[u8]) -> Vec<u8> {
    let gguf = Gguf::parse(file, file.len() as u64).unwrap();
    let n_vocab = gguf.tensor("token_embd.weight").unwrap().ne[1] as usize;
    let mut m = gguf.metadata.clone();
    let keys: Vec<_> = m.iter().map(|(key, _)| key.to_string()).collect();
    keys.iter().filter(|key| key.starts_with("tokenizer.")).for_each(|key| _ = m.remove(key));

    let first = ["<unk>", "<s>", "</s>"].map(String::from).into_iter();
    let letters = "▁abcdefghijklmnopqrstuvwxyz".chars().map(String::from);
    let words = (0..).map(|i| format!("w{i}"));
    let tokens: Vec<_> = first.chain(letters).chain(words).take(n_vocab).collect();
    let types = [2, 3, 3].into_iter().chain(std::iter::repeat(1)).take(n_vocab).collect();
    m.set("tokenizer.ggml.model", "llama");
    m.set("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0; n_vocab])));
    m.set("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    m.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));

    let tables = writer::Tables {
        metadata: m,
        tensors: gguf.tensors.iter().map(|t| t.shape()).collect(),
        ..Default::default()
    };
    let data: Vec<_> = gguf.tensors.iter().map(|t| &file[t.offset as usize..][..t.nbytes as usize]).collect();
    writer::to_vec(&tables, &data).unwrap()
}
