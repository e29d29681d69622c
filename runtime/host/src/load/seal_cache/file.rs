//! One file of sealed copies: 16 bytes (a magic number, the length of the text), the text (the key, the file's length, then a line
//! per tensor), and from the next page on the tensors' bytes, each from a multiple of 64.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::super::place::Item;
use super::super::read::{CHUNK, OpenFile};
use super::super::weights::Placed;
use super::super::{ModelFiles, Result};
use super::PART;

const MAGIC: &[u8; 8] = b"LLMRTSC1";
/// Where bytes begin: at a page, of the largest that systems have.
const PAGE: u64 = 65536;
const ALIGNMENT: u64 = 64;
/// Longest text: more is no file of ours.
const MAX_TEXT: u64 = 64 << 20;

/// Whether a path has the name of a file of this kind: a model's name, the hash of a key, for parts a number, and the ending.
pub fn is_name(path: &Path, ending: &str) -> bool {
    let is_hex = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(name) = name.strip_suffix(ending).and_then(|name| name.strip_suffix('.')) else { return false };
    let name = match ending == PART {
        true => name.rsplit_once('.').filter(|(_, number)| is_hex(number)).map(|(name, _)| name),
        false => Some(name),
    };
    name.and_then(|name| name.rsplit_once('-')).is_some_and(|(_, hash)| is_hex(hash))
}

/// What a file is for.
pub struct Key {
    text: String,
    /// A line for each matrix that is loaded, and its bytes.
    tensors: Vec<(String, u64)>,
    /// The model's first file, without its folder and ending.
    stem: String,
}

impl Key {
    /// Of matrices on one device; `None` for a model that has no place on a disk.
    pub fn new(files: &ModelFiles, items: &[Item<'_>]) -> Option<Key> {
        let (mut text, mut stem) = (String::new(), String::new());
        for file in files.files() {
            let metadata = file.file.metadata().ok().filter(|m| m.nlink() > 0)?;
            let changed = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            if stem.is_empty() {
                stem = file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            }
            let _ = writeln!(text, "model {} {} {changed:?}", name.escape_debug(), file.len);
        }
        let device = &items.first()?.request.device;
        let (plugin, arch) = (device.plugin(), std::env::consts::ARCH);
        let _ = writeln!(text, "plugin {plugin} {} {arch} {}", device.plugin_version(), device.name());
        let line = |Item { request, info, pieces }: &Item<'_>| {
            let (place, pieces) = ((info.file, info.offset, info.nbytes), pieces.id());
            let (dtype, ne, name) = (info.dtype, info.ne, info.name.escape_debug());
            let line = format!("{dtype} {ne:?} {} {place:?} {pieces} {name}", request.role as u32);
            (line, info.nbytes)
        };
        Some(Key { text, tensors: items.iter().map(line).collect(), stem })
    }

    /// The model's name, and a hash.
    pub fn file_name(&self, ending: &str) -> String {
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = self.text.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let stem: String = self.stem.chars().take(80).map(|c| if is_plain(c) { c } else { '_' }).collect();
        format!("{stem}-{hash:016x}.{ending}")
    }
}

/// Where a tensor is in a file, and its layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tensor {
    pub layout_id: u32,
    pub layout_flags: u32,
    pub offset: u64,
}

/// The tensors of the key in a file; what is wrong with it.
pub fn read(file: &OpenFile, key: &Key) -> Result<std::result::Result<Vec<Tensor>, String>> {
    let head = file.prefix(16)?;
    let n = head.get(8..16).and_then(|n| Some(u64::from_le_bytes(n.try_into().ok()?)));
    let Some(n) = n.filter(|n| head.starts_with(MAGIC) && *n <= MAX_TEXT && 16 + n <= file.len) else {
        return Ok(Err("no file of sealed weights".into()));
    };
    let mut text = vec![0; n as usize];
    file.read_exact_at(16, &mut text)?;
    Ok(parse(&text, key, file.len))
}

fn parse(text: &[u8], key: &Key, len: u64) -> std::result::Result<Vec<Tensor>, String> {
    let rest = text.strip_prefix(key.text.as_bytes()).and_then(|rest| std::str::from_utf8(rest).ok());
    let rest = rest.ok_or("made of another model, plugin or device")?;
    let (first, rest) = rest.split_once('\n').unwrap_or((rest, ""));
    let whole = first.strip_prefix("bytes ").and_then(|n| n.parse::<u64>().ok());
    if whole != Some(len) {
        return Err(format!("{len} bytes, expected `{first}`"));
    }
    let mut lines = HashMap::new();
    for line in rest.lines() {
        let (place, tensor) = line.split_once('|').ok_or_else(|| format!("not as expected: {line:?}"))?;
        lines.insert(tensor, place);
    }
    let tensor = |(line, least): &(String, u64)| {
        let place = lines.get(&line[..]).ok_or_else(|| format!("without {line}"))?;
        let numbers: Vec<u64> = place.split(' ').map_while(|word| word.parse().ok()).collect();
        let [id, flags, offset, size] = numbers[..] else {
            return Err(format!("not as expected: {place:?}"));
        };
        let (layout_id, layout_flags) = (u32::try_from(id), u32::try_from(flags));
        let end = offset.checked_add(size).filter(|end| size >= *least && *end <= len);
        match (layout_id, layout_flags, end) {
            (Ok(layout_id), Ok(layout_flags), Some(_)) if offset.is_multiple_of(ALIGNMENT) => {
                Ok(Tensor { layout_id, layout_flags, offset })
            }
            _ => Err(format!("a tensor at {place:?} of {len} bytes")),
        }
    };
    key.tensors.iter().map(tensor).collect()
}

