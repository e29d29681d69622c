//! llama2.c checkpoints give the text that llama2.c's own program printed, byte for byte.

use llmrt_tests::build::{llmrt, succeed};
use llmrt_tests::fixtures::{fixture, fixtures};
use std::path::Path;

/// Rows of cases.tsv: case, model, flags of llama2.c's run, prompt.
fn cases(dir: &Path) -> Vec<[String; 4]> {
    let table = std::fs::read_to_string(dir.join("cases.tsv")).unwrap();
    let rows: Vec<_> = table
        .lines()
        .filter(|line| line.starts_with("case"))
        .map(|line| {
            let mut cells = line.split('\t').map(str::to_string);
            [0; 4].map(|_| cells.next().unwrap_or_default())
        })
        .collect();
    assert_eq!(rows.len(), 27);
    rows
}

/// llama2.c's `-t 0.5 -p 0.9 -s 42 -n 64` in our words.
fn flags(theirs: &str) -> Vec<String> {
    theirs
        .split_whitespace()
        .map(|word| match word {
            "-t" => "--temp".into(),
            "-p" => "--top-p".into(),
            "-s" => "--seed".into(),
            other => other.to_string(),
        })
        .collect()
}

fn check(version: &str, kind: &str) {
    let Some(dir) = fixtures("llama2c") else { return };
    for [case, model, their_flags, prompt] in cases(&dir) {
        let mut command = llmrt(["run", "--sampler", "llama2c", "-m"]);
        let Some(file) = fixture(&dir, &format!("{model}-{version}.bin")) else { continue };
        command.arg(file).args(flags(&their_flags));
        command.arg(format!("--prompt={prompt}"));
        let out = succeed(&mut command);
        let expected = std::fs::read(dir.join(format!("{case}.{kind}.txt"))).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&expected),
            "{case}: {model}-{version} {their_flags} {prompt:?}"
        );
        assert!(out.stdout == expected, "{case}: bytes differ");
    }
}

#[test]
fn v0_checkpoints_print_the_same_bytes() {
    check("v0", "f32");
}

#[test]
fn v1_checkpoints_print_the_same_bytes() {
    check("v1", "f32");
}

#[test]
fn int8_checkpoints_print_the_same_bytes() {
    check("v2", "int8");
}
