//! Plugins of other versions of the ABI: what a newer or older header, a shorter or longer table, or an unknown
//! attribute leads to; and plugins built long ago.

use llmrt_abi::layout::FINGERPRINT;
use llmrt_abi::{DType, Op, types as c};
use llmrt_graph::{Graph, Tensor};
use llmrt_host::load::{LoadMode, LoadOptions, ModelFiles, OpenOptions, weights};
use llmrt_host::sched::executor::{Executor, Program};
use llmrt_host::{Candidate, Device, DeviceState, Host, HostOptions, Outcome, TensorDesc};
use llmrt_host::{NodeDesc, RawGraph, RawGraphBuilder};
use llmrt_tests::compile::{Language, compile};
use llmrt_tests::fixtures::root;
use llmrt_tests::models::TinyLlama;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

fn host() -> Arc<Host> {
    let quiet = HostOptions { log: Some(Arc::new(|_, _, _| {})), ..HostOptions::default() };
    let host = Host::new(HostOptions { n_threads: Some(2), ..quiet });
    host.register_builtin(llmrt_cpu::query).unwrap();
    host
}

/// Compiles `tests/plugins/plugin.c` with these flags and loads it; `None` where there is no C compiler.
fn load(flags: &[&str]) -> Option<(TempDir, Arc<Host>, Candidate)> {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("libllmrt_ctest.so");
    // What a variant leaves out leaves something unused.
    let flags = [&["-Wno-unused-function"], flags].concat();
    if !compile(Language::C, "tests/plugins/plugin.c", &file, &flags) {
        return None;
    }
    let host = host();
    let found = host.load(file);
    Some((dir, host, found))
}

/// The variant is not let in, for a reason with these words.
fn check_refused(flags: &[&str], words: &str) {
    let Some((_dir, _host, found)) = load(flags) else { return };
    let Outcome::Rejected(reason) = &found.outcome else { panic!("{flags:?}: {found:?}") };
    assert!(reason.contains(words), "{flags:?}: {reason}");
}

/// The variant is let in and computes.
fn check_works(flags: &[&str]) {
    let Some((_dir, host, found)) = load(flags) else { return };
    assert!(matches!(found.outcome, Outcome::Loaded { .. }), "{flags:?}: {found:?}");
    let device = host.device("ctest").unwrap();
    adds(&device);
    assert_eq!(device.state(), DeviceState::Open, "{flags:?}");
}

/// x + x in every way the host has: a plan, asynchronous transfers, an event, a copy, a seal, a tensor's size.
fn adds(device: &Arc<Device>) {
    let buffer = device.alloc(0, 128, c::USAGE_COMPUTE).unwrap();
    let x = TensorDesc { buffer: Some(&buffer), ..TensorDesc::contiguous(DType::F32, [4, 1, 1, 1]) };
    let y = TensorDesc { offset: 64, ..x };
    assert_eq!(device.alloc_size(0, &TensorDesc { buffer: None, ..x }).unwrap(), 16);
    let stream = device.stream(1).unwrap();
    let bytes: Arc<[u8]> = [1f32, 2.0, 3.0, 4.5].iter().flat_map(|x| x.to_ne_bytes()).collect();
    stream.set_async(&buffer, &x, bytes, 0).unwrap();
    buffer.seal(&x).unwrap();
    let plan = stream.plan(addition(&x, &y)).unwrap();
    stream.run(&plan, 1).unwrap();
    let event = device.event().unwrap();
    stream.record(&event).unwrap();
    stream.wait(&event).unwrap();
    let other = device.alloc(0, 64, c::USAGE_ANY).unwrap();
    let z = TensorDesc { buffer: Some(&other), ..TensorDesc::contiguous(DType::F32, [4, 1, 1, 1]) };
    stream.synchronize().unwrap();
    other.copy(&z, &buffer, &y).unwrap();
    let read = stream.get_async(&other, &z, 0, 16).unwrap();
    assert_eq!(llmrt_tests::f32s(&stream.take(read).unwrap()), [2.0, 4.0, 6.0, 9.0]);
    assert!(buffer.host_ptr().is_none_or(|p| p.is_aligned()));
}

fn addition(x: &TensorDesc<'_>, y: &TensorDesc<'_>) -> RawGraph {
    let mut g = RawGraphBuilder::new();
    let (a, sum) = (g.tensor(x).unwrap(), g.tensor(y).unwrap());
    g.node(&NodeDesc { op: Op::Add.id(), op_version: 1, dst: sum, srcs: &[Some(a), Some(a)], params: &[] })
        .unwrap();
    g.build()
}

