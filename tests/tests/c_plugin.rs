//! The example plugin in C, compiled as C and as C++: a model over it and the CPU gives the CPU's logits.

use llmrt_abi::{DType, Op, types as c};
use llmrt_engine::EngineOptions;
use llmrt_host::load::{LoadMode, ModelFiles, OpenOptions};
use llmrt_host::{
    Device, Host, HostOptions, NodeDesc, Outcome, RawGraph, RawGraphBuilder, TensorDesc,
    sched::report::Report,
};
use llmrt_tests::compile::{Language, compile};
use llmrt_tests::fixtures::root;
use llmrt_tests::models::TinyLlama;
use llmrt_tests::{nmse, steps};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

const SOURCE: &str = "plugins/examples/c/plugin.c";

/// A host with the plugin, if this machine can compile it, and the CPU.
fn host(language: Language) -> Option<(TempDir, Arc<Host>, Arc<Device>)> {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("libllmrt_c.so");
    if !compile(language, SOURCE, &file, &[]) {
        return None;
    }
    let host = Host::new(HostOptions { n_threads: Some(2), ..HostOptions::default() });
    host.register_builtin(llmrt_cpu::query).unwrap();
    let found = host.load(file);
    let outcome = Outcome::Loaded { name: "c".into(), version: "0.1".into(), n_devices: 1 };
    assert_eq!(found.outcome, outcome);
    let device = host.device("c").unwrap();
    Some((dir, host, device))
}

/// Logits of a prompt in chunks, then of single tokens; and the report of the last step.
fn logits(
    host: &Arc<Host>,
    devices: Vec<Arc<Device>>,
    model: &TinyLlama,
    mode: LoadMode,
) -> (Vec<f32>, Report) {
    let dir = TempDir::new().unwrap();
    let files = ModelFiles::open(&model.write(dir.path()), &OpenOptions::default()).unwrap();
    let options = EngineOptions {
        n_ctx: 64,
        n_batch: 32,
        max_seqs: 1,
        k_type: DType::F32,
        v_type: DType::F32,
        split: Default::default(),
        ..EngineOptions::default()
    };
    let mut core = steps::core_in(mode, host, devices, files, options).unwrap();
    let (tokens, sizes) = steps::usual();
    let steps = steps::run(&mut core, &tokens, &sizes);
    (steps.logits.clone(), steps.last_report().clone())
}

fn check(language: Language, mode: LoadMode) {
    let Some((_dir, host, device)) = host(language) else { return };
    let cpu = host.device("cpu").unwrap();
    let model = TinyLlama::default();
    let (expected, _) = logits(&host, vec![cpu.clone()], &model, mode);
    let (got, report) = logits(&host, vec![device, cpu], &model, mode);
    let error = nmse(&got, &expected);
    assert!(error <= 1e-6, "NMSE {error}\n{report}");

    assert_eq!(report.devices, ["c", "cpu"]);
    // Per layer: q, k, v, out, gate, up, down and two residual adds; and the head.
    assert_eq!(report.nodes[0], 2 * 9 + 1, "{report}");
    let fallbacks: Vec<_> = report.fallbacks.iter().map(|f| (f.op, f.count, f.reason.to_string())).collect();
    let op = |name, n| (name, n, "op".to_string());
    let expected = [
        op("attention", 2),
        op("get_rows", 3),
        op("glu", 2),
        op("rms_norm", 5),
        op("rope", 4),
        op("set_rows", 4),
    ];
    assert_eq!(fallbacks, expected, "{report}");
    assert!(report.copied_bytes > 0, "{report}");
}

#[test]
fn a_model_over_the_c_plugin_and_the_cpu_gives_the_cpus_logits() {
    check(Language::C, LoadMode::Mmap);
    check(Language::C, LoadMode::Read);
}

#[test]
fn its_makefile_works_outside_the_tree() {
    let dir = TempDir::new().unwrap();
    for file in ["plugin.c", "Makefile"] {
        std::fs::copy(root().join("plugins/examples/c").join(file), dir.path().join(file)).unwrap();
    }
    let llmrt = format!("LLMRT={}", root().display());
    for args in [&["-B", &llmrt][..], &["-B", &llmrt, "CXX_BUILD=1"]] {
        let Ok(out) = Command::new("make").arg("-C").arg(dir.path()).args(args).output() else {
            llmrt_tests::skip::skipped("no make");
            return;
        };
        let words = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && !words.contains("warning"), "{words}");
        let host = Host::new(HostOptions { n_threads: Some(1), ..HostOptions::default() });
        let found = host.load(dir.path().join("libllmrt_c.so"));
        assert!(matches!(found.outcome, Outcome::Loaded { n_devices: 1, .. }), "{found:?}");
    }
}