/// What is to be written.
pub struct Writer<'a> {
    text: String,
    tensors: Vec<(&'a Placed, u64, u64)>,
    size: u64,
}

impl<'a> Writer<'a> {
    /// Weights of a key, each of which has all of its buffer from its first byte on.
    pub fn new(key: &Key, placed: &[&'a Placed]) -> Writer<'a> {
        // Of a line, beside the tensor's text, there are at most 68 bytes, and of the first 32.
        let lines: usize = key.tensors.iter().map(|(line, _)| line.len() + 68).sum();
        let start = ((16 + key.text.len() + 32 + lines) as u64).next_multiple_of(PAGE);
        let (mut at, mut tensors, mut table) = (start, Vec::new(), String::new());
        for (placed, (line, _)) in placed.iter().zip(&key.tensors) {
            let size = placed.buffer.size() - placed.offset;
            let _ = writeln!(table, "{} {} {at} {size}|{line}", placed.layout_id, placed.layout_flags);
            tensors.push((*placed, at, size));
            at = (at + size).next_multiple_of(ALIGNMENT);
        }
        Writer { text: format!("{}bytes {at}\n{table}", key.text), tensors, size: at }
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes all of it under another name first, so that a file is whole or not there; `prepare` comes before it gets its own.
    pub fn write(
        &self,
        path: &Path,
        goes_on: &mut dyn FnMut() -> bool,
        prepare: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        // Processes of other machines and containers write to the folder, too: no number of ours is unique there.
        let number = RandomState::new().build_hasher().finish();
        let part = path.with_extension(format!("{number:016x}.{PART}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        let written = self.write_to(file, goes_on).and_then(|()| prepare());
        let written = written.and_then(|()| std::fs::rename(&part, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        written
    }

    fn write_to(&self, mut file: File, goes_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
        let mut head = MAGIC.to_vec();
        head.extend((self.text.len() as u64).to_le_bytes());
        head.extend(self.text.bytes());
        file.write_all(&head)?;
        let (mut at, mut bytes) = (head.len() as u64, vec![0; CHUNK]);
        for (placed, start, size) in &self.tensors {
            fill(&mut file, start - at)?;
            let mut done = 0;
            while done < *size {
                if !goes_on() {
                    return Err(io::Error::other("cancelled"));
                }
                let n = CHUNK.min((size - done) as usize);
                let read = placed.buffer.read(placed.offset + done, &mut bytes[..n]);
                read.map_err(|e| io::Error::other(e.to_string()))?;
                file.write_all(&bytes[..n])?;
                done += n as u64;
            }
            at = start + size;
        }
        fill(&mut file, self.size - at)?;
        file.sync_data()
    }
}

/// Zeros, fewer than a page.
fn fill(file: &mut File, n: u64) -> io::Result<()> {
    file.write_all(&vec![0; n as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        let tensors = vec![("F32 [5] w".to_string(), 100)];
        Key { text: "model m 5\n".into(), tensors, stem: "a b/c".into() }
    }

    #[test]
    fn names_are_plain_and_depend_on_the_key() {
        let name = key().file_name("seal");
        assert!(name.starts_with("a_b_c-") && name.ends_with(".seal"), "{name}");
        assert!(is_name(Path::new(&name), "seal") && !is_name(Path::new(&name), PART));
        assert_ne!(name, Key { text: "model m 6\n".into(), ..key() }.file_name("seal"));
        let part = Path::new(&name).with_extension("0123456789abcdef.part");
        assert!(is_name(&part, PART) && !is_name(&part, "seal"));
    }

    #[test]
    fn files_of_others_are_none_of_ours() {
        for name in ["taxes.seal", "a-12.seal", "video.mkv.part", "a-0123456789abcdef.part", ".seal", "seal"]
        {
            assert!(!is_name(Path::new(name), "seal") && !is_name(Path::new(name), PART), "{name}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let parse = |text: &str| parse(text.as_bytes(), &key(), 1000);
        let tensor = Tensor { layout_id: 1, layout_flags: 8, offset: 128 };
        let good = "model m 5\nbytes 1000\n1 8 128 104|F32 [5] w\n";
        assert_eq!(parse(good), Ok(vec![tensor]));
        assert_eq!(parse(&good.replace("\n1", "\n7 7 7 7|others\n1")), Ok(vec![tensor]), "one of several");
        for (from, to, problem) in [
            ("model m", "model n", "another model"),
            ("1000", "999", "1000 bytes"),
            ("bytes 1000\n", "", "1000 bytes"),
            ("w\n", "v\n", "without F32 [5] w"),
            ("|", " ", "not as expected"),
            ("1 8 128 104", "1 8 128", "not as expected"),
            ("1 8 128 104", "1 8 128 x", "not as expected"),
            ("1 8 128 104", "5000000000 8 128 104", "a tensor at"),
            ("128", "129", "a tensor at"),
            ("104", "99", "a tensor at"),
            ("128", "960", "a tensor at"),
            ("128", "18446744073709551552", "a tensor at"),
        ] {
            let found = parse(&good.replacen(from, to, 1)).unwrap_err();
            assert!(found.contains(problem), "{from} → {to}: {found}");
        }
    }
}
