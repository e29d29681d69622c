//! Files that torch never wrote: each refused, with the reason.

use llmrt_sparse::pt::Pt;
use llmrt_sparse::{Counts, Error};

/// A ZIP archive of stored members.
fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let offset = out.len() as u32;
        let sizes = [data.len() as u32; 2].map(u32::to_le_bytes).concat();
        let names = [(name.len() as u16).to_le_bytes(), [0; 2]].concat();
        // Version, flags, method, time, date, checksum.
        let common = [0; 14];
        out.extend([b"PK\x03\x04", &common[..], &sizes, &names, name.as_bytes(), data].concat());
        let place = [&[0; 10], &offset.to_le_bytes()[..]].concat();
        directory.extend([b"PK\x01\x02\0\0", &common[..], &sizes, &names, &place, name.as_bytes()].concat());
    }
    let n = (members.len() as u16).to_le_bytes();
    let place = [directory.len() as u32, out.len() as u32].map(u32::to_le_bytes).concat();
    [out, directory, [b"PK\x05\x06\0\0\0\0", &n[..], &n, &place, &[0; 2]].concat()].concat()
}

/// An archive with this pickle and 1, 2, 3, 4 as f32 in storage `0`.
fn file(pickle: &[u8]) -> Vec<u8> {
    let numbers = [1f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat();
    zip(&[("a/data.pkl", pickle), ("a/data/0", &numbers)])
}

/// The pickle of a tensor: type and number of elements of the storage, offset, sizes and strides as opcodes.
fn tensor(storage: &str, n: u8, offset: u8, sizes: &[u8], strides: &[u8]) -> Vec<u8> {
    let tuple =
        |items: &[u8]| [&b"("[..], &items.iter().flat_map(|&n| [b'K', n]).collect::<Vec<_>>(), b"t"].concat();
    let text = |text: &str| [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let id = [text("storage"), format!("ctorch\n{storage}\n").into_bytes(), text("0"), text("cpu")].concat();
    [
        &b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(("[..],
        &id,
        &[b'K', n, b't', b'Q', b'K', offset],
        &tuple(sizes),
        &tuple(strides),
        b"\x89ccollections\nOrderedDict\n)RtR.",
    ]
    .concat()
}

fn refused(file: &[u8], expected: &str) {
    match Pt::parse(file) {
        Ok(pt) => panic!("{pt:?}"),
        Err(e) => assert!(e.to_string().contains(expected), "{e}"),
    }
}

#[test]
fn the_file_that_the_others_are_made_from_is_good() {
    let read = |file: &[u8]| Pt::parse(file).unwrap().tensor().unwrap().to_f64s(file);
    assert_eq!(read(&file(&tensor("FloatStorage", 4, 1, &[3], &[1]))), [2.0, 3.0, 4.0]);
    assert_eq!(read(&file(&tensor("FloatStorage", 4, 1, &[2, 1], &[2, 9]))), [2.0, 4.0]);
    let file = file(&tensor("FloatStorage", 4, 0, &[2, 2], &[1, 2]));
    assert_eq!(read(&file), [1.0, 3.0, 2.0, 4.0]);
    assert!(Counts::from_pt(&file).unwrap_err().to_string().contains("one count for each neuron"));
}

#[test]
fn names_that_are_not_of_tensors_are_never_called() {
    for (module, name) in [
        ("os", "system"),
        ("builtins", "eval"),
        ("torch", "load"),
        ("torch", "ComplexFloatStorage"),
        ("posix", "system"),
    ] {
        let pickle = format!("c{module}\n{name}\n(X\u{4}\u{0}\u{0}\u{0}truetR.");
        refused(
            &file(&[b"\x80\x02", pickle.as_bytes()].concat()),
            &format!("it calls for `{module}.{name}`"),
        );
    }
    let stack = b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.";
    refused(&file(stack), "it calls for `os.system`");
}

#[test]
fn opcodes_that_make_objects_are_refused() {
    for opcode in [0x81, 0x92, b'i', b'o', 0x82, 0x83, 0x84, b'P', b'I', b'L', b'V', 0x8e, 0x97] {
        refused(&file(&[0x80, 2, b')', opcode, b'.']), &format!("opcode {opcode:#04x} at byte 3"));
    }
}

#[test]
fn views_outside_their_storage_are_refused() {
    let view =
        |n, offset, sizes: &[u8], strides: &[u8]| file(&tensor("FloatStorage", n, offset, sizes, strides));
    refused(&view(5, 0, &[4], &[1]), "has 16 bytes, 20 are needed");
    refused(&view(4, 1, &[4], &[1]), "past the storage's 4 elements");
    refused(&view(4, 0, &[2, 2], &[3, 1]), "past the storage's 4 elements");
    refused(&view(4, 0, &[255, 255], &[0, 0]), "more elements than the storage's 4");
    refused(&view(4, 0, &[4], &[1, 1]), "as many strides as sizes");
    refused(&view(4, 0, &[1; 9], &[1; 9]), "too many dimensions");
    let empty = view(4, 200, &[0, 255], &[255, 255]);
    assert!(Pt::parse(&empty).unwrap().tensor().unwrap().to_f64s(&empty).is_empty());
}

#[test]
fn depth_costs_nothing() {
    let nested = [vec![b')'; 1], vec![0x85; 260_000], b".".to_vec()].concat();
    refused(&file(&nested), "holds a tuple");
    refused(&file(&[vec![b'('; 260_000], b".".to_vec()].concat()), "an empty stack");
    refused(&file(&vec![b'N'; (1 << 18) + 1]), "expected at most 262144");
}

#[test]
fn archives_that_hide_something_are_refused() {
    let good = zip(&[("a/data.pkl", b"N."), ("a/data/0", b"")]);
    refused(&good, "a single value");
    let at = |bytes: &[u8]| good.windows(bytes.len()).position(|w| w == bytes).unwrap();
    let entry = at(b"PK\x01\x02");
    let spoiled = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    refused(&spoiled(entry + 10, &[8, 0]), "is compressed or encrypted");
    refused(&spoiled(entry + 8, &[1, 0]), "is compressed or encrypted");
    refused(&spoiled(entry + 24, &[0xff; 3]), "is compressed or encrypted"); // a bomb has sizes that differ
    refused(&spoiled(entry + 20, &[0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0]), "a member runs past the directory");
    refused(&spoiled(entry + 42, &[0xff; 3]), "a member's header is missing");
    let end = at(b"PK\x05\x06");
    refused(&spoiled(end + 10, &[0xff, 0xff]), "fewer bytes than entries");
    refused(&spoiled(end + 16, &[0xff; 4]), "the directory is outside the file");
    refused(&good[..good.len() - 1], "the directory's end is missing");
    refused(&zip(&[("a/data.pkl", b"N."), ("a/data.pkl", b"N.")]), "appears twice");
    refused(&zip(&[("a/x", b"")]), "`data.pkl` is missing");
    refused(&zip(&[("data.pkl", b"N."), ("byteorder", b"big")]), "big-endian");
    refused(&zip(&[]), "`data.pkl` is missing");
    refused(b"", "begins with");
}

#[test]
fn counts_that_are_no_counts_are_refused() {
    let pickle = tensor("FloatStorage", 4, 0, &[4], &[1]);
    let with = |x: f32| zip(&[("a/data.pkl", &pickle), ("a/data/0", &[x.to_le_bytes(); 4].concat())]);
    assert_eq!(Counts::from_pt(&with(2.5)).unwrap().as_slice(), [2.5; 4]);
    for x in [f32::NAN, -1.0, f32::INFINITY] {
        assert!(matches!(Counts::from_pt(&with(x)), Err(Error::BadCount { neuron: 0, .. })), "{x}");
    }
}
