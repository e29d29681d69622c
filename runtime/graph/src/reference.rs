//! The interpreter: runs a graph node by node with the plain references. The oracle of every plugin.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::ops::{self, value::Value};
use crate::tensor::{Kind, Tensor};
use std::collections::HashMap;

/// The bytes of the tensors that own theirs.
#[derive(Clone, Default, Debug)]
pub struct Memory {
    owners: HashMap<Tensor, Vec<u8>>,
}

impl Memory {
    /// Nothing given yet.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Gives a tensor its bytes; weights and inputs need them before a run, states start as zeros.
    pub fn set_bytes(&mut self, t: Tensor, bytes: Vec<u8>) {
        self.owners.insert(t, bytes);
    }

    /// Gives a tensor its elements, encoded in its dtype. Refuses a value of another shape.
    pub fn set(&mut self, graph: &Graph, t: Tensor, value: &Value) -> Result<()> {
        let def = graph.def(t);
        if value.ne != def.ne {
            let problem = format!("a value of {:?} for {:?}", value.ne, def.ne);
            return Err(Error::Shape { tensor: def.name.clone(), problem });
        }
        value.encode(def, self.owned(graph, t)?);
        Ok(())
    }

    /// The bytes of a tensor that owns its own, once it has any.
    pub fn bytes(&self, t: Tensor) -> Option<&[u8]> {
        self.owners.get(&t).map(Vec::as_slice)
    }

    /// The elements of a tensor, also through a view.
    pub fn get(&self, graph: &Graph, t: Tensor) -> Result<Value> {
        let (def, owner) = (graph.def(t), graph.owner(t));
        match self.bytes(owner) {
            Some(bytes) => {
                check_len(graph, owner, bytes.len())?;
                Ok(Value::decode(def, bytes))
            }
            None => Err(Error::NoValue { tensor: def.name.clone() }),
        }
    }

    /// The bytes that `t` or what it views owns; zeros if there are none yet.
    fn owned(&mut self, graph: &Graph, t: Tensor) -> Result<&mut [u8]> {
        let owner = graph.owner(t);
        let n_bytes = graph.def(owner).n_bytes() as usize;
        let bytes = self.owners.entry(owner).or_insert_with(|| vec![0; n_bytes]);
        check_len(graph, owner, bytes.len())?;
        Ok(bytes)
    }
}

/// Runs all nodes in order. Every result stays in `memory`, states with their new contents.
pub fn run(graph: &Graph, memory: &mut Memory) -> Result<()> {
    if let Some(error) = graph.error() {
        return Err(error.clone());
    }
    for (i, def) in graph.tensors.iter().enumerate().filter(|(_, def)| def.kind == Kind::State) {
        debug_assert!(def.view.is_none());
        memory.owned(graph, Tensor(i as u32))?;
    }
    for node in &graph.nodes {
        let src = node.src.iter().map(|s| s.map(|t| memory.get(graph, t)).transpose());
        let src = src.collect::<Result<Vec<_>>>()?;
        let src: Vec<_> = src.iter().map(Option::as_ref).collect();
        if graph.ne(node.dst).contains(&0) {
            memory.owned(graph, node.dst)?;
            continue; // an empty result: there is nothing to compute
        }
        let y = ops::rules(node.op).reference(&src, &node.params);
        y.encode(graph.def(node.dst), memory.owned(graph, node.dst)?);
    }
    Ok(())
}

fn check_len(graph: &Graph, owner: Tensor, len: usize) -> Result<()> {
    let def = graph.def(owner);
    if len as u64 == def.n_bytes() {
        return Ok(());
    }
    let problem = format!("given {len} bytes, expected {}", def.n_bytes());
    Err(Error::Shape { tensor: def.name.clone(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Role;
    use llmrt_abi::DType;

    #[test]
    fn a_graph_computes_through_views_and_keeps_its_state() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[2, 2]);
        let cache = g.state("cache", DType::F16, &[2, 3], Role::KCache);
        let slots = g.input("slots", DType::I32, &[2]);
        let doubled = g.scale(x, 2.0);
        let written = g.set_rows(cache, doubled, slots);
        let ids = g.input("ids", DType::I32, &[1]);
        let row = g.get_rows(written, ids);
        let y = g.output(row, "y");
        let g = g.finish().unwrap();

        let mut m = Memory::new();
        m.set(&g, x, &Value::f32([2, 2, 1, 1], vec![1.0, 2.0, 3.0, 4.0])).unwrap();
        m.set(&g, slots, &Value::i32([2, 1, 1, 1], vec![2, 0])).unwrap();
        m.set(&g, ids, &Value::i32([1, 1, 1, 1], vec![2])).unwrap();
        run(&g, &mut m).unwrap();
        assert_eq!(m.get(&g, y).unwrap().floats(), [2.0, 4.0]);
        assert_eq!(m.get(&g, cache).unwrap().floats(), [6.0, 8.0, 0.0, 0.0, 2.0, 4.0]);
    }

    #[test]
    fn a_missing_input_is_named() {
        let mut g = Graph::new();
        let x = g.input("tokens", DType::F32, &[4]);
        g.relu(x);
        let error = run(&g, &mut Memory::new()).unwrap_err();
        assert_eq!(error.to_string(), "no value for tensor `tokens`: give it before running the graph");
    }

    #[test]
    fn bytes_of_the_wrong_length_are_refused() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[4]);
        g.relu(x);
        let mut m = Memory::new();
        m.set_bytes(x, vec![0; 15]);
        assert_eq!(run(&g, &mut m).unwrap_err().to_string(), "tensor `x`: given 15 bytes, expected 16");
    }
}
