//! The vendor's libraries, opened at run time: found or not, complete or not, and every function by name.
//!
//! Operators are in four libraries in newer releases and in one in older ones; the two forms are never mixed.

use crate::sys::{self, Functions};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use std::error::Error as _;
use std::ffi::{OsStr, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What is open. Never closed: the vendor's threads and thread-locals live until the process ends.
pub struct Cann {
    /// Runtime.
    pub acl: sys::cann_acl,
    /// Tensors, scalars, executors.
    pub object: sys::cann_object,
    /// Operators.
    pub math: sys::cann_math,
    /// Operators.
    pub nn: sys::cann_nn,
    /// Operators.
    pub cv: sys::cann_cv,
    /// Operators.
    pub transformer: sys::cann_transformer,
    /// Collectives, opened when cards are to form a group; or what is missing.
    hccl: OnceLock<Result<sys::cann_hccl, String>>,
    folder: PathBuf,
    /// The files, for people.
    pub files: Vec<String>,
    /// What the environment lacks for the operators, and the remedy.
    pub warning: Option<String>,
}

/// Why there are no devices, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// What was looked for and what was found.
    pub reason: String,
    /// What helps.
    pub hint: &'static str,
}

const INSTALL: &str = "install the CANN toolkit and run its set_env.sh, or set LLMRT_CANN_LIB_DIR to the folder of libascendcl.so";
const UPDATE: &str = "install CANN 8.0 or newer";

/// Where the toolkit stands unless an option sets another number: since 8.5, before, and as the loader finds it.
const FOLDERS: [&str; 3] =
    ["", "/usr/local/Ascend/cann/lib64", "/usr/local/Ascend/ascend-toolkit/latest/lib64"];

/// Functions that older releases lack; the last five are of captures.
const NEWER: [&str; 10] = [
    "aclrtGetDeviceInfo",
    "aclrtDeviceGetUuid",
    "aclrtCtxSetSysParamOpt",
    "aclsysGetVersionStr",
    "aclrtStreamAbort",
    "aclmdlRICaptureBegin",
    "aclmdlRICaptureEnd",
    "aclmdlRICaptureGetInfo",
    "aclmdlRIExecuteAsync",
    "aclmdlRIDestroy",
];

const SPLIT: [&str; 4] = ["libopapi_math.so", "libopapi_nn.so", "libopapi_cv.so", "libopapi_transformer.so"];
const UMBRELLA: &str = "libopapi.so";

impl Cann {
    /// Opens the libraries in `folder`, or where they usually are.
    pub fn open(folder: Option<&Path>) -> Result<Cann, Absent> {
        let folders = match folder {
            Some(folder) => vec![folder.to_path_buf()],
            None => FOLDERS.map(PathBuf::from).to_vec(),
        };
        let mut tried = Vec::new();
        for folder in folders {
            match open(&folder, "libascendcl.so") {
                Ok(runtime) => return Cann::with(runtime, &folder),
                Err(problem) => tried.push(problem),
            }
        }
        Err(Absent { reason: tried.join("; "), hint: INSTALL })
    }

    fn with(runtime: &'static Library, folder: &Path) -> Result<Cann, Absent> {
        let acl: sys::cann_acl = functions(&[runtime]);
        complete(&acl, "libascendcl.so", |name| NEWER.contains(&name))?;
        let objects = open(folder, "libnnopbase.so").map_err(|reason| Absent { reason, hint: INSTALL })?;
        let object: sys::cann_object = functions(&[objects]);
        complete(&object, "libnnopbase.so", |_| false)?;
        let (operators, files) = operators(folder)?;
        Ok(Cann {
            acl,
            object,
            math: functions(&operators),
            nn: functions(&operators),
            cv: functions(&operators),
            transformer: functions(&operators),
            hccl: OnceLock::new(),
            folder: folder.to_path_buf(),
            files: ["libascendcl.so", "libnnopbase.so"].into_iter().chain(files).map(String::from).collect(),
            warning: without_operators(folder, std::env::var_os("ASCEND_OPP_PATH").as_deref()),
        })
    }

