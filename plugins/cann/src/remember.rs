//! A file with the layouts that were the fastest, a line per chip, release and products. A file that is not of this form is as if
//! it were not there.

use crate::layout::Choice;
use std::io;
use std::path::{Path, PathBuf};

const HEAD: &str = "llmrt cann layouts 1";

/// What a choice was measured for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// The chip's name.
    pub soc: String,
    /// The libraries' release.
    pub release: String,
    /// The products.
    pub shapes: String,
}

/// The file in the user's folder of caches.
pub fn usual_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(caches.join("llmrt/cann-layouts"))
}

/// The choice that was written for this.
pub fn read(file: &Path, key: &Key) -> Option<Choice> {
    lines(&std::fs::read_to_string(file).ok()?)?.into_iter().find(|(k, _)| k == key).map(|(_, choice)| choice)
}

/// Writes a choice beside those for others. The file is whole at any time.
pub fn write(file: &Path, key: &Key, choice: Choice) -> io::Result<()> {
    let mut all = std::fs::read_to_string(file).ok().and_then(|text| lines(&text)).unwrap_or_default();
    all.retain(|(k, _)| k != key);
    all.push((key.clone(), choice));
    let line = |(k, c): &(Key, Choice)| {
        format!(
            "{}\t{}\t{}\tnz={}\tcolumns={}\n",
            k.soc,
            k.release,
            k.shapes,
            u8::from(c.nz),
            u8::from(c.columns)
        )
    };
    let text: String = std::iter::once(format!("{HEAD}\n")).chain(all.iter().map(line)).collect();
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder)?;
    }
    let new = file.with_extension(format!("{}.new", std::process::id()));
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file));
    written.inspect_err(|_| _ = std::fs::remove_file(&new))
}

/// All lines, or none if one is of another form.
fn lines(text: &str) -> Option<Vec<(Key, Choice)>> {
    let rest = text.strip_prefix(HEAD)?.strip_prefix('\n')?;
    rest.is_empty().then(Vec::new).or_else(|| rest.strip_suffix('\n')?.split('\n').map(line).collect())
}

fn line(line: &str) -> Option<(Key, Choice)> {
    let parts: Vec<&str> = line.split('\t').collect();
    let [soc, release, shapes, nz, columns] = parts[..] else { return None };
    let flag = |text: &str, name: &str| match text.strip_prefix(name)? {
        "=0" => Some(false),
        "=1" => Some(true),
        _ => None,
    };
    let key = Key { soc: soc.into(), release: release.into(), shapes: shapes.into() };
    Some((key, Choice { nz: flag(nz, "nz")?, columns: flag(columns, "columns")? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(soc: &str) -> Key {
        Key { soc: soc.into(), release: "9.1.0".into(), shapes: "4096x4096x1".into() }
    }

    #[test]
    fn choices_of_several_chips_are_kept() {
        let dir = std::env::temp_dir().join(format!("llmrt-layouts-{}", std::process::id()));
        let file = dir.join("some/cann-layouts");
        let (a, b) = (Choice { nz: true, columns: false }, Choice { nz: false, columns: true });
        assert_eq!(read(&file, &key("a")), None);
        write(&file, &key("a"), b).unwrap();
        write(&file, &key("b"), b).unwrap();
        write(&file, &key("a"), a).unwrap();
        assert_eq!((read(&file, &key("a")), read(&file, &key("b"))), (Some(a), Some(b)));
        assert_eq!(read(&file, &Key { release: "9.0.1".into(), ..key("a") }), None);
        // What is damaged, or of another program, is measured and written again.
        let whole = std::fs::read_to_string(&file).unwrap();
        for wrong in ["", "something else\n", &whole[..whole.len() - 3], &whole.replace("nz=1", "nz=2")] {
            std::fs::write(&file, wrong).unwrap();
            assert_eq!(read(&file, &key("b")), None, "{wrong:?}");
            write(&file, &key("a"), a).unwrap();
            assert_eq!(read(&file, &key("a")), Some(a));
        }
        assert_eq!(
            std::fs::read_dir(file.parent().unwrap()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
