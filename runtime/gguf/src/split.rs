//! A model in one file or several: file names, split keys, and the tables of all files as one.

use std::collections::HashMap;

use crate::error::Error;
use crate::header::{Flavour, Gguf, index};
use crate::metadata::Metadata;
use crate::tensor::TensorInfo;

/// What is loaded: the metadata of the first file and the tensors of all.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// Dense or PowerInfer.
    pub flavour: Flavour,
    /// The first file's key-value pairs, without the split keys.
    pub metadata: Metadata,
    /// The tensors of all files; `TensorInfo::file` is the index of its file.
    pub tensors: Vec<TensorInfo>,
    /// How many files there are.
    pub n_files: usize,
    index: HashMap<String, usize>,
}

impl Model {
    /// A model of one file from its parts; an error if a tensor appears twice.
    pub fn new(metadata: Metadata, tensors: Vec<TensorInfo>) -> Result<Model, Error> {
        let index = index(tensors.iter().map(|t| &t.name))?;
        Ok(Model { flavour: Flavour::Dense, metadata, tensors, n_files: 1, index })
    }

    /// Adds another model's tensors, with `prefix` in front of their names, and the keys of its architecture. Its files are
    /// those from `first_file` on.
    pub fn attach(&mut self, other: Model, prefix: &str, first_file: usize) -> Result<(), Error> {
        let arch = other.metadata.str("general.architecture").unwrap_or_default().to_string();
        for (key, value) in other.metadata.iter().filter(|(key, _)| key.starts_with(&format!("{arch}."))) {
            self.metadata.set(key, value.clone());
        }
        self.tensors.extend(other.tensors.into_iter().map(|tensor| TensorInfo {
            name: format!("{prefix}{}", tensor.name),
            file: first_file + tensor.file,
            ..tensor
        }));
        self.n_files += other.n_files;
        self.index = index(self.tensors.iter().map(|t| &t.name))?;
        Ok(())
    }

    /// The tensor of this name, in whichever file.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// The tensor of this name, or `MissingTensor`.
    pub fn require_tensor(&self, name: &str) -> Result<&TensorInfo, Error> {
        self.tensor(name).ok_or_else(|| Error::MissingTensor { tensor: name.into() })
    }

    /// Bytes of all tensors.
    pub fn nbytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.nbytes).sum()
    }
}

/// A single file that is no part of a split.
impl TryFrom<Gguf> for Model {
    type Error = Error;

    fn try_from(file: Gguf) -> Result<Model, Error> {
        merge(vec![file])
    }
}

/// All files of a model, in order, as one. An error if one is missing, too many, or out of place.
pub fn merge(files: Vec<Gguf>) -> Result<Model, Error> {
    let Some(first) = files.first() else { return Err(Error::BadSplit("there are no files".into())) };
    let (flavour, n_files) = (first.flavour, files.len());
    let expected_tensors = SplitInfo::of(&first.metadata)?.and_then(|s| s.n_tensors);
    let mut metadata = first.metadata.clone();
    SplitInfo::KEYS.iter().for_each(|key| drop(metadata.remove(key)));

    let mut tensors = Vec::new();
    for (i, file) in files.into_iter().enumerate() {
        check_place(&file, i, n_files, flavour)?;
        tensors.extend(file.tensors.into_iter().map(|t| TensorInfo { file: i, ..t }));
    }
    if let Some(n) = expected_tensors.filter(|&n| n_files > 1 && n != tensors.len() as u64) {
        let found = tensors.len();
        return Err(Error::BadSplit(format!("the files hold {found} tensors, split.tensors.count is {n}")));
    }
    let index = index(tensors.iter().map(|t| &t.name))?;
    Ok(Model { flavour, metadata, tensors, n_files, index })
}

fn check_place(file: &Gguf, i: usize, n_files: usize, flavour: Flavour) -> Result<(), Error> {
    let split = SplitInfo::of(&file.metadata)?.unwrap_or(SplitInfo { no: 0, count: 1, n_tensors: None });
    if split.count as usize != n_files {
        let n = split.count;
        return Err(Error::BadSplit(format!("file {i} has split.count {n}, {n_files} files were given")));
    }
    if split.no as usize != i {
        let no = split.no;
        return Err(Error::BadSplit(format!("file {i} has split.no {no}: the files are out of order")));
    }
    if file.flavour != flavour {
        return Err(Error::BadSplit(format!("file {i} is {:?}, the first is {flavour:?}", file.flavour)));
    }
    Ok(())
}

/// The split keys of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitInfo {
    /// `split.no`: which file this is, from 0.
    pub no: u32,
    /// `split.count`: how many files there are.
    pub count: u32,
    /// `split.tensors.count`: how many tensors all files hold.
    pub n_tensors: Option<u64>,
}

