//! Plugins in C and C++, compiled by the compilers of this machine from the header alone.

use crate::fixtures::root;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What a plugin is compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `cc`, C11.
    C,
    /// `c++`, C++17.
    Cpp,
}

impl Language {
    fn command(self) -> Command {
        let (program, args): (_, &[&str]) = match self {
            Language::C => ("cc", &["-std=c11", "-x", "c"]),
            Language::Cpp => ("c++", &["-std=c++17", "-x", "c++"]),
        };
        let mut command = Command::new(program);
        command.args(args);
        command
    }
}

/// The example plugin in C, compiled into `dir` once per process; `None` where there is no C compiler.
pub fn c_example(dir: &str) -> Option<&'static Path> {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let file = Path::new(dir).join(format!("libllmrt_c-{}.so", std::process::id()));
        compile(Language::C, "plugins/examples/c/plugin.c", &file, &[]).then_some(file)
    });
    file.as_deref()
}

/// Compiles `source`, a path in the repository, to a shared library; warnings are errors. False, with a message, where
/// there is no such compiler.
pub fn compile(language: Language, source: &str, out: &Path, flags: &[&str]) -> bool {
    let mut command = language.command();
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-fPIC", "-shared"]);
    // Files of one test may differ in a macro that changes no byte of code.
    command.args(["-fvisibility=hidden", "-Wl,--build-id"]).args(flags);
    command.arg("-I").arg(root().join("abi/include")).arg(root().join(source)).arg("-o").arg(out);
    match command.output() {
        Err(e) => {
            crate::skip::skipped(&format!("{command:?} does not start: {e}"));
            false
        }
        Ok(output) => {
            assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
            true
        }
    }
}
