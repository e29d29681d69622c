//! `cargo ci`: what continuous integration does, as commands a person can run too.

mod archs;
mod arm;
mod bench;
mod coverage;
mod cuda_cost;
mod cuda_kernels;
mod docs;
mod fuzz;
mod golden;
mod header;
mod lock;
mod matrix;
mod peer;
mod reference;
mod roofline;
mod templates;
mod tidy;
mod tokens;
mod wheel;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo ci COMMAND

  bindings [--check] write plugins/cann/src/sys.rs, or compare it with plugins/cann/include; needs libclang
  cann-headers       compare plugins/cann/include/acl.h with the headers in the wheel of torch-npu, where it can be had
  cann-sim DIR       write the simulated Ascend libraries (plugins/cann/sim/README.md)
  cuda-kernels [--check | --only CHIP]
                     compile the CUDA kernels for every chip with NVRTC, which is fetched with pip; write what builds of
                     the plugin take in, and plugins/cuda/kernels/table.txt, or compare with it; needs no card
  cuda-cost [--check] [--only TEXT] [--chip NAME] [--mix]
                     what the CUDA kernels for decodes cost on cards, predicted from their machine code; write
                     plugins/cuda/kernels/cost.txt, or compare with it; with --only, --chip or --mix print alone
  cuda-sim DIR       write the simulated CUDA driver (plugins/cuda/sim/README.md); --kernels: list what it emulates
  header [--check | --break]
                     write abi/include/llmrt/plugin.h and abi/abi.lock, or compare them with abi/src;
                     what would break plugins built before is refused without --break
  golden             build the plugins that every later host must load (tests/golden)
  layout             let abi_stable compare the types with those of released minors
  archs DIR          logits of tiny models beside another program's; write docs/models.md
  arm                the CPU plugin and the embedded model on 64-bit ARM, emulated by qemu, beside this machine's bits
  coverage           line coverage of the parsers and the scheduler
  docs [--check]     write docs/reference from the program's tables, or compare it with them
  tidy               words, links, sizes and paths of the tree's text (docs/contributing/testing.md)
  fuzz TARGET SECONDS
                     look for inputs that break a parser (tests/fuzz/README.md)
  bench [--peer LLAMA_BENCH] [--floor] [-m FILE | --like MODEL --types T,…] [--cases C,…] [--threads N,…] [--pairs N]
        [--quick] [--llmrt FILE] [--plugin libllmrt_NAME.so [--card-gb-s X]] [--json FILE]
                     speed beside a peer's on the same files, in turn, and beside the roofline; --floor: also
                     beside a plain forward pass in F32 (prompts and steps at depth 0; an F32 file must be among them);
                     with --plugin on a card, the peer on its own, beside what a copy on the card moves;
                     --cases engine: 1 to 32 sequences that decode together, beside the target for 16
  bench floor -m FILE [-p N] [-n N] [-t N]
                     times of that forward pass alone
  bench op [--ops REGEX] [--threads N] [--json FILE]
                     times of single ops of the CPU plugin
  bench quality --peer LLAMA_PERPLEXITY [--types T,…] [--parts N] [--llmrt FILE]
                     what types of weights cost: perplexity and divergence from F32, beside a peer's on the same files;
                     more parts of text decide more
  bench serve --peer LLAMA_SERVER -m FILE [--streams N,…] [--pairs N] [--llmrt FILE] [--json FILE]
                     llmrt serve and a peer's server under the same load: tok/s, times to the first token and
                     between tokens, memory
  bench sparse [--llmrt FILE] [--powerinfer LLAMA_BENCH] [--dir DIR] [--only TEXT] [--pairs N] [--quick]
                     modes of --sparse beside off, on files of random weights, which are written to DIR
  peer DIR [--isa native|avx512vnni|avx512|avx2 [--source TREE]]
                     build the peer, llama.cpp, for an instruction set into DIR/ISA; another tree into DIR/TREE/ISA
  reference DIR [NAME…]
                     what llama.cpp, built by `peer DIR`, computes of the models that tests/fixtures/models describes: of
                     these, or of those without results
  templates LLAMA_SERVER TREE
                     conversations in the words of the chat templates in TREE/models/templates, rendered by llmrt and by
                     llama.cpp's server; what differs goes to target/templates
  tokens --peer LLAMA_SERVER [--seed N] [--texts N] [--pre NAME,…] [FILE|DIR…]
                     ids of random Unicode texts by the vocabularies of the fixtures, or of these GGUF files, beside those
                     of llama.cpp's server; --pre: with these pre-tokenizers in place of the files' own
  wheel [--out DIR] [--dev]
                     build the wheel of the Python package with maturin, of the path or fetched with pip, into
                     target/wheels; --dev: without optimisation
  roofline [--cpu NAME] [--only TEXT] [--show]
                     what ports allow the innermost x86 loops of the cpu plugin, by llvm-mca (docs/perf/roofline.md);
                     --cpu: another model of llvm-mca; --show: with the loops
  matrix [--json]    the plugins, one job each
  plugin NAME        run one job of the matrix: the plugin's tests, and conform on it
  conform [NAME]     build one plugin, or each, and run every case of `llmrt conform` on it";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["header"] => write_header(false),
        ["header", "--break"] => write_header(true),
        ["golden"] => golden::build(),
        ["layout"] => layout(),
        ["header", "--check"] => check_header(),
        ["bindings", ref flags @ ..] => {
            run(cargo().args(["run", "--quiet", "--locked", "-p", "llmrt-bindings", "--"]).args(flags))
        }
        ["cann-headers"] => {
            run(Command::new("python3").current_dir(root()).arg("tools/cann/check_headers.py"))
        }
        ["cann-sim", ref arguments @ ..] => {
            run(cargo().args(["run", "--quiet", "--locked", "-p", "llmrt-cann-sim", "--"]).args(arguments))
        }
        ["archs", dir] => archs::archs(dir),
        ["arm"] => arm::arm(),
        ["cuda-kernels"] => cuda_kernels::cuda_kernels(false),
        ["cuda-kernels", "--check"] => cuda_kernels::cuda_kernels(true),
        ["cuda-kernels", "--only", target] => cuda_kernels::only(target),
        ["cuda-cost", ref words @ ..] => cuda_cost::cuda_cost(words),
        ["cuda-sim", ref arguments @ ..] => {
            run(cargo().args(["run", "--quiet", "--locked", "-p", "llmrt-cuda-sim", "--"]).args(arguments))
        }
        ["docs"] => docs::write(),
        ["docs", "--check"] => docs::check(),
        ["coverage"] => coverage::coverage(),
        ["tidy"] => tidy::tidy(),
        ["fuzz", target, seconds] => fuzz::fuzz(target, seconds),
        ["bench", "floor", ref words @ ..] => bench::floor(words),
        ["bench", "op", ref words @ ..] => bench::ops(words),
        ["bench", "quality", ref words @ ..] => bench::quality(words),
        ["bench", "serve", ref words @ ..] => bench::serve(words),
        ["bench", "sparse", ref words @ ..] => bench::sparse(words),
        ["bench", ref words @ ..] => bench::bench(words),
        ["peer", dir] => peer::build(dir, "native", None),
        ["peer", dir, "--isa", isa] => peer::build(dir, isa, None),
        ["peer", dir, "--isa", isa, "--source", tree] => peer::build(dir, isa, Some(tree)),
        ["reference", dir, ref names @ ..] => reference::reference(dir, names),
        ["templates", peer, tree] => templates::templates(peer, tree),
        ["tokens", ref words @ ..] => tokens::tokens(words),
        ["roofline", ref words @ ..] => roofline::roofline(words),
        ["wheel", ref words @ ..] => wheel::wheel(words),
        ["matrix"] => matrix::list(false),
        ["matrix", "--json"] => matrix::list(true),
        ["plugin", name] => matrix::plugin(name),
        ["conform"] => matrix::conform(None),
        ["conform", name] => matrix::conform(Some(name)),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("cargo ci: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("ci/ stands in the repository")
}

