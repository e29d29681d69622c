//! Cards that put results together through the simulated HCCL: numbers, what is refused, and what happens when a card fails.

mod common;

use common::Machine;
use llmrt_abi::DType;
use llmrt_gguf::TensorShape;
use llmrt_gguf::writer::{self, Tables};
use llmrt_graph::{Activation, Graph, Kind, Role, Tensor};
use llmrt_host::load::{self, LoadMode, LoadOptions, ModelFiles, WeightRequest};
use llmrt_host::sched::executor::{Executor, Program};
use llmrt_host::sched::report::Report;
use llmrt_host::sched::resolve::{PlacementState, Sharing, resolve};
use llmrt_host::sched::{Collectives, SplitMode};
use llmrt_host::{Buffer, Device, Group, Result, Stream, TensorDesc};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Streams of all cards, a group of them, and a buffer on each.
struct Cards {
    streams: Vec<Stream>,
    group: Group,
    buffers: Vec<Buffer>,
}

const N: usize = 96;

impl Cards {
    fn new(m: &Machine, n: usize) -> Result<Cards> {
        let cards: Vec<Arc<Device>> = (0..n).map(|i| m.card(i)).collect();
        let group = Group::new(&cards)?;
        let streams = cards.iter().map(|card| card.stream(1)).collect::<Result<_>>()?;
        let buffers = cards.iter().map(|card| card.alloc(0, 1 << 16, 0)).collect::<Result<_>>()?;
        Ok(Cards { streams, group, buffers })
    }

    fn streams(&self) -> Vec<&Stream> {
        self.streams.iter().collect()
    }

    /// Writes whole numbers of each card's own, `N` of them from `at` on.
    fn set(&self, at: u64) {
        for (rank, buffer) in self.buffers.iter().enumerate() {
            let numbers = (0..N).flat_map(|i| number(rank, i).to_ne_bytes()).collect::<Vec<u8>>();
            buffer.write(at, &numbers).unwrap();
        }
    }

