//! Every case of the ops' rules that a simulated card takes, against the plain references; kernels run as plain C++.
//! Nothing here shows what a real card does.

mod common;
#[path = "../../cann/tests/common/placed.rs"]
mod placed;

use common::Machine;
use llmrt_abi::{DType, Op};
use llmrt_graph::ops::{case::Case, rules};
use llmrt_graph::{Graph, Role, Tensor};
use llmrt_host::Device;
use placed::{has_empty, on_cards, run, workspace};
use std::sync::Arc;

/// At least `n` cases of the ops' rules.
fn check(ops: &[Op], n: usize) {
    check_cases(ops.iter().flat_map(|&op| rules(op).cases().into_iter().map(move |case| (op, case))), n);
}

/// At least `n` cases, all right on the oldest chip and on a newer one, where work runs only when a thread waits.
fn check_cases(cases: impl Iterator<Item = (Op, Case)>, n: usize) {
    let cases: Vec<_> = cases.filter(|(_, case)| !has_empty(case)).collect();
    for machine in ["queue=now,sm=75", "queue=late,sm=90"] {
        let m = Machine::new(&format!("devices=2,{machine},memory=2g"));
        let (taken, mut wrong) = on_cards(&m.host().devices(), &cases, |card, stream, _, case| {
            let n_allocs = || stream.pool_stats().map_or(0, |stats| stats.allocs);
            let before = n_allocs();
            let mut wrong = match run(card, stream, case) {
                Ok(None) => return None,
                Ok(Some(error)) if error <= case.nmse => vec![],
                Ok(Some(error)) => vec![format!("NMSE {error:e}, limit {:e}", case.nmse)],
                Err(e) => vec![e.to_string()],
            };
            if n_allocs() > before {
                wrong.extend(exceeds_its_workspace(card, case));
            }
            Some(wrong)
        });
        println!("{machine}: {taken} of {} cases", cases.len());
        wrong.extend(m.reports());
        wrong.truncate(30);
        assert!(wrong.is_empty(), "{machine}: {} of {taken}:\n{}", wrong.len(), wrong.join("\n"));
        assert!(taken >= n, "{taken} cases, expected {n}");
    }
}

/// Scratch memory of a case that is more than its verdicts state.
fn exceeds_its_workspace(card: &Arc<Device>, case: &Case) -> Option<String> {
    let stream = card.stream(1).unwrap();
    run(card, &stream, case).unwrap();
    let (taken, stated) = (stream.pool_stats()?.peak, workspace(card, case).unwrap());
    (taken > stated).then(|| format!("takes {taken} bytes of scratch memory, its verdicts state {stated}"))
}

#[test]
fn functions_of_one_and_two_numbers_are_right() {
    let ops = Op::ALL.iter().filter(|op| (5..17).contains(&op.id()) || (40..62).contains(&op.id()));
    check(&ops.copied().chain([Op::Add1, Op::Pow, Op::Glu]).collect::<Vec<_>>(), 100);
}

#[test]
fn products_are_right() {
    check(&[Op::MulMat, Op::MulMatId], 60);
}

/// More than one tile in both directions, batches, and none of them full.
#[test]
fn tiles_of_every_type_are_right() {
    let packed = DType::ALL.iter().copied().filter(|dtype| dtype.is_quantised());
    let cases = packed.chain([DType::F32, DType::F16, DType::BF16]).flat_map(|dtype| {
        [(512, 70, 9, 1), (256, 65, 70, 1), (256, 7, 33, 2)].map(|(k, m, n, batches)| {
            let case =
                Case::new(format!("{dtype} [{k}, {m}] times {n} columns, {batches} batches"), |g, _| {
                    let w = g.weight("w", dtype, &[k, m, batches], Role::Matrix);
                    let x = g.input("x", DType::F32, &[k, n, 2 * batches]);
                    g.mul_mat(w, x);
                });
            (Op::MulMat, case.nmse(5e-4))
        })
    });
    check_cases(cases, 16 * 3);
}

#[test]
fn rows_are_picked_written_and_moved() {
    check(&[Op::GetRows, Op::SetRows, Op::Copy, Op::Cpy, Op::Concat, Op::Repeat, Op::RepeatInterleave], 60);
}

#[test]
fn norms_and_softmax_are_right() {
    check(&[Op::RmsNorm, Op::LayerNorm, Op::L2Norm, Op::SoftMax], 30);
}

#[test]
fn heads_are_turned() {
    check(&[Op::Rope], 20);
}

#[test]
fn attention_sees_what_it_should() {
    check(&[Op::Attention, Op::PagedMask], 20);
}

#[test]
fn rows_are_summed_searched_and_put_in_order() {
    check(
        &[Op::SumRows, Op::Sum, Op::Mean, Op::Cumsum, Op::Argmax, Op::TopK, Op::Argsort, Op::MoeWeights],
        30,
    );
}

/// Rows of several runs that are merged, with equals, and with NaN, which comes last.
#[test]
fn long_rows_are_put_in_order() {
    type Build = fn(&mut Graph, Tensor) -> Tensor;
    let ops: [(Op, Build); 4] = [
        (Op::Argsort, |g, x| g.argsort(x, false)),
        (Op::Argsort, |g, x| g.argsort(x, true)),
        (Op::TopK, |g, x| g.top_k(x, 70)),
        (Op::Argmax, |g, x| g.argmax(x)),
    ];
    let cases = {
        ops.into_iter().flat_map(|(op, build)| {
            [(1025, 3, false), (9001, 2, false), (2048, 2, true), (5000, 1, true)].map(
                |(n, rows, has_nan)| {
                    let case = Case::new(format!("[{n}, {rows}], NaN {has_nan}"), |g, _| {
                        let x = g.input("x", DType::F32, &[n, rows]);
                        let x = g.scale(x, 100.0);
                        let x = g.round(x);
                        let x = if has_nan { g.sqrt(x) } else { x };
                        build(g, x);
                    });
                    (op, case)
                },
            )
        })
    };
    check_cases(cases, 16);
}

