//! Which image of a family a device gets: a binary compiled ahead for its chip, PTX for its driver to compile, or what is
//! compiled now from the source. An image that the driver refuses is followed by the next.

use crate::archive::{self, Entry};
use crate::driver::Identity;
use crate::kernels::{Family, PTX_TARGET};
use crate::nvrtc::Compiler;
use crate::sys::*;
use llmrt_plugin::{Error, Host, Level, Result};
use std::path::PathBuf;
use std::sync::OnceLock;

/// What `cargo ci cuda-kernels` wrote before the build; empty if it was not run.
static AHEAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.bin"));

/// Finds images.
pub struct Images {
    /// For its log.
    pub host: Host,
    /// Where the run-time compiler is looked for.
    folder: Option<PathBuf>,
    /// The driver's version, as 12080: it takes nothing of a later compiler's.
    driver: i32,
    compiler: OnceLock<std::result::Result<Compiler, String>>,
}

/// What it is, and its bytes with a final zero, or why there are none.
type Image = (String, std::result::Result<Vec<u8>, String>);

impl Images {
    /// For a driver of this version, with the run-time compiler in this folder, or where the loader finds it. The host's
    /// log hears of images that are refused.
    pub fn new(host: Host, folder: Option<PathBuf>, driver: i32) -> Images {
        Images { host, folder, driver, compiler: OnceLock::new() }
    }

