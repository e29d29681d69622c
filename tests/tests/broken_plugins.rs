//! Results of loading plugin files that are broken in every way that the load checklist covers, and of good ones.
//!
//! The files are `tests/plugins/plugin.c`, compiled from the header alone with one macro per fault.

use llmrt_abi::{DType, Op, types as c};
use llmrt_host::{
    Candidate, Device, DeviceState, DiscoverOptions, Host, HostOptions, NodeDesc, Outcome, RawGraph,
    RawGraphBuilder, TensorDesc,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// Compiles the plugin; `None`, with a message, where there is no C compiler.
fn compile(dir: &Path, file: &str, macros: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = dir.join(file);
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-fvisibility=default"]);
    cc.arg("-I").arg(root.join("../abi/include")).arg(root.join("plugins/plugin.c")).arg("-o").arg(&out);
    // Files of one test may differ in a macro that changes no byte of code.
    cc.arg("-Wl,--build-id");
    // What a fault leaves out leaves something unused.
    if !macros.is_empty() {
        cc.args(["-Wno-unused-function", "-Wno-unused-const-variable"]);
    }
    for m in macros {
        cc.arg(format!("-D{m}"));
    }
    match cc.output() {
        Err(e) => {
            llmrt_tests::skip::skipped(&format!("cc does not start: {e}"));
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(out)
        }
    }
}

fn host() -> Arc<Host> {
    Host::new(HostOptions { n_threads: Some(2), log: Some(Arc::new(|_, _, _| {})), ..HostOptions::default() })
}

/// A host that looked at one folder, and its result for each file.
fn discover(dir: &Path) -> (Arc<Host>, Vec<Candidate>) {
    let host = host();
    let found = host.discover(&DiscoverOptions { extra: vec![dir.to_path_buf()], only_extra: true });
    (host, found)
}

/// Compiles a file with these macros and insists that it is not let in, for a reason with these words.
fn check(macros: &[&str], words: &str) {
    let dir = TempDir::new().unwrap();
    if compile(dir.path(), "libllmrt_ctest.so", macros).is_none() {
        return;
    }
    let (host, found) = discover(dir.path());
    let reason = match &found[0].outcome {
        Outcome::Rejected(reason) | Outcome::Skipped(reason) => reason,
        loaded => panic!("{macros:?}: {loaded:?}"),
    };
    assert!(reason.contains(words), "{macros:?}: {reason}");
    assert!(host.devices().is_empty() && host.plugins_in_use().is_empty(), "nothing of it stays");
}

/// Compiles a file that is let in, and gives its device.
fn loaded(macros: &[&str]) -> Option<(TempDir, Arc<Host>, Arc<Device>)> {
    let dir = TempDir::new().unwrap();
    compile(dir.path(), "libllmrt_ctest.so", macros)?;
    let (host, found) = discover(dir.path());
    let outcome = Outcome::Loaded { name: "ctest".into(), version: "1.0".into(), n_devices: 1 };
    assert_eq!(found[0].outcome, outcome);
    let device = host.device("ctest").unwrap();
    Some((dir, host, device))
}

/// A file with these bytes is not let in, for a reason with these words.
fn check_bytes(bytes: &[u8], words: &str) {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("libllmrt_x.so"), bytes).unwrap();
    let (_, found) = discover(dir.path());
    let Outcome::Rejected(reason) = &found[0].outcome else { panic!("{found:?}") };
    assert!(reason.contains(words), "{reason}");
}

#[test]
fn a_file_that_is_no_plugin_is_refused_as_such() {
    check_bytes(b"", "shorter than its header");
    check_bytes(b"hello", "not an ELF file");
    check_bytes(&[0; 4096], "not an ELF file");
    check_bytes(b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0 and so on", "ELF class 1");
    check_bytes(b"\x7fELF\x02\x02\x01\0\0\0\0\0\0\0\0\0 and so on", "ELF byte order 2");
}

#[test]
fn a_program_is_not_a_plugin() {
    // Programs are position-independent objects too; what they lack is the manifest.
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("libllmrt_x.so"), program).unwrap();
    let (_, found) = discover(dir.path());
    assert!(!matches!(found[0].outcome, Outcome::Loaded { .. }), "{found:?}");
}

