//! The part of the load checklist that runs nothing of the plugin: steps 1 to 7, one function each.

use super::elf::Elf;
use super::manifest::Manifest;
use super::trust;
use crate::knobs;
use llmrt_abi::QUERY_SYMBOL;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why a file is not opened.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The file is invalid or untrusted.
    Rejected(String),
    /// The file is fine, and its `init` failed: no card, no driver.
    NotStarted(String),
    /// It is fine, and not for this machine or run.
    Skipped(String),
}

/// A file that may be opened.
pub struct Checked {
    /// Without links.
    pub path: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
    /// What makes it the same file under another name.
    pub identity: Identity,
}

impl Checked {
    /// An error if there is another file at the path by now.
    pub(super) fn check_same(&self) -> Result<(), String> {
        let now = std::fs::metadata(&self.path).map_err(|e| format!("cannot be found any more: {e}"))?;
        match (now.dev(), now.ino()) == self.identity.inode {
            true => Ok(()),
            false => Err("was replaced while it was checked; start again".into()),
        }
    }
}

/// What makes two files the same plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    inode: (u64, u64),
    build_id: Option<Vec<u8>>,
    name: String,
    group: Option<String>,
}

/// Larger files are not plugins.
const MAX_FILE: u64 = 4 << 30;

/// Runs steps 1 to 7; the first failure stops.
pub fn check_file(path: &Path, loaded: &[Identity], disabled: &str) -> Result<Checked, Refusal> {
    let reject = Refusal::Rejected;
    let (path, file, meta) = open_file(path).map_err(reject)?;
    // SAFETY: the file is private to the reading process's trust already (step 1); a file cut short while mapped ends
    // the process, as it would during dlopen of the same file.
    let bytes = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| reject(format!("cannot be read: {e}")))?;
    let elf = Elf::parse(&bytes).map_err(reject)?;
    let manifest = Manifest::read(&elf).map_err(reject)?;
    check_enabled(&manifest.name, disabled).map_err(Refusal::Skipped)?;
    let identity = Identity {
        inode: (meta.dev(), meta.ino()),
        build_id: elf.build_id().map(<[u8]>::to_vec),
        name: manifest.name.clone(),
        group: manifest.group.clone(),
    };
    check_not_loaded(&identity, loaded).map_err(Refusal::Skipped)?;
    check_cpu(&manifest.cpu).map_err(Refusal::Skipped)?;
    check_pci(&manifest.pci, Path::new("/sys/bus/pci/devices"))
        .map_err(|e| Refusal::Skipped(manifest.with_hint(e)))?;
    check_symbols(&elf).map_err(reject)?;
    check_sonames(&manifest.sonames).map_err(|e| Refusal::Skipped(manifest.with_hint(e)))?;
    Ok(Checked { path, manifest, identity })
}

/// Step 1: a canonical path to a regular file that root and the effective user alone can change or replace.
fn open_file(path: &Path) -> Result<(PathBuf, File, Metadata), String> {
    let path = path.canonicalize().map_err(|e| format!("cannot be found: {e}"))?;
    let meta = std::fs::metadata(&path).map_err(|e| format!("cannot be read: {e}"))?;
    if !meta.is_file() || meta.file_type().is_fifo() {
        return Err("not a regular file".into());
    }
    if meta.len() > MAX_FILE {
        return Err(format!("{} bytes; a plugin has at most {MAX_FILE}", meta.len()));
    }
    trust::check_file(&path, &meta)?;
    let file = File::open(&path).map_err(|e| format!("cannot be read: {e}"))?;
    let meta = file.metadata().map_err(|e| format!("cannot be read: {e}"))?;
    Ok((path, file, meta))
}

/// Step 4, first half: not disabled by name.
fn check_enabled(name: &str, disabled: &str) -> Result<(), String> {
    let matching =
        disabled.split(',').map(str::trim).find(|p| !p.is_empty() && matches(p.as_bytes(), name.as_bytes()));
    match matching {
        Some(pattern) => Err(format!("disabled by {}={pattern}", knobs::PLUGINS_DISABLE.name)),
        None => Ok(()),
    }
}

