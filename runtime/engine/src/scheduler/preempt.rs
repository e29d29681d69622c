//! Running groups give their blocks up, and get them back.

use super::{Group, Preemption, PreemptionMode, Scheduler, StepPlan, insert};
use crate::error::Result;
use crate::kv::pools::{CacheMoves, CachePools};

impl Scheduler {
    /// Takes the blocks of the running group with the lowest rank: into host memory, or they are computed again.
    pub(super) fn preempt_last(&mut self, plan: &mut StepPlan) -> Result<()> {
        let Some(mut group) = self.running.pop_back() else { return Ok(()) };
        group.sequences.iter_mut().for_each(|seq| seq.keep_drafts(0));
        let swaps = self.mode(&group) == PreemptionMode::Swap;
        let moves = if swaps { relocate(&mut group, &mut self.device, &mut self.host)? } else { None };
        let mode = match moves {
            Some(moves) => {
                plan.swap_out.extend(moves);
                PreemptionMode::Swap
            }
            None => PreemptionMode::Recompute,
        };
        plan.preempted.push((group.id, mode));
        match mode {
            PreemptionMode::Swap => insert(&mut self.swapped, group),
            PreemptionMode::Recompute => {
                group.sequences.iter_mut().try_for_each(|seq| seq.release(&mut self.device))?;
                insert(&mut self.waiting, group)
            }
        };
        Ok(())
    }

    /// Which way takes less time.
    fn mode(&self, group: &Group) -> PreemptionMode {
        let swap_if = |swaps| if swaps { PreemptionMode::Swap } else { PreemptionMode::Recompute };
        match (self.config.preemption, self.config.cost) {
            (Preemption::Recompute, _) => PreemptionMode::Recompute,
            (Preemption::Swap, _) => PreemptionMode::Swap,
            (Preemption::Auto, None) => swap_if(group.width > 1),
            (Preemption::Auto, Some(cost)) => {
                let n_blocks = group.distinct().len() as u64;
                // Shared tokens are computed once, as they are moved once.
                let n_tokens = n_blocks * self.device.blocks.block_size() as u64;
                let swap = cost.ns_per_block.saturating_mul(2 * n_blocks);
                swap_if(swap < cost.ns_per_token.saturating_mul(n_tokens))
            }
        }
    }

    /// Swapped groups run again, in order, unless groups were preempted in this step. Where none runs, one whose blocks do not
    /// fit any more is computed again.
    pub(super) fn swap_in(&mut self, plan: &mut StepPlan) -> Result<()> {
        while plan.preempted.is_empty()
            && let Some(mut group) = self.swapped.pop_front()
        {
            let is_alone = self.running.is_empty();
            let held = group.distinct().len();
            let lacking = |seq: &crate::sequence::Sequence| match seq.blocks().ids() {
                [] => self.device.blocks.blocks_for(seq.n_slots()),
                _ => 1,
            };
            let more: usize = group.sequences.iter().map(lacking).sum();
            let needed = if is_alone { held } else { held + more + self.watermark_blocks() };
            let has_seqs = self.n_running_seqs() + group.width <= self.config.max_num_seqs;
            let has_tokens = plan.n_left(self.config.max_num_batched_tokens) >= group.sequences.len();
            if is_alone && needed > self.device.blocks.n_usable() {
                group.sequences.iter_mut().try_for_each(|seq| seq.release(&mut self.host))?;
                insert(&mut self.waiting, group);
                continue;
            }
            let moves = match needed <= self.device.blocks.n_free() && has_seqs && has_tokens {
                true => relocate(&mut group, &mut self.host, &mut self.device)?,
                false => None,
            };
            let Some(moves) = moves else {
                self.swapped.push_front(group);
                break;
            };
            plan.swap_in.extend(moves);
            group.sequences.iter().try_for_each(|seq| seq.name_again(&mut self.device))?;
            let at = insert(&mut self.running, group);
            if self.running[at].n_lacking(&self.device) <= self.device.blocks.n_free() {
                self.reserve(at, plan)?;
                self.run_group(at, plan);
            }
        }
        Ok(())
    }

    /// The device's caches are lost: what runs is computed again. Blocks in host memory stay.
    pub fn lose_caches(&mut self) -> Result<()> {
        self.fail()?;
        self.start_again()?;
        self.device.forget_all();
        Ok(())
    }

    /// What runs is computed again, from its first token.
    fn start_again(&mut self) -> Result<()> {
        while let Some(mut group) = self.running.pop_back() {
            group.sequences.iter_mut().try_for_each(|seq| seq.release(&mut self.device))?;
            insert(&mut self.waiting, group);
        }
        Ok(())
    }

    /// Blocks in host memory are lost: what was swapped is computed again.
    pub fn lose_host_blocks(&mut self) -> Result<()> {
        while let Some(mut group) = self.swapped.pop_back() {
            group.sequences.iter_mut().try_for_each(|seq| seq.release(&mut self.host))?;
            insert(&mut self.waiting, group);
        }
        Ok(())
    }

    /// The step in flight was not computed.
    pub fn fail(&mut self) -> Result<()> {
        self.in_flight = None;
        let mut sequences = self.running.iter_mut().flat_map(|g| &mut g.sequences);
        sequences.try_for_each(|seq| {
            seq.keep_drafts(0);
            seq.discard_state(&mut self.device.states)
        })?;
        self.end_aborted()?;
        // The next step may have room for fewer tokens, and none of these texts is cut.
        if self.config.is_causal { Ok(()) } else { self.start_again() }
    }

    /// Ends requests that were aborted while their step was in flight.
    pub(super) fn end_aborted(&mut self) -> Result<()> {
        while let Some(i) = self.running.iter().position(|g| g.is_aborted) {
            self.running.remove(i).map_or(Ok(()), |g| self.end(g))?;
        }
        Ok(())
    }
}

/// Moves the blocks and states of a group between memories, shared ones once; `None` if the other has too few free ones.
fn relocate(group: &mut Group, from: &mut CachePools, to: &mut CachePools) -> Result<Option<CacheMoves>> {
    if group.distinct().len() > to.blocks.n_free() || group.n_states() > to.states.n_free() {
        return Ok(None);
    }
    let mut moves = CacheMoves::default();
    for seq in &mut group.sequences {
        seq.relocate(from, to, &mut moves)?;
    }
    Ok(Some(moves))
}
