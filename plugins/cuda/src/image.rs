//! Which binary of a family a device gets: one compiled ahead for its chip, PTX for its driver to compile, or one
//! compiled now from the source.

use crate::driver::Identity;
use crate::kernels::{Family, PTX_TARGET, sources_hash};
use crate::nvrtc::Compiler;
use llmrt_plugin::{Error, Result};
use std::path::PathBuf;
use std::sync::OnceLock;

/// What `cargo ci cuda-kernels` wrote before the build; empty if it was not run.
static AHEAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.bin"));

/// Finds binaries.
#[derive(Default)]
pub struct Images {
    /// Where the run-time compiler is looked for.
    folder: Option<PathBuf>,
    compiler: OnceLock<std::result::Result<Compiler, String>>,
}

impl Images {
    /// With the run-time compiler in this folder, or where the loader finds it.
    pub fn new(folder: Option<PathBuf>) -> Images {
        Images { folder, compiler: OnceLock::new() }
    }

    /// A family's binary for a device.
    pub fn of(&self, family: &Family, device: &Identity) -> Result<Vec<u8>> {
        let (major, minor) = device.capability;
        if let Some(image) = ahead(AHEAD, family.name, major, minor) {
            return Ok(image.to_vec());
        }
        let compiler = self.compiler.get_or_init(|| Compiler::open(self.folder.as_deref()));
        let compiled = match compiler {
            Ok(compiler) => compiler.compile(family, &format!("sm_{major}{minor}")),
            Err(problem) => Err(problem.clone()),
        };
        compiled.map(|compiled| compiled.image).map_err(|problem| {
            let (name, remedy) = (family.name, "build with `cargo ci cuda-kernels` before, or install NVRTC");
            Error::unsupported(format!("no kernels `{name}` for sm_{major}{minor}: {remedy}: {problem}"))
        })
    }
}

/// Out of an archive: the best binary, or PTX. Text lines `family target offset length` up to an empty line, the first
/// with the hash of the sources; then the bytes.
fn ahead<'a>(archive: &'a [u8], family: &str, major: i32, minor: i32) -> Option<&'a [u8]> {
    let end = archive.windows(2).position(|two| two == b"\n\n")?;
    let (head, bytes) = (std::str::from_utf8(&archive[..end]).ok()?, &archive[end + 2..]);
    let mut lines = head.lines();
    if lines.next()? != format!("{:016x}", sources_hash()) {
        return None;
    }
    let entries = lines.filter_map(|line| {
        let mut words = line.split(' ');
        let (name, target) = (words.next()?, words.next()?);
        let (offset, len): (usize, usize) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        (name == family).then_some((fit(target, major, minor)?, bytes.get(offset..offset + len)?))
    });
    entries.max_by_key(|(fit, _)| *fit).map(|(_, image)| image)
}

/// How well a target fits a chip: a binary of the same major number and no higher minor one; PTX last. `None`: not.
fn fit(target: &str, major: i32, minor: i32) -> Option<i32> {
    if target == PTX_TARGET {
        return Some(-1);
    }
    let number = target.strip_prefix("sm_")?;
    // Such a binary runs on this one chip only.
    let exact = number.strip_suffix('a');
    let of: i32 = exact.unwrap_or(number).parse().ok()?;
    let fits = of / 10 == major && of % 10 <= minor && (exact.is_none() || of % 10 == minor);
    fits.then_some(of % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chip_gets_its_own_binary_then_that_of_an_older_relative_then_ptx() {
        let bytes = b"75858690 90aPTX";
        let index = [("sm_75", 0, 2), ("sm_86", 4, 2), ("sm_90a", 9, 3), (PTX_TARGET, 12, 3)];
        let lines = index.map(|(target, at, n)| format!("x {target} {at} {n}")).join("\n");
        let archive = [format!("{:016x}\n{lines}\n\n", sources_hash()).as_bytes(), bytes].concat();
        let check = |major, minor, expected: &str| {
            let found = ahead(&archive, "x", major, minor).unwrap();
            assert_eq!(std::str::from_utf8(found).unwrap(), expected, "{major}.{minor}");
        };
        check(7, 5, "75");
        check(8, 6, "86");
        check(8, 9, "86");
        check(9, 0, "90a");
        check(8, 0, "PTX");
        check(12, 0, "PTX");
        assert!(ahead(&archive, "y", 7, 5).is_none());
        assert!(ahead(&archive[1..], "x", 7, 5).is_none(), "of other sources");
        assert!(ahead(b"", "x", 7, 5).is_none());
    }
}
