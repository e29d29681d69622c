//! The plugin on simulated cards: what a host sees of them, and ops in every mode of the streams. Nothing here shows
//! what a real card does.

mod common;

use common::{Machine, bind};
use llmrt_abi::Op;
use llmrt_graph::ops::rules;
use llmrt_host::{DeviceState, Host, HostOptions, Outcome, TensorDesc};
use std::sync::Arc;

const MODES: [&str; 3] = ["now", "delay", "sync"];

#[test]
fn cards_are_found_named_and_open() {
    let m = Machine::new("devices=2,memory=1g");
    let cards = m.host().devices();
    assert_eq!(cards.len(), 2, "{:?}", m.log.lock());
    for card in &cards {
        assert_eq!(card.info().arch, "Ascend910B3");
        let (free, total) = card.memory().unwrap();
        assert!(free <= total && total == 1 << 30);
        assert_eq!(card.state(), DeviceState::Open);
    }
    assert_eq!(m.reports(), [""; 0]);
}

#[test]
fn the_shared_library_is_let_in() {
    let m = Machine::new("");
    let tests = std::env::current_exe().unwrap();
    let file = tests.with_file_name("libllmrt_cann.so");
    let options = [("cann.lib_dir".to_string(), common::libraries("9.1").display().to_string())];
    let host = Host::new(HostOptions { options: options.into(), ..HostOptions::default() });
    let found = host.load(file).outcome;
    assert!(matches!(found, Outcome::Loaded { n_devices: 1, .. }), "{found:?}");
    host.device("cann").unwrap().open().unwrap();
    drop((host, m));
}

#[test]
fn libraries_of_all_releases_are_opened_and_stubs_are_not() {
    for release in ["8.0", "8.1", "8.5", "9.0", "9.1"] {
        let m = Machine::with(release, &format!("release={release}"));
        m.card(0).open().unwrap();
    }
    let m = Machine::with("stub", "");
    assert_eq!(m.host().devices().len(), 0);
    let log = m.log.lock().join("\n");
    assert!(log.contains("100039, a stub library"), "{log}");
}

#[test]
fn bytes_come_back_as_they_were_written() {
    for queue in MODES {
        let m = Machine::new(&format!("queue={queue}"));
        let card = m.card(0);
        let buffer = card.alloc(0, 4096, 0).unwrap();
        let stream = card.stream(1).unwrap();
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        let t = TensorDesc::bytes(64, 1000);
        stream.set_async(&buffer, &t, Arc::from(&bytes[..]), 0).unwrap();
        let read = stream.get_async(&buffer, &t, 10, 100).unwrap();
        assert_eq!(stream.take(read).unwrap(), bytes[10..110], "{queue}");
        buffer.fill(64, 3, 9).unwrap();
        let mut head = [0; 4];
        buffer.get(&t, &mut head, 0).unwrap();
        assert_eq!(head, [9, 9, 9, bytes[3]]);
    }
}

#[test]
fn bytes_go_from_card_to_card_after_what_made_them() {
    // Cards that reach each other, a driver that does not let them, and a chip that is kept from it.
    for config in ["", "peers=0", "soc=Ascend310P3"] {
        for queue in MODES {
            let m = Machine::new(&format!("devices=2,queue={queue},{config}"));
            let cards = [m.card(0), m.card(1)];
            let [from, to] = cards.each_ref().map(|card| card.alloc(0, 4096, 0).unwrap());
            let [a, b] = cards.each_ref().map(|card| card.stream(1).unwrap());
            let (t, bytes) = (TensorDesc::bytes(512, 300), (0..300).map(|i| i as u8).collect::<Vec<_>>());
            a.set_async(&from, &t, Arc::from(&bytes[..]), 0).unwrap();
            b.copy_async(&a, (&to, &t), (&from, &t)).unwrap();
            let read = b.get_async(&to, &t, 0, 300).unwrap();
            assert_eq!(b.take(read).unwrap(), bytes, "{config} {queue}");
            b.copy_async(&a, (&to, &t), (&from, &t)).unwrap();
            b.synchronize().unwrap();
            // Access is one-way: each card opens its own, once.
            let opened = if config.is_empty() { 2 } else { 0 };
            assert_eq!(m.count("aclrtDeviceEnablePeerAccess"), opened, "{config} {queue}");
            assert_eq!(m.reports(), [""; 0], "{config} {queue}");
        }
    }
}

