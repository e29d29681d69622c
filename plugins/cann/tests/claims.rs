//! What the plugin claims: the table in docs/reference/cann-ops.md, and that it claims nothing of which the libraries at hand
//! lack an operator.

mod common;
#[path = "common/placed.rs"]
mod placed;

use cann_simulator::release::Release;
use cann_simulator::sys::{Functions, cann_cv, cann_math, cann_nn, cann_transformer};
use common::Machine;
use llmrt_abi::Op;
use llmrt_graph::ops::{case::Case, rules};
use llmrt_host::Device;
use placed::{has_empty, is_taken, run};
use std::path::Path;

const CHIPS: [&str; 4] = ["Ascend910B3", "Ascend310P3", "Ascend310B1", "Ascend910A"];

/// Releases with different operators; [`releases_have_the_operators_of_their_column`] has the others.
const RELEASES: [&str; 2] = ["9.1", "8.1"];

/// The ops that ggml's document of its CANN backend names, its two kernels, and those of ours that are them.
const NAMED: [(&str, &[Op]); 35] = [
    ("add", &[Op::Add]),
    ("leaky_relu", &[Op::LeakyRelu]),
    ("arange", &[Op::Arange]),
    ("clamp", &[Op::Clamp]),
    ("scale", &[Op::Scale]),
    ("argsort, ascending and descending", &[Op::Argsort]),
    ("norm", &[Op::LayerNorm]),
    ("group_norm", &[Op::GroupNorm]),
    ("acc", &[Op::Acc]),
    ("sum_rows", &[Op::SumRows]),
    ("upscale, nearest", &[Op::Upscale]),
    ("pad", &[Op::Pad]),
    ("pool 2d, average and maximum", &[Op::Pool2d]),
    ("rms_norm", &[Op::RmsNorm]),
    ("diag_mask", &[Op::DiagMaskInf, Op::DiagMaskZero]),
    ("im2col", &[Op::Im2col]),
    ("timestep_embedding", &[Op::TimestepEmbedding]),
    ("softmax, with ALiBi", &[Op::SoftMax]),
    ("mul_mat", &[Op::MulMat]),
    ("rope", &[Op::Rope]),
    ("repeat", &[Op::Repeat]),
    ("concat", &[Op::Concat]),
    ("cast", &[Op::Copy]),
    ("permute", &[Op::Copy]),
    ("exp", &[Op::Exp]),
    ("mul", &[Op::Mul]),
    ("cos", &[Op::Cos]),
    ("sin", &[Op::Sin]),
    ("fill", &[Op::Fill]),
    ("pow", &[Op::Pow]),
    ("repeat_interleave", &[Op::RepeatInterleave]),
    ("roll", &[Op::Roll]),
    ("index_fill", &[Op::IndexFill]),
    ("dup, of Q4_0, Q8_0, F16, F32", &[Op::Copy, Op::Cpy]),
    ("get_rows, of Q4_0, Q8_0, F16, F32", &[Op::GetRows]),
];

const HEAD: &str = "# Ops of the cann plugin

Written from what the plugin claims of the op rules' cases with the simulator's libraries; a test compares. Nothing here
has run on a card.

*library*: the vendor's operator; *composed*: several of them; *CPU*: not on this chip; (in part): not all cases, the
others go to the CPU. 310P, 310B and the first 910 have no BF16, which many ops have cases of. The first four columns are of
CANN 8.5, 9.0 and 9.1, the last four of 8.0 and 8.1; a 910C (A3) is as a 910B. Which chip has an operator is read from the
kernels that CANN 8.1 has for it: the pages of the operators list fewer, above all for the 310B.

Weights: F32, F16, BF16; Q4_0 and Q8_0 as values and scales, which 910B multiplies as they are and the others decode;
Q5_0 as Q8_0; Q4_1, Q5_1 and Q2_K to Q6_K as F16, each number off by at most 2⁻¹¹ of itself, followed by the file's
bytes; experts of these are decoded where they are used. Other formats: CPU. F32 products keep F32's precision, on 310P by
three products of F16; numbers above 65504 are too large there. Experts of F16 on a 910B have results of F16, since
GroupedMatmulV4 requires y of x's type: numbers above 65504 are infinite.

";
const OF_GGML: &str = "## Ops that ggml's document of its CANN backend names

Below them its two kernels, dup and get_rows.

";
const COLUMNS: &str = "| 910B | 310P | 310B | 910A | 910B, 8.1 | 310P, 8.1 | 310B, 8.1 | 910A, 8.1 |";

/// docs/reference/cann-ops.md is what the simulated cards claim.
#[test]
fn the_table_of_ops_is_current() {
    let pairs = RELEASES.iter().flat_map(|release| CHIPS.map(|soc| (*release, soc)));
    let columns: Vec<Vec<String>> = pairs
        .map(|(release, soc)| {
            let m = Machine::of(release, soc, "");
            let lacks = [llmrt_cann::chip::chip(soc).lacks, &lacks(release)].concat();
            Op::ALL.iter().map(|&op| claim(&m.card(0), &lacks, op)).collect()
        })
        .collect();
    let row = |op: &Op| {
        let at = Op::ALL.iter().position(|other| other == op).unwrap();
        columns.iter().map(|column| column[at].as_str()).collect::<Vec<_>>().join(" | ")
    };
    let mut table = format!("{HEAD}{OF_GGML}");
    table += &format!("| its name | here {COLUMNS}\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (name, op) in NAMED.iter().flat_map(|(name, ops)| ops.iter().map(move |op| (name, op))) {
        table += &format!("| {name} | {op} | {} |\n", row(op));
    }
    table += &format!("\n## All ops\n\n| op {COLUMNS} how |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for op in Op::ALL {
        table += &format!("| {op} | {} | {} |\n", row(op), llmrt_cann::ops::how(*op).unwrap_or("CPU"));
    }
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cann-ops.md");
    std::fs::write(&made, &table).unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cann-ops.md");
    let found = std::fs::read_to_string(&kept).unwrap_or_default();
    assert!(found == table, "docs/reference/cann-ops.md is old; copy {} over it", made.display());
}

