//! Quantised weights on simulated cards: what `seal` stores, what comes back, and products with it. Nothing here shows
//! what a real card does.

mod common;
#[path = "common/placed.rs"]
mod placed;

use common::Machine;
use llmrt_abi::DType;
use llmrt_abi::types::TENSOR_WEIGHT;
use llmrt_graph::Role;
use llmrt_graph::ops::case::Case;
use llmrt_host::TensorDesc;
use placed::run;

/// The layouts that there are to choose from.
const OTHERS: [(&str, &str); 2] = [("cann.nz", "1"), ("cann.columns", "1")];

/// Whole and in part, at an offset, with nothing written outside of what `alloc_size` returned.
#[test]
fn sealed_weights_come_back_as_they_were() {
    for (options, layouts) in [(&[][..], [0, 1, 2, 2, 3, 3]), (&OTHERS[..], [4, 5, 6, 6, 3, 3])] {
        let m = Machine::with_options("9.1", "queue=now", options);
        m.card(0).open().unwrap();
        let dtypes = [DType::F16, DType::Q4_0, DType::Q8_0, DType::Q5_0, DType::Q4_1, DType::Q6_K];
        for (dtype, layout) in dtypes.into_iter().zip(layouts) {
            come_back(&m, dtype, Role::Matrix, [256, 96, 1, 1], layout);
        }
        come_back(&m, DType::Q4_0, Role::Experts, [64, 3, 5, 1], 7);
        // Rows of these are looked up, and these have no whole blocks.
        come_back(&m, DType::F16, Role::Embedding, [256, 96, 1, 1], 0);
        come_back(&m, DType::Q4_0, Role::Embedding, [256, 96, 1, 1], 1);
        come_back(&m, DType::F16, Role::Matrix, [256, 3, 1, 1], 0);
        come_back(&m, DType::F16, Role::Matrix, [24, 32, 1, 1], 0);
        come_back(&m, DType::F16, Role::Matrix, [32, 16, 2, 1], 0);
        come_back(&m, DType::Q8_0, Role::Matrix, [256, 3, 1, 1], 2);
        assert_eq!(m.reports(), [""; 0]);
    }
}

fn come_back(m: &Machine, dtype: DType, role: Role, ne: [u64; 4], expected: u32) {
    let card = m.card(0);
    let name = format!("{dtype} {role:?} {ne:?}");
    let plain = TensorDesc::contiguous(dtype, ne);
    let mut t = TensorDesc { role: role as u32, flags: TENSOR_WEIGHT, offset: 512, ..plain };
    let room = card.alloc_size(0, &t).unwrap();
    let buffer = card.alloc(0, 512 + room + 512, 0).unwrap();
    buffer.fill(0, buffer.size(), 0x5a).unwrap();
    let bytes: Vec<u8> = (0..t.nbytes().unwrap()).map(|i| (i * 37 + i / 11) as u8).collect();
    buffer.set(&t, &bytes, 0).unwrap();
    let layout = buffer.seal(&t).unwrap();
    assert_eq!(layout.id, expected, "{name}");
    assert!(room >= layout.stored_bytes + 32, "{name}: units read past the end");
    t.layout_id = layout.id;
    let mut back = vec![0; bytes.len()];
    buffer.get(&t, &mut back, 0).unwrap();
    assert!(back == bytes, "{name}");
    buffer.get(&t, &mut back[..10], 21).unwrap();
    assert_eq!(back[..10], bytes[21..31], "{name}");
    let mut all = vec![0; buffer.size() as usize];
    buffer.read(0, &mut all).unwrap();
    assert!(all[..512].iter().chain(&all[(512 + room) as usize..]).all(|b| *b == 0x5a), "{name}");
    assert_eq!(all[512..][..bytes.len()] != bytes[..], expected != 0, "{name}: stored another way");
}

