//! Bad files through the program: exit code 3, one message that names the file, no panic, and no memory to speak of.

use llmrt_gguf::{Metadata, Value, writer};
use llmrt_tests::build::{bin_dir, fail, llmrt};
use llmrt_tests::models::TinyLlama;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Address space a command may take, in KiB: the program, its libraries and stacks, and little more.
const MEMORY: u32 = 400 << 10;

/// Every command that opens a model must refuse this file, with a message that holds `why`.
fn check(name: &str, bytes: &[u8], why: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    refused_by_all(&path, why);
}

fn refused_by_all(path: &Path, why: &str) {
    let file = path.to_str().unwrap();
    for args in [
        &["run", "-m", file, "-p", "hi", "-n", "1"][..],
        &["eval", "-m", file, "--tokens", "1"],
        &["bench", "-m", file, "-p", "1", "-n", "1", "-r", "1"],
        &["tokenize", "-m", file, "-p", "hi"],
        &["detokenize", "-m", file, "1"],
        &["inspect", file],
        &["inspect", file, "--tensors"],
        &["plan", file],
    ] {
        refused(args, path, why);
    }
}

/// Exit code 3 and one message: it names the file and the cause, and cannot control the terminal.
fn refused(args: &[&str], path: &Path, why: &str) {
    let stderr = fail(&mut with_little_memory(args), 3);
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(stderr.contains(name) && stderr.contains(why), "{args:?}: {stderr}");
    assert!(!stderr.contains("panicked") && !stderr.contains("allocation"), "{args:?}: {stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{args:?}: {stderr}");
    assert!(!stderr.trim_end().contains(char::is_control), "{args:?}: {stderr:?}");
    assert!(stderr.len() < 1000, "{args:?}: {} bytes of message", stderr.len());
}

/// The program under `ulimit -v`.
fn with_little_memory(args: &[&str]) -> Command {
    let plain = llmrt(args);
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("ulimit -v {MEMORY} && exec \"$0\" \"$@\""))
        .arg(bin_dir().join("llmrt"))
        .args(args);
    for (key, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    command.stdin(std::process::Stdio::null());
    command
}

/// A header of version 3 with these counts, a body, and zeros up to 4 KB.
fn gguf(n_tensors: u64, n_pairs: u64, body: &[&[u8]]) -> Vec<u8> {
    let head = [&b"GGUF\x03\0\0\0"[..], &n_tensors.to_le_bytes(), &n_pairs.to_le_bytes()];
    let mut bytes = [&head[..], body].concat().concat();
    bytes.resize(4096, 0);
    bytes
}

/// A length in 64 bits, then the text.
fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A good model.
fn good() -> Vec<u8> {
    TinyLlama::default().bytes()
}

#[test]
fn the_limit_on_memory_leaves_room_for_a_good_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = TinyLlama::default().write(dir.path());
    let out =
        with_little_memory(&["eval", "-m", path.to_str().unwrap(), "--tokens", "1 2"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn what_is_no_file_to_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    refused_by_all(&dir.path().join("absent.gguf"), "");
    let folder = dir.path().join("folder.gguf");
    std::fs::create_dir(&folder).unwrap();
    refused_by_all(&folder, "directory");
    check("empty.gguf", b"", "empty");
}

#[test]
#[cfg(unix)]
fn a_file_that_may_not_be_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = TinyLlama::default().write(dir.path());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&path).is_ok() {
        llmrt_tests::skip::skipped("this user may read everything");
        return;
    }
    refused_by_all(&path, "ermission");
}

#[test]
fn truncated_files_are_refused() {
    let bytes = good();
    for n in [3, 4, 7, 20, 100, bytes.len() / 2, bytes.len() - 32] {
        check("truncated.gguf", &bytes[..n], "");
    }
}

#[test]
fn foreign_files_are_refused() {
    check("ggml.gguf", &[b"GGML", &good()[4..]].concat(), "begins with");
    check("text.gguf", "This is a text, not a model.\n".repeat(100).as_bytes(), "begins with");
    check("old.gguf", &[b"GGUF\x01\0\0\0", &good()[8..]].concat(), "version 1");
    check("big-endian.gguf", &[b"GGUF\0\0\0\x03", &good()[8..]].concat(), "byte order");
}

#[test]
fn counts_beyond_the_file_are_refused() {
    let array = |element: u32, n: u64| {
        gguf(0, 1, &[&text("key"), &9u32.to_le_bytes(), &element.to_le_bytes(), &n.to_le_bytes()])
    };
    for n in [u64::MAX, 1 << 60, 1 << 32, 5000] {
        check("tensors.gguf", &gguf(n, 0, &[]), "the tensor count");
        check("pairs.gguf", &gguf(0, n, &[]), "the metadata count");
        for element in [0, 5, 8, 9, 12] {
            check("array.gguf", &array(element, n), "`key`");
        }
        check("name.gguf", &gguf(0, 1, &[&n.to_le_bytes()]), "metadata key 0");
    }
}

#[test]
fn tensors_beyond_the_file_are_refused() {
    let tensor = |ne: [u64; 2], offset: u64| {
        let dims = [&ne[0].to_le_bytes()[..], &ne[1].to_le_bytes()].concat();
        gguf(1, 0, &[&text("w"), &2u32.to_le_bytes(), &dims, &0u32.to_le_bytes(), &offset.to_le_bytes()])
    };
    check("elements.gguf", &tensor([1 << 40, 1 << 20], 0), "tensor `w`");
    check("overflow.gguf", &tensor([1 << 40, 1 << 40], 0), "tensor `w`");
    check("negative.gguf", &tensor([u64::MAX, 1], 0), "tensor `w`");
    check("offset.gguf", &tensor([8, 8], 1 << 60), "tensor `w`");
}