/// Whether a pattern with `*` and `?` matches all of a text. At most length times length steps.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the last `*` stands, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c.eq_ignore_ascii_case(&text[t]) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// Step 4, second half: not loaded already under this or another file name.
fn check_not_loaded(identity: &Identity, loaded: &[Identity]) -> Result<(), String> {
    for other in loaded {
        if other.inode == identity.inode && other.inode != (0, 0) {
            return Err("this file is loaded already".into());
        }
        if other.build_id.is_some() && other.build_id == identity.build_id {
            return Err("a copy of this file is loaded already (same build id)".into());
        }
        if other.name == identity.name {
            return Err(format!("a plugin named {} is loaded already", other.name));
        }
        if other.group.is_some() && other.group == identity.group {
            return Err(format!("{} of the same group is loaded already", other.name));
        }
    }
    Ok(())
}

impl Identity {
    /// That of a plugin linked into the program.
    pub(crate) fn built_in(name: &str) -> Identity {
        Identity { inode: (0, 0), build_id: None, name: name.into(), group: None }
    }
}

/// Step 5: CPU features. Opening a variant for another CPU would end in an illegal instruction.
fn check_cpu(features: &[String]) -> Result<(), String> {
    match features.iter().find(|feature| !has_cpu_feature(feature)) {
        Some(missing) => Err(format!("this CPU has no {missing}")),
        None => Ok(()),
    }
}

/// A feature, and whether this CPU has it.
type Feature = (&'static str, fn() -> bool);

macro_rules! features {
    ($detect:ident, $($name:tt)*) => {
        &[$(($name, || std::arch::$detect!($name))),*]
    };
}

/// The features that manifests may require.
#[cfg(target_arch = "x86_64")]
const FEATURES: &[Feature] = features!(is_x86_feature_detected, "sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "avx" "avx2"
    "fma" "f16c" "bmi1" "bmi2" "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl" "avx512vnni" "avx512bf16"
    "avx512vbmi" "avxvnni" "gfni" "vpclmulqdq");

/// The features that manifests may require.
#[cfg(target_arch = "aarch64")]
const FEATURES: &[Feature] =
    features!(is_aarch64_feature_detected, "neon" "dotprod" "fp16" "bf16" "i8mm" "sve" "sve2");

/// The features that manifests may require.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const FEATURES: &[Feature] = &[];

/// Whether this CPU has a feature; unknown ones it has not.
fn has_cpu_feature(feature: &str) -> bool {
    FEATURES.iter().any(|(name, is_there)| *name == feature && is_there())
}

/// The features of this CPU that plugins may require.
pub fn cpu_features() -> Vec<&'static str> {
    FEATURES.iter().filter(|(_, is_there)| is_there()).map(|(name, _)| *name).collect()
}

/// Step 5: one of the `vendor:device` patterns is on the PCI bus, as `devices` lists it.
fn check_pci(patterns: &[String], devices: &Path) -> Result<(), String> {
    if patterns.is_empty() {
        return Ok(());
    }
    let id = |dir: &Path, file: &str| {
        let text = std::fs::read_to_string(dir.join(file)).unwrap_or_default();
        text.trim().trim_start_matches("0x").to_string()
    };
    let found = std::fs::read_dir(devices).into_iter().flatten().flatten().any(|entry| {
        let (vendor, device) = (id(&entry.path(), "vendor"), id(&entry.path(), "device"));
        let name = format!("{vendor}:{device}");
        !vendor.is_empty() && patterns.iter().any(|p| matches(p.as_bytes(), name.as_bytes()))
    });
    if found { Ok(()) } else { Err(format!("no PCI device {} here", patterns.join(" or "))) }
}