/// Closing a card and connecting it end, whichever comes first.
#[test]
fn a_card_may_close_while_it_is_connected() {
    let _m = Machine::new("devices=2,queue=now");
    let runtime = llmrt_cann::runtime::Runtime::open(Some(common::libraries("9.1"))).unwrap();
    let (done, ended) = std::sync::mpsc::channel();
    let closing = {
        let (runtime, done) = (runtime.clone(), done.clone());
        move || {
            (0..20_000).for_each(|_| runtime.open_card(1).map(|()| runtime.close_card(1)).unwrap());
            done.send(()).unwrap();
        }
    };
    let connecting = move || {
        runtime.open_card(0).unwrap();
        // An error where card 1 is not open.
        (0..20_000).for_each(|_| _ = runtime.connect(0, 1));
        runtime.close_card(0);
        done.send(()).unwrap();
    };
    std::thread::spawn(closing);
    std::thread::spawn(connecting);
    for _ in 0..2 {
        ended.recv_timeout(std::time::Duration::from_secs(60)).expect("neither waits for the other");
    }
}

/// Whatever a driver answers, bytes go through the host instead.
#[test]
fn cards_that_do_not_open_access_copy_through_the_host() {
    let m = Machine::new("devices=2,queue=now,peers=one-way");
    let cards = [m.card(0), m.card(1)];
    let [a, b] = cards.each_ref().map(|card| (card.alloc(0, 64, 0).unwrap(), card.stream(1).unwrap()));
    let t = TensorDesc::bytes(0, 4);
    a.0.write(0, &[1, 2, 3, 4]).unwrap();
    for _ in 0..3 {
        b.1.copy_async(&a.1, (&b.0, &t), (&a.0, &t)).unwrap();
        let read = b.1.get_async(&b.0, &t, 0, 4).unwrap();
        assert_eq!(b.1.take(read).unwrap(), [1, 2, 3, 4]);
    }
    assert!(m.count("aclrtDeviceEnablePeerAccess") <= 2, "a direction is tried once");
    assert_eq!(m.reports(), [""; 0]);
}

#[test]
fn every_call_may_come_from_a_thread_that_has_set_no_card() {
    /// Runs on a new thread, with another card set by then on this one.
    fn elsewhere<T: Send>(f: impl FnOnce() -> llmrt_host::Result<T> + Send) -> T {
        std::thread::scope(|s| s.spawn(f).join().unwrap()).unwrap()
    }
    let m = Machine::new("devices=2,queue=sync");
    let card = elsewhere(|| Ok(m.card(1)));
    elsewhere(|| card.open());
    elsewhere(|| card.memory());
    let buffer = elsewhere(|| card.alloc(0, 4096, 0));
    let stream = elsewhere(|| card.stream(1));
    let event = elsewhere(|| card.event());
    let t = TensorDesc::bytes(0, 4);
    elsewhere(|| stream.set_async(&buffer, &t, Arc::from(&[1u8, 2, 3, 4][..]), 0));
    elsewhere(|| stream.record(&event));
    elsewhere(|| stream.wait(&event));
    let read = elsewhere(|| stream.get_async(&buffer, &t, 0, 4));
    elsewhere(|| stream.synchronize());
    elsewhere(|| event.wait(std::time::Duration::from_secs(1)));
    assert_eq!(elsewhere(|| stream.take(read)), [1, 2, 3, 4]);
    elsewhere(|| buffer.fill(0, 4, 7));
    elsewhere(|| buffer.write(0, &[5]));
    elsewhere(|| buffer.read(0, &mut [0]));
    let free = || elsewhere(|| card.memory()).0;
    let with_buffer = free();
    std::thread::scope(|s| s.spawn(|| drop(stream)).join().unwrap());
    std::thread::scope(|s| s.spawn(|| drop(event)).join().unwrap());
    std::thread::scope(|s| s.spawn(|| drop(buffer)).join().unwrap());
    assert!(free() > with_buffer, "the memory is back");
    assert_eq!(m.reports(), [""; 0]);
}

