//! llama2.c checkpoints: `--sampler llama2c`, and `convert`.

use super::{checkpoint, stdout};
use llmrt_tests::build::{fail, llmrt, succeed};
use std::path::Path;

fn story(model: &Path, more: &[&str]) -> String {
    let mut args = vec!["run", "--sampler", "llama2c", "-m", model.to_str().unwrap()];
    args.extend(more);
    stdout(args)
}

#[test]
fn the_prompt_is_echoed_and_n_counts_positions() {
    let (_dir, model) = checkpoint();
    // " the" is a space and one token, then "a": with the first token's own position that makes three.
    assert_eq!(story(&model, &["-p", "thea", "-n", "3", "--temp", "0"]), "thea\n");
    assert_eq!(story(&model, &["-p", "thea", "-n", "2", "--temp", "0"]), "the\n");
    assert!(story(&model, &["-p", "thea", "--temp", "0"]).starts_with("thea"));
}

#[test]
fn a_seed_gives_the_same_text() {
    let (_dir, model) = checkpoint();
    assert_eq!(
        story(&model, &["-s", "5"]),
        story(&model, &["-s", "5", "-n", "0"]),
        "0 and 256 are more than 32"
    );
    let texts: Vec<_> = (1..9).map(|seed| story(&model, &["-s", &seed.to_string()])).collect();
    assert!(texts.iter().any(|t| *t != texts[0]));
}

#[test]
fn a_converted_checkpoint_gives_the_same_text() {
    let (dir, model) = checkpoint();
    let gguf = dir.path().join("tiny.gguf");
    succeed(llmrt(["convert"]).arg(&model).arg(&gguf));
    for flags in [&["--temp", "0"][..], &["-s", "3", "-p", "the a"], &["-s", "4", "--top-p", "1"]] {
        assert_eq!(story(&gguf, flags), story(&model, flags), "{flags:?}");
    }
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "nothing else remains: {names:?}");
}

#[test]
fn convert_overwrites_only_when_forced() {
    let (dir, model) = checkpoint();
    let gguf = dir.path().join("tiny.gguf");
    std::fs::write(&gguf, "precious").unwrap();
    let stderr = fail(llmrt(["convert"]).arg(&model).arg(&gguf), 1);
    assert!(stderr.contains("exists already") && stderr.contains("--force"), "{stderr}");
    assert_eq!(std::fs::read(&gguf).unwrap(), b"precious");
    succeed(llmrt(["convert", "--force"]).arg(&model).arg(&gguf));
    assert!(std::fs::read(&gguf).unwrap().starts_with(b"GGUF"));
}

#[test]
fn convert_never_overwrites_what_it_reads() {
    let (dir, model) = checkpoint();
    let (link, tokenizer) = (dir.path().join("link.bin"), dir.path().join("tokenizer.bin"));
    std::fs::hard_link(&model, &link).unwrap();
    let before = [&model, &tokenizer].map(|path| std::fs::read(path).unwrap());
    for output in [&model, &link, &tokenizer] {
        let stderr = fail(llmrt(["convert", "--force"]).arg(&model).arg(output), 2);
        assert!(stderr.contains("give the output another name"), "{stderr}");
    }
    assert_eq!([&model, &tokenizer].map(|path| std::fs::read(path).unwrap()), before);
}

#[test]
fn without_the_sampler_a_checkpoint_writes_what_its_gguf_file_writes() {
    let (dir, model) = checkpoint();
    let gguf = dir.path().join("tiny.gguf");
    succeed(llmrt(["convert"]).arg(&model).arg(&gguf));
    for flags in [&["--temp", "0"][..], &["-s", "3", "-p", "caf\u{e9} the"], &["-s", "4", "--top-k", "0"]] {
        let text = |model: &Path| succeed(llmrt(["run", "-m"]).arg(model).args(flags)).stdout;
        assert_eq!(text(&model), text(&gguf), "{flags:?}");
    }
}

#[test]
fn a_checkpoint_without_tokenizer_evaluates_and_text_is_refused_with_the_remedy() {
    let (dir, model) = checkpoint();
    std::fs::rename(dir.path().join("tokenizer.bin"), dir.path().join("other.bin")).unwrap();
    succeed(llmrt(["eval", "--tokens", "1 2 3", "-m"]).arg(&model));
    let stderr = fail(llmrt(["run", "-m"]).arg(&model), 3);
    assert!(stderr.contains("tokenizer.bin with --tokenizer FILE"), "{stderr}");
    let other = dir.path().join("other.bin");
    succeed(llmrt(["run", "-n", "3", "-m"]).arg(&model).arg("--tokenizer").arg(other));
}

#[test]
fn a_truncated_checkpoint_is_refused_with_both_lengths() {
    let (dir, model) = checkpoint();
    let bytes = std::fs::read(&model).unwrap();
    std::fs::write(&model, &bytes[..bytes.len() - 4]).unwrap();
    let gguf = dir.path().join("tiny.gguf");
    let stderr = fail(llmrt(["convert"]).arg(&model).arg(&gguf), 3);
    assert!(stderr.contains(&bytes.len().to_string()) && stderr.contains("tiny.bin"), "{stderr}");
    assert!(!gguf.exists());
}
