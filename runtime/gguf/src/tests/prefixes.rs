//! Files seen only in part, and files that end early.

use llmrt_abi::DType;

use crate::writer::{Tables, to_vec};
use crate::{Error, Gguf, TensorShape};

fn sample() -> Vec<u8> {
    let mut tables = Tables::default();
    tables.metadata.set("names", vec!["one".to_string(), "two".to_string()]);
    tables.metadata.set("numbers", vec![1u32, 2, 3]);
    tables.tensors.push(TensorShape::new("a", DType::F32, &[4, 2]).unwrap());
    to_vec(&tables, &[&[7; 32]]).unwrap()
}

#[test]
fn every_short_prefix_requests_more_until_the_tables_are_whole() {
    let bytes = sample();
    let (mut have, file_len) = (0, bytes.len() as u64);
    let gguf = loop {
        match Gguf::parse(&bytes[..have], file_len) {
            Ok(gguf) => break gguf,
            Err(Error::NeedMore { at_least }) => {
                assert!(at_least > have as u64 && at_least <= file_len);
                have = at_least as usize;
            }
            Err(other) => panic!("{other}"),
        }
    };
    assert!(have as u64 <= gguf.data_offset);
    assert_eq!(gguf, Gguf::parse(&bytes, file_len).unwrap());
}

#[test]
fn a_file_truncated_anywhere_is_refused_without_a_request_for_more() {
    let bytes = sample();
    for n in 0..bytes.len() {
        let error = Gguf::parse(&bytes[..n], n as u64).unwrap_err();
        let is_refused =
            matches!(error, Error::Truncated { .. } | Error::BadCount { .. } | Error::PastEnd { .. });
        assert!(is_refused, "cut at {n}: {error}");
    }
}

#[test]
fn a_truncation_is_reported_with_what_was_read_where() {
    let bytes = sample();
    let message = Gguf::parse(&bytes[..6], 6).unwrap_err().to_string();
    assert_eq!(
        message,
        "file ends early: the version at byte 4 needs 4 bytes, the file has 6; download it again"
    );
}

#[test]
fn a_file_length_of_all_ones_overflows_nothing() {
    let bytes = sample();
    assert!(Gguf::parse(&bytes, u64::MAX).is_ok());
}