#[test]
fn the_same_file_compiled_as_cpp_does_the_same() {
    check(Language::Cpp, LoadMode::Mmap);
}

/// Two sources, one result, as dims and dtype; the answer is the reason of a refusal, or "yes".
fn verdict(
    device: &Arc<Device>,
    op: Op,
    version: u32,
    sources: &[TensorDesc<'_>],
    dst: TensorDesc<'_>,
    params: &[u8],
) -> String {
    let mut g = RawGraphBuilder::new();
    let srcs: Vec<_> = sources.iter().map(|t| Some(g.tensor(t).unwrap())).collect();
    let dst = g.tensor(&dst).unwrap();
    g.node(&NodeDesc { op: op.id(), op_version: version, dst, srcs: &srcs, params }).unwrap();
    let v = device.supports(&g.build(), 0..1).unwrap()[0];
    if v.support == 1 { "yes".into() } else { llmrt_abi::Reason::from_code(v.reason).to_string() }
}

#[test]
fn what_it_does_not_run_it_refuses_for_the_right_reason() {
    let Some((_dir, _host, device)) = host(Language::C) else { return };
    let f32s = |ne| TensorDesc::contiguous(DType::F32, ne);
    let x = f32s([8, 6, 1, 1]);
    let check = |op, sources: &[TensorDesc<'_>], dst, params: &[u8], expected: &str| {
        assert_eq!(verdict(&device, op, 1, sources, dst, params), expected);
    };
    check(Op::Add, &[x, f32s([4, 3, 1, 1])], x, &[], "yes");
    check(Op::Mul, &[x, f32s([8, 1, 1, 1])], x, &[0; 8], "yes");
    check(Op::MulMat, &[f32s([8, 5, 1, 1]), f32s([8, 3, 2, 1])], f32s([5, 3, 2, 1]), &[], "yes");
    check(Op::Sub, &[x, x], x, &[], "op");
    check(Op::Add, &[x], x, &[], "op");
    check(Op::Add, &[x, f32s([3, 1, 1, 1])], x, &[], "shape");
    check(Op::Add, &[x, x], f32s([8, 3, 2, 1]), &[], "shape");
    check(Op::Add, &[x, TensorDesc::contiguous(DType::F16, x.ne)], x, &[], "type");
    check(Op::Add, &[TensorDesc { nb: [8, 64, 384, 384], ..x }, x], x, &[], "stride");
    check(Op::Add, &[TensorDesc { nb: [4, 30, 180, 180], ..x }, x], x, &[], "stride");
    check(Op::Add, &[x, x], TensorDesc { nb: [4, 64, 384, 384], ..x }, &[], "stride");
    check(Op::Add, &[TensorDesc { layout_id: 1, ..x }, x], x, &[], "layout");
    check(Op::Add, &[x, x], x, &[0, 0, 0, 0, 0, 1], "param");
    check(Op::Add, &[x, x, x], x, &[], "param");
    assert_eq!(verdict(&device, Op::Add, 2, &[x, x], x, &[]), "version");
}

#[test]
fn a_node_it_refuses_is_named_and_nothing_runs() {
    let Some((_dir, _host, device)) = host(Language::C) else { return };
    let buffer = device.alloc(0, 64, c::USAGE_COMPUTE).unwrap();
    buffer.fill(0, 64, 7).unwrap();
    let x = TensorDesc { buffer: Some(&buffer), ..TensorDesc::contiguous(DType::F32, [16, 1, 1, 1]) };
    let mut g = RawGraphBuilder::new();
    let x = g.tensor(&x).unwrap();
    for op in [Op::Add, Op::Sub] {
        let node = NodeDesc { op: op.id(), op_version: 1, dst: x, srcs: &[Some(x), Some(x)], params: &[] };
        g.node(&node).unwrap();
    }
    let stream = device.stream(1).unwrap();
    let e = stream.compute(&g.build()).unwrap_err();
    assert!(e.is_unsupported() && e.call().unwrap().node == Some(1), "{e}");
    let mut bytes = [0; 64];
    buffer.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 64]);
}

