//! GGUF files: read or refused; what is read is inside the file, and comes back when it is written and read again.

use crate::{Target, accepted, samples};
use llmrt_gguf::writer::{Tables, to_vec};
use llmrt_gguf::{Error, Gguf, merge, sniff};

/// GGUF files.
pub const TARGET: Target = Target { name: "gguf", check, seeds };

/// Reads whole files, their beginnings, and tables of files that claim to be longer.
pub fn check(data: &[u8]) {
    let len = data.len() as u64;
    sniff(data);
    requests_more_only_within(&data[..data.len() / 2], len);
    requests_more_only_within(data, len.saturating_add(1 << 40));
    requests_more_only_within(data, u64::MAX);

    let Some(gguf) = accepted(Gguf::parse(data, len)) else { return };
    let mut end = gguf.data_offset;
    for tensor in &gguf.tensors {
        assert!(tensor.offset >= end, "tensors overlap");
        end = tensor.offset + tensor.nbytes;
        assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
    }
    assert!(end <= len, "data past the end");
    comes_back(&gguf, data);
    accepted(merge(vec![gguf]));
}

/// A file of `file_len` bytes of which `prefix` is known.
fn requests_more_only_within(prefix: &[u8], file_len: u64) {
    match Gguf::parse(prefix, file_len) {
        Err(Error::NeedMore { at_least }) => {
            assert!(at_least > prefix.len() as u64, "needs what it has");
            assert!(at_least <= file_len, "needs more than there is");
        }
        other => drop(accepted(other)),
    }
}

/// Names that were no UTF-8 may be too long once they are; all else can be written.
fn comes_back(gguf: &Gguf, data: &[u8]) {
    let tables = |g: &Gguf| Tables {
        flavour: g.flavour,
        version: g.version,
        metadata: g.metadata.clone(),
        tensors: g.tensors.iter().map(|t| t.shape()).collect(),
    };
    if gguf.alignment > 1 << 16 {
        return; // gigabytes of padding
    }
    let contents: Vec<&[u8]> =
        gguf.tensors.iter().map(|t| &data[t.offset as usize..(t.offset + t.nbytes) as usize]).collect();
    let Some(written) = accepted(to_vec(&tables(gguf), &contents)) else { return };
    let again = Gguf::parse(&written, written.len() as u64).expect("what is written can be read");
    assert_eq!(to_vec(&tables(&again), &contents).expect("and written again"), written);
}

fn seeds() -> Vec<Vec<u8>> {
    vec![samples::gguf_with_every_type(), samples::model("llama").1]
}