#[test]
fn a_header_with_a_field_inserted_is_refused_before_anything_is_called() {
    let dir = TempDir::new().unwrap();
    let header = std::fs::read_to_string(root().join("abi/include/llmrt/plugin.h")).unwrap();
    // What `cargo ci header` would write if `Tensor` had a field in its middle; `abi/src/layout.rs` tests the hash.
    let inserted = header.replace("  uint32_t n_dims;\n", "  uint32_t n_dims;\n  uint64_t inserted;\n");
    let other = inserted.replace(&format!("UINT64_C({FINGERPRINT:#x})"), "UINT64_C(0x1234)");
    assert!(inserted != header && other != inserted);
    std::fs::create_dir(dir.path().join("llmrt")).unwrap();
    std::fs::write(dir.path().join("llmrt/plugin.h"), other).unwrap();
    let include = format!("-I{}", dir.path().display());
    check_refused(&[&include], "built with other struct layouts (fingerprint 0x0000000000001234");
}

#[test]
fn a_shorter_table_has_the_hosts_own_ways_for_what_it_lacks() {
    check_works(&["-DTABLE_SIZE=offsetof(llmrt_plugin,get_extension)"]);
    check_works(&["-DBUFFER_TABLE_SIZE=offsetof(llmrt_buffer_vt,seal)"]);
    check_works(&["-DBACKEND_TABLE_SIZE=offsetof(llmrt_backend_vt,set_async)"]);
    // What follows the end of the table is not called.
    check_works(&["-DDEVICE_TABLE_SIZE=offsetof(llmrt_device_vt,alloc_size)", "-DPOISON"]);
}

/// The preference of the variant; one whose description ends before that field has none, whatever stands there.
#[test]
fn a_shorter_description_of_a_device_prefers_no_block_size() {
    let preferred = |flags: &[&str]| {
        let (_dir, host, _) = load(flags)?;
        Some(host.device("ctest").unwrap().info().kv_block_size)
    };
    let Some(none) = preferred(&[]) else { return };
    assert_eq!((none, preferred(&["-DKV_BLOCK_SIZE=64"])), (0, Some(64)));
    let shorter = "-DINFO_SIZE=offsetof(llmrt_device_info,kv_block_size)";
    assert_eq!(preferred(&["-DKV_BLOCK_SIZE=64", shorter]), Some(0));
    for refused in [48, 2048] {
        let flag = format!("-DKV_BLOCK_SIZE={refused}");
        check_refused(&[&flag], &format!("device 0: blocks of {refused} slots; powers of two up to 1024"));
    }
}

#[test]
fn a_table_too_short_for_what_is_mandatory_is_refused() {
    check_refused(
        &["-DTABLE_SIZE=offsetof(llmrt_plugin,shutdown)"],
        "plugin table has 96 bytes; at least 104",
    );
    check_refused(
        &["-DDEVICE_TABLE_SIZE=offsetof(llmrt_device_vt,supports)"],
        "device table has 32 bytes; at least 56",
    );
    let first_use = |flag: &str, words: &str| {
        let Some((_dir, host, _)) = load(&[flag]) else { return };
        let e = host.device("ctest").unwrap().memory().unwrap_err().to_string();
        assert!(e.contains(words), "{e}");
    };
    first_use("-DBUFFER_TABLE_SIZE=offsetof(llmrt_buffer_vt,fill)", "buffer table has 32 bytes; at least 40");
    first_use(
        "-DBACKEND_TABLE_SIZE=offsetof(llmrt_backend_vt,compute)",
        "backend table has 24 bytes; at least 32",
    );
}

#[test]
fn a_longer_table_of_a_later_minor_works() {
    check_works(&["-DEXTENDED"]);
    check_works(&["-DEXTENDED", "-DMINOR=99"]);
    let Some((_dir, host, _)) = load(&["-DMINOR=99"]) else { return };
    assert!(host.plugins_in_use().iter().any(|p| (p.name.as_str(), p.abi_minor) == ("ctest", 99)));
}

#[test]
fn a_plugin_that_cannot_serve_an_older_host_reports_it() {
    check_refused(&["-DNEEDS_MINOR=99", "-DMINOR=99"], "cannot serve a host with ABI 0.");
}

/// Runs `y = scale(x)` over the variant that has `scale` without its bias, and the CPU: names of the devices that
/// got a node, with the reason of a fallback; and y.
fn scaled(host: &Arc<Host>, bias: f32) -> (String, Vec<f32>) {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[4]);
    let y = g.scale_bias(x, 2.0, bias);
    g.output(y, "y");
    run(host, g.finish().unwrap(), x, y)
}

