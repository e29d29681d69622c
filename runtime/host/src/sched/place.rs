//! Gives every node a device. Pure: verdicts and weight homes in, devices and reasons out.

use llmrt_abi::{Op, Reason, types::Verdict};
use llmrt_graph::{Graph, Kind, Node, Tensor};
use std::collections::HashMap;

/// Row of the executor's device list; the last one is the CPU baseline, which runs everything.
pub type DeviceIdx = usize;

/// What the devices said and where bytes already are.
pub struct Facts<'a> {
    /// Per device, one verdict per node.
    pub verdicts: &'a [Vec<Verdict>],
    /// Weights already loaded, and states already allocated: name to devices that hold them.
    pub homes: &'a HashMap<String, Vec<DeviceIdx>>,
    /// Per device, bytes free for weights and states that have no home yet; `None`: no limit.
    pub budget: &'a [Option<u64>],
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

/// Why a node does not run on the first device.
#[derive(Clone, PartialEq, Debug)]
pub struct Fallback {
    /// Row of the node.
    pub node: usize,
    /// Its op.
    pub op: Op,
    /// Name of its result.
    pub tensor: String,
    /// Where it was wanted.
    pub wanted: DeviceIdx,
    /// Where it runs.
    pub device: DeviceIdx,
    /// Why.
    pub reason: Reason,
}

/// Walks the nodes in order. A node goes to the first device that supports it, where its state already is if it has
/// one, and while the weights it brings fit. States decide first: every node on a state runs where the state lives.
pub fn place(g: &Graph, facts: &Facts) -> Placement {
    let cpu = facts.verdicts.len() - 1;
    let mut free = facts.budget.to_vec();
    let mut placement = Placement { home: state_homes(g, facts, &mut free), ..Default::default() };

    let mut produced_on: HashMap<Tensor, DeviceIdx> = HashMap::new();
    for (i, node) in g.nodes.iter().enumerate() {
        let mut refusal = Reason::None;
        let mut device = cpu;
        for d in 0..=cpu {
            match accepts(g, facts, &placement.home, &produced_on, &free, i, node, d) {
                Ok(()) => {
                    device = d;
                    break;
                }
                Err(reason) if refusal == Reason::None => refusal = reason,
                Err(_) => {}
            }
        }
        for weight in new_weights(g, facts, &placement.home, node, device) {
            take(&mut free[device], g.def(weight).n_bytes());
            placement.home.entry(weight).or_insert(device);
        }
        produced_on.insert(g.owner(node.dst), device);
        placement.node.push(device);
        if device != 0 {
            let tensor = g.def(node.dst).name.clone();
            placement.fallbacks.push(Fallback {
                node: i,
                op: node.op,
                tensor,
                wanted: 0,
                device,
                reason: refusal,
            });
        }
    }
    placement
}

/// A state lives on the first device that supports all nodes that touch it and has room for it.
fn state_homes(g: &Graph, facts: &Facts, free: &mut [Option<u64>]) -> HashMap<Tensor, DeviceIdx> {
    let cpu = facts.verdicts.len() - 1;
    let mut users: HashMap<Tensor, Vec<usize>> = HashMap::new();
    for (i, node) in g.nodes.iter().enumerate() {
        for t in owners(g, node).filter(|t| g.def(*t).kind == Kind::State) {
            users.entry(t).or_default().push(i);
        }
    }
    let mut states: Vec<_> = users.into_iter().collect();
    states.sort_by_key(|(t, _)| *t);
    let mut homes = HashMap::new();
    for (state, nodes) in states {
        let def = g.def(state);
        let known = facts.homes.get(&def.name).and_then(|h| h.first().copied());
        let home = known.unwrap_or_else(|| {
            let runs_all = |d: DeviceIdx| nodes.iter().all(|&i| facts.verdicts[d][i].support != 0);
            (0..cpu).find(|&d| runs_all(d) && fits(free[d], def.n_bytes())).unwrap_or(cpu)
        });
        if known.is_none() {
            take(&mut free[home], def.n_bytes());
        }
        homes.insert(state, home);
    }
    homes
}

/// Whether device `d` takes node `i`, or the reason it does not.
#[allow(clippy::too_many_arguments)]
fn accepts(
    g: &Graph,
    facts: &Facts,
    homes: &HashMap<Tensor, DeviceIdx>,
    produced_on: &HashMap<Tensor, DeviceIdx>,
    free: &[Option<u64>],
    i: usize,
    node: &Node,
    d: DeviceIdx,
) -> Result<(), Reason> {
    let verdict = facts.verdicts[d][i];
    if verdict.support == 0 {
        return Err(Reason::from_code(verdict.reason));
    }
    if owners(g, node).any(|t| g.def(t).kind == Kind::State && homes.get(&t).is_some_and(|&h| h != d)) {
        return Err(Reason::Layout);
    }
    if verdict.support == 2 {
        let here = |t: Tensor| match g.def(t).kind {
            Kind::Computed => produced_on.get(&t) == Some(&d),
            Kind::Input => true,
            Kind::Weight | Kind::State => homes.get(&t).is_none_or(|&h| h == d),
        };
        if !owners(g, node).all(here) {
            return Err(Reason::Layout);
        }
    }
    let new: u64 = new_weights(g, facts, homes, node, d).map(|t| g.def(t).n_bytes()).sum();
    if !fits(free[d], new) {
        return Err(Reason::Memory);
    }
    Ok(())
}

/// Weights of a node that device `d` does not hold yet.
fn new_weights<'a>(
    g: &'a Graph,
    facts: &'a Facts,
    homes: &HashMap<Tensor, DeviceIdx>,
    node: &'a Node,
    d: DeviceIdx,
) -> impl Iterator<Item = Tensor> + use<'a> {
    let homes = homes.clone();
    owners(g, node).filter(move |t| {
        let def = g.def(*t);
        def.kind == Kind::Weight
            && homes.get(t) != Some(&d)
            && !facts.homes.get(&def.name).is_some_and(|h| h.contains(&d))
    })
}

/// The owners of a node's sources (and of its result, which matters for in-place ops).
fn owners<'a>(g: &'a Graph, node: &'a Node) -> impl Iterator<Item = Tensor> + 'a {
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

    /// x → mul_mat → tanh → set_rows into a cache → mul_mat, on a device that runs `claims`, with the CPU behind it.
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
        let p = place(&g, &Facts { verdicts: &verdicts, homes: &homes, budget: &[budget, None] });
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
        // No room for the cache on the device: it lives on the CPU, and its writer goes there.
        assert_eq!(placed(&all, 1, Some(400), &[]), "0010 set_rows:layout");
    }

    #[test]
    fn a_conditional_yes_counts_only_where_the_operands_are() {
        // tanh reads what mul_mat left on the device; the last mul_mat's weight can be loaded there.
        assert_eq!(placed(&[Op::MulMat, Op::Tanh], 2, None, &[]), "0010 set_rows:op");
        assert_eq!(placed(&[Op::Tanh], 2, None, &[]), "1111 mul_mat:op tanh:layout set_rows:op mul_mat:op");
    }
}