    /// Numbers of a card after its stream's work.
    fn get(&self, rank: usize, at: u64, n: usize) -> Vec<f32> {
        self.streams[rank].synchronize().unwrap();
        let mut bytes = vec![0; 4 * n];
        self.buffers[rank].read(at, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    /// A tensor at an offset on every card.
    fn at(&self, offset: u64, ne: [u64; 4]) -> Vec<(&Buffer, TensorDesc<'static>)> {
        let desc = TensorDesc { offset, ..TensorDesc::contiguous(DType::F32, ne) };
        self.buffers.iter().map(|buffer| (buffer, desc)).collect()
    }

    fn all_reduce(&self) -> Result<()> {
        let shape = [N as u64, 1, 1, 1];
        self.group.all_reduce(&self.streams(), &self.at(0, shape), &self.at(8192, shape))
    }
}

fn number(rank: usize, i: usize) -> f32 {
    ((rank * 31 + i * 7) % 53) as f32 - 20.0
}

const QUEUES: [&str; 3] = ["queue=delay", "queue=now", "queue=sync"];

#[test]
fn sums_rows_and_copies_are_those_of_all_cards() {
    for (chip, n) in [("Ascend910B3", 2), ("Ascend910B3", 4), ("Ascend310P3", 2), ("Ascend910A", 2)] {
        for queue in QUEUES {
            let m = Machine::new(&format!("soc={chip},devices={n},memory=1g,peers=0,{queue}"));
            let cards = Cards::new(&m, n).unwrap();
            cards.set(0);
            cards.all_reduce().unwrap();
            let sums: Vec<f32> = (0..N).map(|i| (0..n).map(|rank| number(rank, i)).sum()).collect();

            // Rows of 32 numbers, of which each card has three.
            let (src, dst) = (cards.at(0, [32, 3, 1, 1]), cards.at(16384, [32 * n as u64, 3, 1, 1]));
            cards.group.all_gather(&cards.streams(), &src, &dst).unwrap();
            let rows: Vec<f32> = (0..3)
                .flat_map(|row| (0..n).flat_map(move |rank| (0..32).map(move |i| number(rank, row * 32 + i))))
                .collect();
            let one = cards.at(16384 + 8192, [N as u64 * n as u64, 1, 1, 1]);
            cards.group.all_gather(&cards.streams(), &cards.at(0, [N as u64, 1, 1, 1]), &one).unwrap();
            let row: Vec<f32> = (0..n).flat_map(|rank| (0..N).map(move |i| number(rank, i))).collect();
            for rank in 0..n {
                assert_eq!(cards.get(rank, 8192, N), sums, "{chip}, {queue}: sums of card {rank}");
                assert_eq!(cards.get(rank, 16384, N * n), rows, "{chip}, {queue}: rows of card {rank}");
                assert_eq!(
                    cards.get(rank, 16384 + 8192, N * n),
                    row,
                    "{chip}, {queue}: one row of card {rank}"
                );
            }
            let from = n - 1;
            cards.group.broadcast(&cards.streams(), from, &cards.at(0, [N as u64, 1, 1, 1])).unwrap();
            let expected: Vec<f32> = (0..N).map(|i| number(from, i)).collect();
            (0..n)
                .for_each(|rank| assert_eq!(cards.get(rank, 0, N), expected, "{chip}, {queue}: card {rank}"));
            drop(cards);
            assert_eq!(m.reports(), [""; 0], "{chip}, {queue}");
        }
    }
}

/// A sum is of what the streams have enqueued, and what they enqueue next reads it.
#[test]
fn collectives_are_in_the_order_of_the_streams() {
    for queue in QUEUES {
        let m = Machine::new(&format!("devices=2,memory=1g,slow=1:3000,{queue}"));
        let cards = Cards::new(&m, 2).unwrap();
        cards.set(0);
        let shape = [N as u64, 1, 1, 1];
        let step = |from: u64, to: u64| {
            cards.group.all_reduce(&cards.streams(), &cards.at(from, shape), &cards.at(to, shape)).unwrap();
        };
        step(0, 4096);
        step(4096, 8192);
        step(8192, 8192);
        let sum = |i| (0..2).map(|rank| number(rank, i)).sum::<f32>();
        let expected: Vec<f32> = (0..N).map(|i| 4.0 * sum(i)).collect();
        (0..2).for_each(|rank| assert_eq!(cards.get(rank, 8192, N), expected, "{queue}"));
    }
}

/// Four addends round differently in another order, and the simulated A2 takes any order unless it is set.
#[test]
fn sums_repeat_bit_for_bit() {
    let m = Machine::new("devices=4,memory=1g,queue=now,seed=3");
    let cards = Cards::new(&m, 4).unwrap();
    for (rank, buffer) in cards.buffers.iter().enumerate() {
        let numbers = (0..N).flat_map(|i| ((rank * 97 + i * 13 + 1) as f32).sin().exp().to_ne_bytes());
        buffer.write(0, &numbers.collect::<Vec<u8>>()).unwrap();
    }
    cards.all_reduce().unwrap();
    let first = cards.get(0, 8192, N);
    for _ in 0..8 {
        cards.all_reduce().unwrap();
        (0..4).for_each(|rank| assert_eq!(cards.get(rank, 8192, N), first));
    }
}

/// Nothing waits for a card whose call fails: neither the others' threads nor their streams.
#[test]
fn a_card_that_fails_is_an_error_and_not_a_hang() {
    for queue in QUEUES {
        for call in [1, 3] {
            let m = Machine::new(&format!("devices=2,memory=1g,hccl=fail@1:{call},{queue}"));
            let cards = Cards::new(&m, 2).unwrap();
            cards.set(0);
            let started = Instant::now();
            let failed = (0..call).map(|_| cards.all_reduce()).find_map(Result::err).expect("a call fails");
            let text = failed.to_string();
            assert!(text.contains("card 1") && text.contains("cann.hccl=0"), "{queue}, call {call}: {text}");
            assert!(cards.streams.iter().all(|stream| stream.broken().is_some()), "{queue}, call {call}");
            let again = cards.all_reduce().unwrap_err();
            drop(cards);
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{queue}, call {call}: {:?}",
                started.elapsed()
            );
            assert_eq!(m.reports(), [""; 0], "{queue}, call {call}: {again}");
        }
    }
}

/// A gated network between products of rows, as a model's layer has it; and its file.
fn network(dtype: DType) -> (Graph, Tensor, Tensor, ModelFiles) {
    const SHAPES: [(&str, [u64; 2]); 5] = [
        ("blk.0.attn_q.weight", [64, 128]),
        ("blk.0.ffn_up.weight", [128, 256]),
        ("blk.0.ffn_gate.weight", [128, 256]),
        ("blk.0.ffn_down.weight", [256, 64]),
        ("output.weight", [64, 256]),
    ];
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[64, 3]);
    let [q, up, gate, down, out] = SHAPES.map(|(name, ne)| g.weight(name, dtype, &ne, Role::Matrix));
    let h = g.mul_mat(q, x);
    let h = g.silu(h);
    let (up, gate) = (g.mul_mat(up, h), g.mul_mat(gate, h));
    let h = g.glu(Activation::Silu, gate, Some(up));
    let h = g.mul_mat(down, h);
    let h = g.add(h, x);
    let y = g.mul_mat(out, h);
    g.output(y, "y");
    let mut tables = Tables::default();
    tables.metadata.set("general.architecture", "test");
    tables.tensors = SHAPES.map(|(name, dims)| TensorShape::new(name, dtype, &dims).unwrap()).into();
    let data = SHAPES.map(|(_, [k, n])| -> Vec<u8> {
        let n = (k * n) as usize;
        let number = |i: usize| (i * 37 % 101) as f32 / 505.0 - 0.1;
        match dtype {
            DType::Q8_0 => {
                // A scale of 2⁻⁹ as F16, and 32 bytes.
                let block =
                    |b: usize| [0x00, 0x18].into_iter().chain((0..32).map(move |i| (b * 7 + i * 13) as u8));
                (0..n / 32).flat_map(block).collect()
            }
            _ => (0..n).flat_map(|i| number(i).to_le_bytes()).collect(),
        }
    });
    let file = writer::to_vec(&tables, &data.each_ref().map(Vec::as_slice)).unwrap();
    let files = ModelFiles::from_bytes("test", &file, &Default::default()).unwrap();
    (g.finish().unwrap(), x, y, files)
}

