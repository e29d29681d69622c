//! The members of a ZIP archive that are stored as they are, which is all that torch writes.
//!
//! Read here rather than by a library: what torch needs is four fixed records, and everything that makes archives
//! dangerous (compression, encryption, members that overlap the directory) is refused instead of decoded.

use std::collections::HashMap;
use std::ops::Range;

use crate::Error;

/// Where each member's bytes are in the file.
pub type Members = HashMap<String, Range<usize>>;

const END: [u8; 4] = *b"PK\x05\x06";
const END_64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR_64: [u8; 4] = *b"PK\x06\x07";
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const LOCAL: [u8; 4] = *b"PK\x03\x04";

/// Bytes of these records without their names.
const END_LEN: usize = 22;
const END_64_LEN: usize = 56;
const LOCATOR_LEN: usize = 20;
const ENTRY_LEN: usize = 46;
const LOCAL_LEN: usize = 30;

/// The members by name.
pub fn members(bytes: &[u8]) -> Result<Members, Error> {
    let directory = directory(bytes)?;
    let mut members = Members::new();
    let mut at = directory.at;
    for _ in 0..directory.n_entries {
        let entry = record(bytes, at, ENTRY, ENTRY_LEN, "a directory entry is missing")?;
        let (name_len, extra_len) = (u16_at(entry, 28), u16_at(entry, 30));
        let len = ENTRY_LEN + name_len + extra_len + u16_at(entry, 32);
        let whole = slice(bytes, at, len).filter(|_| at + len <= directory.end);
        let whole = whole.ok_or(bad("a directory entry is cut off", at))?;
        let (name, rest) = whole[ENTRY_LEN..].split_at(name_len);
        let member = String::from_utf8_lossy(name).into_owned();
        let range = stored(bytes, whole, &rest[..extra_len], &member, directory.at)?;
        if members.contains_key(&member) {
            return Err(Error::DuplicateMember { member });
        }
        members.insert(member, range);
        at += len;
    }
    Ok(members)
}

struct Directory {
    at: usize,
    end: usize,
    n_entries: usize,
}

/// The directory that the record at the file's end names; ZIP64's takes precedence.
fn directory(bytes: &[u8]) -> Result<Directory, Error> {
    let end_at = end_record(bytes).ok_or(bad("the directory's end is missing", bytes.len()))?;
    let end = &bytes[end_at..];
    let mut fields = (u16_at(end, 10) as u64, u32_at(end, 12), u32_at(end, 16));
    if let Some(locator) = end_at.checked_sub(LOCATOR_LEN).map(|at| &bytes[at..end_at])
        && locator.starts_with(&LOCATOR_64)
    {
        let at = usize::try_from(u64_at(locator, 8)).unwrap_or(usize::MAX);
        let end = record(bytes, at, END_64, END_64_LEN, "the directory's 64-bit end is missing")?;
        fields = (u64_at(end, 32), u64_at(end, 40), u64_at(end, 48));
    }
    let (n_entries, size, offset) = fields;
    let end = offset.checked_add(size).filter(|&end| end <= end_at as u64);
    let end = end.ok_or(bad("the directory is outside the file", end_at))?;
    if n_entries > size / ENTRY_LEN as u64 {
        return Err(bad("the directory has fewer bytes than entries", end_at));
    }
    Ok(Directory { at: offset as usize, end: end as usize, n_entries: n_entries as usize })
}

/// The last record, which a comment of at most 65535 bytes follows.
fn end_record(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(END_LEN)?;
    let first = last.saturating_sub(usize::from(u16::MAX));
    let is_end = |&at: &usize| bytes[at..].starts_with(&END) && u16_at(&bytes[at..], 20) == last - at;
    (first..=last).rev().find(is_end)
}

/// Where a member's bytes are: before the directory, as many as it has unpacked.
fn stored(
    bytes: &[u8],
    entry: &[u8],
    extra: &[u8],
    member: &str,
    limit: usize,
) -> Result<Range<usize>, Error> {
    let mut fields = [u32_at(entry, 24), u32_at(entry, 20), u32_at(entry, 42)]; // size, packed size, local header
    widen(&mut fields, extra);
    let [size, packed, local] = fields;
    let is_encrypted = u16_at(entry, 8) & 1 != 0;
    if is_encrypted || u16_at(entry, 10) != 0 || packed != size {
        return Err(Error::PackedMember { member: member.into() });
    }
    let at = usize::try_from(local).unwrap_or(usize::MAX);
    let header = record(bytes, at, LOCAL, LOCAL_LEN, "a member's header is missing")?;
    let start = at + LOCAL_LEN + u16_at(header, 26) + u16_at(header, 28);
    let end = (start as u64).checked_add(size).filter(|&end| end <= limit as u64);
    let end = end.ok_or(bad("a member runs past the directory", start))?;
    Ok(start..end as usize)
}

/// Fields that are all ones have their values in the extra field 1, in this order.
fn widen(fields: &mut [u64; 3], mut extra: &[u8]) {
    while extra.len() >= 4 {
        let (id, len) = (u16_at(extra, 0), u16_at(extra, 2));
        let Some(mut values) = extra.get(4..4 + len) else { return };
        if id == 1 {
            for field in fields.iter_mut().filter(|field| **field == u64::from(u32::MAX)) {
                let Some((value, rest)) = values.split_first_chunk() else { return };
                (*field, values) = (u64::from_le_bytes(*value), rest);
            }
        }
        extra = &extra[4 + len..];
    }
}

fn record<'a>(
    bytes: &'a [u8],
    at: usize,
    signature: [u8; 4],
    len: usize,
    what: &'static str,
) -> Result<&'a [u8], Error> {
    slice(bytes, at, len).filter(|found| found.starts_with(&signature)).ok_or(bad(what, at))
}

fn slice(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

fn bad(what: &'static str, at: usize) -> Error {
    Error::BadZip { what, at: at as u64 }
}

/// Two bytes of a record, whose length was checked.
fn u16_at(record: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([record[at], record[at + 1]]))
}

fn u32_at(record: &[u8], at: usize) -> u64 {
    u16_at(record, at) as u64 | (u16_at(record, at + 2) as u64) << 16
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u32_at(record, at) | u32_at(record, at + 4) << 32
}
