//! Files of every kind, opened or refused.

use super::*;
use crate::load::testing::{checkpoint, data, gguf, split_model, tokenizer_bin};
use llmrt_abi::DType;
use llmrt_gguf::writer::{Tables, to_vec};
use llmrt_gguf::{Flavour, TensorShape, Value};

/// Writes a file and opens it.
fn open(name: &str, bytes: &[u8], options: &OpenOptions) -> (tempfile::TempDir, Result<ModelFiles>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let files = ModelFiles::open(&path, options);
    (folder, files)
}

/// The message with which a file is refused.
fn refused(name: &str, bytes: &[u8], options: &OpenOptions, expected: &str) {
    let (_folder, files) = open(name, bytes, options);
    let message = files.unwrap_err().to_string();
    assert!(message.contains(expected) && message.contains(name), "{message}");
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn a_gguf_file_gives_metadata_and_bytes() {
    let (_folder, files) = open("m.gguf", &gguf(&[("a", 3), ("b", 5)], &[]), &OpenOptions::default());
    let files = files.unwrap();
    assert_eq!(files.kind, FileKind::Gguf);
    assert_eq!(files.model.metadata.str("general.architecture"), Some("test"));
    assert_eq!(files.bytes(files.tensor("b").unwrap()).unwrap(), data(1, 5));
    let mut part = [0; 4];
    files.read(files.tensor("b").unwrap(), 6, &mut part).unwrap();
    assert_eq!(part, data(1, 5)[6..10]);
    assert!(files.tensor("c").unwrap_err().to_string().contains("`c` is missing"));
}

#[test]
fn a_file_of_powerinfer_opens_like_a_gguf_file() {
    let mut tables = Tables { flavour: Flavour::PowerInfer, ..Tables::default() };
    tables.tensors = vec![TensorShape::new("a", DType::I32, &[2]).unwrap()];
    let (_folder, files) = open("m.gguf", &to_vec(&tables, &[&[7; 8]]).unwrap(), &OpenOptions::default());
    let files = files.unwrap();
    assert_eq!((files.kind, files.model.flavour), (FileKind::PowerInfer, Flavour::PowerInfer));
    assert_eq!(files.bytes(files.tensor("a").unwrap()).unwrap(), [7; 8]);
}

#[test]
fn tables_longer_than_the_first_read_are_read_on() {
    let long = Value::String("x".repeat(3 << 20));
    let (_folder, files) = open("m.gguf", &gguf(&[("a", 3)], &[("long", long)]), &OpenOptions::default());
    assert_eq!(files.unwrap().model.metadata.str("long").unwrap().len(), 3 << 20);
}

#[test]
fn any_part_of_a_split_model_opens_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    for path in split_model(folder.path(), 3) {
        let files = ModelFiles::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!((files.model.n_files, files.sources.len()), (3, 3));
        assert_eq!(files.bytes(files.tensor("t2").unwrap()).unwrap(), data(0, 8));
        let names: Vec<_> = files.files().map(|f| f.path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names[2], "m-00003-of-00003.gguf");
    }
}

#[test]
fn a_missing_part_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let paths = split_model(folder.path(), 3);
    std::fs::remove_file(&paths[1]).unwrap();
    for path in [&paths[0], &paths[2]] {
        let message = ModelFiles::open(path, &OpenOptions::default()).unwrap_err().to_string();
        assert!(message.contains("m-00002-of-00003.gguf: part 2 of 3"), "{message}");
        assert!(message.contains("No such file"), "{message}");
    }
}

#[test]
fn a_wrong_part_is_named_whichever_part_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let paths = split_model(folder.path(), 3);
    std::fs::copy(&paths[2], &paths[1]).unwrap();
    for path in [&paths[0], &paths[2]] {
        let message = ModelFiles::open(path, &OpenOptions::default()).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{}: part 2 of 3", paths[1].display())), "{message}");
        assert!(message.contains("the file is part 3 of 3"), "{message}");
    }
}

#[test]
fn a_part_under_another_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let paths = split_model(folder.path(), 2);
    for name in ["m.gguf", "m-00002-of-00002.gguf", "m-00001-of-00003.gguf"] {
        let renamed = folder.path().join(name);
        std::fs::copy(&paths[0], &renamed).unwrap();
        let message = ModelFiles::open(&renamed, &OpenOptions::default()).unwrap_err().to_string();
        assert!(message.contains("ends in `-00001-of-00002.gguf`"), "{message}");
    }
}

#[test]
fn overrides_change_what_the_model_sees() {
    let overrides = vec!["general.architecture=str:other".into(), "n=int:7".into()];
    let options = OpenOptions { overrides, ..OpenOptions::default() };
    let (_folder, files) = open("m.gguf", &gguf(&[("a", 3)], &[("n", Value::U8(1))]), &options);
    let metadata = files.unwrap().model.metadata;
    assert_eq!(metadata.str("general.architecture"), Some("other"));
    assert_eq!(metadata.get("n"), Some(&Value::U8(7)));

    let options = OpenOptions { overrides: vec!["n".into()], ..OpenOptions::default() };
    let (_folder, files) = open("m.gguf", &gguf(&[("a", 3)], &[]), &options);
    assert!(files.unwrap_err().to_string().starts_with("--override-kv: "));
}

