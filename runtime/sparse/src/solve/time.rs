//! The least time for a token, by the rates at which devices read weights.
//!
//! In layer l device d has k_d neurons, the most active first, and reads them all; the CPU reads what is active of the
//! rest, at the same time:
//!
//! T_l = max(k_d · w / B_d for every d, Σ p_i · w / B_cpu over the rest) + Σ s_d over the devices with neurons

use super::program::{Choice, minimise};
use crate::{Counts, Error};

/// Additions that a solution may take, about a second, and numbers that it may hold.
const MAX_ADDITIONS: f64 = 1e9;
const MAX_NUMBERS: f64 = 5e7;

/// A layer to divide.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LayerCost<'a> {
    /// How often each neuron was active.
    pub counts: &'a Counts,
    /// In how many tokens.
    pub n_tokens: f64,
    /// Bytes of a neuron: a row of up, one of gate if there is a gate, a column of down.
    pub bytes: u64,
}

/// A device beside the CPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Device {
    /// Bytes it reads in a second.
    pub rate: f64,
    /// Seconds that a layer takes longer when this device has a part of it.
    pub cost: f64,
    /// Bytes of neurons that it can hold.
    pub capacity: u64,
}

/// What to solve for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TimeRequest<'a> {
    /// The layers.
    pub layers: &'a [LayerCost<'a>],
    /// Bytes that the CPU reads in a second.
    pub cpu_rate: f64,
    /// The devices; the first one gets the most active neurons.
    pub devices: &'a [Device],
    /// Neurons that are decided about at a time.
    pub batch: usize,
}

/// A division of all layers.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Neurons by layer and device.
    pub neurons: Vec<Vec<usize>>,
    /// Seconds of each layer.
    pub seconds: Vec<f64>,
    /// Neurons that were decided about at a time: `batch`, or more where that would take too long. The plan is the
    /// best one for groups of this size.
    pub batch: usize,
}

/// The division with the least time. Of equal times the least memory, in the lowest layers.
pub fn least_time(request: TimeRequest<'_>) -> Result<Plan, Error> {
    check(&request)?;
    let n_ff = request.layers.iter().map(|layer| layer.counts.as_slice().len()).max().unwrap_or(0);
    let mut batch = request.batch;
    while !is_feasible(&request, batch) {
        if batch >= n_ff {
            let (found, expected) = (request.devices.len().to_string(), "fewer, for so many layers");
            return Err(Error::BadRequest { what: "the number of devices", found, expected });
        }
        batch = batch.saturating_mul(2);
    }
    Ok(Problem::new(&request, batch).solve(batch))
}

/// Whether the program takes no more than the limits.
fn is_feasible(request: &TimeRequest<'_>, batch: usize) -> bool {
    let groups = |layer: &LayerCost<'_>| layer.counts.as_slice().len().div_ceil(batch) as f64;
    let n_devices = request.devices.len();
    // Ways to give n groups to d devices and the CPU: (n + 1) (n + 2) … (n + d) / d!
    let ways = |n: f64| (1..=n_devices).fold(1.0, |ways, d| ways * (n + d as f64) / d as f64);
    let n_choices: f64 = request.layers.iter().map(|layer| ways(groups(layer))).sum();
    let unit = unit(request.layers, batch) as f64;
    let all =
        request.layers.iter().map(|l| groups(l) * group_units(l, batch, unit as u64) as f64).sum::<f64>();
    let n_states: f64 = request.devices.iter().map(|d| 1.0 + all.min(d.capacity as f64 / unit)).product();
    n_choices * n_states <= MAX_ADDITIONS && n_states * (request.layers.len() + 1) as f64 <= MAX_NUMBERS
}

fn check(request: &TimeRequest<'_>) -> Result<(), Error> {
    let bad = |what, found: String, expected| Err(Error::BadRequest { what, found, expected });
    let rates = request.devices.iter().map(|d| d.rate).chain([request.cpu_rate]);
    if let Some(rate) = rates.into_iter().find(|rate| !(rate.is_finite() && *rate > 0.0)) {
        return bad("a rate", rate.to_string(), "more than 0 bytes in a second");
    }
    if let Some(d) = request.devices.iter().find(|d| !(d.cost.is_finite() && d.cost >= 0.0)) {
        return bad("a device's cost", d.cost.to_string(), "at least 0 seconds");
    }
    if let Some(layer) = request.layers.iter().find(|l| !(l.n_tokens.is_finite() && l.n_tokens > 0.0)) {
        return bad("the number of tokens", layer.n_tokens.to_string(), "more than 0");
    }
    if request.layers.iter().any(|layer| layer.bytes == 0) {
        return bad("a neuron's size", "0".into(), "at least 1 byte");
    }
    match request.batch {
        0 => bad("the size of a group", "0".into(), "at least 1"),
        _ => Ok(()),
    }
}

/// The choices of all layers, and what the devices hold in the same unit.
struct Problem {
    choices: Vec<Vec<Choice>>,
    /// Neurons of each choice by device.
    neurons: Vec<Vec<Vec<usize>>>,
    capacity: Vec<usize>,
}

