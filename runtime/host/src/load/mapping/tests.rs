//! Maps of small files, as the kernel lists them.
#![allow(clippy::single_range_in_vec_init)] // lists of ranges are what is tested, also lists of one

use super::*;
use std::io::Write;

const AT_ONCE: ReadAhead = ReadAhead { prefetch: u64::MAX, random: false };
const LAZY: ReadAhead = ReadAhead { prefetch: 0, random: true };

/// A file of `n` pages and a bit, byte i of page p being p + i, mapped.
fn mapped(n: usize, ahead: ReadAhead) -> (tempfile::NamedTempFile, OpenFile, Mapping) {
    let mut temp = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..n * page_size() + 100).map(|i| (i / page_size() + i) as u8).collect();
    temp.write_all(&bytes).unwrap();
    let file = OpenFile::open(temp.path()).unwrap();
    let mut warnings = Vec::new();
    let mapping = Mapping::whole(&file, ahead, &mut warnings).unwrap();
    assert_eq!(warnings, [""; 0]);
    (temp, file, mapping)
}

/// A field of the kernel's account of the mapping that begins at `base`.
fn smaps(base: *const u8, field: &str) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", base.addr());
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start)).skip(1);
    let line = lines.find(|line| line.starts_with(field)).expect("the mapping is listed");
    line[field.len()..].trim_start_matches(':').trim().to_string()
}

/// Unmaps all pages of a file of 10 pages and 100 bytes but those of `keep`; what stays, in pages.
fn check(keep: &[Range<u64>], expected: &[Range<u64>]) {
    let (_temp, _file, mut mapping) = mapped(10, AT_ONCE);
    let page = page_size() as u64;
    mapping.unmap_unused(keep);
    let pages: Vec<_> = mapping.fragments().iter().map(|f| f.start / page..f.end.div_ceil(page)).collect();
    assert_eq!(pages, expected, "{keep:?}");
    for range in keep {
        assert_eq!(mapping.bytes(range.clone()).unwrap().len() as u64, range.end - range.start);
    }
}

#[test]
fn the_map_shrinks_to_the_pages_that_are_used() {
    let p = page_size() as u64;
    check(&[0..10 * p + 100], &[0..11]);
    check(&[], &[]);
    check(&[2 * p..3 * p], &[2..3]);
    check(&[2 * p + 1..3 * p + 1], &[2..4]);
    check(&[10 * p + 50..10 * p + 100], &[10..11]);
}

#[test]
fn ranges_in_any_order_that_touch_or_overlap_are_one_fragment() {
    let p = page_size() as u64;
    check(&[7 * p..8 * p, 2 * p..2 * p + 8, 3 * p - 8..3 * p], &[2..3, 7..8]);
    check(&[p..5 * p, 2 * p..3 * p, 5 * p - 1..6 * p], &[1..6]);
}

#[test]
fn unmapping_twice_keeps_what_both_keep() {
    let p = page_size() as u64;
    let (_temp, _file, mut mapping) = mapped(10, AT_ONCE);
    mapping.unmap_unused(&[p..4 * p, 6 * p..9 * p]);
    mapping.unmap_unused(&[3 * p..7 * p]);
    assert_eq!(mapping.n_mapped(), 2 * p);
    assert_eq!(mapping.bytes(3 * p..4 * p).unwrap()[0], 3);
    assert_eq!(mapping.bytes(6 * p..7 * p).unwrap()[5], 11);
    assert!(mapping.bytes(4 * p..5 * p).is_none());
    assert!(mapping.bytes(3 * p..4 * p + 1).is_none());
}

#[test]
fn the_kernel_gives_the_unmapped_pages_back() {
    let p = page_size() as u64;
    let (_temp, _file, mut mapping) = mapped(100, AT_ONCE);
    let base = mapping.base.as_ptr();
    assert_eq!(smaps(base, "Size"), format!("{} kB", 101 * p / 1024));
    mapping.unmap_unused(&[0..5]);
    assert_eq!(smaps(base, "Size"), format!("{} kB", p / 1024));
}

#[test]
fn read_ahead_brings_every_page_in_before_it_is_touched() {
    let (_temp, _file, mapping) = mapped(100, AT_ONCE);
    assert_eq!(smaps(mapping.base.as_ptr(), "Rss"), format!("{} kB", 101 * page_size() / 1024));
}