/// Step 6: a plugin has the entry, and gets everything of the host through its table. A library that happens to carry
/// a manifest but lacks the entry is refused here, before its constructors run.
fn check_symbols(elf: &Elf<'_>) -> Result<(), String> {
    if let Some(name) = elf.undefined_symbol("llmrt_")? {
        return Err(format!(
            "needs symbol {name} of the host, which exports none; use the table `init` gets"
        ));
    }
    match elf.defines(QUERY_SYMBOL)? {
        true => Ok(()),
        false => Err(format!("exports no {QUERY_SYMBOL}; define it, visible to others")),
    }
}

/// Step 5, last because it runs the libraries' own constructors: the vendor's libraries are there.
fn check_sonames(sonames: &[String]) -> Result<(), String> {
    for soname in sonames {
        if soname.contains('/') {
            return Err(format!("manifest names library {soname}; a name without folders is expected"));
        }
        // SAFETY: a vendor's library that the plugin would load anyway; the handle is leaked, so nothing is unmapped.
        match unsafe { libloading::os::unix::Library::open(Some(soname), libc::RTLD_LAZY | libc::RTLD_LOCAL) }
        {
            Ok(library) => std::mem::forget(library),
            Err(e) => return Err(super::open::words(&e)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, expected) in [
            ("cuda", "cuda", true),
            ("cu*", "cuda", true),
            ("*", "", true),
            ("c?da", "cuda", true),
            ("cud", "cuda", false),
            ("*a*a*", "cuda", false),
            ("19e5:*", "19e5:d802", true),
            ("19E5:*", "19e5:d802", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn the_refusal_of_a_disabled_name_has_the_pattern() {
        assert_eq!(check_enabled("cuda", "x, cu*"), Err("disabled by LLMRT_PLUGINS_DISABLE=cu*".into()));
        assert_eq!(check_enabled("cpu", "x, cu*,"), Ok(()));
    }

    #[test]
    fn a_pci_pattern_needs_a_device_on_the_bus() {
        let bus = tempfile::tempdir().unwrap();
        let dev = bus.path().join("0000:01:00.0");
        std::fs::create_dir(&dev).unwrap();
        std::fs::write(dev.join("vendor"), "0x19e5\n").unwrap();
        std::fs::write(dev.join("device"), "0xd802\n").unwrap();
        assert_eq!(check_pci(&["10de:*".into(), "19e5:*".into()], bus.path()), Ok(()));
        assert_eq!(check_pci(&["10de:*".into()], bus.path()), Err("no PCI device 10de:* here".into()));
        assert_eq!(check_pci(&[], Path::new("/nonexistent")), Ok(()));
    }

    #[test]
    fn an_unknown_cpu_feature_is_a_missing_one() {
        assert_eq!(check_cpu(&["warp9".into()]), Err("this CPU has no warp9".into()));
    }

    #[test]
    fn a_file_anyone_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libllmrt_x.so");
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        assert!(open_file(&path).unwrap_err().contains("anyone may write"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(open_file(&path).is_ok());
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(open_file(&path).unwrap_err().contains("anyone may write"));
        // Sticky: others cannot replace this file, and it is named, not found.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(open_file(&path).is_ok());
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libllmrt_x.so");
        std::fs::write(&path, "x").unwrap();
        // Only root can give files away; for others the rule is tested on numbers, in `trust`.
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
            assert!(open_file(&path).unwrap_err().contains("belongs to user 65534"));
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
            assert!(open_file(&path).is_ok());
            std::os::unix::fs::chown(dir.path(), Some(65534), None).unwrap();
            assert!(open_file(&path).unwrap_err().contains("belongs to user 65534"));
        }
    }

    #[test]
    fn a_missing_library_gives_the_loaders_words() {
        let e = check_sonames(&["libllmrt-no-such-library.so".into()]).unwrap_err();
        assert!(e.contains("libllmrt-no-such-library.so"), "{e}");
    }
}
