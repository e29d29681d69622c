//! `LLMRT_VALIDATE`: plugins that break a rule are named, with the call and the reason; good ones notice nothing.

use llmrt_abi::{DType, Op, Scope, types as c};
use llmrt_host::{
    Buffer, Device, DeviceState, Error, Host, HostOptions, NodeDesc, Outcome, RawGraph, RawGraphBuilder,
    TensorDesc,
};
use llmrt_tests::compile::{Language, compile};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use tempfile::TempDir;

/// `tests/plugins/misbehaves.c`, compiled once; `None` where there is no C compiler.
fn compiled() -> Option<&'static Path> {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let file =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("misbehaves-{}.so", std::process::id()));
        let flags = ["-Wno-unused-function", "-pthread"];
        compile(Language::C, "tests/plugins/misbehaves.c", &file, &flags).then_some(file)
    });
    file.as_deref()
}

/// A device with one fault, and what was logged. A copy of the file is another plugin: a quarantined one stays so.
struct Faulty {
    device: Arc<Device>,
    _host: Arc<Host>,
    log: Arc<Mutex<Vec<String>>>,
    _dir: TempDir,
}

fn faulty(fault: &str, validate: bool) -> Option<Faulty> {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("libllmrt_misbehaves.so");
    std::fs::copy(compiled()?, &file).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = log.clone();
    let host = Host::new(HostOptions {
        n_threads: Some(2),
        options: [("fault".to_string(), fault.to_string())].into(),
        log: Some(Arc::new(move |_, _, text| lines.lock().unwrap().push(text.to_string()))),
        validate: Some(validate),
        ..HostOptions::default()
    });
    let found = host.load(file);
    assert!(matches!(found.outcome, Outcome::Loaded { .. }), "{found:?}");
    let device = host.device("misbehaves").unwrap();
    Some(Faulty { device, _host: host, log, _dir: dir })
}

/// Everything a host does with a device.
fn use_it(device: &Arc<Device>) -> Result<(), Error> {
    device.memory()?;
    let buffer = device.alloc(0, 4096, c::USAGE_ANY)?;
    let again = device.alloc(0, 4096, c::USAGE_ANY)?;
    buffer.write(64, &[1, 2, 3, 4, 5])?;
    buffer.read(64, &mut [0; 5])?;
    let x = TensorDesc { buffer: Some(&buffer), ..TensorDesc::contiguous(DType::F32, [4, 1, 1, 1]) };
    device.alloc_size(0, &TensorDesc { buffer: None, ..x })?;
    let graph = addition(&x);
    device.supports(&graph, 0..1)?;
    let stream = device.stream(1)?;
    stream.compute(&graph)?;
    stream.synchronize()?;
    again.seal(&TensorDesc { buffer: Some(&again), ..x })?;
    Ok(())
}

fn addition(x: &TensorDesc<'_>) -> RawGraph {
    let mut g = RawGraphBuilder::new();
    let row = g.tensor(x).unwrap();
    let srcs = [Some(row), Some(row)];
    g.node(&NodeDesc { op: Op::Add.id(), op_version: 1, dst: row, srcs: &srcs, params: &[] }).unwrap();
    g.build()
}

/// With this fault a call fails, and error and log show it.
fn check(fault: &str, scope: Scope, call: &str, words: &str) {
    let Some(f) = faulty(fault, true) else { return };
    let e = use_it(&f.device).expect_err(fault);
    let log = f.log.lock().unwrap();
    let line = log.iter().find(|line| line.contains("LLMRT_VALIDATE: misbehaves: "));
    let line = line.unwrap_or_else(|| panic!("{fault}: {e}; log {log:?}"));
    assert!(line.contains(&format!("misbehaves: {call}: {words}")), "{fault}: {line}");
    assert!(e.to_string().contains(words), "{fault}: {e}");
    let is_broken = matches!(f.device.state(), DeviceState::Quarantined(_));
    assert_eq!(is_broken, scope == Scope::Plugin, "{fault}: {:?}", f.device.state());
}

#[test]
fn a_good_plugin_notices_nothing() {
    for validate in [true, false] {
        let Some(f) = faulty("none", validate) else { return };
        use_it(&f.device).unwrap();
        let log = f.log.lock().unwrap();
        assert!(!log.iter().any(|line| line.contains("LLMRT_VALIDATE")), "{log:?}");
    }
}

