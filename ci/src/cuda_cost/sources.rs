//! The kernels' sources in a working tree.

use std::path::Path;

/// A file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Without its folder; a family's without its ending, too.
    pub name: String,
    /// CUDA C++.
    pub text: String,
}

/// All of them, each kind by name.
pub struct Sources {
    /// Files of kernels.
    pub families: Vec<Source>,
    /// What they include.
    includes: Vec<Source>,
}

impl Sources {
    /// Of a folder.
    pub fn read(folder: &Path) -> Result<Sources, String> {
        let files = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let (mut families, mut includes) = (Vec::new(), Vec::new());
        for file in files.flatten().map(|file| file.path()) {
            let is = |ending: &str| file.extension().is_some_and(|e| e == ending);
            let name = if is("cu") { file.file_stem() } else { file.file_name() };
            let name = name.unwrap_or_default().to_string_lossy().into_owned();
            let read = || std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()));
            match () {
                () if is("cu") => families.push(Source { name, text: read()? }),
                () if is("cuh") => includes.push(Source { name, text: read()? }),
                () => (),
            }
        }
        families.sort_by(|a, b| a.name.cmp(&b.name));
        includes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Sources { families, includes })
    }

    /// Names and texts of what families include.
    pub fn headers(&self) -> Vec<(&str, &str)> {
        self.includes.iter().map(|source| (&source.name[..], &source.text[..])).collect()
    }

    /// A number that changes with a family's text, or a header's.
    pub fn hash_of(&self, family: &Source) -> u64 {
        fnv(self.includes.iter().chain([family]))
    }

    /// A number that changes with any text.
    pub fn hash(&self) -> u64 {
        fnv(self.includes.iter().chain(&self.families))
    }
}

/// FNV-1a.
fn fnv<'a>(sources: impl Iterator<Item = &'a Source>) -> u64 {
    sources
        .flat_map(|source| source.text.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Source {
    /// Whether it declares a kernel of this name, directly or by a macro: `mul_mat_##name##_1`.
    pub fn may_have(&self, name: &str) -> bool {
        let patterns = self.text.split("KERNEL(").skip(1).map(|rest| rest.split(',').next().unwrap_or(""));
        patterns.map(|pattern| pattern.split("##").map(str::trim).collect::<Vec<_>>()).any(|parts| {
            match &parts[..] {
                [whole] => *whole == name,
                [first, .., last] if parts.len() % 2 == 1 => name.starts_with(first) && name.ends_with(last),
                [first, ..] => name.starts_with(first),
                [] => false,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_found_by_the_names_that_macros_make() {
        let text = "KERNEL(pack, P, 1) KERNEL(mul_##name##_8, P, 1) KERNEL(sum_##n, P, 1) {}".into();
        let family = Source { name: "x".into(), text };
        assert!(family.may_have("pack") && family.may_have("mul_q4_0_8") && family.may_have("sum_4"));
        assert!(!family.may_have("packs") && !family.may_have("mul_q4_0_4") && !family.may_have("pac"));
    }
}