#[test]
fn names_that_would_steer_the_terminal_are_spelled_out() {
    let pair = [text("\x1b[2J\nx"), 0u32.to_le_bytes().to_vec(), vec![1]].concat();
    check("escape.gguf", &gguf(0, 2, &[&pair, &pair]), r"\u{1b}[2J\nx");
    let long = [text(&"k".repeat(1500)), 0u32.to_le_bytes().to_vec(), vec![1]].concat();
    check("long.gguf", &gguf(0, 2, &[&long, &long]), "kkkk");
}

/// A good model with one metadata value changed; commands that build the model must refuse it.
#[test]
fn absurd_model_numbers_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (key, value) in [
        ("llama.block_count", Value::U32(u32::MAX)),
        ("llama.block_count", Value::U32(4096)),
        ("llama.embedding_length", Value::U64(1 << 60)),
        ("llama.attention.head_count", Value::U32(0)),
        ("llama.attention.head_count_kv", Value::U32(3)),
        ("llama.expert_count", Value::U32(1 << 16)),
        ("llama.rope.dimension_count", Value::U32(u32::MAX)),
        ("general.architecture", Value::String("\x1b[31mnew".into())),
        ("llama.context_length", Value::String("long".into())),
    ] {
        let path = dir.path().join("absurd.gguf");
        std::fs::write(&path, changed(&good(), key, value)).unwrap();
        let file = path.to_str().unwrap();
        refused(&["eval", "-m", file, "--tokens", "1"], &path, "");
        refused(&["plan", file], &path, "");
    }
}

/// The file with another value for `key`.
fn changed(bytes: &[u8], key: &str, value: Value) -> Vec<u8> {
    let file = llmrt_gguf::Gguf::parse(bytes, bytes.len() as u64).unwrap();
    let mut metadata: Metadata = file.metadata.clone();
    metadata.set(key, value);
    let tensors = file.tensors.iter().map(|t| t.shape()).collect();
    let data: Vec<&[u8]> =
        file.tensors.iter().map(|t| &bytes[t.offset as usize..(t.offset + t.nbytes) as usize]).collect();
    writer::to_vec(&writer::Tables { metadata, tensors, ..Default::default() }, &data).unwrap()
}

/// Seven numbers of a llama2.c checkpoint after the magic of a version (none for 0), then zeros.
fn checkpoint(version: u32, config: [i32; 7]) -> Vec<u8> {
    let magic = [0x616b_3432u32, version].map(u32::to_le_bytes).concat();
    let mut bytes = if version == 0 { Vec::new() } else { magic };
    bytes.extend(config.iter().flat_map(|n| n.to_le_bytes()));
    bytes.resize(4096, 0);
    bytes
}

#[test]
fn checkpoints_shorter_or_longer_than_their_header_states_are_refused() {
    for version in 0..4 {
        check("small.bin", &checkpoint(version, [8, 12, 2, 2, 1, 5, 3]), "");
        check("big.bin", &checkpoint(version, [1 << 30, 1 << 30, 1 << 30, 2, 1, 1 << 30, 1 << 30]), "");
        check("layers.bin", &checkpoint(version, [2, 1, i32::MAX, 1, 1, 1, 1]), "");
        check("negative.bin", &checkpoint(version, [-8, 12, 2, 2, 1, 5, 3]), "");
        check("heads.bin", &checkpoint(version, [8, 12, 2, 0, 0, 5, 3]), "");
        check("header.bin", &checkpoint(version, [8, 12, 2, 2, 1, 5, 3])[..20], "");
    }
}

#[test]
fn broken_tokenizer_bins_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = good_checkpoint(dir.path());
    let (model, path) = (model.to_str().unwrap(), dir.path().join("bad-tokenizer.bin"));
    let number = |n: i32| n.to_le_bytes();
    for bytes in [
        vec![],
        vec![1, 2, 3],
        number(0).to_vec(),
        [number(i32::MAX), number(0), number(i32::MAX)].concat(),
        [number(8), number(0), number(-1)].concat(),
        [number(8), number(0x7fc0_0000), number(1)].concat(), // a score that is no number
        b"GGUF\x03\0\0\0".repeat(100),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let file = path.to_str().unwrap();
        refused(&["run", "-m", model, "--tokenizer", file, "-p", "hi", "-n", "1"], &path, "");
        refused(&["tokenize", "-m", model, "--tokenizer", file, "-p", "hi"], &path, "");
    }
    refused(&["run", "-m", model, "--tokenizer", dir.path().to_str().unwrap(), "-p", "hi"], dir.path(), "");
}

/// A checkpoint of format 0: dim 8, hidden 12, 1 layer, 2 heads, 1 KV head, 300 tokens, 8 positions; weights are 0.
fn good_checkpoint(dir: &Path) -> PathBuf {
    let mut bytes = checkpoint(0, [8, 12, 1, 2, 1, 300, 8])[..28].to_vec();
    let (attention, ffn) = (8 + 2 * 64 + 2 * 32, 8 + 3 * 96);
    bytes.resize(28 + 4 * (300 * 8 + attention + ffn + 8 + 8 * 4), 0);
    let path = dir.join("good.bin");
    std::fs::write(&path, bytes).unwrap();
    path
}