#[test]
fn memory_that_is_not_there_is_an_error_with_bytes() {
    let m = Machine::new("memory=64m");
    let card = m.card(0);
    let e = card.alloc(0, 100 << 20, 0).err().unwrap();
    assert!(e.is_oom(), "{e}");
    assert!(e.to_string().contains("device memory ran out"), "{e}");
    card.alloc(0, 32 << 20, 0).unwrap();
}

#[test]
fn many_threads_write_to_a_card_at_once() {
    let m = Machine::new("queue=delay");
    let card = m.card(0);
    let buffer = card.alloc(0, 64 * 1024, 0).unwrap();
    std::thread::scope(|s| {
        for i in 0..8u8 {
            let buffer = &buffer;
            s.spawn(move || buffer.write(u64::from(i) * 8192, &[i; 8192]).unwrap());
        }
    });
    let mut all = vec![0; 64 * 1024];
    buffer.read(0, &mut all).unwrap();
    assert!(all.chunks(8192).enumerate().all(|(i, part)| part.iter().all(|byte| *byte == i as u8)));
}

#[test]
fn a_graph_run_again_allocates_nothing_and_leaves_nothing() {
    let m = Machine::new("");
    let card = m.card(0);
    let stream = card.stream(1).unwrap();
    // An op that takes tensors and a number.
    let case = rules(Op::Add).cases().into_iter().next().unwrap();
    let bound = bind(&card, &case.graph, &case.values(7).unwrap()).unwrap();
    let run = || {
        stream.compute(&bound.raw).unwrap();
        stream.synchronize().unwrap();
        (m.count("malloc"), m.count("left"))
    };
    let first = run();
    assert_eq!(first.1, 0, "tensors, scalars and plans are gone");
    assert_eq!(run(), first);
}

/// The host warns of an option that nothing has read before a card is opened.
#[test]
fn options_are_read_when_the_plugin_starts() {
    let options =
        ["probe", "hccl", "graphs", "nz", "columns", "tune"].map(|key| (format!("cann.{key}"), "0"));
    let options: Vec<(&str, &str)> = options.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    let m = Machine::with_options("9.1", "", &options);
    let about_options = |line: &String| line.contains("cann.");
    assert!(!m.host().warnings(&[]).iter().any(about_options), "{:?}", m.host().warnings(&[]));
}

/// Lines of the probes, those of copies between cards among them, of card 0 on a machine.
fn probes(release: &'static str, config: &str) -> Vec<String> {
    let m = Machine::with_options(release, config, &[("cann.probe", "all")]);
    let _ = m.card(0).open();
    assert_eq!(m.reports(), [""; 0], "{config}");
    lines_of(&m, "card 0: ")
}

/// Lines of the log that begin with this, without it.
fn lines_of(m: &Machine, prefix: &str) -> Vec<String> {
    m.log.lock().iter().filter_map(|line| line.strip_prefix(prefix).map(str::to_string)).collect()
}

/// What a line is about, without the names of functions.
fn subject(line: &str) -> &str {
    line.split([':', '(']).next().unwrap().trim_end()
}

