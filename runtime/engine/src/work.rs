//! What steps have executed on devices: nodes by device, those that fell back, and what sparse products needed.

use llmrt_abi::Reason;
use llmrt_host::sched::report::Report;
use std::sync::Arc;

/// What the steps of an engine have executed since it started.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Work {
    /// Steps that devices executed.
    pub n_steps: u64,
    /// Nodes by device, in the order in which devices were first used.
    pub devices: Vec<DeviceWork>,
    /// Nodes that ran elsewhere than on the first device.
    pub fallbacks: Vec<FallbackWork>,
    /// Parts of graphs that ran on one device without another in between.
    pub n_splits: u64,
    /// Bytes copied between devices.
    pub copied_bytes: u64,
    /// Steps of a shape whose program was not made before the first step.
    pub n_program_misses: u64,
    /// What tokens needed of the weights, if it is counted ([`crate::EngineOptions::count_needed`]).
    pub needed: NeededWork,
    /// Neurons on devices, where they change places ([`crate::neurons::NeuronOptions::adapt`]).
    pub divided: DividedWork,
}

/// What tokens needed of the weights, in steps of one token, of models most of whose neurons give zeros.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct NeededWork {
    /// Tokens that were counted.
    pub n_tokens: u64,
    /// Neurons that were picked, and all of them.
    pub neurons: [u64; 2],
    /// Bytes of rows and columns of matrices that were not multiplied with zeros alone, and all of them.
    pub bytes: [u64; 2],
}

/// Neurons that change places between devices and the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DividedWork {
    /// Tokens that were counted.
    pub n_tokens: u64,
    /// Neurons that were active in them, on devices and in all.
    pub active: [u64; 2],
    /// Neurons that devices got.
    pub n_moved: u64,
    /// Bytes of weights that were written for it, on devices and on the CPU.
    pub moved_bytes: u64,
}

/// Nodes of a device.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceWork {
    /// The device's name.
    pub device: Arc<str>,
    /// Nodes it executed.
    pub n_nodes: u64,
}

/// Nodes that fell back.
#[derive(Clone, PartialEq, Debug)]
pub struct FallbackWork {
    /// Name of their op.
    pub op: &'static str,
    /// The device that executed them.
    pub device: Arc<str>,
    /// Why the first device did not.
    pub reason: Reason,
    /// How many.
    pub n_nodes: u64,
}

impl NeededWork {
    /// Adds a token's.
    pub(crate) fn add(&mut self, neurons: [u64; 2], bytes: [u64; 2]) {
        let sum = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
        *self = NeededWork {
            n_tokens: self.n_tokens + 1,
            neurons: sum(self.neurons, neurons),
            bytes: sum(self.bytes, bytes),
        };
    }

    fn since(&self, earlier: &NeededWork) -> NeededWork {
        let rest = |a: [u64; 2], b: [u64; 2]| [a[0].saturating_sub(b[0]), a[1].saturating_sub(b[1])];
        NeededWork {
            n_tokens: self.n_tokens.saturating_sub(earlier.n_tokens),
            neurons: rest(self.neurons, earlier.neurons),
            bytes: rest(self.bytes, earlier.bytes),
        }
    }
}

impl DividedWork {
    fn since(&self, earlier: &DividedWork) -> DividedWork {
        let rest = |now: u64, before: u64| now.saturating_sub(before);
        DividedWork {
            n_tokens: rest(self.n_tokens, earlier.n_tokens),
            active: [0, 1].map(|i| rest(self.active[i], earlier.active[i])),
            n_moved: rest(self.n_moved, earlier.n_moved),
            moved_bytes: rest(self.moved_bytes, earlier.moved_bytes),
        }
    }
}

