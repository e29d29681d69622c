//! Moves neurons between devices and the CPU between steps, so that devices have those that are active now
//! (`NeuronOptions::adapt`).

use super::DeviceRunner;
use crate::deployment::lost;
use crate::error::Result;
use crate::neurons::{Adaptation, Swap};
use llmrt_graph::rows::{Part, layer_of};
use llmrt_host::load::{RewriteCost, WeightRequest};
use llmrt_host::sched::executor::Executor;
use std::collections::HashMap;
use std::sync::Arc;

/// Neurons that change places while the model computes.
pub(crate) struct Adapting {
    adaptation: Adaptation,
    /// By layer and part: what a part's neurons have of the weights.
    weights: HashMap<(usize, usize), Vec<WeightRequest>>,
    /// What it costs that neurons of a part and of the last one change places.
    costs: HashMap<(usize, usize), RewriteCost>,
}

impl Adapting {
    /// Of weights that an executor has. Those that are no parts by lists stay as they are.
    pub fn new(
        adaptation: Adaptation,
        requests: Vec<WeightRequest>,
        executor: &Executor,
    ) -> Result<Adapting> {
        let (mut weights, mut costs) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, RewriteCost>::new());
        for request in requests.into_iter().filter(|request| request.listed.is_some()) {
            let Some(part) = Part::of_name(&request.name) else { continue };
            let Some(layer) = layer_of(part.whole) else { continue };
            let cost = executor.rewrite_cost(&request)?;
            let is_last = part.index + 1 == part.n;
            for with in if is_last { 0..part.index } else { part.index..part.index + 1 } {
                let sum = costs.entry((layer, with)).or_default();
                *sum = *sum + cost;
            }
            weights.entry((layer, part.index)).or_default().push(request);
        }
        Ok(Adapting { adaptation, weights, costs })
    }

    fn swap(&mut self) -> Option<Swap> {
        let costs = &self.costs;
        self.adaptation.swap(|layer, device| costs.get(&(layer, device)).copied().unwrap_or_default())
    }

    /// Writes the weights of neurons that change places, and returns the bytes that were written.
    fn write(&mut self, executor: &mut Executor, swap: &Swap) -> Result<u64> {
        let lists = self.adaptation.lists(swap.layer);
        let last = lists.len().saturating_sub(1);
        let mut n_bytes = 0;
        for (part, places) in [swap.device, last].into_iter().zip(&swap.places) {
            let list: Arc<[u32]> = lists.get(part).map_or_else(Arc::default, |list| list[..].into());
            for request in self.weights.get_mut(&(swap.layer, part)).into_iter().flatten() {
                request.listed = Some(list.clone());
                n_bytes += executor.rewrite(request, places)?;
            }
        }
        Ok(n_bytes)
    }
}

impl DeviceRunner {
    /// Counts which neurons the first `n_tokens` of the last step needed.
    pub(super) fn count_firings(&mut self, n_tokens: usize) -> Result<()> {
        let deployment = &mut self.deployment;
        let Some(Adapting { adaptation, .. }) = &mut deployment.adapting else { return Ok(()) };
        let step = deployment.last.and_then(|shape| deployment.programs.get(&shape));
        let Some(step) = step.filter(|step| step.shows_firings()) else { return Ok(()) };
        let work = &mut self.work.divided;
        work.n_tokens += n_tokens as u64;
        step.read_firings(&mut deployment.executor, n_tokens, |firing, on_device, values, scores| {
            let n = adaptation.lists(firing.layer).get(firing.part).map_or(1, |list| list.len().max(1));
            for (i, values) in values.chunks_exact(n).enumerate() {
                let score = |at: usize| scores.get(i * n + at).copied();
                let fires = values.iter().enumerate().map(|(at, value)| firing.fires(*value, score(at)));
                let n_active = adaptation.count(firing.layer, firing.part, fires);
                work.active[1] += n_active;
                work.active[0] += if on_device { n_active } else { 0 };
            }
        })
    }

    /// Lets neurons change places after a step. Where that fails, weights are lost: the model must be deployed again, and neurons
    /// stay where they are from then on.
    pub(super) fn adapt(&mut self) -> Result<()> {
        let Some(mut adapting) = self.deployment.adapting.take() else { return Ok(()) };
        adapting.adaptation.add_step();
        let moved = self.move_neurons(&mut adapting);
        match &moved {
            Ok(()) => self.deployment.adapting = Some(adapting),
            Err(e) => {
                self.options.neurons.adapt = None;
                if lost(&self.deployment.devices, e).is_none() {
                    self.options.neurons.split = Some(Arc::new(adapting.adaptation.neurons()));
                }
                self.warn(format!(
                    "neurons do not change places any more, and the model is loaded again: {e}"
                ));
                self.deployment.executor.clear();
                self.needs_deployment = true;
            }
        }
        moved
    }

    fn move_neurons(&mut self, adapting: &mut Adapting) -> Result<()> {
        let (executor, work) = (&mut self.deployment.executor, &mut self.work.divided);
        let mut moved = false;
        while let Some(swap) = adapting.swap() {
            work.moved_bytes += adapting.write(executor, &swap)?;
            work.n_moved += swap.places[0].len() as u64;
            moved = true;
        }
        if moved {
            executor.set_neurons(Arc::new(adapting.adaptation.neurons()));
        }
        Ok(())
    }
}
