//! One file of sealed copies: 16 bytes (a magic number, the length of the text), the text (the key, then a line per tensor), and
//! from the next page on the tensors' bytes, each from a multiple of 64.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::super::place::Item;
use super::super::read::{CHUNK, OpenFile};
use super::super::weights::Placed;
use super::super::{ModelFiles, Result};

const MAGIC: &[u8; 8] = b"LLMRTSC1";
/// Where bytes begin: at a page, of the largest that systems have.
const PAGE: u64 = 65536;
const ALIGNMENT: u64 = 64;
/// Longest text: more is no file of ours.
const MAX_TEXT: u64 = 64 << 20;

/// What a file is for.
pub struct Key {
    text: String,
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
        if let Some(device) = items.first().map(|item| &item.request.device) {
            let (plugin, arch) = (device.plugin(), std::env::consts::ARCH);
            let _ = writeln!(text, "plugin {plugin} {} {arch} {}", device.plugin_version(), device.name());
        }
        for Item { request, info, row_step } in items {
            let (place, step) = ((info.file, info.offset, info.nbytes), row_step.unwrap_or(0));
            let name = info.name.escape_debug();
            let _ = writeln!(
                text,
                "tensor {} {:?} {} {place:?} {step} {name}",
                info.dtype, info.ne, request.role as u32
            );
        }
        Some(Key { text, stem })
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

/// The tensors of a file, of at least these sizes in bytes; what is wrong with it.
pub fn read(file: &OpenFile, key: &Key, sizes: &[u64]) -> Result<std::result::Result<Vec<Tensor>, String>> {
    let head = file.prefix(16)?;
    let n = head.get(8..16).and_then(|n| Some(u64::from_le_bytes(n.try_into().ok()?)));
    let Some(n) = n.filter(|n| head.starts_with(MAGIC) && *n <= MAX_TEXT && 16 + n <= file.len) else {
        return Ok(Err("no file of sealed weights".into()));
    };
    let mut text = vec![0; n as usize];
    file.read_exact_at(16, &mut text)?;
    Ok(parse(&text, key, sizes, file.len))
}

fn parse(text: &[u8], key: &Key, sizes: &[u64], len: u64) -> std::result::Result<Vec<Tensor>, String> {
    let rest = text.strip_prefix(key.text.as_bytes()).and_then(|rest| std::str::from_utf8(rest).ok());
    let rest = rest.ok_or("made of another model, plugin or device")?;
    let mut tensors = Vec::with_capacity(sizes.len());
    for line in rest.lines() {
        let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let [id, flags, offset, size] = numbers[..] else { return Err(format!("not as expected: {line:?}")) };
        let (layout_id, layout_flags) = (u32::try_from(id), u32::try_from(flags));
        let (Ok(layout_id), Ok(layout_flags)) = (layout_id, layout_flags) else {
            return Err(format!("not as expected: {line:?}"));
        };
        let is_whole = sizes.get(tensors.len()).is_some_and(|least| size >= *least);
        let end = offset.checked_add(size).filter(|_| is_whole);
        if !offset.is_multiple_of(ALIGNMENT) || end.is_none_or(|end| end > len) {
            return Err(format!("a tensor at byte {offset} of {len}"));
        }
        tensors.push(Tensor { layout_id, layout_flags, offset });
    }
    match tensors.len() == sizes.len() {
        true => Ok(tensors),
        false => Err(format!("{} tensors, expected {}", tensors.len(), sizes.len())),
    }
}

/// What is to be written.
pub struct Writer<'a> {
    text: String,
    tensors: Vec<(&'a Placed, u64, u64)>,
    size: u64,
}

impl<'a> Writer<'a> {
    /// Weights, each of which has all of its buffer from its first byte on.
    pub fn new(key: &Key, placed: &[&'a Placed]) -> Writer<'a> {
        // A line has at most 64 bytes.
        let start = (16 + key.text.len() as u64 + 64 * placed.len() as u64).next_multiple_of(PAGE);
        let (mut at, mut tensors, mut text) = (start, Vec::new(), key.text.clone());
        for placed in placed {
            let size = placed.buffer.size() - placed.offset;
            let _ = writeln!(text, "{} {} {at} {size}", placed.layout_id, placed.layout_flags);
            tensors.push((*placed, at, size));
            at = (at + size).next_multiple_of(ALIGNMENT);
        }
        Writer { text, tensors, size: at }
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes all of it under another name first, so that a file is whole or not there.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let part = path.with_extension(format!("{}.{}", std::process::id(), super::PART));
        let written = self.write_part(&part).and_then(|()| std::fs::rename(&part, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        written
    }

    fn write_part(&self, part: &Path) -> io::Result<()> {
        let mut file = std::fs::File::create(part)?;
        let mut head = MAGIC.to_vec();
        head.extend((self.text.len() as u64).to_le_bytes());
        head.extend(self.text.bytes());
        file.write_all(&head)?;
        let (mut at, mut bytes) = (head.len() as u64, vec![0; CHUNK]);
        for (placed, start, size) in &self.tensors {
            fill(&mut file, start - at)?;
            let mut done = 0;
            while done < *size {
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
fn fill(file: &mut std::fs::File, n: u64) -> io::Result<()> {
    file.write_all(&vec![0; n as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key { text: "model m 5\n".into(), stem: "a b/c".into() }
    }

    #[test]
    fn names_are_plain_and_depend_on_the_key() {
        let name = key().file_name("seal");
        assert!(name.starts_with("a_b_c-") && name.ends_with(".seal"), "{name}");
        assert_ne!(name, Key { text: "model m 6\n".into(), ..key() }.file_name("seal"));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let parse = |text: &str, sizes: &[u64]| parse(text.as_bytes(), &key(), sizes, 1000);
        let tensor = Tensor { layout_id: 1, layout_flags: 8, offset: 128 };
        assert_eq!(parse("model m 5\n1 8 128 104\n", &[100]), Ok(vec![tensor]));
        for (text, problem) in [
            ("model n 5\n1 8 128 100\n", "another model"),
            ("model m 5\n", "0 tensors"),
            ("model m 5\n1 8 128\n", "not as expected"),
            ("model m 5\n1 8 128 x\n", "not as expected"),
            ("model m 5\n1 5000000000 128 100\n", "not as expected"),
            ("model m 5\n1 8 129 100\n", "byte 129"),
            ("model m 5\n1 8 128 99\n", "byte 128"),
            ("model m 5\n1 8 960 100\n", "byte 960"),
            ("model m 5\n1 8 18446744073709551552 100\n", "byte 18446744073709551552"),
            ("model m 5\n1 8 128 100\n1 8 128 100\n", "byte 128"),
        ] {
            let found = parse(text, &[100]).unwrap_err();
            assert!(found.contains(problem), "{text}: {found}");
        }
    }
}
