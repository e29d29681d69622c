//! A library that lacks one symbol, each in turn, gives an error that names it; nothing panics.

mod common;

use common::{Machine, libraries};
use llmrt_cuda::library;
use llmrt_cuda::tables::{CublasLt, Cuda, Functions, Nvrtc, OPTIONAL};
use llmrt_host::{Host, HostOptions};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// A copy of the simulator, under this file name, that exports no symbol of this name.
fn without(symbol: &str, file: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut bytes = std::fs::read(libraries().join("libcuda.so.1")).unwrap();
    let entry = format!("\0{symbol}\0").into_bytes();
    let places: Vec<usize> =
        bytes.windows(entry.len()).enumerate().filter(|(_, w)| *w == entry).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "{symbol} is no symbol of the simulator");
    places.into_iter().for_each(|at| bytes[at + 1] = b'_');
    std::fs::write(dir.path().join(file), bytes).unwrap();
    dir
}

/// Opens the library without each of these symbols, and checks that the error names the symbol and its file.
fn check(symbols: &[&str], file: &str, open: fn(&Path) -> Result<(), String>) {
    for symbol in symbols {
        let dir = without(symbol, file);
        match open(dir.path()) {
            Ok(()) => assert!(OPTIONAL.contains(symbol), "{file} opens without {symbol}"),
            Err(reason) => {
                assert!(!OPTIONAL.contains(symbol), "{reason}");
                assert!(reason.contains(&format!("{file} lacks {symbol}")), "{reason}");
            }
        }
    }
}

#[test]
fn a_driver_without_any_one_symbol_is_an_error_that_names_it() {
    assert!(library::driver(Some(libraries())).is_ok(), "the whole library opens");
    check(Cuda::NAMES, "libcuda.so.1", |dir| library::driver(Some(dir)).map(drop).map_err(|e| e.reason));
}

#[test]
fn a_compiler_without_any_one_symbol_is_an_error_that_names_it() {
    assert!(library::compiler(Some(libraries()), Some(12)).is_ok());
    check(Nvrtc::NAMES, "libnvrtc.so.12", |dir| library::compiler(Some(dir), Some(12)).map(drop));
}

#[test]
fn cublas_without_any_one_symbol_is_an_error_that_names_it() {
    assert!(library::cublas(Some(&libraries().join("cublas")), 12).is_ok());
    check(CublasLt::NAMES, "libcublasLt.so.12", |dir| library::cublas(Some(dir), 12).map(drop));
}

/// The whole plugin in a host: no device, and a log line with the symbol and a remedy. Functions that a driver may lack
/// leave the device usable.
#[test]
fn a_host_with_an_incomplete_driver_goes_on_without_devices() {
    // A process has one instance of the plugin: another host would keep its driver.
    let mut turn = Machine::new("");
    turn.close();
    for (symbol, n_devices) in [
        ("cuLaunchKernel", 0),
        ("cuGetErrorString", 0),
        ("cuTensorMapEncodeTiled", 1),
        ("cuFuncGetParamInfo", 1),
    ] {
        let dir = without(symbol, "libcuda.so.1");
        let log = Arc::new(Mutex::new(Vec::<String>::new()));
        let lines = log.clone();
        let host = Host::new(HostOptions {
            n_threads: Some(1),
            options: [("cuda.lib_dir".to_string(), dir.path().display().to_string())].into_iter().collect(),
            log: Some(Arc::new(move |_, _, text| lines.lock().push(text.into()))),
            ..HostOptions::default()
        });
        host.register_builtin(llmrt_cuda::query).unwrap();
        assert_eq!(host.devices().len(), n_devices, "{symbol}");
        if n_devices == 0 {
            let log = log.lock();
            let line = log.iter().find(|line| line.contains(symbol)).unwrap_or_else(|| panic!("{log:?}"));
            assert!(line.contains("libcuda.so.1 lacks") && line.contains("install a driver"), "{line}");
        }
    }
}