#[test]
fn answers_that_make_no_sense_fail_their_call() {
    check("verdict", Scope::Call, "supports", "verdict 0: support 7; 0 to 3 are known");
    check("no reason", Scope::Call, "supports", "verdict 0: refused without a reason");
    check("more free than there is", Scope::Call, "memory", "1048577 bytes free of 1048576");
    check("layout", Scope::Call, "seal", "a layout is either INVERTIBLE or OPAQUE");
    check("too small", Scope::Call, "alloc_size", "15 bytes for a tensor of 16");
    check("unknown status", Scope::Call, "set", "status 1234 is none of the header's");
    check("message past its end", Scope::Call, "set", "a message of 1000 bytes; there are 216");
    check(
        "refuses without a node",
        Scope::Call,
        "compute",
        "answered UNSUPPORTED and does not name the node",
    );
    check("not ready", Scope::Call, "compute", "NOT_READY is an answer of events");
}

#[test]
fn an_impure_supports_is_caught_before_the_self_test() {
    check("changes its mind", Scope::Call, "supports", "verdict 0: two calls");
}

#[test]
fn writes_outside_what_was_given_end_the_plugin() {
    check("verdict past the end", Scope::Plugin, "supports", "wrote outside the 1 verdicts");
    check("get writes past", Scope::Plugin, "get", "wrote outside the ");
    check("error past its end", Scope::Plugin, "set", "wrote outside the error it was given");
}

#[test]
fn objects_that_are_not_what_they_were_end_the_plugin() {
    check("table changes", Scope::Plugin, "get", "the Buffer at 0x");
    check("one buffer twice", Scope::Plugin, "buffer_alloc", "gave a Buffer at 0x");
}

/// Misuse of the host's functions while the device is opened; it is logged, and the device works.
fn check_misuse(fault: &str, words: &str) {
    let Some(f) = faulty(fault, true) else { return };
    use_it(&f.device).unwrap_or_else(|e| panic!("{fault}: {e}"));
    let log = f.log.lock().unwrap();
    assert!(log.iter().any(|l| l.contains("LLMRT_VALIDATE") && l.contains(words)), "{fault}: {log:?}");
}

#[test]
fn misuse_of_the_hosts_functions_is_logged_and_refused() {
    check_misuse("log level", "log: level 9; 1 (error) to 5 (trace) are known");
    check_misuse("log text", "log: a text that is not UTF-8");
    check_misuse("option without length", "get_option: ");
    check_misuse("option without room", "get_option: ");
    check_misuse("op outside init", "register_op: outside `init`");
    check_misuse("too many threads", "threads.run: 1000 threads of 2");
    check_misuse("own thread", "threads.run: from a thread of the plugin's own");
}

#[test]
fn memory_that_is_still_counted_after_its_buffers_is_logged() {
    let Some(f) = faulty("leak", true) else { return };
    use_it(&f.device).unwrap();
    let Faulty { device, _host, log, .. } = f;
    drop((device, _host));
    let log = log.lock().unwrap();
    assert!(
        log.iter().any(|l| l.contains("close: ") && l.contains("bytes are still counted as in use")),
        "{log:?}"
    );
}

/// A weight of the device, sealed as layout 7, which is opaque.
fn sealed(device: &Arc<Device>) -> Buffer {
    let buffer = device.alloc(0, 128, c::USAGE_WEIGHTS).unwrap();
    let layout = buffer.seal(&TensorDesc::contiguous(DType::F32, [4, 1, 1, 1])).unwrap();
    assert_eq!((layout.id, layout.is_readable()), (7, false));
    buffer
}

#[test]
fn a_host_that_uses_sealed_weights_as_canonical_ones_gets_an_error() {
    let Some(f) = faulty("none", true) else { return };
    let buffer = sealed(&f.device);
    let w = TensorDesc { buffer: Some(&buffer), ..TensorDesc::contiguous(DType::F32, [4, 1, 1, 1]) };
    let reports = |result: Result<(), Error>, words: &str| {
        let e = result.unwrap_err().to_string();
        assert!(e.contains(words), "{e}");
    };
    reports(buffer.set(&w, &[0; 16], 0), "bytes 0..16 were sealed and are written");
    reports(buffer.get(&w, &mut [0; 16], 0), "layout 7 is opaque and is read");
    reports(buffer.seal(&w).map(|_| ()), "bytes 0..16 were sealed before");
    let stream = f.device.stream(1).unwrap();
    reports(stream.compute(&addition(&w)), "a node uses bytes of layout 7 as layout 0");
    let elsewhere = TensorDesc { offset: 64, ..w };
    buffer.set(&elsewhere, &[0; 16], 0).unwrap();
    stream.compute(&addition(&elsewhere)).unwrap();
    assert!(matches!(f.device.state(), DeviceState::Open), "the plugin is not to blame");
}