/// The network on `n` cards, one more being the device that would take what they refuse: results, and what was counted.
fn run(m: &Machine, n: usize, split: SplitMode, dtype: DType) -> Result<(Vec<f32>, Report)> {
    let devices: Vec<_> = (0..=n).map(|i| m.card(i)).collect();
    let (g, x, y, files) = network(dtype);
    let files = Arc::new(files);
    let sharing = Sharing { split, collectives: Collectives::of(&devices), ..Sharing::default() };
    let budget = vec![Some(32 << 20); n + 1];
    let known = PlacementState { budget, sharing: sharing.clone(), ..PlacementState::default() };
    let resolved = resolve(&g, &devices, &known)?;
    let mut requests = Vec::new();
    for (node, &row) in resolved.graph.nodes.iter().zip(&resolved.placement.node) {
        let owners = node.src.iter().flatten().map(|&t| resolved.graph.owner(t));
        let weights = owners.filter(|&t| resolved.graph.def(t).kind == Kind::Weight);
        requests.extend(weights.map(|t| WeightRequest::new(&resolved.graph, t, row, &devices[row])));
    }
    let load = LoadOptions { mode: LoadMode::Read, ..LoadOptions::default() };
    let weights = load::load(&files, &requests, load).unwrap();
    let mut executor = Executor::new(devices, files, weights, HashMap::new(), 1, (false, sharing))?;
    let input: Vec<u8> = (0..64 * 3).flat_map(|i| (i as f32 / 50.0).sin().to_ne_bytes()).collect();
    let (program, mut bytes) = (Program::new(g), Vec::new());
    for _ in 0..3 {
        executor.run(&program, &[(x, &input)])?;
        bytes = executor.output(&program, y)?.into_owned();
    }
    let numbers = bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
    Ok((numbers, executor.report(&program)?.clone()))
}

/// Rows give the bits of one card; the network's sums are of as many sums as there are cards, each of which has the products'
/// type: F16 with weights of few bits.
fn close(found: &[f32], expected: &[f32], dtype: DType) -> bool {
    let scale = expected.iter().fold(0f32, |a, b| a.max(b.abs()));
    let limit = if dtype == DType::F32 { 1e-5 } else { 2e-3 } * scale;
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= limit)
}

#[test]
fn matrices_shared_by_cards_give_the_numbers_of_one_card_without_a_copy_between_them() {
    for dtype in [DType::F32, DType::Q8_0] {
        for chip in ["Ascend910B3", "Ascend310P3"] {
            let expected = {
                let m = Machine::new(&format!("soc={chip},devices=2,memory=1g"));
                run(&m, 1, SplitMode::Layers, dtype).unwrap().0
            };
            for (n, queue) in [(2, "delay"), (2, "sync"), (2, "now"), (4, "delay")] {
                let m =
                    Machine::new(&format!("soc={chip},devices={},memory=1g,peers=0,queue={queue}", n + 1));
                let (found, report) = run(&m, n, SplitMode::Rows, dtype).unwrap();
                let what = format!("{dtype} on {n} × {chip}, {queue}\n{report}");
                assert!(
                    close(&found, &expected, dtype),
                    "{what}: {:?}, expected {:?}",
                    &found[..4],
                    &expected[..4]
                );
                assert_eq!((report.n_copies, m.count("d2d")), (0, 0), "{what}");
                let n_of = report.collectives.map(|(n, _)| n);
                assert_eq!(n_of, [1, 2, 2], "a sum, rows of two matrices, and what the parts read: {what}");
                assert_eq!(report.by_copies, None);
                assert_eq!(m.reports(), [""; 0], "{what}");
            }
        }
    }
}