/// The cargo that runs this program, in the repository's root.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command with its output shown; a non-zero exit is an error.
fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| {
        let missing = if e.kind() == ErrorKind::NotFound { " (is the program installed?)" } else { "" };
        format!("{command:?}: {e}{missing}")
    })?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

/// Compiles the example in C into a folder, which is created; returns the file.
fn c_plugin(dir: &Path, flags: &[&str]) -> Result<PathBuf, String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let file = dir.join("libllmrt_c.so");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,--build-id"]).args(flags);
    cc.current_dir(root()).args(["-Iabi/include", "plugins/examples/c/plugin.c", "-o"]);
    run(cc.arg(&file)).map(|()| file)
}

/// A run of its own: the feature's dependencies take half a minute to build and are used nowhere else.
fn layout() -> Result<(), String> {
    let args =
        ["test", "--locked", "-p", "llmrt-abi", "--features", "layout-check", "--test", "layout_check"];
    run(cargo().args(args))
}

fn write_header(breaks_allowed: bool) -> Result<(), String> {
    let header = header::generate(root())?;
    let lock = lock::generate(&header);
    let differences = lock::compare(&committed(lock::LOCK), &lock);
    differences.additions.iter().for_each(|line| println!("{line}"));
    if !differences.breaks.is_empty() && !breaks_allowed && !committed(lock::LOCK).is_empty() {
        return Err(format!(
            "plugins built before would break:\n{}\nwrite it with `cargo ci header --break` if that is meant",
            differences.breaks.join("\n")
        ));
    }
    for (file, text) in [(header::HEADER, header), (lock::LOCK, lock)] {
        std::fs::write(root().join(file), text).map_err(|e| format!("{file}: {e}"))?;
    }
    Ok(())
}

fn check_header() -> Result<(), String> {
    let header = header::generate(root())?;
    let differences = lock::compare(&committed(lock::LOCK), &lock::generate(&header));
    let lines = [differences.breaks.as_slice(), &differences.additions].concat();
    if !lines.is_empty() {
        return Err(format!("{} differs from abi/src:\n{}", lock::LOCK, lines.join("\n")));
    }
    if committed(header::HEADER) != header {
        let file = header::HEADER;
        return Err(format!("{file} differs from what abi/src gives: run `cargo ci header` and commit it"));
    }
    Ok(())
}

/// A file of the repository; empty if it is not there.
fn committed(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_default()
}