#[test]
fn attention_over_keys_side_by_side_is_right() {
    check(&[Op::AttentionContiguous], 200);
}

#[test]
fn matrices_are_multiplied_by_rows_and_solved() {
    check(&[Op::OutProd, Op::SolveTri], 80);
}

#[test]
fn groups_of_channels_are_normed() {
    check(&[Op::GroupNorm], 60);
}

#[test]
fn states_are_passed_from_token_to_token() {
    check(&[Op::SsmConv, Op::SsmScan], 60);
    check(&[Op::GatedLinearAttn, Op::GatedDeltaNet, Op::RwkvWkv6, Op::RwkvWkv7], 90);
}

#[test]
fn kernels_slide_over_signals_images_and_volumes() {
    check(&[Op::Conv1d, Op::Conv1dDw, Op::Conv2d, Op::Conv2dDw, Op::Conv3d], 200);
}

#[test]
fn columns_are_made_and_added_up_again() {
    check(&[Op::Im2col, Op::Im2col3d, Op::Col2im1d, Op::ConvTranspose1d, Op::ConvTranspose2d], 200);
}

#[test]
fn images_are_made_smaller_and_larger() {
    check(&[Op::Pool1d, Op::Pool2d, Op::Upscale], 400);
}

#[test]
fn elements_of_every_type_are_moved() {
    check(&[Op::WinPart, Op::WinUnpart, Op::IndexFill], 150);
    check(&[Op::Fill, Op::Tri, Op::Diag, Op::Roll, Op::Pad, Op::Set], 700);
}

#[test]
fn times_become_waves_and_equal_integers_are_counted() {
    check(&[Op::TimestepEmbedding, Op::CountEqual], 60);
}

#[test]
fn numbers_are_placed() {
    check(&[Op::DiagMaskInf, Op::DiagMaskZero, Op::Acc, Op::AddId, Op::Arange], 180);
}

/// All cases of the ops but those that stand here, of which some are refused for dtypes and shapes: docs/plugins/cuda-kernels.md names
/// them.
#[test]
fn every_op_runs_on_a_card() {
    const NOT_YET: [Op; 7] = [
        Op::SsmConvRagged,
        Op::TokenWindows,
        Op::PagedScores,
        Op::SparseAttention,
        Op::MulMatSparse,
        Op::MulMatT,
        Op::Threshold,
    ];
    const IN_PART: [Op; 13] = [
        Op::SsmScan,
        Op::RwkvWkv6,
        Op::RwkvWkv7,
        Op::GatedLinearAttn,
        Op::GatedDeltaNet,
        Op::GetRows,
        Op::SetRows,
        Op::MulMat,
        Op::MulMatId,
        Op::Attention,
        Op::PagedMask,
        Op::Cpy,
        Op::Copy,
    ];
    let m = Machine::new("memory=2g");
    let card = m.card(0);
    for &op in Op::ALL.iter().filter(|op| !NOT_YET.contains(op)) {
        let all: Vec<Case> = rules(op).cases().into_iter().filter(|case| !has_empty(case)).collect();
        let n = all.iter().filter(|case| placed::is_taken(&card, case).unwrap()).count();
        println!("{op}: {n} of {}", all.len());
        assert!(n > 0 && (n == all.len() || IN_PART.contains(&op)), "{op}: {n} of {}", all.len());
    }
}

/// More rows than a block has threads, several for each slot: the last stays.
#[test]
fn the_last_of_many_rows_for_a_slot_stays() {
    let case = |rows: u64| {
        Case::new(format!("{rows} rows over 7 slots"), move |g, ints| {
            let cache = g.state("cache", DType::F16, &[40, 8], Role::KCache);
            let from = g.input("rows", DType::F32, &[40, rows]);
            let slots = g.input("slots", DType::I32, &[rows]);
            ints.push((slots, (0..rows as i32).map(|i| i * i % 7).collect()));
            g.set_rows(cache, from, slots);
        })
    };
    check_cases([130, 500].into_iter().map(|rows| (Op::SetRows, case(rows))), 2);
}

/// Rows of more numbers than all threads have at once, and of fewer than a warp.
#[test]
fn long_rows_are_normed_and_searched() {
    let norm = |n: u64| {
        Case::new(format!("a norm of {n}"), move |g, _| {
            let [x, w] = [("x", [n, 2]), ("w", [n, 1])].map(|(name, ne)| g.input(name, DType::F32, &ne));
            g.rms_norm(x, w, 1e-5);
        })
    };
    let search = |n: u64| {
        Case::new(format!("the largest of {n}"), move |g, _| {
            let x = g.input("x", DType::F32, &[n, 2]);
            g.argmax(x);
        })
    };
    let norms = [3, 250, 8196, 16390].map(|n| (Op::RmsNorm, norm(n)));
    check_cases(norms.into_iter().chain([5, 8193, 20000].map(|n| (Op::Argmax, search(n)))), 7);
}
