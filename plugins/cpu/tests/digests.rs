//! One line per case of each op: a digest of the result's bits. `cargo ci arm` compares the lines of two machines.

mod common;

use common::{Plugin, worth_a_team};
use llmrt_abi::Op;
use llmrt_cpu::simd::Isa;
use llmrt_graph::ops::rules;

#[test]
fn digests_of_all_results_are_the_same_with_a_team_and_sealed() {
    let plugin = Plugin::open(Isa::best().name()).unwrap();
    for &op in Op::ALL {
        for (i, case) in rules(op).cases().iter().enumerate() {
            let memory = case.values(13).unwrap();
            let dst = case.graph.owner(case.graph.nodes.last().unwrap().dst).0 as usize;
            let digest = of(&plugin.run(&case.graph, &memory, 1).unwrap()[dst]);
            let mut with_a_team = case.graph.clone();
            worth_a_team(&mut with_a_team);
            let again = of(&plugin.run_sealed(&with_a_team, &memory, 3).unwrap()[dst]);
            assert_eq!(digest, again, "{op}: {}", case.name);
            println!("digest {op} {i} {digest:016x} {}", case.name);
        }
    }
}

/// FNV-1a of 64 bits.
fn of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ *b as u64).wrapping_mul(0x100_0000_01b3))
}