impl Problem {
    fn new(request: &TimeRequest<'_>, batch: usize) -> Problem {
        let unit = unit(request.layers, batch);
        let divided =
            request.layers.iter().map(|l| divisions(request, l, batch, group_units(l, batch, unit)));
        let (choices, neurons) = divided.unzip();
        let units = |d: &Device| usize::try_from(d.capacity / unit).unwrap_or(usize::MAX);
        Problem { choices, neurons, capacity: request.devices.iter().map(units).collect() }
    }

    fn solve(self, batch: usize) -> Plan {
        let picked = minimise(&self.choices, &self.capacity);
        let neurons = self.neurons.iter().zip(&picked).map(|(n, &i)| n[i].clone()).collect();
        let seconds = self.choices.iter().zip(&picked).map(|(choices, &i)| choices[i].value).collect();
        Plan { neurons, seconds, batch }
    }
}

/// Bytes of a unit of capacity: the greatest that all groups are multiples of, or, where those differ oddly, a 16th of
/// the largest, to which costs are rounded up.
fn unit(layers: &[LayerCost<'_>], batch: usize) -> u64 {
    let groups = layers.iter().map(|layer| layer.bytes.saturating_mul(batch as u64));
    let greatest = groups.clone().fold(0, gcd).max(1);
    greatest.max(groups.max().unwrap_or(1) / 16)
}

/// Units that a group of the layer takes.
fn group_units(layer: &LayerCost<'_>, batch: usize, unit: u64) -> usize {
    let bytes = layer.bytes.saturating_mul(batch as u64);
    usize::try_from(bytes.div_ceil(unit)).unwrap_or(usize::MAX)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// All ways to give groups of a layer to the devices that may be of use, most groups first: cost and time, and neurons.
fn divisions(
    request: &TimeRequest<'_>,
    layer: &LayerCost<'_>,
    batch: usize,
    cost: usize,
) -> (Vec<Choice>, Vec<Vec<usize>>) {
    let sorted = layer.counts.sorted();
    let n_groups = sorted.len().div_ceil(batch);
    let cpu = cpu_seconds(request, layer, &sorted, batch);
    let mut divisions = Vec::new();
    for groups in parts(n_groups, request.devices.len()) {
        let neurons = neurons_of(&groups, batch, sorted.len());
        let rest = cpu[groups.iter().sum::<usize>()];
        let busy = neurons.iter().zip(request.devices).filter(|(n, _)| **n > 0);
        let slowest = busy.clone().map(|(&n, d)| n as f64 * layer.bytes as f64 / d.rate).fold(rest, f64::max);
        let value = slowest + busy.map(|(_, d)| d.cost).sum::<f64>();
        divisions
            .push((Choice { cost: groups.iter().map(|n| n.saturating_mul(cost)).collect(), value }, neurons));
    }
    if request.devices.len() == 1 {
        keep_useful(&mut divisions);
    }
    divisions.reverse();
    divisions.into_iter().unzip()
}

/// Leaves out what takes no less time than a division with fewer neurons; these are in order.
fn keep_useful(divisions: &mut Vec<(Choice, Vec<usize>)>) {
    let mut least = f64::INFINITY;
    divisions.retain(|(choice, _)| {
        let is_useful = choice.value < least;
        least = least.min(choice.value);
        is_useful
    });
}

/// Seconds that the CPU takes for what is active beyond the first 0, 1, … groups.
fn cpu_seconds(request: &TimeRequest<'_>, layer: &LayerCost<'_>, sorted: &[f64], batch: usize) -> Vec<f64> {
    let active = |n: &f64| (n / layer.n_tokens).min(1.0);
    let mut sums: Vec<f64> = sorted.chunks(batch).map(|group| group.iter().map(active).sum()).collect();
    sums.push(0.0);
    (0..sums.len().saturating_sub(1)).rev().for_each(|i| sums[i] += sums[i + 1]);
    sums.into_iter().map(|n| n * layer.bytes as f64 / request.cpu_rate).collect()
}

/// Every way to give up to `n` groups to `n_parts` devices, fewest first in the first device.
fn parts(n: usize, n_parts: usize) -> Vec<Vec<usize>> {
    match n_parts {
        0 => vec![Vec::new()],
        _ => (0..=n)
            .flat_map(|first| {
                let rest = parts(n - first, n_parts - 1);
                rest.into_iter().map(move |rest| [&[first], &rest[..]].concat())
            })
            .collect(),
    }
}

/// Neurons of each device's groups; a layer's last group may have fewer.
fn neurons_of(groups: &[usize], batch: usize, n_ff: usize) -> Vec<usize> {
    let mut end = 0;
    let ends = groups.iter().map(|n| {
        end += n;
        (end * batch).min(n_ff)
    });
    let mut start = 0;
    ends.map(|end| end - std::mem::replace(&mut start, end)).collect()
}
