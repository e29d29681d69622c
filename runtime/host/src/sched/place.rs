//! Gives every node a device. Pure: verdicts and weight homes in, devices and reasons out.

use super::layers::share;
use llmrt_abi::{Op, Reason, types::Verdict};
use llmrt_graph::{Graph, Kind, Node, Tensor};
use std::collections::{BTreeSet, HashMap};

/// Row of the executor's device list; the last one is the baseline, which runs what no other does.
pub type DeviceIdx = usize;

/// The devices' verdicts, and where bytes already are.
pub struct Facts<'a> {
    /// Per device, one verdict per node.
    pub verdicts: &'a [Vec<Verdict>],
    /// Weights already loaded, and states already allocated: name to devices that hold them.
    pub homes: &'a HashMap<String, Vec<DeviceIdx>>,
    /// Per device, bytes free for weights and states that have no home yet; `None`: no limit.
    pub budget: &'a [Option<u64>],
    /// Weights that are for one device, by name.
    pub assigned: &'a HashMap<String, DeviceIdx>,
}

/// The devices of one graph.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Placement {
    /// One device per node.
    pub node: Vec<DeviceIdx>,
    /// Weights and states by owner tensor: the device their first user runs on.
    pub home: HashMap<Tensor, DeviceIdx>,
    /// Nodes that run elsewhere than on the first device, with the first refusal met on the way.
    pub fallbacks: Vec<Fallback>,
}

/// Why a node does not run on the first device, or on the one that its layer is for.
#[derive(Clone, PartialEq, Debug)]
pub struct Fallback {
    /// Row of the node.
    pub node: usize,
    /// Its op.
    pub op: Op,
    /// Name of its result.
    pub tensor: String,
    /// The preferred device.
    pub preferred: DeviceIdx,
    /// Where it runs.
    pub device: DeviceIdx,
    /// Why.
    pub reason: Reason,
}

/// A node that no device runs, not even the baseline.
#[derive(Clone, PartialEq, Debug)]
pub struct Unplaceable {
    /// Row of the node.
    pub node: usize,
    /// The baseline's verdict.
    pub reason: Reason,
}

/// Walks the nodes in order. A node goes to the device of its assigned weights or of
/// its layer, or else to the first one that supports it, where its
/// states already are if it has any, and while its weights fit. States take precedence: every node on a state runs on
/// the state's device.
pub fn place(g: &Graph, facts: &Facts) -> Result<Placement, Unplaceable> {
    let mut shares = share(g, facts);
    let assigned = assigned(g, facts);
    for (share, assigned) in shares.iter_mut().zip(&assigned) {
        *share = assigned.unwrap_or(*share);
    }
    let home = state_homes(g, facts, &shares);
    let mut placer = Placer { g, facts, free: facts.budget.to_vec(), home, produced_on: HashMap::new() };
    for state in placer.home.keys().copied().collect::<Vec<_>>() {
        if !facts.homes.contains_key(&g.def(state).name) {
            take(&mut placer.free[placer.home[&state]], g.def(state).n_bytes());
        }
    }
    let mut placement = Placement::default();
    for (i, node) in g.nodes.iter().enumerate() {
        let (device, refusal) = placer.choose(i, node, shares[i])?;
        placer.settle(node, device);
        placement.node.push(device);
        let preferred = assigned[i].unwrap_or(0);
        if device != preferred && device != shares[i] {
            let tensor = g.def(node.dst).name.clone();
            let fallback = Fallback { node: i, op: node.op, tensor, preferred, device, reason: refusal };
            placement.fallbacks.push(fallback);
        }
    }
    placement.home = placer.home;
    Ok(placement)
}

/// The device that each node is assigned to, if any: that of its weights, or of all that it computes with, where it has no
/// weight and no state.
fn assigned(g: &Graph, facts: &Facts) -> Vec<Option<DeviceIdx>> {
    let mut produced = HashMap::new();
    let mut of_node = |node: &Node| {
        let of_weight = owners(g, node).find_map(|t| facts.assigned.get(&g.def(t).name).copied());
        let with = owners(g, node).filter(|&t| g.def(t).kind != Kind::Input);
        let mut with = with.map(|t| produced.get(&t).copied()).peekable();
        let first = with.peek().copied().flatten();
        let device = of_weight.or_else(|| first.filter(|_| with.all(|d| d == first)));
        produced.extend(device.map(|d| (g.owner(node.dst), d)));
        device
    };
    g.nodes.iter().map(&mut of_node).collect()
}