/// How a card computes an op, and whether all of its cases.
fn claim(card: &Device, lacks: &[&str], op: Op) -> String {
    let cases = rules(op).cases();
    let cases: Vec<_> = cases.iter().filter(|case| !has_empty(case)).collect();
    let taken = cases.iter().filter(|case| is_taken(card, case).unwrap()).count();
    let way = match llmrt_cann::ops::is_of_library(op, lacks) {
        true => "library",
        false => "composed",
    };
    match taken {
        0 => "CPU".into(),
        n if n == cases.len() => way.into(),
        _ => format!("{way} (in part)"),
    }
}

fn lacks(release: &str) -> Vec<&'static str> {
    Release::of(release).unwrap().lacks()
}

#[test]
fn releases_have_the_operators_of_their_column() {
    let operators = |release: &str| {
        lacks(release).into_iter().filter(|name| name.starts_with("aclnn")).collect::<Vec<_>>()
    };
    assert_eq!(operators("8.5"), operators("9.1"));
    assert_eq!(operators("9.0"), operators("9.1"));
    assert_eq!(operators("8.0"), operators("8.1"));
    let all = taken_ops("9.1");
    assert_eq!(taken_ops("8.5"), all);
    let in_8_1 = taken_ops("8.1");
    let lost: Vec<&Op> = all.iter().filter(|op| !in_8_1.contains(op)).collect();
    assert_eq!(lost, [&Op::GeluQuick], "FastGelu is not in 8.1");
    assert_eq!(taken_ops("8.0"), in_8_1);
    assert_eq!(taken_ops("stub"), []);
}

/// The operators that the simulator has not for a chip are those in the plugin's list of it.
#[test]
fn a_chip_lacks_what_the_plugin_lists() {
    let operators: Vec<&str> = [cann_math::NAMES, cann_nn::NAMES, cann_cv::NAMES, cann_transformer::NAMES]
        .concat()
        .into_iter()
        .filter(|name| !name.ends_with("GetWorkspaceSize"))
        .collect();
    for soc in CHIPS.into_iter().chain(["Ascend910_9391"]) {
        let chip = cann_simulator::chip::Chip::of(soc);
        for name in &operators {
            let has = cann_simulator::ops::chips(name).is_none_or(|chips| chip.has(chips, false));
            let listed = llmrt_cann::chip::chip(soc).lacks.contains(name);
            // On a 310P these take NZ weights alone.
            let nz_alone = soc.starts_with("Ascend310P") && *name == "aclnnWeightQuantBatchMatmulV2";
            assert_eq!(listed, !has || nz_alone, "{name} on {soc}");
        }
    }
}

/// Ops of which a card takes a case.
fn taken_ops(release: &'static str) -> Vec<Op> {
    let m = Machine::with(release, "");
    let cards = m.host().devices();
    let takes = |op: &Op| {
        let cases = rules(*op).cases();
        cards.iter().any(|card| cases.iter().filter(|c| !has_empty(c)).any(|c| is_taken(card, c).unwrap()))
    };
    Op::ALL.iter().copied().filter(takes).collect()
}

/// A few operators away at a time; what is still claimed runs.
#[test]
fn nothing_is_claimed_of_which_an_operator_is_absent() {
    // Two operators that go together in one grouping do not in the other.
    const GROUPS: [usize; 2] = [12, 17];
    let names: Vec<&str> =
        [cann_math::NAMES, cann_nn::NAMES, cann_cv::NAMES, cann_transformer::NAMES].concat();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.ends_with("GetWorkspaceSize")).collect();
    let some: Vec<(Op, Case)> =
        Op::ALL.iter().flat_map(|&op| a_few(op).into_iter().map(move |c| (op, c))).collect();
    let mut wrong = Vec::new();
    for (n, group) in GROUPS.iter().flat_map(|n| (0..*n).map(move |group| (*n, group))) {
        let away: Vec<&str> = names.iter().skip(group).step_by(n).copied().collect();
        let libraries = format!("9.1 without {}", away.join(","));
        let m = Machine::with(libraries.leak(), "queue=now,memory=1g");
        let card = m.card(0);
        let stream = card.stream(1).unwrap();
        for (op, case) in &some {
            if let Err(e) = run(&card, &stream, case) {
                wrong.push(format!("{op}: {}: {e}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Cases of an op that are far from each other.
fn a_few(op: Op) -> Vec<Case> {
    let cases: Vec<Case> = rules(op).cases().into_iter().filter(|case| !has_empty(case)).collect();
    let step = cases.len().div_ceil(8).max(1);
    cases.into_iter().step_by(step).collect()
}
