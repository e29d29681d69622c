//! The manifest: `key=value` lines in ELF section `.llmrtmf`, read before anything of a plugin runs.

/// Name of the ELF section.
pub const SECTION: &str = ".llmrtmf";

/// The mandatory keys.
pub const MANDATORY: [&str; 3] = ["abi", "name", "version"];

/// The keys that may be there: `group`, `cpu` (needed instruction sets), `pci` (vendor:device patterns),
/// `sonames` (libraries that must be found), `priority` (higher is preferred; below 0: used only when named), `hint`
/// (remedy when they are not).
pub const OPTIONAL: [&str; 6] = ["group", "cpu", "pci", "sonames", "priority", "hint"];

/// The value of `key`, if the manifest has it.
pub fn get<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    manifest.lines().filter_map(|line| line.split_once('=')).find(|(k, _)| *k == key).map(|(_, v)| v.trim())
}
