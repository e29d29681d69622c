//! Setup of the tests: a host with the `shelf` plugin, a model in a temporary folder, and access to the result.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use llmrt_gguf::TensorInfo;
use llmrt_graph::tensor::Role;
use llmrt_host::load::{
    self, LoadMode, LoadOptions, ModelFiles, OpenOptions, Result, WeightRequest, Weights,
};
use llmrt_host::{Device, Host, HostOptions, TensorDesc};

use crate::shelf;

/// Rows of the devices.
pub const NEAR: usize = 0;
pub const FAR: usize = 1;
pub const TINY: usize = 2;
pub const APART: usize = 3;
pub const FULL: usize = 4;

pub const MODES: [LoadMode; 4] = [LoadMode::Mmap, LoadMode::MmapMlock, LoadMode::Read, LoadMode::ReadMlock];

pub fn device(row: usize) -> Arc<Device> {
    static HOST: OnceLock<Arc<Host>> = OnceLock::new();
    let host = HOST.get_or_init(|| {
        let host = Host::new(HostOptions { n_threads: Some(1), ..HostOptions::default() });
        host.register_builtin(shelf::query).unwrap();
        host
    });
    host.device(["shelf:near", "shelf:far", "shelf:tiny", "shelf:apart", "shelf:full"][row])
        .expect("the device is in use")
}

/// A model in files, opened.
pub struct Setup {
    pub path: PathBuf,
    pub files: ModelFiles,
    _folder: tempfile::TempDir,
}

impl Setup {
    /// Writes a file and opens it.
    pub fn new(bytes: &[u8]) -> Setup {
        Setup::in_folder(|folder| {
            let path = folder.join("m.gguf");
            std::fs::write(&path, bytes).unwrap();
            path
        })
    }

    /// Opens the file that `write` gives.
    pub fn in_folder(write: impl FnOnce(&Path) -> PathBuf) -> Setup {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path());
        let files = ModelFiles::open(&path, &OpenOptions::default()).unwrap();
        Setup { path, files, _folder: folder }
    }

    /// A request for a tensor, with the file's type and shape.
    pub fn request(&self, name: &str, row: usize) -> WeightRequest {
        let TensorInfo { name, dtype, ne, .. } = self.files.tensor(name).unwrap().clone();
        WeightRequest { name, dtype, ne, role: Role::Matrix, listed: None, row, device: device(row) }
    }

    /// All tensors on one device.
    pub fn all_on(&self, row: usize) -> Vec<WeightRequest> {
        self.files.model.tensors.iter().map(|t| self.request(&t.name, row)).collect()
    }

    pub fn load(&self, requests: &[WeightRequest], mode: LoadMode) -> Result<Weights> {
        let options = LoadOptions { mode, ..LoadOptions::default() };
        load::load(&self.files, requests, options)
    }

    pub fn load_checked(&self, requests: &[WeightRequest], mode: LoadMode) -> Result<Weights> {
        let options = LoadOptions { mode, check_tensors: true, ..LoadOptions::default() };
        load::load(&self.files, requests, options)
    }

    /// A weight's bytes on the device are the file's.
    pub fn assert_equal(&self, weights: &Weights, name: &str, row: usize) {
        let request = self.request(name, row);
        let at = weights.get(name, row).unwrap_or_else(|| panic!("`{name}` is not on {row}"));
        let desc =
            TensorDesc { offset: at.offset, name, ..TensorDesc::contiguous(request.dtype, request.ne) };
        let expected = self.files.bytes(self.files.tensor(name).unwrap()).unwrap();
        let mut found = vec![0; expected.len()];
        at.buffer.get(&desc, &mut found, 0).unwrap();
        assert!(found == expected, "`{name}` on {row}");
    }

    /// All weights of a device are the file's.
    pub fn assert_all_equal(&self, weights: &Weights, row: usize) {
        self.files.model.tensors.iter().for_each(|t| self.assert_equal(weights, &t.name, row));
    }

    /// Address ranges at which the model's first file is mapped.
    pub fn maps(&self) -> Vec<std::ops::Range<usize>> {
        maps_of(&self.path)
    }
}

/// Address of a weight that the CPU can reach.
pub fn address(weights: &Weights, name: &str, row: usize) -> usize {
    let at = weights.get(name, row).unwrap();
    at.buffer.host_ptr().unwrap().addr().get() + at.offset as usize
}

pub fn maps_of(path: &Path) -> Vec<std::ops::Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ours = maps.lines().filter(|line| line.ends_with(path.to_str().unwrap()));
    let hex = |text: &str| usize::from_str_radix(text, 16).unwrap();
    let range = |line: &str| {
        let (start, end) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
        hex(start)..hex(end)
    };
    ours.map(range).collect()
}
