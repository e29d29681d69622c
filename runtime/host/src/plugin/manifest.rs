//! The manifest of a plugin file: what it needs, known before anything of it runs.

use super::elf::Elf;
use llmrt_abi::{ABI_MAJOR, manifest as keys};

/// A manifest with its mandatory keys.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Manifest {
    /// The plugin's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Variants of one plugin share a group; at most one is loaded.
    pub group: Option<String>,
    /// CPU features without which it must not be opened.
    pub cpu: Vec<String>,
    /// `vendor:device` patterns in hexadecimal, of which one must be there.
    pub pci: Vec<String>,
    /// Libraries that must be found.
    pub sonames: Vec<String>,
    /// Higher is preferred.
    pub priority: i32,
    /// What to do when something is missing.
    pub hint: Option<String>,
    /// Keys that this build does not recognise: newer than it, or misspelt.
    pub unknown: Vec<String>,
}

/// Longest manifest that is read.
const MAX_BYTES: usize = 64 << 10;

impl Manifest {
    /// Reads the manifest of a file (checklist step 3).
    pub fn read(elf: &Elf<'_>) -> Result<Manifest, String> {
        let bytes = elf
            .section(keys::SECTION)
            .ok_or_else(|| format!("no manifest: section {} is missing", keys::SECTION))?;
        if bytes.len() > MAX_BYTES {
            return Err(format!("manifest of {} bytes; at most {MAX_BYTES} are read", bytes.len()));
        }
        // Several files, or C strings, leave NULs between and after the lines.
        let text = std::str::from_utf8(bytes).map_err(|_| "manifest is not UTF-8")?.replace('\0', "\n");
        Manifest::parse(&text)
    }

    /// Reads `key=value` lines. Keys that this build does not recognise may be newer than it: they are listed in
    /// `unknown`, and ignored.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let value = |key: &str| keys::get(text, key);
        if let Some(missing) = keys::MANDATORY.iter().find(|key| value(key).is_none_or(str::is_empty)) {
            return Err(format!("manifest lacks `{missing}`"));
        }
        let abi = value("abi").unwrap_or_default();
        if abi.parse() != Ok(ABI_MAJOR) {
            return Err(format!("built for ABI {abi}; this host has {ABI_MAJOR}"));
        }
        let name = value("name").unwrap_or_default();
        check_name(name)?;
        let priority = match value("priority") {
            None => 0,
            Some(text) => {
                text.parse().map_err(|_| format!("the manifest has priority={text}: expected a number"))?
            }
        };
        let list = |key: &str| -> Vec<String> {
            let parts = value(key).unwrap_or_default().split(',').map(str::trim);
            parts.filter(|part| !part.is_empty()).map(String::from).collect()
        };
        let is_known = |key: &str| keys::MANDATORY.contains(&key) || keys::OPTIONAL.contains(&key);
        let given = text.lines().filter_map(|line| Some(line.split_once('=')?.0));
        Ok(Manifest {
            name: name.into(),
            version: value("version").unwrap_or_default().into(),
            group: value("group").map(String::from),
            cpu: list("cpu"),
            pci: list("pci"),
            sonames: list("sonames"),
            priority,
            hint: value("hint").map(String::from),
            unknown: given.filter(|key| !is_known(key)).map(String::from).collect(),
        })
    }

    /// A reason followed by the plugin's own hint.
    pub fn with_hint(&self, reason: String) -> String {
        match &self.hint {
            Some(hint) => format!("{reason}; {hint}"),
            None => reason,
        }
    }
}

/// A plugin's name is lower case, digits, `_` and `-`, and short.
pub fn check_name(name: &str) -> Result<(), String> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(good) {
        return Ok(());
    }
    Err(format!("plugin name `{}`; expected up to 64 of a-z, 0-9, _ and -", name.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<(), &str>) {
        assert_eq!(Manifest::parse(text).map(|_| ()), expected.map_err(String::from), "{text:?}");
    }

    #[test]
    fn mandatory_keys_are_named_when_missing() {
        check("abi=0\nname=x\nversion=1\n", Ok(()));
        check("name=x\nversion=1\n", Err("manifest lacks `abi`"));
        check("abi=0\nversion=1\n", Err("manifest lacks `name`"));
        check("abi=0\nname=x\nversion=\n", Err("manifest lacks `version`"));
        check("", Err("manifest lacks `abi`"));
    }

    #[test]
    fn keys_that_are_not_known_are_named() {
        let manifest = Manifest::parse("abi=0\nname=x\nversion=1\nsonmaes=libx.so\nhint=h\n").unwrap();
        assert_eq!(manifest.unknown, ["sonmaes"]);
    }

    #[test]
    fn another_abi_is_refused() {
        check("abi=7\nname=x\nversion=1\n", Err("built for ABI 7; this host has 0"));
        check("abi=zero\nname=x\nversion=1\n", Err("built for ABI zero; this host has 0"));
    }

    #[test]
    fn names_that_could_be_paths_are_refused() {
        let wrong = "plugin name `../x`; expected up to 64 of a-z, 0-9, _ and -";
        check("abi=0\nname=../x\nversion=1\n", Err(wrong));
    }

    #[test]
    fn lists_are_split_and_unknown_keys_ignored() {
        let text = "abi=0\nname=x\nversion=1\ncpu=avx2, fma,\npci=19e5:*\nfuture=thing\npriority=-3\n";
        let m = Manifest::parse(text).unwrap();
        assert_eq!(
            (m.cpu, m.pci, m.priority),
            (vec!["avx2".into(), "fma".into()], vec!["19e5:*".into()], -3)
        );
    }
}
