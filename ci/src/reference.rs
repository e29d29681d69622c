//! `cargo ci reference DIR [NAME...]`: what llama.cpp's library computes of the models that `tests/fixtures/models` describes.

use crate::matrix::target;
use crate::{cargo, peer, root, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Computes results of these models, or of those that have none. `dir` is the one of `cargo ci peer`.
pub fn reference(dir: &str, names: &[&str]) -> Result<(), String> {
    let dir = Path::new(dir);
    let [program, drafts] = ["reference.c", "drafts.cpp"].map(|source| program(dir, source));
    let (program, drafts) = (program?, drafts?);
    let models = dir.join("models");
    write_models(&models)?;
    for name in self::names(&folder(), "txt")? {
        let Some(kind) = results(&folder().join(format!("{name}.txt")))? else { continue };
        let ending = match kind.split(' ').next() {
            Some("flash") | None => "logits",
            Some(kind) => kind,
        };
        let out = folder().join(format!("{name}.{ending}.f32"));
        let is_meant = if names.is_empty() { !out.exists() } else { names.contains(&name.as_str()) };
        if is_meant {
            let model = |name: &str| models.join(format!("{name}.gguf"));
            match kind.strip_prefix("drafts ") {
                Some(of) => {
                    run(Command::new(&drafts).args([model(of), model(&name), tokens(), out.clone()]))?
                }
                None => run(Command::new(&program).arg(model(&name)).arg(tokens()).arg(&out).arg(kind))?,
            }
            println!("{}", out.display());
        }
    }
    Ok(())
}

/// Writes every described model to `dir`.
pub fn write_models(dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    // Of the whole workspace, so that nothing is compiled again with the features of one package.
    let example = ["build", "--quiet", "--locked", "--workspace", "--example", "described_models"];
    run(cargo().args(example))?;
    run(Command::new(target().join("debug/examples/described_models")).arg(dir))
}

/// The folder of the descriptions and of their results.
pub fn folder() -> PathBuf {
    root().join("tests/fixtures/models")
}

/// The file of the tokens whose logits are compared.
pub fn tokens() -> PathBuf {
    root().join("tests/fixtures/archs/tokens.txt")
}

/// Names of the files with this ending, sorted.
pub fn names(dir: &Path, ending: &str) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let files = entries.flatten().map(|entry| entry.path());
    let meant = files.filter(|file| file.extension().is_some_and(|end| end == ending));
    let mut names: Vec<String> =
        meant.map(|file| file.file_stem().unwrap_or_default().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// What a description's line `results` names; `None`: nothing.
fn results(file: &Path) -> Result<Option<String>, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let kind = text.lines().find_map(|line| line.trim().strip_prefix("results ")).unwrap_or("logits");
    Ok(Some(kind.to_string()).filter(|kind| kind != "none"))
}

/// A program of `peer/`, linked with the library that `cargo ci peer DIR` built last.
fn program(dir: &Path, file: &str) -> Result<PathBuf, String> {
    let (source, build) = (peer::unpacked(dir)?, dir.join("build"));
    let program = dir.join(Path::new(file).with_extension(""));
    let object = program.with_extension("o");
    let (compiler, standard) = if file.ends_with(".c") { ("cc", "-std=c11") } else { ("c++", "-std=c++17") };
    let mut compile = Command::new(compiler);
    compile.args([standard, "-O1", "-c"]).arg(root().join("ci/src/peer").join(file)).arg("-o").arg(&object);
    for headers in ["include", "ggml/include", "src"] {
        compile.arg("-I").arg(source.join(headers));
    }
    run(&mut compile)?;
    let mut link = Command::new("c++");
    link.arg(&object);
    for library in
        ["src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a"]
    {
        link.arg(build.join(library));
    }
    run(link.args(["-fopenmp", "-lpthread", "-ldl", "-o"]).arg(&program))?;
    Ok(program)
}