/// The walk so far.
struct Placer<'a> {
    g: &'a Graph,
    facts: &'a Facts<'a>,
    free: Vec<Option<u64>>,
    home: HashMap<Tensor, DeviceIdx>,
    produced_on: HashMap<Tensor, DeviceIdx>,
}

impl Placer<'_> {
    /// The first device that takes a node, the one that its layer is for before all, and the first refusal on the way.
    fn choose(&self, i: usize, node: &Node, share: DeviceIdx) -> Result<(DeviceIdx, Reason), Unplaceable> {
        let mut refusals = Vec::new();
        for d in in_turn(share, self.facts.verdicts.len()) {
            match self.accepts(i, node, d) {
                Ok(()) => return Ok((d, refusals.first().copied().unwrap_or(Reason::None))),
                Err(reason) => refusals.push(reason),
            }
        }
        Err(Unplaceable { node: i, reason: refusals.last().copied().unwrap_or(Reason::Op) })
    }

    /// Whether device `d` takes node `i`, or the reason it does not.
    fn accepts(&self, i: usize, node: &Node, d: DeviceIdx) -> Result<(), Reason> {
        let verdict = self.facts.verdicts[d][i];
        if verdict.support == 0 {
            return Err(Reason::from_code(verdict.reason));
        }
        let mut states = owners(self.g, node).filter(|&t| self.g.def(t).kind == Kind::State).peekable();
        let pinned = states.peek().is_some();
        if states.any(|t| self.home.get(&t) != Some(&d)) {
            return Err(Reason::Layout);
        }
        // What follows a state has nowhere else to go; its other operands are copied there.
        if verdict.support == 2 && !pinned && !owners(self.g, node).all(|t| self.is_on(t, d)) {
            return Err(Reason::Layout);
        }
        if !fits(self.free[d], self.new_weights(node, d).map(|t| self.g.def(t).n_bytes()).sum()) {
            return Err(Reason::Memory);
        }
        Ok(())
    }

    /// Whether a tensor is on device `d` already, or can be put there at once.
    fn is_on(&self, t: Tensor, d: DeviceIdx) -> bool {
        match self.g.def(t).kind {
            Kind::Computed => self.produced_on.get(&t) == Some(&d),
            Kind::Input => true,
            Kind::Weight | Kind::State => self.home.get(&t).is_none_or(|&h| h == d),
        }
    }

    /// Notes where a node runs: its weights come there, and its result is there.
    fn settle(&mut self, node: &Node, device: DeviceIdx) {
        for weight in self.new_weights(node, device).collect::<Vec<_>>() {
            take(&mut self.free[device], self.g.def(weight).n_bytes());
            self.home.entry(weight).or_insert(device);
        }
        self.produced_on.insert(self.g.owner(node.dst), device);
    }

    /// Weights of a node that device `d` does not hold yet.
    fn new_weights<'a>(&'a self, node: &'a Node, d: DeviceIdx) -> impl Iterator<Item = Tensor> + 'a {
        owners(self.g, node).filter(move |t| {
            let def = self.g.def(*t);
            def.kind == Kind::Weight
                && self.home.get(t) != Some(&d)
                && !self.facts.homes.get(&def.name).is_some_and(|h| h.contains(&d))
        })
    }
}

/// One device, then the others from the first on.
fn in_turn(first: DeviceIdx, n: usize) -> impl Iterator<Item = DeviceIdx> {
    std::iter::once(first).chain((0..n).filter(move |&d| d != first))
}