#[test]
fn a_checkpoint_is_a_llama_whose_f32_stay_in_the_file() {
    let (_folder, files) = open("m.bin", &checkpoint(0), &OpenOptions::default());
    let files = files.unwrap();
    assert_eq!(files.model.metadata.str("general.architecture"), Some("llama"));
    assert!(!files.model.metadata.contains("tokenizer.ggml.tokens"));
    let embedding = files.tensor("token_embd.weight").unwrap();
    assert_eq!((embedding.file, embedding.offset), (0, 28));
    assert_eq!(f32s(&files.bytes(embedding).unwrap())[..2], [1.0, 2.0]);
}

#[test]
fn int8_groups_read_as_f32_from_any_byte_on() {
    let (_folder, files) = open("m.bin", &checkpoint(2), &OpenOptions::default());
    let files = files.unwrap();
    let first_norm = files.tensor("blk.0.attn_norm.weight").unwrap();
    assert_eq!(f32s(&files.bytes(first_norm).unwrap())[..2], [1.0, 2.0]);

    for (name, first) in [("token_embd.weight", 25.0), ("blk.0.attn_q.weight", 35.0)] {
        let tensor = files.tensor(name).unwrap();
        let whole = files.bytes(tensor).unwrap();
        assert_eq!(f32s(&whole)[..9], [0, 0, 0, 0, 1, 1, 1, 1, 2].map(|g| first + g as f32), "{name}");
        for (off, n) in [(0, 4), (12, 8), (16, 100), (21, 13), (156, 4), (158, 2)] {
            let mut part = vec![0; n];
            files.read(tensor, off, &mut part).unwrap();
            assert_eq!(part, whole[off as usize..off as usize + n], "{name} {off}+{n}");
        }
    }
}

#[test]
fn tokenizer_bin_is_found_beside_the_checkpoint_or_at_the_given_path() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.bin");
    std::fs::write(&model, checkpoint(2)).unwrap();
    let named = folder.path().join("other.bin");
    let n_tokens = |tokenizer: Option<&PathBuf>| {
        let options = OpenOptions { tokenizer: tokenizer.cloned(), ..OpenOptions::default() };
        let files = ModelFiles::open(&model, &options).map_err(|e| e.to_string())?;
        Ok(files.model.metadata.get("tokenizer.ggml.tokens").is_some())
    };
    assert_eq!(n_tokens(None), Ok(false));
    let missing: String = n_tokens(Some(&named)).unwrap_err();
    assert!(missing.contains("other.bin: cannot open: No such file"), "{missing}");

    std::fs::write(&named, tokenizer_bin(5)).unwrap();
    assert_eq!(n_tokens(Some(&named)), Ok(true));
    std::fs::write(folder.path().join("tokenizer.bin"), tokenizer_bin(6)).unwrap();
    assert_eq!(n_tokens(None), Ok(true));
    std::fs::write(folder.path().join("tokenizer.bin"), tokenizer_bin(4)).unwrap();
    let short = n_tokens(None).unwrap_err();
    assert!(short.contains("tokenizer.bin: ") && short.contains("holds 4 tokens"), "{short}");
}

#[test]
fn what_is_no_model_is_refused_with_path_reason_and_remedy() {
    let plain = OpenOptions::default();
    refused("empty.gguf", b"", &plain, "the file is empty");
    refused("page.gguf", b"<!DOCTYPE html><html>", &plain, "begins with \"<!DOCTYPE html><");
    refused("short.gguf", &gguf(&[("a", 300)], &[])[..500], &plain, "tensor `a` ends at byte");
    refused("header.gguf", b"GGUF\x03\0\0\0", &plain, "file ends early");
    refused("m.bin", &checkpoint(0)[..600], &plain, "neither GGUF nor a llama2.c checkpoint");
    refused("m2.bin", &checkpoint(2)[..600], &plain, "checkpoint v2: the file has 600 bytes");
    let named = OpenOptions { tokenizer: Some("t.bin".into()), ..OpenOptions::default() };
    refused("m.gguf", &gguf(&[("a", 3)], &[]), &named, "--tokenizer is for llama2.c");
}

#[test]
fn paths_that_are_no_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let message = |path: &Path| ModelFiles::open(path, &OpenOptions::default()).unwrap_err().to_string();
    assert!(message(&folder.path().join("absent.gguf")).contains("absent.gguf: cannot open: No such file"));
    assert!(message(Path::new("/dev/zero")).contains("no regular file"));
    std::fs::write(folder.path().join("m.gguf"), "x").unwrap();
    let directory = message(folder.path());
    assert!(
        directory.contains("is a directory: give the model file in it, for example m.gguf"),
        "{directory}"
    );
}

#[test]
fn a_file_truncated_after_it_was_opened_is_refused_with_both_lengths() {
    let (folder, files) = open("m.gguf", &gguf(&[("a", 3), ("b", 5)], &[]), &OpenOptions::default());
    let files = files.unwrap();
    std::fs::OpenOptions::new().write(true).open(folder.path().join("m.gguf")).unwrap().set_len(100).unwrap();
    let message = files.bytes(files.tensor("b").unwrap()).unwrap_err().to_string();
    assert!(message.contains("when it was opened and has 100 now"), "{message}");
}