#[test]
fn several_nodes_mean_no_read_ahead_and_random_access() {
    assert_eq!(ReadAhead::for_nodes(2), LAZY);
    assert_eq!(ReadAhead::for_nodes(1), AT_ONCE);
    let (_temp, _file, mapping) = mapped(100, LAZY);
    assert_eq!(smaps(mapping.base.as_ptr(), "Rss"), "0 kB");
    assert!(smaps(mapping.base.as_ptr(), "VmFlags").split(' ').any(|flag| flag == "rr"));
}

#[test]
fn nodes_are_counted_among_the_other_entries() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["node0", "node1", "node12", "online", "nodes", "node"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    assert_eq!(n_numa_nodes(folder.path()), 3);
    assert_eq!(n_numa_nodes(&folder.path().join("absent")), 0);
}

#[test]
fn a_part_of_a_file_is_mapped_from_its_page_on() {
    let p = page_size() as u64;
    let (_temp, file, _mapping) = mapped(10, AT_ONCE);
    let part = Mapping::range(&file, 3 * p + 7..5 * p, AT_ONCE, &mut Vec::new()).unwrap();
    assert_eq!(part.bytes(3 * p + 7..3 * p + 9).unwrap(), [10, 11]);
    assert_eq!(part.n_mapped(), 2 * p);
    assert!(part.bytes(0..1).is_none());
}

#[test]
fn a_file_that_became_shorter_is_not_mapped() {
    let (temp, file, _mapping) = mapped(10, AT_ONCE);
    temp.as_file().set_len(50).unwrap();
    let message = Mapping::whole(&file, AT_ONCE, &mut Vec::new()).unwrap_err().to_string();
    assert!(message.contains("when it was opened and has 50 now"), "{message}");
}

#[test]
fn lost_pages_of_a_truncated_file_read_as_zeros_and_are_an_error() {
    let p = page_size() as u64;
    let (temp, file, mut mapping) = mapped(10, LAZY);
    let (_other_temp, other_file, other) = mapped(10, LAZY);
    mapping.unmap_unused(&[0..2 * p, 4 * p..9 * p]);
    assert_eq!(mapping.bytes(p..p + 1).unwrap(), [1]);
    assert!(mapping.check(&file).is_ok());
    temp.as_file().set_len(p).unwrap();
    // Each fragment, from several threads at once.
    std::thread::scope(|scope| {
        for start in [p, 4 * p, 8 * p, 4 * p] {
            let bytes = mapping.bytes(start..start + p).unwrap();
            scope.spawn(move || assert!(bytes.iter().all(|&byte| std::hint::black_box(byte) == 0)));
        }
    });
    assert!(mapping.is_lost() && !other.is_lost());
    assert_eq!(mapping.bytes(5..6).unwrap(), [5], "what the file still has is still read");
    let message = mapping.check(&file).unwrap_err().to_string();
    assert!(message.contains(&format!("{p} bytes, {} when it was opened", file.len)), "{message}");

    // A file that is whole again does not bring the pages back.
    temp.as_file().set_len(file.len).unwrap();
    mapping.unmap_unused(&[0..p]);
    let message = mapping.check(&file).unwrap_err().to_string();
    assert!(message.contains("pages of the file could not be read"), "{message}");

    // A new mapping, also at the same addresses, starts without the mark.
    drop(mapping);
    let (_temp, file, next) = mapped(10, LAZY);
    assert_eq!(next.bytes(3 * p..3 * p + 1).unwrap(), [3]);
    assert!(next.check(&file).is_ok() && other.check(&other_file).is_ok());
}

#[test]
fn a_truncation_within_the_last_page_is_found_by_the_length() {
    let (temp, file, mapping) = mapped(1, LAZY);
    temp.as_file().set_len(file.len - 50).unwrap();
    assert_eq!(mapping.bytes(file.len - 1..file.len).unwrap(), [0]);
    assert!(!mapping.is_lost() && mapping.check(&file).is_err());
}

#[test]
fn pages_that_are_read_ahead_have_the_same_bytes_and_no_range_is_refused() {
    let (_temp, file, mapping) = mapped(10, ReadAhead::NONE);
    let page = page_size() as u64;
    for range in [0..file.len, page + 5..3 * page, 5..5, 10 * page..file.len, 10 * page..20 * page] {
        mapping.read_ahead(range.clone());
        mapping.request(range);
    }
    let bytes = mapping.bytes(0..file.len).unwrap();
    assert!(bytes.iter().enumerate().all(|(i, &b)| b == (i / page as usize + i) as u8));
}