#[test]
fn manifests_are_read_before_anything_runs() {
    check(&["NO_MANIFEST"], "section .llmrtmf is missing");
    check(&[r#"MANIFEST="abi=0\nversion=1.0\n""#], "manifest lacks `name`");
    check(&[r#"MANIFEST="abi=9\nname=ctest\nversion=1.0\n""#], "built for ABI 9");
    check(&[r#"MANIFEST="abi=0\nname=c test\nversion=1.0\n""#], "plugin name `c test`");
    check(&[r#"MANIFEST="abi=0\nname=ctest\nversion=1.0\ncpu=warp9\n""#], "this CPU has no warp9");
    check(&[r#"MANIFEST="abi=0\nname=ctest\nversion=1.0\npci=ffff:ffff\n""#], "no PCI device ffff:ffff");
}

#[test]
fn a_missing_library_is_named_with_the_plugins_hint() {
    let manifest =
        r#"MANIFEST="abi=0\nname=ctest\nversion=1.0\nsonames=libllmrt-none.so\nhint=install it first\n""#;
    check(&[manifest], "libllmrt-none.so");
    check(&[manifest], "install it first");
}

#[test]
fn symbols_of_the_host_cannot_be_linked_against() {
    check(&["USES_HOST_SYMBOL"], "needs symbol llmrt_host_log");
}

#[test]
fn tables_of_another_layout_are_refused() {
    check(&["NO_ENTRY"], "exports no llmrt_plugin_query_v0");
    check(&["REFUSES_HOST"], "cannot serve a host");
    check(&["MAGIC=0x1234"], "magic number 0x0000000000001234");
    check(&["TABLE_SIZE=24"], "plugin table has 24 bytes");
    check(&["MAJOR=3"], "built for ABI 3");
    check(&["FINGERPRINT=1"], "other struct layouts");
}

#[test]
fn builds_that_cannot_live_in_this_process_are_refused() {
    check(&["BUILD_FLAGS=LLMRT_BUILD_ASAN"], "address sanitiser");
    check(&["NEEDS=0x8000"], "needs host features 0x8000");
}

#[test]
fn table_and_manifest_state_the_same() {
    check(&[r#"TABLE_NAME="other""#], "its name is `other`, its manifest has `ctest`");
}

#[test]
fn a_panic_in_init_is_the_reason() {
    check(&["INIT_PANICS", "INIT=init_panics"], "panic: the driver is older than its library");
}

#[test]
fn devices_must_be_complete_and_differ() {
    check(&["INIT=0"], "lacks mandatory `init`");
    check(&["NO_SUPPORTS"], "device lacks mandatory `supports`");
    check(&["ALIGNMENT=48"], "alignment 48; expected a power of two");
    check(&["TWINS"], "two devices are named `0`");
}

/// A device that fails its first use is not used, for a reason with these words.
fn check_first_use(macros: &[&str], words: &str) {
    let Some((_dir, _host, device)) = loaded(macros) else { return };
    assert_eq!(device.state(), DeviceState::Ready);
    assert!(device.memory().is_err());
    let reason = match device.state() {
        DeviceState::Unused(reason) | DeviceState::Quarantined(reason) => reason,
        state => panic!("{macros:?}: {state:?}"),
    };
    assert!(reason.contains(words), "{macros:?}: {reason}");
    assert!(device.alloc(0, 64, c::USAGE_ANY).is_err());
}

#[test]
fn a_device_that_fails_its_self_test_is_not_used() {
    check_first_use(&["LOSES_A_BYTE"], "self-test, memory: byte 45 of 64");
    check_first_use(&["CHANGES_ITS_MIND"], "self-test, supports: answered");
    check_first_use(&["GIVES_NOTHING"], "returned OK and no buffer");
    check_first_use(&["WILL_NOT_OPEN"], "the device is in use");
}

/// x + x of four numbers in a buffer of the device.
fn addition(device: &Arc<Device>) -> (RawGraph, llmrt_host::Buffer) {
    let buffer = device.alloc(0, 128, c::USAGE_COMPUTE).unwrap();
    let x = TensorDesc { buffer: Some(&buffer), ..TensorDesc::contiguous(DType::F32, [4, 1, 1, 1]) };
    let mut g = RawGraphBuilder::new();
    let (a, sum) = (g.tensor(&x).unwrap(), g.tensor(&TensorDesc { offset: 64, ..x }).unwrap());
    g.node(&NodeDesc { op: Op::Add.id(), op_version: 1, dst: sum, srcs: &[Some(a), Some(a)], params: &[] })
        .unwrap();
    (g.build(), buffer)
}

#[test]
fn a_plugin_in_c_computes() {
    let Some((_dir, _host, device)) = loaded(&[]) else { return };
    let (graph, buffer) = addition(&device);
    assert_eq!(device.supports(&graph, 0..1).unwrap()[0].support, 1);
    let bytes: Vec<u8> = [1f32, 2.0, 3.0, 4.5].iter().flat_map(|x| x.to_ne_bytes()).collect();
    buffer.write(0, &bytes).unwrap();

    let stream = device.stream(1).unwrap();
    let plan = stream.plan(graph).unwrap();
    stream.run(&plan, 1).unwrap();
    stream.synchronize().unwrap();
    let mut sums = [0; 16];
    buffer.read(64, &mut sums).unwrap();
    assert_eq!(sums, *[2f32, 4.0, 6.0, 9.0].iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>());
    assert_eq!(device.state(), DeviceState::Open);
}

#[test]
fn a_plugin_that_breaks_is_not_called_again() {
    let Some((_dir, host, device)) = loaded(&["BREAKS_LATER", "COMPUTE=compute_breaks"]) else { return };
    let (graph, buffer) = addition(&device);
    let stream = device.stream(1).unwrap();
    let e = stream.compute(&graph).unwrap_err().to_string();
    assert!(e.contains("ctest: compute answered Internal: lost my mind"), "{e}");
    assert!(matches!(device.state(), DeviceState::Quarantined(_)));
    for result in [stream.synchronize(), buffer.write(0, &[1]), device.memory().map(|_| ())] {
        assert!(result.unwrap_err().to_string().contains("quarantined"));
    }
    drop((stream, graph, buffer, host));
}

#[test]
fn one_plugin_under_two_names_is_loaded_once() {
    let dir = TempDir::new().unwrap();
    let Some(first) = compile(dir.path(), "libllmrt_a.so", &[]) else { return };
    std::fs::copy(&first, dir.path().join("libllmrt_b.so")).unwrap();
    std::fs::hard_link(&first, dir.path().join("libllmrt_c.so")).unwrap();
    compile(dir.path(), "libllmrt_d.so", &["ALIGNMENT=32"]);
    let (host, found) = discover(dir.path());
    assert!(matches!(found[0].outcome, Outcome::Loaded { .. }));
    let skipped = |i: usize, words: &str| match &found[i].outcome {
        Outcome::Skipped(reason) => assert!(reason.contains(words), "{reason}"),
        other => panic!("{other:?}"),
    };
    skipped(1, "same build id");
    skipped(2, "this file is loaded already");
    skipped(3, "a plugin named ctest is loaded already");
    assert_eq!(host.devices().len(), 1);
}

#[test]
fn hardware_that_two_plugins_offer_is_used_once() {
    let dir = TempDir::new().unwrap();
    let pci = r#"PCI_ID="0000:01:00.0""#;
    if compile(dir.path(), "libllmrt_one.so", &[r#"NAME="one""#, pci]).is_none() {
        return;
    }
    compile(dir.path(), "libllmrt_two.so", &[r#"NAME="two""#, pci]);
    let (host, _) = discover(dir.path());
    assert_eq!(host.device("one").unwrap().state(), DeviceState::Ready);
    assert_eq!(host.device("two").unwrap().state(), DeviceState::Unused("the same hardware as one".into()));
}

#[test]
fn a_disabled_plugin_and_a_file_anyone_may_write_stay_out() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new().unwrap();
    let Some(file) = compile(dir.path(), "libllmrt_ctest.so", &[]) else { return };
    let quiet = HostOptions { log: Some(Arc::new(|_, _, _| {})), ..HostOptions::default() };
    let host = Host::new(HostOptions { disabled: Some("c*".into()), ..quiet.clone() });
    assert_eq!(
        host.load(file.clone()).outcome,
        Outcome::Skipped("disabled by LLMRT_PLUGINS_DISABLE=c*".into())
    );

    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o777)).unwrap();
    let Outcome::Rejected(reason) = Host::new(quiet).load(file).outcome else { panic!() };
    assert!(reason.contains("anyone may write"), "{reason}");
}

#[test]
fn two_hosts_of_one_process_share_a_plugin() {
    let Some((dir, first, device)) = loaded(&[]) else { return };
    let (second, _) = discover(dir.path());
    assert!(Arc::ptr_eq(&device, &second.device("ctest").unwrap()));
    drop((first, device));
    assert!(second.device("ctest").unwrap().memory().is_ok());
    drop(second);
    let (third, _) = discover(dir.path());
    assert!(third.device("ctest").unwrap().memory().is_ok(), "it starts again after it was shut down");
}

#[test]
fn the_null_plugin_has_a_device_that_claims_nothing() {
    let host = host();
    let found = host.load(llmrt_tests::build::plugin("null"));
    assert!(matches!(found.outcome, Outcome::Loaded { n_devices: 1, .. }), "{found:?}");
    let device = host.device("null").unwrap();
    assert_eq!(device.memory().unwrap(), (1 << 30, 1 << 30));
    let (graph, _buffer) = addition(&device);
    assert_eq!(device.supports(&graph, 0..1).unwrap()[0].support, 0);
    let e = device.stream(0).unwrap().compute(&graph).unwrap_err();
    assert!(e.is_unsupported() && e.call().unwrap().node == Some(0), "{e}");
}