/// States that share a node live together: where one of them already is, or else on the device of their layer or the
/// first one that supports all nodes that use any of them and has enough memory for all.
fn state_homes(g: &Graph, facts: &Facts, shares: &[DeviceIdx]) -> HashMap<Tensor, DeviceIdx> {
    let baseline = facts.verdicts.len() - 1;
    let mut free = facts.budget.to_vec();
    let mut homes = HashMap::new();
    for (states, nodes) in state_groups(g) {
        let known = states.iter().find_map(|t| facts.homes.get(&g.def(*t).name)?.first().copied());
        let bytes: u64 = states.iter().map(|t| g.def(*t).n_bytes()).sum();
        let home = known.unwrap_or_else(|| {
            let runs_all = |d: DeviceIdx| nodes.iter().all(|&i| facts.verdicts[d][i].support != 0);
            let first = nodes.iter().map(|&i| shares[i]).min().unwrap_or(0);
            let mut cards = in_turn(first, baseline).filter(|&d| d < baseline);
            let home = cards.find(|&d| runs_all(d) && fits(free[d], bytes)).unwrap_or(baseline);
            take(&mut free[home], bytes);
            home
        });
        homes.extend(states.into_iter().map(|t| (t, home)));
    }
    homes
}

/// States connected by nodes that touch several of them, with all nodes that touch any; in order of first use.
fn state_groups(g: &Graph) -> Vec<(BTreeSet<Tensor>, Vec<usize>)> {
    let mut groups: Vec<(BTreeSet<Tensor>, Vec<usize>)> = Vec::new();
    for (i, node) in g.nodes.iter().enumerate() {
        let mut states: BTreeSet<_> = owners(g, node).filter(|&t| g.def(t).kind == Kind::State).collect();
        if states.is_empty() {
            continue;
        }
        let mut nodes = Vec::new();
        groups.retain_mut(|(other, other_nodes)| {
            let apart = other.is_disjoint(&states);
            if !apart {
                states.append(other);
                nodes.append(other_nodes);
            }
            apart
        });
        nodes.push(i);
        groups.push((states, nodes));
    }
    groups.sort_by_key(|(_, nodes)| nodes.first().copied());
    groups
}

/// The owners of a node's sources (and of its result, which matters for in-place ops).
pub(super) fn owners<'a>(g: &'a Graph, node: &'a Node) -> impl Iterator<Item = Tensor> + 'a {
    node.src.iter().flatten().map(|&t| g.owner(t)).chain(g.def(node.dst).view.map(|(base, _)| base))
}

fn fits(free: Option<u64>, bytes: u64) -> bool {
    free.is_none_or(|free| bytes <= free)
}

