//! Which neurons would be better on another device, by how often they were active lately. Pure: lists in, swaps out.

use llmrt_graph::rows::NeuronSplit;
use llmrt_host::load::RewriteCost;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// By how much a token that is counted moves how active a neuron is: half of what counts is of the last 44 tokens.
const STEP: f32 = 1.0 / 64.0;

/// Neurons change places if the one is active in so many more tokens of all than the other. Much less is noise of the count, which
/// falls with the square root of the neurons in a block.
const MARGIN: f32 = 0.1;

/// A swap is made if the bytes that the last device then need not read, in so many tokens, are no fewer than those that it writes.
const MIN_USE: f32 = 64.0;

/// Most networks that are looked at after a step.
const MAX_LOOKS: usize = 4;

/// Bytes of so many steps may be used in one.
const MAX_SAVED: u64 = 16;

/// How active neurons are, and where they are.
pub(crate) struct Adaptation {
    networks: BTreeMap<usize, Network>,
    /// Bytes that a step may move, on average.
    limit: u64,
    /// Of these, what earlier steps left.
    saved: u64,
    /// The layer that is looked at next, or the first after it.
    next: usize,
}

/// One layer's.
struct Network {
    /// By neuron, the share of tokens in which it was active; late ones count more.
    activity: Vec<f32>,
    /// By device, the neurons in their places; the last one is the CPU.
    lists: Vec<Vec<u32>>,
    sizes: Sizes,
}

/// Of a network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Sizes {
    /// Neurons move in whole blocks of so many.
    pub block: usize,
    /// Bytes of a neuron that a device which skips those that are not active need not read then.
    pub skipped_bytes: f32,
}

/// Neurons of two devices that change places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Swap {
    pub layer: usize,
    /// The device that gets the active ones.
    pub device: usize,
    /// Places in its list, and in that of the last device.
    pub places: [Vec<u32>; 2],
}

impl Adaptation {
    /// Of these lists. Sizes are by layer, as are the shares of tokens in which neurons are active at first, if they are known.
    pub fn new(
        neurons: &NeuronSplit,
        sizes: &BTreeMap<usize, Sizes>,
        activity: &BTreeMap<usize, Vec<f32>>,
        limit: u64,
    ) -> Adaptation {
        let network = |(layer, lists): (&usize, &Vec<Arc<[u32]>>)| {
            let n: usize = lists.iter().map(|list| list.len()).sum();
            let known = activity.get(layer).filter(|known| known.len() == n);
            let network = Network {
                activity: known.cloned().unwrap_or_else(|| vec![0.0; n]),
                lists: lists.iter().map(|list| list.to_vec()).collect(),
                sizes: sizes.get(layer).copied().unwrap_or(Sizes { block: 1, skipped_bytes: 0.0 }),
            };
            (*layer, network)
        };
        Adaptation { networks: neurons.layers.iter().map(network).collect(), limit, saved: 0, next: 0 }
    }

    /// The neurons of each device now.
    pub fn neurons(&self) -> NeuronSplit {
        let lists = |network: &Network| network.lists.iter().map(|list| Arc::from(&list[..])).collect();
        NeuronSplit {
            layers: self.networks.iter().map(|(layer, network)| (*layer, lists(network))).collect(),
        }
    }

    /// Those of a layer.
    pub fn lists(&self, layer: usize) -> &[Vec<u32>] {
        self.networks.get(&layer).map_or(&[], |network| &network.lists)
    }

    /// Counts a token: which neurons of a part fire, by place. Returns how many do.
    pub fn count(&mut self, layer: usize, part: usize, fires: impl Iterator<Item = bool>) -> u64 {
        let Some(Network { activity, lists, .. }) = self.networks.get_mut(&layer) else { return 0 };
        let mut n = 0;
        for (&id, fires) in lists.get(part).into_iter().flatten().zip(fires) {
            let active = &mut activity[id as usize];
            *active += (f32::from(u8::from(fires)) - *active) * STEP;
            n += u64::from(fires);
        }
        n
    }

    /// One step more was made.
    pub fn add_step(&mut self) {
        self.saved = self.saved.saturating_add(self.limit);
    }

