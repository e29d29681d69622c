//! The ways to get at a file's bytes, under the names that llama.cpp's `--load-mode` has.

use std::str::FromStr;

/// How weights come from files into memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LoadMode {
    /// Mapped; devices that read host memory use the map in place.
    #[default]
    Mmap,
    /// Mapped, and what is used in place is locked in memory.
    MmapMlock,
    /// Read into memory of the devices.
    Read,
    /// Read into memory of the devices; what the CPU can reach of it is locked.
    ReadMlock,
}

impl LoadMode {
    /// Names for `--help`.
    pub const NAMES: &[&str] = &["auto", "mmap", "mmap+mlock", "none", "mlock"];

    /// Whether files are mapped.
    pub fn maps(self) -> bool {
        matches!(self, LoadMode::Mmap | LoadMode::MmapMlock)
    }

    /// Whether memory is locked.
    pub fn locks(self) -> bool {
        matches!(self, LoadMode::MmapMlock | LoadMode::ReadMlock)
    }
}

impl FromStr for LoadMode {
    type Err = String;

    fn from_str(name: &str) -> Result<LoadMode, String> {
        match name {
            "auto" | "mmap" => Ok(LoadMode::Mmap),
            "mmap+mlock" => Ok(LoadMode::MmapMlock),
            "none" => Ok(LoadMode::Read),
            "mlock" => Ok(LoadMode::ReadMlock),
            "dio" => {
                Err("load mode `dio` (direct I/O) is not supported: use `none` to read without a map".into())
            }
            other => Err(format!("load mode `{other}` is unknown: expected {}", Self::NAMES.join(", "))),
        }
    }
}

impl std::fmt::Display for LoadMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LoadMode::Mmap => "mmap",
            LoadMode::MmapMlock => "mmap+mlock",
            LoadMode::Read => "none",
            LoadMode::ReadMlock => "mlock",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_mode_and_reads_back_as_itself() {
        for name in LoadMode::NAMES {
            let mode: LoadMode = name.parse().unwrap();
            assert_eq!(mode.to_string().parse(), Ok(mode), "{name}");
        }
        assert_eq!("auto".parse(), Ok(LoadMode::default()));
    }

    #[test]
    fn direct_io_and_unknown_names_are_refused_with_a_remedy() {
        assert!("dio".parse::<LoadMode>().unwrap_err().contains("use `none`"));
        assert!("fast".parse::<LoadMode>().unwrap_err().contains("expected auto, mmap"));
    }
}
