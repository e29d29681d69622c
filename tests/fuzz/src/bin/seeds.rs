//! Writes the good inputs that a fuzz target starts from.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, dir] = &args[..] else {
        eprintln!("usage: fuzz-seeds TARGET DIR");
        return ExitCode::from(2);
    };
    let Some(target) = llmrt_fuzz::TARGETS.iter().find(|t| t.name == name) else {
        let known = llmrt_fuzz::TARGETS.map(|t| t.name).join(", ");
        eprintln!("fuzz-seeds: no target `{name}`; there are {known}");
        return ExitCode::from(2);
    };
    for (i, seed) in (target.seeds)().iter().enumerate() {
        let file = Path::new(dir).join(format!("seed-{i}"));
        if let Err(e) = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&file, seed)) {
            eprintln!("{}: {e}", file.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
