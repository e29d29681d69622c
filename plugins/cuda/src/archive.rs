//! The file of kernels compiled ahead, as `cargo ci cuda-kernels` writes it and the plugin carries it: text lines
//! `family target offset stored length` up to an empty one, the first with a hash of the sources; then the images, each
//! compressed by itself, so that one is unpacked without the others.

use crate::kernels::sources_hash;
use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

/// How hard the compressor tries: the most that it offers short of trying everything.
const LEVEL: u8 = 9;

/// An image as it is kept.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The family of kernels.
    pub family: &'a str,
    /// What it was compiled for: `sm_…`, or `compute_…`, which is PTX.
    pub target: &'a str,
    packed: &'a [u8],
    len: usize,
}

/// An archive of images: family, target, bytes. The same images give the same bytes.
pub fn write(images: &[(&str, &str, &[u8])]) -> Vec<u8> {
    let (mut head, mut bytes) = (format!("{:016x}\n", sources_hash()), Vec::new());
    for (family, target, image) in images {
        let packed = compress_to_vec_zlib(image, LEVEL);
        head += &format!("{family} {target} {} {} {}\n", bytes.len(), packed.len(), image.len());
        bytes.extend_from_slice(&packed);
    }
    [head.as_bytes(), b"\n", &bytes].concat()
}

/// What is in an archive; nothing if it is of other sources, or none.
pub fn read(archive: &[u8]) -> Vec<Entry<'_>> {
    entries(archive).unwrap_or_default()
}

fn entries(archive: &[u8]) -> Option<Vec<Entry<'_>>> {
    let end = archive.windows(2).position(|two| two == b"\n\n")?;
    let (head, bytes) = (std::str::from_utf8(&archive[..end]).ok()?, &archive[end + 2..]);
    let mut lines = head.lines();
    if lines.next()? != format!("{:016x}", sources_hash()) {
        return None;
    }
    lines.map(|line| entry(line, bytes)).collect()
}

fn entry<'a>(line: &'a str, bytes: &'a [u8]) -> Option<Entry<'a>> {
    let mut words = line.split(' ');
    let (family, target) = (words.next()?, words.next()?);
    let mut number = || words.next()?.parse::<usize>().ok();
    let (offset, stored, len) = (number()?, number()?, number()?);
    Some(Entry { family, target, packed: bytes.get(offset..offset.checked_add(stored)?)?, len })
}

impl Entry<'_> {
    /// The image followed by a zero, because PTX is a NUL-terminated text; or what is wrong with the archive.
    pub fn unpack(&self) -> Result<Vec<u8>, String> {
        let image = decompress_to_vec_zlib_with_limit(self.packed, self.len).map_err(|e| e.to_string());
        match image {
            Ok(image) if image.len() == self.len => Ok([&image[..], b"\0"].concat()),
            Ok(image) => Err(format!("{} bytes were packed, expected {}", image.len(), self.len)),
            Err(problem) => Err(format!("the packed image is damaged: {problem}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images() -> [(&'static str, &'static str, &'static [u8]); 3] {
        [("x", "sm_75", &[7; 1000]), ("x", "compute_75", b"PTX"), ("y", "sm_90a", b"")]
    }

    #[test]
    fn images_come_out_as_they_went_in_and_smaller_in_between() {
        let archive = write(&images());
        assert_eq!(archive, write(&images()), "the same images, the same bytes");
        assert!(archive.len() < 200, "{}", archive.len());
        let read = read(&archive);
        assert_eq!(read.len(), 3);
        for (entry, (family, target, image)) in read.iter().zip(images()) {
            assert_eq!((entry.family, entry.target), (family, target));
            assert_eq!(entry.unpack().unwrap(), [image, b"\0"].concat());
        }
    }

    #[test]
    fn an_archive_of_other_sources_is_empty_and_a_damaged_one_too() {
        let archive = write(&images());
        assert!(read(&archive[1..]).is_empty());
        assert!(read(b"").is_empty());
        assert!(read(&archive[..archive.len() - 1]).is_empty(), "an image ends past the end");
        let mut damaged = archive.clone();
        let first = archive.windows(2).position(|two| two == b"\n\n").unwrap() + 2;
        damaged[first + 4] ^= 0xff;
        assert!(read(&damaged)[0].unpack().is_err());
    }
}
