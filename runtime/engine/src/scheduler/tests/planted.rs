//! Bugs that a scheduler could have, made by changing its state after each event: the exploration finds each.

use super::super::*;
use super::explore::{Setting, explore, recurrent, setting, windowed};
use super::world::Fault;

/// The first violated invariant.
fn find(fault: Fault, change: impl Fn(&mut Setting)) -> String {
    let mut setting = setting();
    change(&mut setting);
    explore(&setting, Some(fault)).expect_err("the fault is not found")
}

#[test]
fn a_block_that_is_not_copied_before_it_is_written() {
    let error = find(|_, plan| plan.block_copies.blocks.clear(), |_| ());
    assert!(error.contains("reads a wrong token"), "{error}");
}

#[test]
fn a_reference_that_is_not_counted() {
    let fault: Fault = |s, _| {
        let shared = s.running.iter().flat_map(|g| &g.sequences).flat_map(|seq| seq.blocks().ids());
        let shared = shared.copied().find(|block| s.device.blocks.n_users(*block).is_ok_and(|n| n > 1));
        shared.map_or(Ok(()), |block| s.device.blocks.free(block)).unwrap();
    };
    let error = find(fault, |_| ());
    assert!(error.contains("is counted"), "{error}");
}

#[test]
fn a_preempted_group_that_keeps_its_blocks() {
    let fault: Fault = |s, plan| {
        if let Some((id, PreemptionMode::Recompute)) = plan.preempted.first() {
            let group = s.waiting.iter_mut().find(|g| g.id == *id).unwrap();
            group.sequences[0].grow(1, &mut s.device);
        }
    };
    let error = find(fault, |s| s.config.preemption = Preemption::Recompute);
    assert!(error.contains("a waiting group has blocks"), "{error}");
}

#[test]
fn a_token_that_counts_as_computed_too_early() {
    let fault: Fault = |s, _| {
        if let Some(seq) =
            s.running.iter_mut().flat_map(|g| &mut g.sequences).find(|seq| seq.n_missing() == 2)
        {
            seq.advance(1);
        }
    };
    let error = find(fault, |_| ());
    assert!(error.contains("reads a wrong token"), "{error}");
}

#[test]
fn swapped_groups_that_never_return() {
    let fault: Fault = |s, plan| {
        for (id, mode) in &plan.preempted {
            if *mode == PreemptionMode::Swap && s.swapped.len() == 1 && s.swapped[0].id == *id {
                s.swapped[0].width = 99;
            }
        }
    };
    let error = find(fault, |s| s.config.preemption = Preemption::Swap);
    assert!(error.contains("not complete after"), "{error}");
}

#[test]
fn a_swapped_block_that_does_not_move() {
    let error = find(
        |_, plan| {
            plan.swap_in.blocks.pop();
        },
        |s| s.config.preemption = Preemption::Swap,
    );
    assert!(error.contains("reads a wrong token"), "{error}");
}

#[test]
fn a_sequence_that_is_lost_when_its_group_forks() {
    let fault: Fault = |s, _| {
        if let Some(group) = s.running.iter_mut().find(|g| g.sequences.len() == 2) {
            let mut lost = group.sequences.remove(0);
            lost.release(&mut s.device).unwrap();
        }
    };
    let error = find(fault, |_| ());
    assert!(error.contains("sequences are"), "{error}");
}

#[test]
fn a_guess_that_counts_before_it_is_checked() {
    let fault: Fault = |s, _| {
        let sequences = s.running.iter_mut().flat_map(|g| &mut g.sequences);
        sequences.filter(|seq| !seq.drafts().is_empty()).for_each(|seq| seq.accept(1));
    };
    let error = find(fault, |s| s.n_drafts = 1);
    assert!(error.contains("sequences are"), "{error}");
}

#[test]
fn blocks_of_wrong_guesses_that_are_given_back_twice() {
    let fault: Fault = |s, _| {
        let drafted = s.running.iter().flat_map(|g| &g.sequences).find(|seq| !seq.drafts().is_empty());
        let last = drafted.and_then(|seq| seq.blocks().ids().last().copied());
        last.map_or(Ok(()), |block| s.device.blocks.free(block)).unwrap();
    };
    let error = find(fault, |s| s.n_drafts = 1);
    assert!(error.contains("is counted") || error.contains("are free"), "{error}");
}

/// Slots of states are written while forks still read them.
#[test]
fn a_state_that_is_written_in_place() {
    let fault: Fault = |s, _| {
        let sequences = s.running.iter_mut().flat_map(|g| &mut g.sequences);
        sequences.for_each(|seq| seq.write_state_in_place());
    };
    let error = find(fault, recurrent);
    assert!(error.contains("reads a wrong state") || error.contains("is counted"), "{error}");
}

#[test]
fn a_swapped_state_that_does_not_move() {
    let fault: Fault = |_, plan| plan.swap_in.states.clear();
    let error = find(fault, |s| {
        recurrent(s);
        s.config.preemption = Preemption::Swap;
    });
    assert!(error.contains("reads a wrong state"), "{error}");
}

#[test]
fn a_block_that_a_window_still_sees_is_freed() {
    let fault: Fault = |s, _| {
        let first = s.running.iter_mut().flat_map(|g| &mut g.sequences).next();
        first.map_or(Ok(()), |seq| seq.leave_too_early(&mut s.device)).unwrap();
    };
    let error = find(fault, windowed);
    assert!(error.contains("a token without a slot"), "{error}");
}

#[test]
fn a_block_of_a_window_that_is_not_copied_before_it_is_written() {
    let error = find(|_, plan| plan.block_copies.windows.clear(), windowed);
    assert!(error.contains("reads a wrong token"), "{error}");
}