fn run(host: &Arc<Host>, graph: Graph, x: Tensor, y: Tensor) -> (String, Vec<f32>) {
    let dir = TempDir::new().unwrap();
    let files = ModelFiles::open(&TinyLlama::default().write(dir.path()), &OpenOptions::default()).unwrap();
    let load = LoadOptions { mode: LoadMode::Read, ..LoadOptions::default() };
    let no_weights = weights::load(&files, &[], load).unwrap();
    let devices = vec![host.device("ctest").unwrap(), host.device("cpu").unwrap()];
    let mut executor =
        Executor::new(devices, Arc::new(files), no_weights, HashMap::new(), 1, Default::default()).unwrap();
    let program = Program::new(graph);
    let input: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    executor.run(&program, &[(x, &input)]).unwrap();
    let bytes = executor.output(&program, y).unwrap();
    let report = executor.report(&program).unwrap();
    let used = report.devices.iter().zip(&report.nodes).filter(|(_, n)| **n > 0).map(|(d, _)| d.clone());
    let reasons = report.fallbacks.iter().map(|f| f.reason.to_string());
    (used.chain(reasons).collect::<Vec<_>>().join(" "), llmrt_tests::f32s(&bytes))
}

#[test]
fn an_attribute_newer_than_the_plugin_runs_on_the_cpu_and_a_zero_one_does_not_matter() {
    let Some((_dir, host, _)) = load(&["-DSCALES"]) else { return };
    assert_eq!(scaled(&host, 0.0), ("ctest".into(), vec![2.0, 4.0, 6.0, 8.0]));
    assert_eq!(scaled(&host, 0.5), ("cpu param".into(), vec![2.5, 4.5, 6.5, 8.5]));
}

#[test]
fn an_op_of_no_release_is_refused_by_all_devices() {
    let Some((_dir, host, _)) = load(&[]) else { return };
    let x = TensorDesc::contiguous(DType::F32, [4, 1, 1, 1]);
    let mut g = RawGraphBuilder::new();
    let t = g.tensor(&x).unwrap();
    for op in [0x7fff_ffff, 0x8000_1234] {
        g.node(&NodeDesc { op, op_version: 1, dst: t, srcs: &[Some(t), Some(t)], params: &[0, 0, 0, 9] })
            .unwrap();
    }
    let graph = g.build();
    for device in host.devices() {
        let verdicts = device.supports(&graph, 0..2).unwrap();
        assert!(
            verdicts.iter().all(|v| (v.support, v.reason) == (0, llmrt_abi::Reason::Op.code())),
            "{device:?}"
        );
    }
}

/// Loads the plugins of a released minor as they were built then. While the major version is 0 a release may change
/// layouts; then they must be refused, not crash.
fn check_golden(dir: &Path) {
    let facts = std::fs::read_to_string(dir.join("facts.txt")).unwrap();
    let fact = |key: &str| facts.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(" = ")).unwrap();
    if fact("machine") != std::env::consts::ARCH || !cfg!(target_os = "linux") {
        llmrt_tests::skip::skipped(&format!("{} is for {}", dir.display(), fact("machine")));
        return;
    }
    let host = host();
    for (file, name) in [("libllmrt_c.so", "c"), ("libllmrt_null.so", "null")] {
        let found = host.load(dir.join(file));
        if fact("fingerprint") != format!("{FINGERPRINT:#018x}") {
            let Outcome::Rejected(reason) = &found.outcome else { panic!("{found:?}") };
            assert!(reason.contains("built with other struct layouts"), "{reason}");
            continue;
        }
        assert!(matches!(found.outcome, Outcome::Loaded { n_devices: 1, .. }), "{found:?}");
        let device = host.device(name).unwrap();
        assert_eq!(device.info().kv_block_size, 0, "{name}: no release has the field yet");
        let (free, total) = device.memory().unwrap();
        assert!(0 < free && free <= total, "{name}: {free} of {total}");
    }
    if let Some(device) = host.device("c") {
        adds(&device);
    }
}

#[test]
fn plugins_of_released_minors_still_load() {
    let mut releases: Vec<_> = std::fs::read_dir(root().join("tests/golden")).unwrap().flatten().collect();
    releases.sort_by_key(|entry| entry.path());
    assert!(!releases.is_empty());
    releases.iter().for_each(|entry| check_golden(&entry.path()));
}