    /// The collectives. Communicators are in a library of their own since the collectives are in a package of their own
    /// (hcomm's page of headers and libraries); before, one library had both.
    pub fn hccl(&self) -> Result<&sys::cann_hccl, &str> {
        let found = self.hccl.get_or_init(|| {
            let hccl = open(&self.folder, "libhccl.so")?;
            let libraries: Vec<_> =
                [Ok(hccl), open(&self.folder, "libhcomm.so")].into_iter().flatten().collect();
            let table: sys::cann_hccl = functions(&libraries);
            complete(&table, "libhccl.so", |name| name == "HcclSetConfig").map_err(|absent| absent.reason)?;
            Ok(table)
        });
        found.as_ref().map_err(String::as_str)
    }

    /// Leaves operators out: they are as if no library had them.
    pub fn forget(&mut self, names: &[&str]) {
        forget(&mut self.math, names);
        forget(&mut self.nn, names);
        forget(&mut self.cv, names);
        forget(&mut self.transformer, names);
    }
}

/// A toolkit's libraries open without its environment, and its operators then are not found (561107): the libraries look for
/// them at `ASCEND_OPP_PATH` only (opbase, `kernel_utils.cpp`). They stand beside the folder of the libraries, `opp` beside `lib64`,
/// of which either may be a link; where the loader found the libraries, the folder is not known.
fn without_operators(folder: &Path, opp_path: Option<&OsStr>) -> Option<String> {
    let set = opp_path.is_some_and(|path| Path::new(path).is_dir());
    let real = folder.canonicalize();
    let beside = [Some(folder), real.as_deref().ok()].into_iter().flatten().filter_map(Path::parent);
    let has_operators = beside.map(|toolkit| toolkit.join("opp")).any(|opp| opp.is_dir());
    let needs = !set && (folder.as_os_str().is_empty() || has_operators);
    needs.then(|| {
        let found = opp_path.map_or("not set".into(), |path| format!("{}, no folder", path.display()));
        format!("ASCEND_OPP_PATH is {found}: operators will not be found; run the toolkit's set_env.sh")
    })
}

/// The libraries of operators, and their names: the split ones that are there, or else the umbrella.
fn operators(folder: &Path) -> Result<(Vec<&'static Library>, Vec<&'static str>), Absent> {
    let found: Vec<_> = SPLIT.iter().map(|name| (open(folder, name), *name)).collect();
    if found.iter().any(|(library, _)| library.is_ok()) {
        return Ok(found.into_iter().filter_map(|(library, name)| Some((library.ok()?, name))).unzip());
    }
    let umbrella = open(folder, UMBRELLA).map_err(|reason| Absent { reason, hint: INSTALL })?;
    Ok((vec![umbrella], vec![UMBRELLA]))
}

/// Opens a library for ever.
fn open(folder: &Path, name: &str) -> Result<&'static Library, String> {
    // SAFETY: the vendor's libraries may be loaded at any time; their constructors are theirs.
    let library = unsafe { Library::open(Some(folder.join(name)), RTLD_LAZY | RTLD_LOCAL) };
    // The cause names the file and the reason; the error itself only that something failed.
    let words = |e: libloading::Error| e.source().map_or_else(|| e.to_string(), ToString::to_string);
    library.map(|library| &*Box::leak(Box::new(library))).map_err(words)
}

/// A table filled by name from the first library that has the name; a function that no library has is `None`.
fn functions<T: Functions>(libraries: &[&'static Library]) -> T {
    const WORD: usize = size_of::<Option<extern "C" fn()>>();
    assert_eq!(size_of::<T>(), T::NAMES.len() * WORD, "the table has other fields than names");
    let mut table = std::mem::MaybeUninit::<T>::zeroed();
    for (i, name) in T::NAMES.iter().enumerate() {
        let Some(address) = libraries.iter().find_map(|library| address(library, name)) else { continue };
        // SAFETY: `Functions` promises as many pointer fields as names, in this order.
        unsafe { table.as_mut_ptr().cast::<*mut c_void>().add(i).write(address) }
    }
    // SAFETY: every field is zero, which is `None`, or the address of the function of its name.
    unsafe { table.assume_init() }
}

/// Makes the fields of these operators `None`.
fn forget<T: Functions>(table: &mut T, names: &[&str]) {
    // SAFETY: `Functions` promises as many pointer fields as names, and zero is `None`.
    let fields =
        unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(table).cast::<usize>(), T::NAMES.len()) };
    for (name, field) in T::NAMES.iter().zip(fields) {
        if names.contains(&name.strip_suffix("GetWorkspaceSize").unwrap_or(name)) {
            *field = 0;
        }
    }
}