    /// Neurons that should change places, if the bytes for it are there, by what changes of a layer between a device and the last one
    /// cost. They have changed places in the lists, and the bytes are used, when this returns.
    pub fn swap(&mut self, cost: impl Fn(usize, usize) -> RewriteCost) -> Option<Swap> {
        let from = self.next;
        let layers: Vec<usize> =
            self.networks.range(from..).chain(self.networks.range(..from)).map(|(layer, _)| *layer).collect();
        let mut most = 0;
        for layer in layers.into_iter().take(MAX_LOOKS) {
            self.next = layer + 1;
            let network = self.networks.get_mut(&layer)?;
            for device in 0..network.lists.len().saturating_sub(1) {
                let cost = cost(layer, device);
                most = most.max(cost.of(network.sizes.block as u64));
                let (saved, Sizes { block, skipped_bytes: skipped }) = (self.saved, network.sizes);
                let affordable = |n: usize| cost.of((n * block) as u64) <= saved;
                let is_worth =
                    |gain: f32, n: usize| gain * skipped * MIN_USE >= cost.of((n * block) as u64) as f32;
                if let Some(places) = network.swapped(device, affordable, is_worth) {
                    self.saved -= cost.of(places[0].len() as u64).min(self.saved);
                    network.exchange(device, &places);
                    return Some(Swap { layer, device, places });
                }
            }
        }
        // What is saved is enough for the smallest swap at least.
        self.saved = self.saved.min(self.limit.saturating_mul(MAX_SAVED).max(most));
        None
    }
}

impl Network {
    /// Places of neurons that should change: of the device, and of the last one. As many blocks as are affordable, if they are worth
    /// it, by how many more neurons are then active on the device.
    fn swapped(
        &self,
        device: usize,
        affordable: impl Fn(usize) -> bool,
        is_worth: impl Fn(f32, usize) -> bool,
    ) -> Option<[Vec<u32>; 2]> {
        if !affordable(1) {
            return None;
        }
        let mut cold = self.blocks(self.lists.len() - 1);
        let mut hot = self.blocks(device);
        hot.sort_by(|a, b| a.0.total_cmp(&b.0));
        cold.sort_by_key(|(activity, place)| (Reverse(activity.to_bits()), *place));
        let (mut places, mut gain, mut n_blocks) = ([Vec::new(), Vec::new()], 0.0, 0);
        let margin = MARGIN / (self.sizes.block as f32).sqrt();
        let better = cold.iter().zip(&hot).take_while(|(cold, hot)| cold.0 > hot.0 + margin);
        for (n, (cold, hot)) in better.enumerate().take_while(|(n, _)| affordable(n + 1)) {
            let of_block = |place: u32| place..place + self.sizes.block as u32;
            places[0].extend(of_block(hot.1));
            places[1].extend(of_block(cold.1));
            (gain, n_blocks) = (gain + (cold.0 - hot.0) * self.sizes.block as f32, n + 1);
        }
        (n_blocks > 0 && is_worth(gain, n_blocks)).then_some(places)
    }

    /// How active the blocks of a device are, on average, and their first places. The last block of a network may be shorter: it stays.
    fn blocks(&self, device: usize) -> Vec<(f32, u32)> {
        let block = |(i, ids): (usize, &[u32])| {
            let sum: f32 = ids.iter().map(|&id| self.activity[id as usize]).sum();
            (sum / self.sizes.block as f32, (i * self.sizes.block) as u32)
        };
        self.lists[device].chunks_exact(self.sizes.block).enumerate().map(block).collect()
    }

