//! Exceptions of a plugin in C++ caught by `llmrt/guard.hpp` are errors, not the end of the process.

use llmrt_abi::{DType, Op, Scope, Status, types as c};
use llmrt_host::{
    Device, DeviceState, Error, Host, HostOptions, NodeDesc, Outcome, RawGraph, RawGraphBuilder, TensorDesc,
};
use llmrt_tests::compile::{Language, compile};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

fn build(macros: &[&str]) -> Option<(TempDir, PathBuf)> {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("libllmrt_throws.so");
    let flags: Vec<_> = macros.iter().map(|m| format!("-D{m}")).collect();
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    compile(Language::Cpp, "tests/plugins/throws.cpp", &file, &flags).then_some((dir, file))
}

fn host() -> Arc<Host> {
    Host::new(HostOptions { n_threads: Some(1), log: Some(Arc::new(|_, _, _| {})), ..HostOptions::default() })
}

/// Compiles the plugin and does something with its device; `None` where there is no C++ compiler.
fn with_device<T>(macros: &[&str], body: impl FnOnce(&Arc<Device>) -> T) -> Option<T> {
    let (_dir, file) = build(macros)?;
    let host = host();
    let found = host.load(file);
    assert!(matches!(found.outcome, Outcome::Loaded { .. }), "{found:?}");
    Some(body(&host.device("throws").unwrap()))
}

fn addition(buffer: Option<&llmrt_host::Buffer>) -> RawGraph {
    let mut g = RawGraphBuilder::new();
    let x = g.tensor(&TensorDesc { buffer, ..TensorDesc::contiguous(DType::F32, [4, 1, 1, 1]) }).unwrap();
    g.node(&NodeDesc { op: Op::Add.id(), op_version: 1, dst: x, srcs: &[Some(x), Some(x)], params: &[] })
        .unwrap();
    g.build()
}

fn compute(device: &Arc<Device>) -> Result<(), Error> {
    let buffer = device.alloc(0, 64, c::USAGE_ANY)?;
    device.stream(1)?.compute(&addition(Some(&buffer)))
}

/// What an exception in `compute` becomes: status, scope, words; and whether the device is used afterwards.
fn check_compute(macros: &[&str], expected: (Status, Scope, &str), is_usable: bool) {
    with_device(macros, |device| {
        let e = compute(device).unwrap_err();
        let call = e.call().unwrap_or_else(|| panic!("{e}"));
        assert_eq!((call.status, call.scope, call.message.as_str()), expected, "{macros:?}");
        let quarantined = matches!(device.state(), DeviceState::Quarantined(_));
        assert_eq!(quarantined, !is_usable, "{macros:?}: {:?}", device.state());
    });
}

#[test]
fn an_exception_in_compute_ends_the_plugin_and_not_the_process() {
    let broken = |words| (Status::Internal, Scope::Plugin, words);
    check_compute(&["IN_COMPUTE"], broken("the driver lost its card"), false);
    check_compute(&["IN_COMPUTE", "THROWN=std::bad_alloc()"], broken("std::bad_alloc"), false);
    check_compute(&["IN_COMPUTE", "THROWN=42"], broken("an exception that is no std::exception"), false);
}

#[test]
fn a_failure_keeps_its_status_and_scope() {
    let thrown = r#"THROWN=llmrt::failure(LLMRT_STATUS_OOM_DEVICE, LLMRT_SCOPE_CALL, "card full")"#;
    check_compute(&["IN_COMPUTE", thrown], (Status::OomDevice, Scope::Call, "card full"), true);
}

#[test]
fn an_exception_in_alloc_is_an_answer() {
    with_device(&["IN_ALLOC"], |device| {
        let e = device.alloc(0, 1000, c::USAGE_ANY).unwrap_err();
        assert!(e.to_string().contains("buffer_alloc answered Internal: the driver lost its card"), "{e}");
        assert!(device.memory().is_err(), "it is not called again");
    });
}

#[test]
fn an_exception_in_supports_is_found_by_the_self_test() {
    with_device(&["IN_SUPPORTS"], |device| {
        let e = device.supports(&addition(None), 0..1).unwrap_err();
        assert!(e.to_string().contains("the driver lost its card"), "{e}");
    });
}

#[test]
fn an_exception_where_there_is_no_status_comes_out_of_the_next_call() {
    with_device(&["IN_ALLOC_SIZE"], |device| {
        let x = TensorDesc::contiguous(DType::F32, [4, 1, 1, 1]);
        assert_eq!(device.alloc_size(0, &x).unwrap(), 16, "no answer counts as the tensor's own size");
        let e = device.memory().unwrap_err();
        assert!(e.to_string().contains("memory answered Internal: the driver lost its card"), "{e}");
    });
}

#[test]
fn an_exception_in_init_is_the_reason_not_to_load() {
    let Some((_dir, file)) = build(&["IN_INIT"]) else { return };
    let Outcome::Rejected(reason) = host().load(file).outcome else { panic!() };
    assert!(reason.contains("init answered Internal: the driver lost its card"), "{reason}");
}
