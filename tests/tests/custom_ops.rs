//! Ops that a plugin brings: found by name, run on its device, or by their reference where the device refuses.

use llmrt_abi::{DType, Reason, types as c};
use llmrt_host::{Buffer, Host, HostOptions, Outcome, RanBy, TensorDesc};
use llmrt_tests::compile::{Language, compile};
use std::sync::Arc;
use tempfile::TempDir;

/// A host that loads the plugin, checked like every call; `None` where there is no C compiler.
fn host(flags: &[&str]) -> Option<(TempDir, Arc<Host>, Outcome)> {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("libllmrt_customop.so");
    let flags = [&["-Wno-unused-function"], flags].concat();
    if !compile(Language::C, "tests/plugins/custom_op.c", &file, &flags) {
        return None;
    }
    let log: llmrt_host::LogSink = Arc::new(|_, _, _| {});
    let host = Host::new(HostOptions {
        n_threads: Some(1),
        log: Some(log),
        validate: Some(true),
        ..HostOptions::default()
    });
    let outcome = host.load(file).outcome;
    Some((dir, host, outcome))
}

/// x in the buffer's first bytes, y from byte 64.
fn operands<'a>(buffer: &'a Buffer, ne: [u64; 4]) -> (TensorDesc<'a>, TensorDesc<'a>) {
    let x = TensorDesc { buffer: Some(buffer), ..TensorDesc::contiguous(DType::F32, ne) };
    (x, TensorDesc { offset: 64, ..x })
}

#[test]
fn an_op_is_found_by_name_and_version_and_infers_its_result() {
    let Some((_dir, host, outcome)) = host(&[]) else { return };
    assert!(matches!(outcome, Outcome::Loaded { .. }), "{outcome:?}");
    let op = host.find_op("tests.affine", 1).unwrap();
    assert_eq!(
        (op.name(), op.version(), op.schema(), op.is_pinned()),
        ("tests.affine", 1, "scale: f32", false)
    );
    assert!(op.id() >= 0x8000_0000);
    let x = TensorDesc::contiguous(DType::F32, [5, 3, 1, 1]);
    assert_eq!(op.infer(&[x], &2f32.to_ne_bytes()).unwrap(), (DType::F32, [5, 3, 1, 1]));
    let e = op.infer(&[TensorDesc::contiguous(DType::I32, [5, 1, 1, 1])], &[0; 4]).unwrap_err();
    assert!(e.to_string().contains("op tests.affine version 1: its shape rule refuses"), "{e}");
    let e = op.infer(&[x, x], &[0; 4]).unwrap_err();
    assert!(e.to_string().contains("2 sources given; 1 to 1 are expected"), "{e}");
}

#[test]
fn a_plugin_that_is_not_there_is_a_clear_error() {
    let Some((_dir, host, _)) = host(&[]) else { return };
    let words = |name, version| host.find_op(name, version).unwrap_err().to_string();
    let missing = words("vendor.op", 3);
    assert!(
        missing.starts_with("op vendor.op version 3 is of a plugin that is not loaded; name its file"),
        "{missing}"
    );
    let other = words("tests.affine", 2);
    assert!(other.contains("is not loaded (there: version [1])"), "{other}");
}

#[test]
fn the_device_runs_what_it_supports_and_the_reference_the_rest() {
    let Some((_dir, host, _)) = host(&[]) else { return };
    let op = host.find_op("tests.affine", 1).unwrap();
    let device = host.device("customop").unwrap();
    let stream = device.stream(1).unwrap();
    let buffer = device.alloc(0, 128, c::USAGE_COMPUTE).unwrap();
    let input: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    for (ne, ran_by) in [([4, 1, 1, 1], RanBy::Device), ([2, 2, 1, 1], RanBy::Reference(Reason::Shape))] {
        buffer.fill(0, 128, 0).unwrap();
        let (x, y) = operands(&buffer, ne);
        buffer.set(&x, &input, 0).unwrap();
        assert_eq!(op.run(&stream, &[x], &y, &2f32.to_ne_bytes()).unwrap(), ran_by);
        let mut bytes = [0; 16];
        buffer.get(&y, &mut bytes, 0).unwrap();
        assert_eq!(llmrt_tests::f32s(&bytes), [3.0, 5.0, 7.0, 9.0], "{ran_by:?}");
    }
}

#[test]
fn the_reference_also_serves_a_device_of_another_plugin() {
    let Some((_dir, host, _)) = host(&[]) else { return };
    host.register_builtin(llmrt_cpu::query).unwrap();
    let cpu = host.device("cpu").unwrap();
    let op = host.find_op("tests.affine", 1).unwrap();
    let buffer = cpu.alloc(0, 128, c::USAGE_COMPUTE).unwrap();
    let (x, y) = operands(&buffer, [4, 1, 1, 1]);
    buffer.fill(0, 128, 0).unwrap();
    let ran_by = op.run(&cpu.stream(1).unwrap(), &[x], &y, &2f32.to_ne_bytes()).unwrap();
    assert_eq!(ran_by, RanBy::Reference(Reason::Op));
    let mut bytes = [0; 16];
    buffer.get(&y, &mut bytes, 0).unwrap();
    assert_eq!(llmrt_tests::f32s(&bytes), [1.0; 4]);
}

#[test]
fn an_op_without_a_reference_is_pinned_to_its_plugin() {
    let Some((_dir, host, _)) = host(&[]) else { return };
    let op = host.find_op("tests.pinned", 1).unwrap();
    assert!(op.is_pinned());
    let device = host.device("customop").unwrap();
    let buffer = device.alloc(0, 128, c::USAGE_COMPUTE).unwrap();
    let (x, y) = operands(&buffer, [4, 1, 1, 1]);
    let e = op.run(&device.stream(1).unwrap(), &[x], &y, &[0; 4]).unwrap_err();
    assert!(e.to_string().contains("no reference to run instead (PINNED)"), "{e}");
}

#[test]
fn ops_of_a_plugin_that_did_not_start_are_gone() {
    let Some((_dir, host, outcome)) = host(&["-DINIT_FAILS"]) else { return };
    assert!(
        matches!(&outcome, Outcome::Rejected(reason) if reason.contains("no device after all")),
        "{outcome:?}"
    );
    assert!(host.custom_ops().is_empty());
}

#[test]
fn an_op_whose_plugin_was_shut_down_reports_it() {
    let Some((_dir, host, _)) = host(&[]) else { return };
    let op = host.find_op("tests.affine", 1).unwrap();
    drop(host);
    let e = op.infer(&[TensorDesc::contiguous(DType::F32, [4, 1, 1, 1])], &[0; 4]).unwrap_err();
    assert!(e.to_string().contains("its plugin has been shut down"), "{e}");
}