fn address(library: &Library, name: &str) -> Option<*mut c_void> {
    // SAFETY: the symbol is taken for an address only.
    let symbol = unsafe { library.get::<*mut c_void>(name) };
    symbol.ok().map(|symbol| symbol.as_raw_ptr()).filter(|address| !address.is_null())
}

/// An error that names what a library lacks, but for what it may lack.
fn complete<T: Functions>(table: &T, file: &str, may_lack: fn(&str) -> bool) -> Result<(), Absent> {
    // SAFETY: `Functions` promises as many pointer fields as names.
    let fields =
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(table).cast::<usize>(), T::NAMES.len()) };
    let lacks = |(name, field): (&&'static str, &usize)| (*field == 0 && !may_lack(name)).then_some(*name);
    let missing: Vec<&str> = T::NAMES.iter().zip(fields).filter_map(lacks).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Absent { reason: format!("{file} lacks {}", missing.join(", ")), hint: UPDATE }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_libraries_the_reason_names_them_and_the_hint_names_the_remedy() {
        let dir = std::env::temp_dir();
        let absent = Cann::open(Some(&dir)).err().unwrap();
        assert!(absent.reason.contains("libascendcl.so"), "{absent:?}");
        assert!(absent.hint.contains("set_env.sh"));
    }

    #[test]
    fn a_toolkit_without_its_environment_gives_a_warning() {
        let toolkit = std::env::temp_dir().join(format!("llmrt-toolkit-{}", std::process::id()));
        let (lib64, opp) = (toolkit.join("lib64"), toolkit.join("opp"));
        [&lib64, &opp].into_iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        let warning = |opp: Option<&Path>| without_operators(&lib64, opp.map(Path::as_os_str));
        assert!(warning(None).unwrap().contains("is not set: operators will not be found; run"));
        assert!(warning(Some(&toolkit.join("gone"))).unwrap().contains("gone, no folder"));
        assert_eq!(warning(Some(&opp)), None);
        let by_the_loader = without_operators(Path::new(""), None);
        assert!(by_the_loader.is_some() && without_operators(Path::new(""), Some(opp.as_os_str())).is_none());
        // latest/lib64 is a link into a folder of the architecture, latest/opp one of its own.
        std::fs::remove_dir(&lib64).unwrap();
        std::fs::create_dir_all(toolkit.join("aarch64-linux/lib64")).unwrap();
        std::os::unix::fs::symlink("aarch64-linux/lib64", &lib64).unwrap();
        assert!(warning(None).is_some());
        std::fs::remove_dir_all(&toolkit).unwrap();
        std::fs::create_dir_all(&lib64).unwrap();
        assert_eq!(warning(None), None, "no operators stand beside these libraries");
        std::fs::remove_dir_all(&toolkit).unwrap();
    }

    #[test]
    fn operators_that_are_left_out_have_neither_phase() {
        let mut table: sys::cann_math = functions(&[]);
        let n = sys::cann_math::NAMES.len();
        // SAFETY: as many pointer fields as names; the address is a function's, and none is called.
        let fields = unsafe { std::slice::from_raw_parts_mut((&raw mut table).cast::<usize>(), n) };
        fields.fill(operators_that_are_left_out_have_neither_phase as fn() as usize);
        forget(&mut table, &["aclnnAdd", "aclnnMm"]);
        assert!(table.aclnnAdd.plan.is_none() && table.aclnnAdd.launch.is_none());
        assert!(table.aclnnAdds.plan.is_some() && table.aclnnAdds.launch.is_some());
    }

    #[test]
    fn tables_have_a_name_for_every_field() {
        let empty: sys::cann_math = functions(&[]);
        let problem = complete(&empty, "libopapi_math.so", |name| name != "aclnnAdd").unwrap_err();
        assert_eq!(problem.reason, "libopapi_math.so lacks aclnnAdd");
        let _: (sys::cann_acl, sys::cann_object, sys::cann_nn) =
            (functions(&[]), functions(&[]), functions(&[]));
        let _: (sys::cann_cv, sys::cann_transformer) = (functions(&[]), functions(&[]));
    }
}
