//! One line per case of each op: a digest of the result's bits. `cargo ci arm` compares the lines of two machines; where a
//! formula has a function of the C library, bits differ, and the result is compared with the reference here.

mod common;

use common::{Plugin, nmse, worth_a_team};
use llmrt_abi::Op;
use llmrt_cpu::simd::Isa;
use llmrt_graph::Tensor;
use llmrt_graph::ops::{rules, value::Value};
use llmrt_graph::reference;

#[test]
fn digests_of_all_results_are_the_same_with_a_team_and_sealed() {
    let plugin = Plugin::open(Isa::best().name()).unwrap();
    for &op in Op::ALL {
        for (i, case) in rules(op).cases().iter().enumerate() {
            let memory = case.values(13).unwrap();
            let dst = case.graph.owner(case.graph.nodes.last().unwrap().dst).0 as usize;
            let result = &plugin.run(&case.graph, &memory, 1).unwrap()[dst];
            if matches!(op, Op::Softplus | Op::SsmScan) {
                let def = &case.graph.tensors[dst];
                let mut expected = memory.clone();
                reference::run(&case.graph, &mut expected).unwrap();
                let expected = Value::decode(def, expected.bytes(Tensor(dst as u32)).unwrap());
                let nmse = nmse(&expected, &Value::decode(def, result));
                assert!(nmse <= case.nmse, "{op}: {}: NMSE {nmse:e}", case.name);
            }
            let digest = of(result);
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
