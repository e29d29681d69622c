//! Files of `torch.save`: one tensor, or a dict of them, read without Python and without executing anything.
//!
//! Such a file is a ZIP archive of stored members: `data.pkl`, a pickle that describes the tensors, and `data/KEY` with
//! the numbers. The pickle is run by a machine that has a fixed table of opcodes and of globals and can only build
//! numbers, texts, tuples, lists, dicts and views of tensors.

mod machine;
mod opcode;
mod tensor;
mod zip;

pub use tensor::{Number, Tensor};

use crate::Error;
use machine::Machine;
use zip::Members;

/// The longest pickle that is read. That of a predictor has some hundred bytes, and each byte may become an object of a
/// hundred.
const MAX_PICKLE: u64 = 1 << 18;

/// What a file holds. Tensors are views of its bytes.
#[derive(Clone, PartialEq, Debug)]
pub enum Pt {
    /// One tensor.
    Tensor(Tensor),
    /// The tensors of a dict by name, in its order; what else it has is left out.
    Dict(Vec<(String, Tensor)>),
}

impl Pt {
    /// Reads the whole file.
    pub fn parse(bytes: &[u8]) -> Result<Pt, Error> {
        check_start(bytes)?;
        let archive = Archive::new(bytes)?;
        Machine::new(&archive).run()
    }

    /// The file's only tensor.
    pub fn tensor(&self) -> Result<&Tensor, Error> {
        match self {
            Pt::Tensor(tensor) => Ok(tensor),
            Pt::Dict(_) => Err(Error::Content { found: "a dict".into(), expected: "one tensor" }),
        }
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Result<&Tensor, Error> {
        let Pt::Dict(tensors) = self else {
            return Err(Error::Content { found: "one tensor".into(), expected: "a dict of tensors" });
        };
        let found = tensors.iter().find(|(key, _)| key == name).map(|(_, tensor)| tensor);
        found.ok_or_else(|| {
            let names: Vec<_> = tensors.iter().take(8).map(|(key, _)| key.as_str()).collect();
            Error::MissingTensor { tensor: name.into(), found: names.join(", ") }
        })
    }
}

/// Refuses what is no ZIP archive, by what it is.
fn check_start(bytes: &[u8]) -> Result<(), Error> {
    /// A pickle of the number that torch's files began with before they were archives.
    const OLD: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
    if bytes.starts_with(b"PK") {
        return Ok(());
    }
    if bytes.starts_with(OLD) {
        return Err(Error::OldTorch);
    }
    let start = &bytes[..bytes.len().min(16)];
    Err(Error::NotTorch { found: start.escape_ascii().to_string() })
}

/// The archive's members, all of which are in one folder.
struct Archive<'a> {
    bytes: &'a [u8],
    members: Members,
    folder: String,
}

impl<'a> Archive<'a> {
    fn new(bytes: &'a [u8]) -> Result<Archive<'a>, Error> {
        const PICKLE: &str = "data.pkl";
        let members = zip::members(bytes)?;
        let folder_of = |name: &String| {
            let folder = name.strip_suffix(PICKLE)?;
            (folder.is_empty() || folder.ends_with('/')).then(|| folder.to_string())
        };
        // Of several the shortest: the others would be in folders inside.
        let folder = members.keys().filter_map(folder_of).min_by_key(|folder| (folder.len(), folder.clone()));
        let folder = folder.ok_or_else(|| Error::MissingMember { member: PICKLE.into() })?;
        let archive = Archive { bytes, members, folder };
        match archive.member("byteorder") {
            Ok(range) if bytes[range.clone()].starts_with(b"big") => Err(Error::BigEndian),
            _ => Ok(archive),
        }
    }

    fn member(&self, name: &str) -> Result<std::ops::Range<usize>, Error> {
        let member = format!("{}{name}", self.folder);
        self.members.get(&member).cloned().ok_or(Error::MissingMember { member })
    }

    fn pickle(&self) -> Result<&'a [u8], Error> {
        let range = self.member("data.pkl")?;
        let found = range.len() as u64;
        if found > MAX_PICKLE {
            return Err(Error::LongPickle { found, limit: MAX_PICKLE });
        }
        Ok(&self.bytes[range])
    }
}