    fn exchange(&mut self, device: usize, [hot, cold]: &[Vec<u32>; 2]) {
        let last = self.lists.len() - 1;
        for (&h, &c) in hot.iter().zip(cold) {
            let id = self.lists[device][h as usize];
            self.lists[device][h as usize] = self.lists[last][c as usize];
            self.lists[last][c as usize] = id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = 32;

    /// One layer; the first quarter of its neurons on the device.
    fn adaptation(block: usize, limit: u64) -> Adaptation {
        let lists = [(0..N / 4).collect(), (N / 4..N).collect()];
        let split = NeuronSplit { layers: BTreeMap::from([(3, lists.into())]) };
        let sizes = Sizes { block, skipped_bytes: 10.0 };
        Adaptation::new(&split, &BTreeMap::from([(3, sizes)]), &BTreeMap::new(), limit)
    }

    /// Tokens in which neurons fire; the share of what fired that was on the device in the last one, and bytes moved.
    fn run(
        a: &mut Adaptation,
        n_tokens: usize,
        cost: RewriteCost,
        fires: impl Fn(u32) -> bool,
    ) -> (f64, u64) {
        let (mut share, mut moved) = (0.0, 0);
        for _ in 0..n_tokens {
            let lists = a.neurons().layers[&3].clone();
            let n: Vec<u64> = (0..2).map(|d| a.count(3, d, lists[d].iter().map(|&id| fires(id)))).collect();
            share = n[0] as f64 / (n[0] + n[1]).max(1) as f64;
            a.add_step();
            while let Some(swap) = a.swap(|_, _| cost) {
                moved += cost.of(swap.places[0].len() as u64);
            }
        }
        let mut all: Vec<u32> = a.neurons().layers[&3].concat();
        all.sort();
        assert_eq!(all, (0..N).collect::<Vec<_>>(), "each neuron is on one device");
        (share, moved)
    }

    #[test]
    fn the_device_gets_what_has_become_active_within_the_limit() {
        for (block, cost) in [
            (1, RewriteCost { each: 10, whole: 0 }),
            (4, RewriteCost { each: 10, whole: 0 }),
            (4, RewriteCost { each: 0, whole: 300 }),
            (1, RewriteCost { each: 3, whole: 200 }),
        ] {
            let mut a = adaptation(block, 12);
            assert_eq!(run(&mut a, 100, cost, |id| id < 8), (1.0, 0), "nothing is better elsewhere");
            let (share, moved) = run(&mut a, 150, cost, |id| (16..24).contains(&id));
            assert_eq!(share, 1.0, "{block} {cost:?}");
            assert!(moved > 0 && moved <= 150 * 12 + 300, "{moved}");
            assert_eq!(run(&mut a, 50, cost, |id| (16..24).contains(&id)), (1.0, 0));
        }
    }

    #[test]
    fn a_quiet_time_saves_no_more_than_some_steps_may_move() {
        let mut a = adaptation(1, 10);
        let cost = RewriteCost { each: 10, whole: 0 };
        run(&mut a, 1000, cost, |id| id < 8);
        for _ in 0..80 {
            a.count(3, 1, (0..N).map(|_| true));
            a.count(3, 0, (0..N).map(|_| false));
        }
        a.add_step();
        let swap = a.swap(|_, _| cost).unwrap();
        assert!(swap.places[0].len() <= MAX_SAVED as usize + 1, "{swap:?}");
        assert_eq!(swap.device, 0);
    }

    #[test]
    fn a_weight_is_not_written_as_a_whole_for_what_it_does_not_pay() {
        let moved = |whole| {
            let cost = RewriteCost { each: 0, whole };
            run(&mut adaptation(1, 10_000), 100, cost, |id| (7..15).contains(&id)).1
        };
        // Seven neurons that fire in nearly all tokens, of 10 bytes that are else skipped.
        assert_eq!(moved(1000) / 1000, 1);
        assert_eq!(moved(7 * 640), 0);
    }

    #[test]
    fn without_a_limit_that_covers_a_neuron_nothing_moves() {
        let mut a = adaptation(1, 0);
        let cost = RewriteCost { each: 1, whole: 0 };
        assert_eq!(run(&mut a, 200, cost, |id| id >= 24), (0.0, 0));
    }

    #[test]
    fn few_more_active_tokens_are_no_reason() {
        let mut a = adaptation(1, 1000);
        let cost = RewriteCost { each: 1, whole: 0 };
        // Each in half of the tokens, in turn.
        for token in 0..200 {
            assert_eq!(run(&mut a, 1, cost, |id| (id + token) % 2 == 0).1, 0);
        }
    }
}