fn take(free: &mut Option<u64>, bytes: u64) {
    if let Some(free) = free {
        *free = free.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_abi::DType;
    use llmrt_graph::Role;

    const YES: Verdict = Verdict { support: 1, reason: 0, fuse_group: 0, est_us: -1.0, workspace: 0 };

    /// x → mul_mat → tanh → set_rows into a cache → mul_mat, on a device that runs `claims`, with the CPU after it.
    fn placed(claims: &[Op], support: u8, budget: Option<u64>, homes: &[(&str, DeviceIdx)]) -> String {
        let mut g = Graph::new();
        let w1 = g.weight("w1", DType::F32, &[8, 8], Role::Matrix);
        let w2 = g.weight("w2", DType::F32, &[8, 4], Role::Matrix);
        let x = g.input("x", DType::F32, &[8, 2]);
        let slots = g.input("slots", DType::I32, &[2]);
        let cache = g.state("cache", DType::F32, &[8, 16], Role::KCache);
        let h = g.mul_mat(w1, x);
        let h = g.tanh(h);
        g.set_rows(cache, h, slots);
        g.mul_mat(w2, h);
        let g = g.finish().unwrap();

        let verdict = |op: &Op| match claims.contains(op) {
            true => Verdict { support, ..YES },
            false => Verdict { support: 0, reason: Reason::Op.code(), ..YES },
        };
        let verdicts = [g.nodes.iter().map(|n| verdict(&n.op)).collect(), vec![YES; g.nodes.len()]];
        let homes = homes.iter().map(|(name, d)| (name.to_string(), vec![*d])).collect();
        let p = place(
            &g,
            &Facts { verdicts: &verdicts, homes: &homes, budget: &[budget, None], assigned: &HashMap::new() },
        )
        .unwrap();
        let nodes: String = p.node.iter().map(|d| d.to_string()).collect();
        let reasons: Vec<_> = p.fallbacks.iter().map(|f| format!("{}:{}", f.op, f.reason)).collect();
        format!("{nodes} {}", reasons.join(" ")).trim_end().to_string()
    }

    #[test]
    fn a_device_that_runs_everything_gets_everything() {
        assert_eq!(placed(&[Op::MulMat, Op::Tanh, Op::SetRows], 1, None, &[]), "0000");
    }

    #[test]
    fn refused_ops_go_to_the_cpu_with_their_reason() {
        assert_eq!(placed(&[Op::MulMat], 1, None, &[]), "0110 tanh:op set_rows:op");
    }

    #[test]
    fn weights_that_do_not_fit_send_their_node_to_the_cpu() {
        // w1 has 256 bytes, w2 has 128.
        assert_eq!(placed(&[Op::MulMat], 1, Some(300), &[]), "0111 tanh:op set_rows:op mul_mat:memory");
        assert_eq!(
            placed(&[Op::MulMat], 1, Some(0), &[]),
            "1111 mul_mat:memory tanh:op set_rows:op mul_mat:memory"
        );
    }

    #[test]
    fn weights_already_loaded_cost_nothing() {
        assert_eq!(placed(&[Op::MulMat], 1, Some(0), &[("w1", 0), ("w2", 0)]), "0110 tanh:op set_rows:op");
    }

    #[test]
    fn nodes_follow_the_state_they_write() {
        let all = [Op::MulMat, Op::Tanh, Op::SetRows];
        assert_eq!(placed(&all, 1, None, &[("cache", 1)]), "0010 set_rows:layout");
        // Too little memory for the cache on the device: it is on the CPU, and its writer is placed there.
        assert_eq!(placed(&all, 1, Some(400), &[]), "0010 set_rows:layout");
    }

    #[test]
    fn a_conditional_yes_counts_only_where_the_operands_are() {
        // tanh reads what mul_mat left on the device; the last mul_mat's weight can be loaded there.
        assert_eq!(placed(&[Op::MulMat, Op::Tanh], 2, None, &[]), "0010 set_rows:op");
        assert_eq!(placed(&[Op::Tanh], 2, None, &[]), "1111 mul_mat:op tanh:layout set_rows:op mul_mat:op");
    }

    /// K and V of one layer, written by one op each and read by one together; as "home of K, home of V".
    fn cache_homes(budget: u64, known: &[(&str, DeviceIdx)]) -> [DeviceIdx; 2] {
        let mut g = Graph::new();
        let rows = g.input("rows", DType::F32, &[8, 1]);
        let slots = g.input("slots", DType::I32, &[1]);
        let [k, v] = ["k", "v"].map(|name| g.state(name, DType::F32, &[8, 16], Role::KCache));
        g.set_rows(k, rows, slots);
        g.set_rows(v, rows, slots);
        g.add(k, v);
        let verdicts = [vec![YES; 3], vec![YES; 3]];
        let homes = known.iter().map(|(name, d)| (name.to_string(), vec![*d])).collect();
        let p = place(
            &g,
            &Facts {
                verdicts: &verdicts,
                homes: &homes,
                budget: &[Some(budget), None],
                assigned: &HashMap::new(),
            },
        )
        .unwrap();
        [p.home[&k], p.home[&v]]
    }

    #[test]
    fn states_that_share_a_node_live_together() {
        // Each has 512 bytes.
        assert_eq!(cache_homes(1024, &[]), [0, 0]);
        assert_eq!(cache_homes(1000, &[]), [1, 1], "one would fit, but not both");
        assert_eq!(cache_homes(1024, &[("v", 1)]), [1, 1]);
    }

    #[test]
    fn a_node_that_no_device_runs_is_an_error() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[8]);
        g.tanh(x);
        let no = Verdict { support: 0, reason: Reason::Type.code(), ..YES };
        let facts = Facts {
            verdicts: &[vec![no]],
            homes: &HashMap::new(),
            budget: &[None],
            assigned: &HashMap::new(),
        };
        assert_eq!(place(&g, &facts), Err(Unplaceable { node: 0, reason: Reason::Type }));
    }
}