/// `llmrt doctor --backend cann` tries what the simulator assumes: its own rules hold there, on every pair of release and chip.
#[test]
fn probes_find_the_simulator_as_simulated() {
    for (soc, n) in [
        ("Ascend910B3", 26),
        ("Ascend910_9391", 26),
        ("Ascend910A", 13),
        ("Ascend310P3", 15),
        ("Ascend310B1", 11),
    ] {
        for release in ["8.0", "8.1", "8.5", "9.0", "9.1"] {
            let lines = probes(release, &format!("release={release},soc={soc}"));
            let differ: Vec<_> = lines.iter().filter(|line| line.contains(": differs: ")).collect();
            assert_eq!(differ, [""; 0], "{soc} {release}");
            let n_found = lines.iter().filter(|line| line.contains(": as simulated (")).count();
            // Captures are newer than 8.0, and an operator that only some chips have is not in 8.0 and 8.1.
            assert!(n_found.abs_diff(n) <= 1, "{soc} {release}: {n_found}\n{lines:#?}");
            for what in [
                "chip Ascend",
                "release ",
                "libraries libascendcl.so",
                "driver ",
                "firmware ",
                "ASCEND_OPP_PATH",
            ] {
                assert!(lines.iter().any(|line| line.starts_with(what)), "{soc} {release}: {what}");
            }
        }
    }
    let peers = probes("9.1", "devices=2");
    assert_eq!(
        peers.iter().filter(|line| line.contains("cards") || line.contains("one way")).count(),
        2,
        "{peers:#?}"
    );
    assert!(!peers.iter().any(|line| line.contains(": differs: ")), "{peers:#?}");
}

/// A machine that breaks one rule: the probes of that rule differ, and no others.
#[test]
fn probes_find_each_rule_that_a_machine_breaks() {
    const A910: &str = "soc=Ascend910A,";
    for (config, expected) in [
        (
            "vmm=no-flags",
            &["huge pages at addresses without a size of pages", "huge pages at addresses for them"][..],
        ),
        ("repeatable=0", &["an operator with a list of numbers"]),
        ("broken=cache", &["an operator planned after a launch"]),
        ("broken=in-place", &["rows written in place", "rows scattered in place"]),
        ("broken=sort-one", &["a sort of one number"]),
        ("broken=sort-f32", &["a sort of F32 numbers", "the largest of F32 numbers"]),
        ("soc=Ascend910A,broken=sort-f32", &["a sort of F32 numbers", "the largest of F32 numbers"]),
        ("broken=use-fp16", &["F32 rows that a product rounds to F16"]),
        ("soc=Ascend310P3,broken=use-fp16", &["F32 rows that a product rounds to F16"]),
        ("broken=f16-out", &["F16 rows, F32 result"]),
        ("broken=bf16-out", &["BF16 rows and weights, F32 result"]),
        (
            "broken=batch-out",
            &["F16 rows, several matrices, F32 result", "BF16 rows, several matrices, F32 result"],
        ),
        ("broken=nz-out", &["F16 rows, FRACTAL_NZ weights, F32 result"]),
        ("broken=nz-turned", &["FRACTAL_NZ weights, transposed"]),
        ("broken=nz-right", &["F16 rows, FRACTAL_NZ weights, F32 result", "FRACTAL_NZ weights, transposed"]),
        (
            "broken=columns",
            &["weights of 4 bits in groups, by columns", "weights of 8 bits in groups, by columns"],
        ),
        (
            "broken=columns-right",
            &["weights of 4 bits in groups, by columns", "weights of 8 bits in groups, by columns"],
        ),
        (
            "broken=groups",
            &[
                "weights of 4 bits in groups, by rows",
                "weights of 4 bits in groups, by columns",
                "weights of 8 bits in groups, by rows",
                "weights of 8 bits in groups, by columns",
            ],
        ),
        ("broken=offsets", &["scales of experts without offsets"]),
        ("refuse=aclnnGroupedMatmulV4:561002", &["scales of experts with offsets"]),
        ("broken=pageable-capture", &["a copy of pageable memory in a capture"]),
        ("devices=2,broken=peers", &["a copy from a card to which access is open one way"]),
        ("devices=2,peers=one-way", &["access to card 1 both ways"]),
        ("devices=2,peers=0", &["access to card 1 one way", "access to card 1 both ways"]),
        ("refuse=aclnnMatmul@27:161002", &["BF16 rows, several matrices, F32 result"]),
        ("refuse=aclnnMm@27:161002", &["BF16 rows and weights, F32 result"]),
    ] {
        let lines = probes("9.1", config);
        let differ: Vec<&str> =
            lines.iter().filter(|line| line.contains(": differs: ")).map(|line| subject(line)).collect();
        assert_eq!(differ, expected, "{config}: {lines:#?}");
    }
    // Nothing may be repeated: all that is expected to be differs, the operators of a step by their names.
    for soc in ["", A910] {
        let lines = probes("9.1", &format!("{soc}broken=repeats"));
        let step = lines.iter().find(|line| line.starts_with("operators of a step")).unwrap();
        assert!(step.contains("not repeatable: aclnnAdd, aclnnMul, ") && step.contains("aclnnMm"), "{step}");
        let n = lines.iter().filter(|line| line.contains(": differs: not repeatable")).count();
        assert!(n >= 4, "{lines:#?}");
    }
}