    /// What `load` makes of the first image of a family that the driver takes. Any other error of its is the answer.
    pub fn load<T>(
        &self,
        family: &'static Family,
        device: &Identity,
        load: impl FnMut(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let (major, minor) = device.capability;
        let chip = format!("sm_{major}{minor}");
        let text = match family.only {
            Some(only) => only.replace("sm_", "compute_"),
            None if is_text_for(major, minor) => PTX_TARGET.to_string(),
            None => format!("compute_{major}{minor}"),
        };
        let binary = family.only.map_or_else(|| chip.clone(), str::to_string);
        let made_now = [binary, text].into_iter().map(|target| self.compile(family, &target));
        let refused = |text: &str| {
            self.host.log(Level::Warn, "cuda", &format!("kernels `{}`: {text}", family.name));
        };
        first_taken(ahead(AHEAD, family.name, major, minor).chain(made_now), load, refused).map_err(
            |problem| match problem {
                Problem::Other(e) => e,
                Problem::AllRefused(texts) => {
                    let remedy = "build with `cargo ci cuda-kernels` before, or install NVRTC";
                    Error::unsupported(format!("no kernels `{}` for {chip}: {remedy}: {texts}", family.name))
                }
            },
        )
    }

    fn compile(&self, family: &Family, target: &str) -> Image {
        let compiler =
            self.compiler.get_or_init(|| Compiler::open(self.folder.as_deref(), Some(self.driver)));
        let compiled = match compiler {
            Ok(compiler) => compiler.compile(family, target),
            Err(problem) => Err(problem.clone()),
        };
        (format!("NVRTC for {target}"), compiled.map(|compiled| [&compiled.image[..], b"\0"].concat()))
    }
}

enum Problem {
    /// What is wrong with each.
    AllRefused(String),
    Other(Error),
}

/// What `load` makes of the first image that it does not refuse. Images after it are not unpacked.
fn first_taken<T>(
    images: impl Iterator<Item = Image>,
    mut load: impl FnMut(&[u8]) -> Result<T>,
    refused: impl Fn(&str),
) -> std::result::Result<T, Problem> {
    let mut problems: Vec<String> = Vec::new();
    for (what, image) in images {
        match image.map(|image| load(&image)) {
            Ok(Ok(loaded)) => return Ok(loaded),
            Ok(Err(e)) if is_refusal(e.vendor_code) => {
                let text = format!("{what}: {}", e.message);
                refused(&text);
                problems.push(text);
            }
            Ok(Err(e)) => return Err(Problem::Other(e)),
            // Both targets use the same compiler, or none.
            Err(problem) if problems.iter().any(|text| text.ends_with(&problem)) => {}
            Err(problem) => problems.push(format!("{what}: {problem}")),
        }
    }
    Err(Problem::AllRefused(problems.join("; ")))
}

/// Whether a driver's error means that this image does not fit it, while another may.
fn is_refusal(code: CUresult) -> bool {
    matches!(
        code,
        CUDA_ERROR_INVALID_IMAGE
            | CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUDA_ERROR_INVALID_PTX
            | CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            | CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            | CUDA_ERROR_JIT_COMPILATION_DISABLED
            | CUDA_ERROR_INVALID_SOURCE
    )
}

/// Out of an archive: the binaries that fit, the best first, then PTX. Unpacked lazily.
fn ahead(archive: &[u8], family: &str, major: i32, minor: i32) -> impl Iterator<Item = Image> {
    let fits = |entry: &Entry<'_>| entry.family == family && fit(entry.target, major, minor).is_some();
    let mut entries: Vec<Entry<'_>> = archive::read(archive).into_iter().filter(fits).collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(fit(entry.target, major, minor)));
    entries.into_iter().map(|entry| (format!("compiled ahead for {}", entry.target), entry.unpack()))
}

/// How well a target fits a chip: a binary of the same major number and no higher minor one; PTX last. `None`: not.
fn fit(target: &str, major: i32, minor: i32) -> Option<i32> {
    if target == PTX_TARGET {
        return is_text_for(major, minor).then_some(-1);
    }
    let number = target.strip_prefix("sm_")?;
    // Such a binary runs on this one chip only.
    let exact = number.strip_suffix('a');
    let of: i32 = exact.unwrap_or(number).parse().ok()?;
    let fits = of / 10 == major && of % 10 <= minor && (exact.is_none() || of % 10 == minor);
    fits.then_some(of % 10)
}

/// Whether a chip is no older than what [`PTX_TARGET`] is for.
fn is_text_for(major: i32, minor: i32) -> bool {
    let oldest = PTX_TARGET.strip_prefix("compute_").and_then(|number| number.parse().ok());
    oldest.is_some_and(|oldest| 10 * major + minor >= oldest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Targets and their bytes, as stored in the archive.
    const BINARIES: [(&str, &str); 4] =
        [("sm_75", "75"), ("sm_86", "86"), ("sm_90a", "90a"), (PTX_TARGET, "PTX")];

    fn archive() -> Vec<u8> {
        archive::write(&BINARIES.map(|(target, image)| ("x", target, image.as_bytes())))
    }

    fn names(images: impl Iterator<Item = Image>) -> String {
        let text = |(_, image): Image| String::from_utf8(image.unwrap()).unwrap().replace('\0', "");
        images.map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_chip_gets_its_own_binary_then_that_of_an_older_relative_then_ptx() {
        let check = |major, minor, expected: &str| {
            assert_eq!(names(ahead(&archive(), "x", major, minor)), expected, "{major}.{minor}");
        };
        check(7, 5, "75");
        check(8, 6, "86 PTX");
        check(8, 9, "86 PTX");
        check(9, 0, "90a PTX");
        check(8, 0, "PTX");
        check(12, 0, "PTX");
        assert_eq!(names(ahead(&archive(), "y", 7, 5)), "");
        assert_eq!(names(ahead(&archive()[1..], "x", 7, 5)), "", "of other sources");
        assert_eq!(names(ahead(b"", "x", 7, 5)), "");
    }

    /// Loads images up to the first whose code is 0; what was loaded, and the outcome.
    fn check(codes: &[i32], expected: &str) {
        let image = |i: usize| (format!("image {i}"), Ok(vec![i as u8]));
        let tried = RefCell::new(String::new());
        let load = |image: &[u8]| {
            let i = image[0] as usize;
            *tried.borrow_mut() += &format!("{i} ");
            if codes[i] == 0 { Ok(i) } else { Err(Error::internal("no").vendor(codes[i])) }
        };
        let outcome = match first_taken((0..codes.len()).map(image), load, |_| ()) {
            Ok(i) => format!("takes {i}"),
            Err(Problem::Other(e)) => format!("fails with {}", e.vendor_code),
            Err(Problem::AllRefused(texts)) => texts,
        };
        assert_eq!(tried.into_inner() + &outcome, expected);
    }

    #[test]
    fn an_image_that_is_refused_is_followed_by_the_next_and_other_errors_end_it() {
        check(&[0, 0], "0 takes 0");
        check(&[CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 0], "0 1 2 takes 2");
        check(&[CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_OUT_OF_MEMORY, 0], "0 1 fails with 2");
        check(&[CUDA_ERROR_INVALID_PTX, CUDA_ERROR_INVALID_IMAGE], "0 1 image 0: no; image 1: no");
    }
}
