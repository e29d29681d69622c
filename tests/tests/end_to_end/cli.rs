//! The commands of `llmrt`, each run as a person would, on the embedded model and on small generated files.

mod batch;
mod chat;
mod devices;
mod doctor;
mod eval;
mod files;
mod llama2c;
mod perplexity;
mod quantize;
mod run;
mod sparse;
mod sparse_profile;
mod store;
mod synth;
mod tables;
mod terminal;
mod text;
mod truncated;
mod wrong;

use llmrt_tests::build::{llmrt, succeed};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The text that `llmrt` with these words writes to stdout.
fn stdout<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    text(&succeed(&mut llmrt(args)).stdout)
}

/// The JSON that a command writes to stdout.
fn json(command: &mut Command) -> Value {
    let out = succeed(command);
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&out.stdout)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// A folder, and a llama2.c checkpoint of version 0 with its tokenizer.bin in it: one layer of width 8, two heads, 32
/// positions, and a vocabulary of bytes and small letters.
fn checkpoint() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.bin");
    let (tokenizer, n_vocab) = tokenizer_bin();
    std::fs::write(dir.path().join("tokenizer.bin"), tokenizer).unwrap();
    write_checkpoint(&path, n_vocab);
    (dir, path)
}

fn write_checkpoint(path: &Path, n_vocab: i32) {
    let (dim, hidden, n_positions, head) = (8, 16, 32, 4);
    let header = [dim, hidden, 1, 2, 2, n_vocab, n_positions];
    let n_block = 4 * dim * dim + 3 * dim * hidden + 2 * dim;
    let n_floats = n_vocab * dim + n_block + dim + n_positions * head;
    let mut bytes: Vec<u8> = header.iter().flat_map(|n: &i32| n.to_le_bytes()).collect();
    let mut state = 1u32;
    for _ in 0..n_floats {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = (state >> 8) as f32 / (1 << 23) as f32 - 1.0; // even in -1..1
        bytes.extend(value.to_le_bytes());
    }
    std::fs::write(path, bytes).unwrap();
}

/// The file, and how many tokens it has.
fn tokenizer_bin() -> (Vec<u8>, i32) {
    let mut pieces: Vec<Vec<u8>> = ["<unk>", "\n<s>\n", "\n</s>\n"].map(|p| p.as_bytes().to_vec()).into();
    pieces.extend((0..256).map(|b| format!("<0x{b:02X}>").into_bytes()));
    pieces.extend((b'a'..=b'z').map(|b| vec![b]));
    pieces.extend([b" ".to_vec(), b" a".to_vec(), b"th".to_vec(), b"the".to_vec()]);
    let mut bytes = 6i32.to_le_bytes().to_vec();
    for (id, piece) in pieces.iter().enumerate() {
        bytes.extend((-(id as f32)).to_le_bytes());
        bytes.extend((piece.len() as i32).to_le_bytes());
        bytes.extend(piece);
    }
    (bytes, pieces.len() as i32)
}