#[test]
fn views_with_gaps_are_added_multiplied_and_copied() {
    let Some((_dir, _host, device)) = host(Language::C) else { return };
    let buffer = device.alloc(0, 1024, c::USAGE_COMPUTE).unwrap();
    let bytes = |v: &[f32]| v.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>();
    buffer.write(0, &bytes(&(0..64).map(|i| i as f32).collect::<Vec<_>>())).unwrap();
    let at = |offset, ne, nb| TensorDesc {
        buffer: Some(&buffer),
        offset,
        nb,
        ..TensorDesc::contiguous(DType::F32, ne)
    };
    let run = |op: Op, sources: &[TensorDesc<'_>], ne: [u64; 4], params: &[u8]| -> Vec<f32> {
        let mut g = RawGraphBuilder::new();
        let srcs: Vec<_> = sources.iter().map(|t| Some(g.tensor(t).unwrap())).collect();
        let dst = at(512, ne, TensorDesc::contiguous(DType::F32, ne).nb);
        let row = g.tensor(&dst).unwrap();
        g.node(&NodeDesc { op: op.id(), op_version: 1, dst: row, srcs: &srcs, params }).unwrap();
        let graph: RawGraph = g.build();
        assert_eq!(device.supports(&graph, 0..1).unwrap()[0].support, 1);
        let stream = device.stream(0).unwrap();
        stream.compute(&graph).unwrap();
        stream.synchronize().unwrap();
        let mut out = vec![0; ne.iter().product::<u64>() as usize * 4];
        buffer.read(512, &mut out).unwrap();
        llmrt_tests::f32s(&out)
    };
    // Rows of two, eight floats apart; b has one row.
    let a = at(0, [2, 3, 1, 1], [4, 32, 96, 96]);
    let b = at(40, [2, 1, 1, 1], [4, 8, 8, 8]);
    assert_eq!(run(Op::Add, &[a, b], [2, 3, 1, 1], &[]), [10.0, 12.0, 18.0, 20.0, 26.0, 28.0]);
    assert_eq!(run(Op::Mul, &[a, b], [2, 3, 1, 1], &[]), [0.0, 11.0, 80.0, 99.0, 160.0, 187.0]);
    assert_eq!(run(Op::MulMat, &[b, a], [1, 3, 1, 1], &[]), [11.0, 179.0, 347.0]);
    // A transposed view.
    let x = at(0, [3, 2, 1, 1], [32, 4, 96, 96]);
    let f32_to_f32 = llmrt_abi::op::CopyParams { dtype: DType::F32.id() }.to_bytes();
    assert_eq!(run(Op::Copy, &[x], [3, 2, 1, 1], &f32_to_f32), [0.0, 8.0, 16.0, 1.0, 9.0, 17.0]);
}

#[test]
fn its_memory_is_counted_and_ends() {
    let Some((_dir, _host, device)) = host(Language::C) else { return };
    let (free, total) = device.memory().unwrap();
    assert_eq!(free, total);
    let buffer = device.alloc(0, 1 << 20, c::USAGE_ANY).unwrap();
    assert_eq!(device.memory().unwrap(), (total - (1 << 20), total));
    let e = device.alloc(0, total, c::USAGE_ANY).unwrap_err();
    let call = e.call().unwrap();
    assert!(e.is_oom() && (call.bytes_requested, call.bytes_available) == (total, total - (1 << 20)), "{e}");
    drop(buffer);
    assert_eq!(device.memory().unwrap(), (total, total));
}

/// What `plugins/examples/c-host` prints for a plugin; `None` where there is no C compiler.
fn c_host(plugin: &std::path::Path) -> Option<(bool, String)> {
    let dir = TempDir::new().unwrap();
    let program = dir.path().join("c-host");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1"]);
    cc.arg("-I").arg(root().join("abi/include")).arg(root().join("plugins/examples/c-host/host.c"));
    let Ok(out) = cc.arg("-o").arg(&program).arg("-ldl").output() else {
        println!("skipped: cc does not start");
        return None;
    };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let out = Command::new(&program).arg(plugin).output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    Some((out.status.success(), String::from_utf8(text).unwrap()))
}

#[test]
fn the_c_host_computes_on_the_cpu_and_on_the_c_plugin() {
    let Some(c) = llmrt_tests::compile::c_example(env!("CARGO_TARGET_TMPDIR")) else { return };
    let cpu = llmrt_tests::build::plugin("cpu");
    for (plugin, name) in [(c, "c"), (cpu.as_path(), "cpu")] {
        let Some((is_ok, text)) = c_host(plugin) else { return };
        assert!(is_ok && text.starts_with("manifest:\nabi=0\n"), "{text}");
        assert!(text.contains(&format!("\nname={name}\n")), "{text}");
        assert!(
            text.contains(&format!("\nplugin: {name} ")) && text.ends_with("\nadd: 11 22 33 44\n"),
            "{text}"
        );
    }
    let (is_ok, text) = c_host(&root().join("Cargo.toml")).unwrap();
    assert!(!is_ok && text.contains("is no plugin"), "{text}");
    let (is_ok, text) = c_host(&llmrt_tests::build::plugin("null")).unwrap();
    assert!(is_ok && text.ends_with("add is refused, reason 1\n"), "{text}");
}