/// One group per row, several, and more rows than the operator takes.
#[test]
fn products_of_sealed_weights_are_right() {
    for (dtype, [k, m, n]) in [DType::Q4_0, DType::Q8_0]
        .iter()
        .flat_map(|dtype| [[32, 5, 3], [128, 7, 2], [64, 65_600, 1]].map(|dims| (*dtype, dims)))
    {
        check(1e-4, dtype, [k, m, n]);
    }
}

/// A product of F32 keeps F32's precision: F16 would be a thousand times farther off.
#[test]
fn f32_products_stay_f32() {
    check(1e-10, DType::F32, [96, 7, 3]);
}

fn check(nmse: f64, dtype: DType, [k, m, n]: [u64; 3]) {
    let machine = Machine::new("queue=now,memory=1g");
    let card = machine.card(0);
    let stream = card.stream(1).unwrap();
    let case = Case::new(format!("{dtype} [{k}, {m}] times {n} rows"), |g, _| {
        let w = g.weight("w", dtype, &[k, m], Role::Matrix);
        let x = g.input("x", DType::F32, &[k, n]);
        g.mul_mat(w, x);
    });
    let error = run(&card, &stream, &case).unwrap().expect("the card takes it");
    assert!(error <= nmse, "{}: NMSE {error:e}", case.name);
    assert_eq!(machine.reports(), [""; 0]);
}

/// Products with each layout, one column and several, of several releases; where an operator refuses, another way computes it.
#[test]
fn products_are_right_with_each_layout() {
    for (release, config) in [
        ("9.1", ""),
        ("9.1", "broken=large,"),
        ("9.1", "refuse=aclnnWeightQuantBatchMatmulV2:561002,"),
        ("8.5", "release=8.5,"),
        ("8.1", "release=8.1,"),
        ("9.1", "soc=Ascend310P3,"),
    ] {
        let config = format!("queue=now,memory=1g,{config}");
        let m = Machine::with_options(release, &config, &OTHERS);
        for dtype in [DType::F16, DType::Q4_0, DType::Q8_0] {
            for [k, rows, n] in [[512, 96, 1], [64, 32, 5], [32, 64, 2]] {
                product(&m, 1e-4, dtype, [k, rows, n]);
            }
        }
        assert_eq!(m.reports(), [""; 0], "{config}");
    }
}

/// How often products ran with a layout: the simulator takes another time for each.
#[test]
fn products_take_the_layout_that_was_sealed() {
    let m = Machine::with_options("9.1", "queue=now,memory=1g", &OTHERS);
    m.card(0).open().unwrap();
    let kinds = ["layout.nz", "layout.nd", "layout.columns", "layout.rows"];
    for (dtype, expected) in
        [(DType::F16, [1, 0, 0, 0]), (DType::Q4_0, [0, 0, 1, 0]), (DType::Q8_0, [0, 0, 1, 0])]
    {
        let before = kinds.map(|kind| m.count(kind));
        product(&m, 1e-4, dtype, [128, 96, 3]);
        let after = kinds.map(|kind| m.count(kind));
        assert_eq!(std::array::from_fn::<_, 4, _>(|i| after[i] - before[i]), expected, "{dtype}");
    }
}

/// Numbers beyond F16 are as good with NZ weights as without: before 9.1, and on a 310P, such products round to F16.
#[test]
fn layouts_whose_results_are_rounded_are_not_taken() {
    let case = Case::new("results beyond F16", |g, _| {
        let w = g.weight("w", DType::F16, &[256, 64], Role::Matrix);
        let x = g.input("x", DType::F32, &[256, 3]);
        let x = g.scale(x, 20_000.0);
        g.mul_mat(w, x);
    });
    for (release, config, blocks) in [
        ("9.1", "", true),
        ("9.1", "broken=nz-out,", false),
        ("9.1", "broken=nz-turned,", false),
        ("9.0", "release=9.0,", false),
        ("8.5", "release=8.5,", false),
        ("9.1", "soc=Ascend310P3,", false),
        ("9.1", "soc=Ascend910A,", false),
    ] {
        let m = Machine::with_options(release, &format!("queue=now,memory=1g,{config}"), &[("cann.nz", "1")]);
        let card = m.card(0);
        card.open().unwrap();
        let warned = m.log.lock().iter().any(|line| line.starts_with("cann.nz=1 has no effect"));
        assert_eq!(warned, !blocks, "{release} {config}: {:?}", m.log.lock());
        let (stream, before) = (card.stream(1).unwrap(), m.count("layout.nz"));
        let error = run(&card, &stream, &case).unwrap().unwrap();
        assert!(error <= 1e-6, "{release} {config}: {error:e}");
        assert_eq!(m.count("layout.nz") > before, blocks, "{release} {config}");
    }
}

