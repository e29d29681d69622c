//! The folder of libraries: the simulator itself under its own name, and one small library for each of the vendor's,
//! whose functions jump to it. So every function is found where the vendor has it, and nowhere else.

use crate::release::Release;
use crate::sys::{
    Functions, cann_acl, cann_cv, cann_hccl, cann_math, cann_nn, cann_object, cann_transformer,
};
use std::path::{Path, PathBuf};
use std::process::Command;

const SIMULATOR: &str = "libcann_simulator.so";

/// What a function of a library does.
#[derive(Clone, Copy, PartialEq)]
enum Body {
    /// It jumps to the simulator.
    Jump,
    /// It answers that the library is a stub.
    Stub,
}

/// Writes the folder. `layout` is a release's name, or `stub`; `without` are functions or files to leave out.
pub fn install(dir: &Path, layout: &str, without: &[&str]) -> Result<(), String> {
    let runtime =
        [("libascendcl.so", cann_acl::NAMES.to_vec()), ("libnnopbase.so", cann_object::NAMES.to_vec())];
    let operators = [
        ("libopapi_math.so", cann_math::NAMES.to_vec()),
        ("libopapi_nn.so", cann_nn::NAMES.to_vec()),
        ("libopapi_cv.so", cann_cv::NAMES.to_vec()),
        ("libopapi_transformer.so", cann_transformer::NAMES.to_vec()),
    ];
    let (release, body) = match (Release::of(layout), layout) {
        (Some(release), _) => (release, Body::Jump),
        (None, "stub") => (Release::V9_1, Body::Stub),
        _ => return Err(format!("no release `{layout}`: expected 8.0, 8.1, 8.5, 9.0, 9.1 or stub")),
    };
    // Communicators are in a library of their own since operators are in four (hcomm's page of headers and libraries).
    let (of_comm, of_hccl): (Vec<_>, Vec<_>) = cann_hccl::NAMES
        .iter()
        .partition(|name| release.is_split() && (name.starts_with("HcclComm") || **name == "HcclSetConfig"));
    let collectives = [("libhccl.so", of_hccl), ("libhcomm.so", of_comm)];
    let operators = match release.is_split() {
        true => operators.to_vec(),
        false => vec![("libopapi.so", operators.iter().flat_map(|(_, names)| names.clone()).collect())],
    };
    let lacks = release.lacks();
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for (file, _) in runtime.iter().chain(&operators).chain(&collectives) {
        remove(&dir.join(file))?;
    }
    [
        "libopapi.so",
        "libopapi_math.so",
        "libopapi_nn.so",
        "libopapi_cv.so",
        "libopapi_transformer.so",
        SIMULATOR,
    ]
    .iter()
    .try_for_each(|file| remove(&dir.join(file)))?;
    let from = simulator()?;
    std::fs::copy(&from, dir.join(SIMULATOR)).map_err(|e| format!("{}: {e}", from.display()))?;
    let present = |(file, names): &(&str, Vec<&str>)| !names.is_empty() && !without.contains(file);
    for (file, mut names) in runtime.into_iter().chain(operators).chain(collectives).filter(present) {
        names.retain(|name| {
            let base = name.strip_suffix("GetWorkspaceSize").unwrap_or(name);
            ![&lacks[..], without].iter().any(|list| list.contains(&base))
        });
        build(dir, file, &names, body)?;
    }
    Ok(())
}

/// A program that has a library open keeps the old file.
fn remove(file: &Path) -> Result<(), String> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", file.display())),
        _ => Ok(()),
    }
}

/// The simulator's library, which cargo puts beside its programs; tests are one folder deeper.
fn simulator() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let found = program.ancestors().skip(1).take(2).map(|dir| dir.join(SIMULATOR)).find(|file| file.exists());
    found.ok_or(format!("no {SIMULATOR} beside {}: run `cargo build -p llmrt-cann-sim`", program.display()))
}

/// One library, made by the C compiler from a jump per function. Arguments on the stack stay where they are.
fn build(dir: &Path, file: &str, names: &[&str], body: Body) -> Result<(), String> {
    let mut text = String::from(".text\n");
    for name in names {
        // What gives an address gives none.
        let is_address =
            ["aclGetRecentErrMsg", "aclrtGetSocName"].contains(name) || name.starts_with("aclCreate");
        let code = if is_address { 0 } else { crate::sys::ACL_ERROR_STUB_LIBRARY };
        let body = match (body, std::env::consts::ARCH) {
            (Body::Jump, "aarch64") => format!("b llmrt_sim_{name}"),
            (Body::Jump, _) => format!("jmp llmrt_sim_{name}@PLT"),
            (Body::Stub, "aarch64") => format!("ldr x0, ={code}\nret"),
            (Body::Stub, _) => format!("movl ${code}, %eax\nret"),
        };
        text += &format!(".globl {name}\n.type {name}, %function\n{name}:\n{body}\n");
    }
    text += ".section .note.GNU-stack,\"\",%progbits\n";
    let source = dir.join(format!("{file}.s"));
    std::fs::write(&source, text).map_err(|e| format!("{}: {e}", source.display()))?;
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    // In the folder, because the simulator is recorded under the name it is given here: one without a folder.
    cc.current_dir(dir).args(["-shared", "-nostdlib", "-o", file]).arg(format!("{file}.s"));
    // The folder's own simulator comes before one that LD_LIBRARY_PATH leads to: cargo's tests run with that set.
    cc.args(["-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN"]);
    cc.arg(format!("-Wl,-soname,{file}")).args(["-Wl,--no-as-needed", SIMULATOR]);
    let out = cc.output().map_err(|e| format!("the C compiler: {e}"))?;
    remove(&source)?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("{file}: {}", String::from_utf8_lossy(&out.stderr))),
    }
}
