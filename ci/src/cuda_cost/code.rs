//! Kernels as machine code: compiled by NVRTC, disassembled by nvdisasm, kept in the target folder while the sources stay the
//! same.

use super::sass::{self, Kernel};
use super::sources::{Source, Sources};
use crate::cuda_kernels::{from_wheel, kernels_of, write};
use crate::matrix::target;
use llmrt_cuda::nvrtc::Compiler;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The disassembler; it reads binaries of older compilers, too.
const WHEEL: &str = "nvidia-cuda-nvdisasm==13.5.37";

/// A kernel on a chip.
pub struct Code {
    /// Its instructions.
    pub kernel: Kernel,
    /// Registers of a lane.
    pub registers: u32,
    /// Bytes of shared memory that it declares.
    pub shared: u32,
    /// Tables of branches.
    pub tables: Vec<u8>,
}

/// What is compiled.
pub struct Codes {
    pub sources: Sources,
    compiler: Option<Compiler>,
    families: BTreeMap<(String, String), Compiled>,
}

struct Compiled {
    cubin: Vec<u8>,
    log: String,
    text: String,
}

impl Codes {
    /// Of the kernels in a working tree.
    pub fn new(tree: &Path) -> Result<Codes, String> {
        let sources = Sources::read(&tree.join("plugins/cuda/kernels"))?;
        Ok(Codes { sources, compiler: None, families: BTreeMap::new() })
    }

    /// A kernel by its name for a chip.
    pub fn of(&mut self, name: &str, target: &str) -> Result<Code, String> {
        let families: Vec<Source> =
            self.sources.families.iter().filter(|f| f.may_have(name)).cloned().collect();
        for family in families {
            let compiled = self.compiled(&family, target)?;
            let Some(body) = section_of(&compiled.text, name) else { continue };
            let kernel = sass::kernel(body).map_err(|e| format!("{name} for {target}: {e}"))?;
            let numbers = kernels_of(&compiled.log)?.into_iter().find(|(of, _)| of == name);
            let numbers = numbers.ok_or_else(|| format!("no registers of {name}"))?.1;
            let numbers: Vec<u32> = numbers.split('/').filter_map(|n| n.parse().ok()).collect();
            let tables = elf_section(&compiled.cubin, &format!(".nv.constant2.{name}")).unwrap_or_default();
            return Ok(Code { kernel, registers: numbers[0], shared: numbers[3], tables });
        }
        Err(format!("no family has a kernel {name} for {target}"))
    }

    fn compiled(&mut self, family: &Source, target: &str) -> Result<&Compiled, String> {
        let key = (family.name.clone(), target.to_string());
        if !self.families.contains_key(&key) {
            let compiled = self.compile(family, target)?;
            self.families.insert(key.clone(), compiled);
        }
        Ok(&self.families[&key])
    }

    fn compile(&mut self, family: &Source, target: &str) -> Result<Compiled, String> {
        let stem = kept().join(format!("{}-{target}-{:016x}", family.name, self.sources.hash_of(family)));
        let (cubin, log, text) =
            (stem.with_extension("cubin"), stem.with_extension("log"), stem.with_extension("sass"));
        if !text.exists() {
            let compiler = match &self.compiler {
                Some(compiler) => compiler,
                None => self.compiler.insert(crate::cuda_kernels::compiler()?),
            };
            eprintln!("compiling {} for {target}", family.name);
            let compiled =
                compiler.compile_text(&family.name, &family.text, &self.sources.headers(), target)?;
            write(&cubin, &compiled.image)?;
            write(&log, compiled.log.as_bytes())?;
            write(&text, disassemble(&cubin)?.as_bytes())?;
        }
        let read = |file: &PathBuf| std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()));
        let words = |file: &PathBuf| read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(Compiled { cubin: read(&cubin)?, log: words(&log)?, text: words(&text)? })
    }
}

/// Where files of this command are.
pub fn kept() -> PathBuf {
    target().join("cuda-cost")
}

fn disassemble(cubin: &PathBuf) -> Result<String, String> {
    let program = match std::env::var_os("LLMRT_NVDISASM") {
        Some(program) => PathBuf::from(program),
        None => from_wheel(WHEEL, "nvidia/cu13/bin/nvdisasm")?,
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Unpacked from a wheel it is no program yet.
        let _ = std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755));
    }
    let out = Command::new(&program).arg("-c").arg(cubin).output();
    let out = out.map_err(|e| format!("{}: {e}", program.display()))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!("{}: {}", program.display(), String::from_utf8_lossy(&out.stderr))),
    }
}

/// The part of a disassembly that is a kernel's.
fn section_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = text.find(&format!("\n.text.{name}:\n"))? + 1;
    let body = &text[start..];
    Some(body.split("//-----").next().unwrap_or(body))
}

/// The bytes of a section of a 64-bit ELF file.
fn elf_section(file: &[u8], name: &str) -> Option<Vec<u8>> {
    let word = |at: usize, n: usize| {
        let bytes = file.get(at..at + n)?;
        Some(bytes.iter().rev().fold(0usize, |word, byte| word << 8 | usize::from(*byte)))
    };
    // The header's table of sections, the size and number of its entries, and which of them has the names.
    let (table, size, n, names) = (word(0x28, 8)?, word(0x3a, 2)?, word(0x3c, 2)?, word(0x3e, 2)?);
    let place = |i: usize| Some((word(table + i * size + 0x18, 8)?, word(table + i * size + 0x20, 8)?));
    let (strings, _) = place(names)?;
    let is_it = |i: &usize| {
        let at = strings + word(table + i * size, 4).unwrap_or(0);
        file.get(at..at + name.len() + 1)
            .is_some_and(|text| text.strip_suffix(b"\0") == Some(name.as_bytes()))
    };
    let (at, len) = place((0..n).find(is_it)?)?;
    file.get(at..at + len).map(<[u8]>::to_vec)
}