impl SplitInfo {
    const KEYS: [&str; 3] = ["split.no", "split.count", "split.tensors.count"];

    /// The split keys; `None` if the file is no part of a split model.
    pub fn of(metadata: &Metadata) -> Result<Option<SplitInfo>, Error> {
        let Some(count) = metadata.optional("split.count")?.filter(|&n: &u32| n > 0) else { return Ok(None) };
        let no = if count == 1 {
            metadata.optional("split.no")?.unwrap_or(0)
        } else {
            metadata.require("split.no")?
        };
        Ok(Some(SplitInfo { no, count, n_tensors: metadata.optional("split.tensors.count")? }))
    }
}

/// A file name `MODEL-00001-of-00003.gguf` in its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitName {
    /// What stands before the numbers, folders included.
    pub model: String,
    /// Which file this is, from 0 (the name counts from 1).
    pub no: u32,
    /// How many files there are.
    pub count: u32,
}

impl SplitName {
    /// The parts of a name; `None` if it is no split file's.
    pub fn parse(name: &str) -> Option<SplitName> {
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (model, number) = rest.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        (1..=count).contains(&number).then(|| SplitName { model: model.into(), no: number - 1, count })
    }

    /// The names of all files, in order.
    pub fn all(&self) -> Vec<String> {
        (0..self.count).map(|no| SplitName { no, ..self.clone() }.to_string()).collect()
    }
}

impl std::fmt::Display for SplitName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{:05}-of-{:05}.gguf", self.model, self.no + 1, self.count)
    }
}

fn five_digits(text: &str) -> Option<u32> {
    let is_number = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::TensorShape;
    use crate::writer::{self, Tables};
    use llmrt_abi::DType;

    /// The tables of a file with the keys of part `no` of `count` and holds one tensor.
    fn file(no: u32, count: u32, tensor: &str, n_tensors: u32) -> Gguf {
        let mut t = Tables::default();
        t.metadata.set("general.architecture", "llama");
        t.metadata.set("split.no", crate::Value::U16(no as u16));
        t.metadata.set("split.count", crate::Value::U16(count as u16));
        t.metadata.set("split.tensors.count", n_tensors as i32);
        t.tensors.push(TensorShape::new(tensor, DType::F32, &[2]).unwrap());
        let bytes = writer::to_vec(&t, &[&[0; 8]]).unwrap();
        Gguf::parse(&bytes, bytes.len() as u64).unwrap()
    }

    fn refused(files: Vec<Gguf>, why: &str) {
        let message = merge(files).unwrap_err().to_string();
        assert!(message.contains(why), "{message}");
    }

    #[test]
    fn tensors_of_two_files_have_the_index_of_their_file() {
        let model = merge(vec![file(0, 2, "a", 2), file(1, 2, "b", 2)]).unwrap();
        assert_eq!(model.tensor("a").unwrap().file, 0);
        assert_eq!(model.tensor("b").unwrap().file, 1);
        assert_eq!((model.n_files, model.nbytes()), (2, 16));
        assert_eq!(model.metadata.str("general.architecture"), Some("llama"));
        assert!(!model.metadata.contains("split.count"));
    }

    #[test]
    fn a_missing_surplus_or_misplaced_file_is_refused() {
        refused(vec![], "no files");
        refused(vec![file(0, 2, "a", 2)], "split.count 2, 1 files were given");
        refused(vec![file(1, 2, "b", 2), file(0, 2, "a", 2)], "out of order");
        refused(vec![file(0, 2, "a", 2), file(1, 3, "b", 2)], "split.count 3, 2 files");
        refused(vec![file(0, 2, "a", 3), file(1, 2, "b", 3)], "hold 2 tensors, split.tensors.count is 3");
        refused(vec![file(0, 2, "a", 2), file(1, 2, "a", 2)], "`a` appears twice");
    }

    #[test]
    fn names_of_split_files_are_read_and_made() {
        let name = SplitName::parse("dir/qwen-7b-of-x-00002-of-00003.gguf").unwrap();
        assert_eq!((name.model.as_str(), name.no, name.count), ("dir/qwen-7b-of-x", 1, 3));
        assert_eq!(name.to_string(), "dir/qwen-7b-of-x-00002-of-00003.gguf");
        assert_eq!(name.all()[2], "dir/qwen-7b-of-x-00003-of-00003.gguf");
        for other in
            ["m.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-1-of-3.gguf", "m-00001-of-00003"]
        {
            assert_eq!(SplitName::parse(other), None, "{other}");
        }
    }
}