/// The scales of Q4_0 experts are stored as the operator takes them, and zeros for its offsets are filled once per graph.
#[test]
fn experts_need_no_copy_of_scales() {
    let m = Machine::new("queue=now,memory=1g");
    let (card, stream) = (m.card(0), m.card(0).stream(1).unwrap());
    let count = |dtype| {
        let case = Case::new("two products with experts", |g, ints| {
            let w = ["up", "gate"].map(|name| g.weight(name, dtype, &[64, 32, 8], Role::Experts));
            let x = g.input("x", DType::F32, &[64, 1, 2]);
            let ids = g.input("ids", DType::I32, &[2, 2]);
            ints.push((ids, vec![7, 0, 3, 1]));
            let [up, gate] = w.map(|w| g.mul_mat_id(w, x, ids));
            g.add(up, gate);
        });
        let names = ["aclnnInplaceFillScalar", "aclnnInplaceCopy", "aclnnGroupedMatmulV4"];
        let before = names.map(|name| m.count(name));
        let error = run(&card, &stream, &case).unwrap().unwrap();
        assert!(error <= 1e-4, "{dtype}: {error:e}");
        let after = names.map(|name| m.count(name));
        std::array::from_fn::<_, 3, _>(|i| after[i] - before[i])
    };
    let (plain, quantised) = (count(DType::F16), count(DType::Q4_0));
    assert_eq!(quantised, [plain[0] + 1, plain[1], 2], "F16: {plain:?}");
}

fn product(m: &Machine, nmse: f64, dtype: DType, [k, rows, n]: [u64; 3]) {
    let card = m.card(0);
    let stream = card.stream(1).unwrap();
    let case = Case::new(format!("{dtype} [{k}, {rows}] times {n} rows"), |g, _| {
        let w = g.weight("w", dtype, &[k, rows], Role::Matrix);
        let x = g.input("x", DType::F32, &[k, n]);
        g.mul_mat(w, x);
    });
    let error = run(&card, &stream, &case).unwrap().expect("the card takes it");
    assert!(error <= nmse, "{}: NMSE {error:e}", case.name);
}