impl Work {
    /// Adds a step.
    pub fn add(&mut self, report: &Report) {
        self.n_steps += 1;
        self.n_splits += report.splits.len() as u64;
        self.copied_bytes += report.copied_bytes;
        for (name, n_nodes) in report.devices.iter().zip(&report.nodes) {
            self.device(name).n_nodes += *n_nodes as u64;
        }
        for group in &report.fallbacks {
            let device = self.device(&report.devices[group.device]).device.clone();
            self.fallback(group.op, &device, group.reason).n_nodes += group.count as u64;
        }
    }

    /// What was executed after `earlier`.
    pub fn since(&self, earlier: &Work) -> Work {
        let mut work = self.clone();
        work.n_steps -= earlier.n_steps.min(work.n_steps);
        work.n_splits -= earlier.n_splits.min(work.n_splits);
        work.copied_bytes -= earlier.copied_bytes.min(work.copied_bytes);
        work.n_program_misses -= earlier.n_program_misses.min(work.n_program_misses);
        work.needed = work.needed.since(&earlier.needed);
        work.divided = work.divided.since(&earlier.divided);
        for old in &earlier.devices {
            let now = work.device(&old.device);
            now.n_nodes -= old.n_nodes.min(now.n_nodes);
        }
        for old in &earlier.fallbacks {
            let now = work.fallback(old.op, &old.device, old.reason);
            now.n_nodes -= old.n_nodes.min(now.n_nodes);
        }
        work.devices.retain(|device| device.n_nodes > 0);
        work.fallbacks.retain(|fallback| fallback.n_nodes > 0);
        work
    }

    fn device(&mut self, name: &str) -> &mut DeviceWork {
        let at = self.devices.iter().position(|d| &*d.device == name).unwrap_or_else(|| {
            self.devices.push(DeviceWork { device: name.into(), n_nodes: 0 });
            self.devices.len() - 1
        });
        &mut self.devices[at]
    }

    fn fallback(&mut self, op: &'static str, device: &Arc<str>, reason: Reason) -> &mut FallbackWork {
        let is_it = |f: &FallbackWork| (f.op, &f.device, f.reason) == (op, device, reason);
        let at = self.fallbacks.iter().position(is_it).unwrap_or_else(|| {
            self.fallbacks.push(FallbackWork { op, device: device.clone(), reason, n_nodes: 0 });
            self.fallbacks.len() - 1
        });
        &mut self.fallbacks[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_host::sched::report::FallbackGroup;

    fn report() -> Report {
        let group = |op| FallbackGroup { op, device: 1, reason: Reason::Op, count: 2, example: "x".into() };
        Report {
            devices: vec!["card".into(), "cpu".into()],
            nodes: vec![5, 3],
            splits: vec![(0, 5), (1, 3)],
            fallbacks: vec![group("rope")],
            copied_bytes: 64,
            ..Report::default()
        }
    }

    #[test]
    fn steps_add_up_and_a_later_part_of_them_is_the_difference() {
        let mut work = Work::default();
        work.add(&report());
        work.needed.add([2, 8], [30, 90]);
        let first = work.clone();
        work.add(&report());
        work.needed.add([1, 8], [20, 90]);
        // The card is left out: the other device is the first row now.
        work.add(&Report { devices: vec!["cpu".into()], nodes: vec![8], ..Report::default() });
        let nodes = |work: &Work| -> Vec<(String, u64)> {
            work.devices.iter().map(|d| (d.device.to_string(), d.n_nodes)).collect()
        };
        assert_eq!(nodes(&work), [("card".to_string(), 10), ("cpu".to_string(), 14)]);
        assert_eq!((work.n_steps, work.n_splits, work.copied_bytes), (3, 4, 128));
        let later = work.since(&first);
        assert_eq!(nodes(&later), [("card".to_string(), 5), ("cpu".to_string(), 11)]);
        assert_eq!((later.fallbacks[0].n_nodes, later.n_steps), (2, 2));
        assert_eq!(later.needed, NeededWork { n_tokens: 1, neurons: [1, 8], bytes: [20, 90] });
        assert_eq!(work.since(&work), Work::default());
    }
}