/// As before the collectives: copies, with the reason in the log and in the report.
#[test]
fn without_collectives_copies_put_parts_together() {
    let check = |release, config: &str, options: &[(&str, &str)], n: usize, reason: &str| {
        let expected = {
            let m = Machine::with_options(release, &format!("devices=2,memory=1g,{config}"), options);
            run(&m, 1, SplitMode::Layers, DType::F32).unwrap().0
        };
        let m = Machine::with_options(release, &format!("devices={},memory=1g,{config}", n + 1), options);
        let (found, report) = run(&m, n, SplitMode::Rows, DType::F32).unwrap();
        assert_eq!(found, expected, "{reason}: the same bits as on one card");
        assert!(report.n_copies >= 7 && report.collectives == [(0, 0); 3], "{report}");
        assert!(report.by_copies.as_ref().is_some_and(|text| text.contains(reason)), "{report}");
        let logged = m.log.lock().iter().any(|line| line.contains("by copies") && line.contains(reason));
        assert!(logged, "{reason}: {:?}", m.log.lock());
        assert_eq!(m.reports(), [""; 0], "{reason}");
    };
    check("9.1", "", &[("cann.hccl", "0")], 2, "cann.hccl=0");
    check("9.1 without libhccl.so", "", &[], 2, "libhccl.so");
    check("9.1 without libhcomm.so", "", &[], 2, "HcclCommInitAll");
    check("9.1", "hccl=0", &[], 2, "refused");
    check("9.1", "soc=Ascend310B1", &[], 2, "310B");
    check("9.1", "soc=Ascend910A", &[], 3, "1, 2, 4 or 8");
}

#[test]
fn every_release_has_collectives() {
    for release in ["8.0", "8.1", "8.5", "9.0", "9.1"] {
        let m = Machine::of(release, "Ascend910B3", "devices=2,memory=1g");
        let cards = Cards::new(&m, 2).unwrap();
        cards.set(0);
        cards.all_reduce().unwrap();
        assert_eq!(cards.get(1, 8192, 1), [number(0, 0) + number(1, 0)], "{release}");
    }
}

/// One card's operator refuses after the collective: the scratch memory of all cards comes back.
#[test]
fn a_gather_that_fails_gives_its_memory_back() {
    let m = Machine::with_options(
        "9.1",
        "devices=2,memory=1g,refuse=aclnnInplaceCopy:561002",
        &[("cann.pool", "legacy")],
    );
    let cards = Cards::new(&m, 2).unwrap();
    cards.set(0);
    let gather = || {
        let (src, dst) = (cards.at(0, [32, 3, 1, 1]), cards.at(16384, [64, 3, 1, 1]));
        cards.group.all_gather(&cards.streams(), &src, &dst).unwrap_err();
        cards.streams.iter().for_each(|stream| stream.synchronize().unwrap());
    };
    gather();
    let n_allocations = m.count("malloc");
    (0..10).for_each(|_| gather());
    assert_eq!(m.count("malloc"), n_allocations);
    assert_eq!(m.reports(), [""; 0]);
}

/// A group that goes while its collective is on its way, after work that takes longer than the group tries again.
#[test]
fn a_group_gives_its_memory_back_after_the_work_that_is_on_its_way() {
    let m = Machine::new("devices=2,memory=1g,queue=delay,slow=1:400000");
    let free = |i: usize| m.card(i).memory().unwrap().0;
    let before = [free(0), free(1)];
    let cards = Cards::new(&m, 2).unwrap();
    let slow = common::products(&m.card(0)).unwrap();
    cards.streams[0].compute(&slow.raw).unwrap();
    cards.all_reduce().unwrap();
    let Cards { streams, group, buffers } = cards;
    drop(group);
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    drop((streams, buffers, slow));
    assert_eq!(m.reports(), [""; 0]);
    // A group's end takes 400 MiB of each card.
    assert!([free(0), free(1)].iter().zip(before).all(|(now, before)| now + (100 << 20) > before));
}

/// An end takes memory of its card as long as the group is there.
#[test]
fn a_group_gives_its_memory_back() {
    let m = Machine::new("devices=2,memory=1g");
    let cards: Vec<_> = (0..2).map(|i| m.card(i)).collect();
    let free = || cards.iter().map(|card| card.memory().unwrap().0).collect::<Vec<_>>();
    let before = free();
    let group = Group::new(&cards).unwrap();
    assert!(free().iter().zip(&before).all(|(now, before)| now + (400 << 20) <= *before));
    drop(group);
    assert_eq!(free(), before);
}