/// What was measured is chosen, and remembered: the simulator's products with one of the layouts take longer, or are wrong.
#[test]
fn the_fastest_right_layout_is_taken_and_remembered() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("cache/layouts");
    let start = |config: &str, more: &[(&str, &str)]| {
        let name = file.display().to_string();
        let options = [("cann.tune", "128x64x1+64x32x4"), ("cann.tune_file", name.as_str())];
        let m = Machine::with_options(
            "9.1",
            &format!("queue=now,memory=1g,{config}"),
            &[&options, more].concat(),
        );
        m.card(0).open().unwrap();
        assert_eq!(m.reports(), [""; 0], "{config}");
        let line =
            |lines: &[String]| lines.iter().find(|line| line.starts_with("layouts of weights on")).cloned();
        let line = line(&m.log.lock()).unwrap();
        let (before, kinds) = (m.count("layout.nz"), [DType::F16, DType::Q4_0]);
        let columns = m.count("layout.columns");
        kinds.iter().for_each(|dtype| product(&m, 1e-4, *dtype, [128, 96, 3]));
        (m.count("layout.nz") > before, m.count("layout.columns") > columns, line)
    };
    for (config, expected) in [
        ("slower=nz:3000", (false, None)),
        ("slower=nd:3000", (true, None)),
        ("slower=columns:3000", (true, Some(false))),
        ("slower=rows:3000", (true, Some(true))),
        // Faster for values of 4 bits (29), and not for those of 8 (2): one choice is for both.
        ("slower=rows@29+columns@2:3000", (true, Some(false))),
        ("slower=rows@2+columns@29:3000", (true, Some(false))),
        ("slower=nd:3000,broken=nz-right", (false, None)),
        ("slower=nd:3000,broken=nz-out", (false, None)),
        ("slower=nd:3000,broken=nz-turned", (false, None)),
        ("slower=rows:3000,broken=columns-right", (true, Some(false))),
        ("slower=rows:3000,broken=columns", (true, Some(false))),
    ] {
        let _ = std::fs::remove_file(&file);
        let (nz, columns, line) = start(config, &[]);
        assert!(line.contains("measured"), "{line}");
        if config.contains("nz") || config.contains("nd") {
            assert_eq!(nz, expected.0, "{config}: {line}");
        }
        if let Some(expected) = expected.1 {
            assert_eq!(columns, expected, "{config}: {line}");
        }
    }
    // Remembered, whatever is slower now; not for another chip; measured again where the file is damaged.
    let _ = std::fs::remove_file(&file);
    let measured = start("slower=nd:3000", &[]);
    let again = start("slower=nz:3000", &[]);
    assert!(measured.0 && again.0 && again.2.contains("has it"), "{}", again.2);
    assert!(start("slower=nd:3000,soc=Ascend910B1", &[]).2.contains("measured"));
    assert!(start("slower=nz:3000", &[]).2.contains("has it"));
    std::fs::write(&file, "of another program").unwrap();
    let afresh = start("slower=nz:3000", &[]);
    assert!(!afresh.0 && afresh.2.contains("measured"), "{}", afresh.2);
    // An option goes before what was measured, unless it is wrong.
    assert!(start("slower=nz:3000", &[("cann.nz", "1")]).0);
    assert!(!start("broken=nz-right", &[("cann.nz", "1")]).0);
}

/// Whichever allocation fails, what was launched before has ended when its memory goes.
#[test]
fn a_measurement_that_fails_leaves_no_work() {
    let dir = tempfile::TempDir::new().unwrap();
    let mut n_failed = 0;
    for n in 1..60 {
        let name = dir.path().join(n.to_string()).display().to_string();
        let options = [("cann.tune", "64x32x1"), ("cann.tune_file", name.as_str())];
        let config = format!("queue=sync,memory=1g,grow=1,broken=repeats,oom={n}");
        let m = Machine::with_options("9.1", &config, &options);
        let _ = m.card(0).open();
        let lines = m.log.lock();
        let text = lines.iter().find(|line| line.contains("measured: ")).cloned().unwrap_or_default();
        n_failed += usize::from(text.contains("memory ran out"));
        // A trial that ends before its work makes the trials after it fail.
        let n_timed = text.matches("µs").count() + text.matches("ms").count();
        assert!(text.is_empty() || n_timed >= 5, "allocation {n}: {text}");
        assert_eq!(m.reports(), [""; 0], "allocation {n}");
    }
    assert!(n_failed > 10, "{n_failed}");
}

/// A folder that cannot be written is a line of the log.
#[test]
fn what_cannot_be_remembered_is_measured_at_each_start() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("a file");
    std::fs::write(&file, "").unwrap();
    let name = file.join("layouts").display().to_string();
    let options = [("cann.tune", "64x32x1"), ("cann.tune_file", name.as_str())];
    let m = Machine::with_options("9.1", "queue=now", &options);
    m.card(0).open().unwrap();
    assert!(m.log.lock().iter().any(|line| line.contains("cannot be written")), "{:?}", m.log.lock());
}