/// Copies between cards may leave a card of no use, so they are tried on request only.
#[test]
fn copies_between_cards_are_tried_on_request() {
    for (option, n) in [("1", 0), ("all", 2)] {
        let m = Machine::with_options("9.1", "devices=2", &[("cann.probe", option)]);
        m.card(0).open().unwrap();
        m.card(1).open().unwrap();
        let about_copies = |line: &&String| line.contains("to which access") || line.contains("both opened");
        assert_eq!(lines_of(&m, "card ").iter().filter(about_copies).count(), n, "cann.probe={option}");
    }
}

/// The machine is reported by the card that is opened first, whichever that is, and by no other.
#[test]
fn the_first_card_that_is_opened_reports_the_machine() {
    let m = Machine::with_options("9.1", "devices=3", &[("cann.probe", "all")]);
    m.card(1).open().unwrap();
    m.card(2).open().unwrap();
    let is_about_chip = |line: &String| line.starts_with("chip Ascend");
    let is_about_peers = |line: &String| line.starts_with("a copy between cards");
    let [first, second] = ["card 1: ", "card 2: "].map(|prefix| lines_of(&m, prefix));
    assert!(first.iter().any(is_about_chip) && first.iter().any(is_about_peers), "{first:#?}");
    assert!(!second.iter().any(is_about_chip) && !second.iter().any(is_about_peers), "{second:#?}");
}

/// A refusal is one by its code; any other error differs, and has its code and text in the line.
#[test]
fn an_error_that_is_no_refusal_differs_where_a_refusal_is_expected() {
    let what = "scales of experts without offsets";
    let line = |config: &str| probes("9.1", config).into_iter().find(|line| subject(line) == what).unwrap();
    let refused = line("");
    assert!(refused.contains(": as simulated (refused, 161002)"), "{refused}");
    let refused = line("refuse=aclnnGroupedMatmulV4:561003");
    assert!(refused.contains(": as simulated (refused, 561003)"), "{refused}");
    let failed = line("refuse=aclnnGroupedMatmulV4:561107");
    assert!(failed.contains(": differs: ") && failed.contains("561107"), "{failed}");
    let lines = Machine::with_options("9.1 without aclnnGroupedMatmulV4", "", &[("cann.probe", "1")]);
    let _ = lines.card(0).open();
    let missing = lines_of(&lines, "card 0: ").into_iter().find(|line| subject(line) == what).unwrap();
    assert!(missing.contains(": differs: aclnnGroupedMatmulV4 is not in this release"), "{missing}");
}

/// Every probe of a lost card would report the same fault.
#[test]
fn nothing_is_tried_after_a_fault_that_makes_the_card_unusable() {
    for n in [1, 3] {
        let lines = probes("9.1", &format!("devices=2,fault={n}"));
        let differ: Vec<_> = lines.iter().filter(|line| line.contains(": differs: ")).collect();
        assert!(differ.len() == 1 && differ[0].contains("507015"), "{lines:#?}");
        let last = lines.last().unwrap();
        let at = format!("later probes: not tried: the card faulted at \"{}", subject(differ[0]));
        assert!(last.starts_with(&at) && lines[lines.len() - 2] == *differ[0], "{lines:#?}");
    }
}
