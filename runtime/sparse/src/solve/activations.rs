//! Upstream's objective: the most activations for a number of neurons.
//!
//! Each layer's counts, most first, are summed in groups of `batch`. A layer takes its first groups: none, or at least
//! as many as the threshold has; all layers together as many as the capacity has. Groups that add nothing are not
//! taken, unless a layer's threshold needs them.

use super::program::{Choice, minimise};
use crate::{Counts, Error};

/// Neurons that upstream decides about at a time.
pub const UPSTREAM_BATCH: usize = 256;

/// What to solve for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ActivationRequest {
    /// Neurons of a group. A layer's last group may have fewer; it takes as much of the capacity.
    pub batch: usize,
    /// Neurons of all layers together; rounded down to whole groups.
    pub capacity: u64,
    /// The fewest neurons of a layer that has any; rounded down to whole groups.
    pub threshold: u64,
}

/// How many neurons of each layer are on the device: the most active ones. Of equal sums the fewest groups, in the
/// lowest layers.
pub fn most_activations(layers: &[Counts], request: ActivationRequest) -> Result<Vec<usize>, Error> {
    let ActivationRequest { batch, capacity, threshold } = request;
    if batch == 0 {
        return Err(Error::BadRequest {
            what: "the size of a group",
            found: "0".into(),
            expected: "at least 1",
        });
    }
    let n_groups = |neurons: u64| usize::try_from(neurons / batch as u64).unwrap_or(usize::MAX);
    let choices: Vec<_> = layers.iter().map(|counts| choices(counts, batch, n_groups(threshold))).collect();
    let picked = minimise(&choices, &[n_groups(capacity)]);
    let neurons = |((choices, counts), i): ((&Vec<Choice>, &Counts), usize)| {
        (choices[i].cost[0] * batch).min(counts.as_slice().len())
    };
    Ok(choices.iter().zip(layers).zip(picked).map(neurons).collect())
}

/// Numbers of groups that a layer may take, most first, valued by the activations that it then lacks.
fn choices(counts: &Counts, batch: usize, threshold: usize) -> Vec<Choice> {
    let mut value = 0.0;
    let mut choices = vec![Choice { cost: vec![0], value }];
    for (i, group) in counts.sorted().chunks(batch).enumerate() {
        value -= group.iter().sum::<f64>();
        if i + 1 >= threshold {
            choices.push(Choice { cost: vec![i + 1], value });
        }
    }
    choices.reverse();
    choices
}

/// The neurons that upstream takes a budget of bytes for: it assumes 4.5 rows of down for each (2 without a gate), and
/// counts in fours. `column_bytes` are those of n_ff elements of the weights' type.
pub fn upstream_capacity(budget: u64, column_bytes: u64, has_gate: bool) -> u64 {
    let four_neurons = if has_gate { column_bytes * 9 / 2 } else { column_bytes * 2 };
    budget.checked_div(four_neurons).unwrap_or(0).saturating_mul(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_budget_takes_too_many_bytes_for_some_models() {
        // Q4_0: 18 bytes for 32 elements. Assumed bytes of a neuron, times 4.
        let four_of = |n_ff: u64, has_gate, bytes: u64| {
            let column = n_ff / 32 * 18;
            assert_eq!(upstream_capacity(bytes - 1, column, has_gate), 0, "{n_ff}");
            assert_eq!(upstream_capacity(bytes, column, has_gate), 4, "{n_ff}");
        };
        four_of(11_008, true, 4 * 6966); // Llama 7B, 6912 in truth
        four_of(28_672, true, 4 * 18_144); // Llama 2 70B, 13824
        four_of(32_768, false, 4 * 9216); // Falcon 40B, the same
        assert_eq!(upstream_capacity(1, 0, true), 0);
    }
}
