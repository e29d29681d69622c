//! Outputs of other programs: all of them beside the checkout as `../shared/fixtures`, a few in `tests/fixtures`, so that a
//! checkout by itself tests each kind.

use crate::models::text::with_results;
use crate::skip::skipped;
use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ stands in the repository")
}

/// The folder `name` of the fixtures: the full one, or the part of it that is committed. `None`, and a skipped test, where
/// there is neither. With `LLMRT_REQUIRE_FIXTURES=1` the full one must be there.
pub fn fixtures(name: &str) -> Option<PathBuf> {
    let full = root().parent()?.join("shared/fixtures").join(name);
    if full.is_dir() {
        return Some(full);
    }
    let why = format!("no folder ../shared/fixtures/{name}");
    assert!(
        std::env::var("LLMRT_REQUIRE_FIXTURES").as_deref() != Ok("1"),
        "LLMRT_REQUIRE_FIXTURES=1, but {why}"
    );
    skipped(&why);
    Some(root().join("tests/fixtures").join(name)).filter(|dir| dir.is_dir())
}

/// A file of a folder of fixtures; `None`, and a skipped test, where the committed part lacks it.
pub fn fixture(dir: &Path, name: &str) -> Option<PathBuf> {
    let file = dir.join(name);
    if !file.is_file() {
        skipped(&format!("{name} is not among the committed fixtures"));
        return None;
    }
    Some(file)
}

/// A llama of PowerInfer as `llama.gguf` in a folder, with the counts of its neurons beside it.
pub fn counted_llama(dir: &Path) -> Option<PathBuf> {
    let from = fixtures("powerinfer")?;
    let (model, counts) = (dir.join("llama.gguf"), dir.join("activation"));
    std::fs::copy(fixture(&from, "llama.powerinfer.gguf")?, &model).expect("the model can be copied");
    std::fs::create_dir(&counts).expect("the folder is new");
    for name in ["activation_0.pt", "activation_1.pt"] {
        std::fs::copy(from.join("pt").join(name), counts.join(name)).expect("counts can be copied");
    }
    Some(model)
}

/// Models that an architecture of this tree refuses: that of Refact has no experts, so those of the file would not count.
const REFUSED: [&str; 1] = ["refact-moe.gguf"];

/// The tiny models of architectures that this tree runs, and those that it refuses.
pub fn architectures(dir: &Path) -> [Vec<PathBuf>; 2] {
    let is_known = |file: &PathBuf| {
        let bytes = std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let gguf = llmrt_gguf::Gguf::parse(&bytes, bytes.len() as u64).expect("a fixture is a GGUF file");
        let name: &str =
            gguf.metadata.require("general.architecture").expect("a fixture names its architecture");
        llmrt_models::architectures().any(|known| known == name)
            && !REFUSED.iter().any(|refused| file.ends_with(refused))
    };
    let (known, unknown) = files(dir, ".gguf").into_iter().partition(is_known);
    [known, unknown]
}

/// A model and the logits that llama.cpp gave for the tokens of [`tokens`].
pub type Compared = (PathBuf, PathBuf);

/// The tiny models whose logits, or hidden states, another program computed: those of the fixtures that this tree runs, and
/// those described in `tests/fixtures/models`.
pub fn compared() -> Vec<Compared> {
    let known = fixtures("archs").map_or(vec![], |dir| {
        let [known, _] = architectures(&dir);
        known.into_iter().map(|file| (file.clone(), file.with_extension("logits.f32"))).collect()
    });
    [known, with_results().to_vec()].concat()
}

/// The file of the tokens whose logits are compared.
pub fn tokens() -> PathBuf {
    root().join("tests/fixtures/archs/tokens.txt")
}

/// The files of a folder with this ending, sorted.
pub fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    files.retain(|p| p.to_string_lossy().ends_with(ending));
    files.sort();
    assert!(!files.is_empty(), "no *{ending} in {}", dir.display());
    files
}
