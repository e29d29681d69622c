//! The graph: tensors and nodes in execution order, and how they are built.
//!
//! Builder methods never fail on the spot: the first mistake is kept and [`Graph::finish`] returns it, so a model
//! reads like its diagram. Each op's own builder method stands in `ops/<op>.rs`.

use crate::error::{Error, Result};
use crate::ops;
use crate::tensor::{Kind, Role, Shape, Tensor, TensorDef, contiguous_strides, shape};
use llmrt_abi::{DType, Op};

/// One operation.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// Sources; `None` for an optional one left out.
    pub src: Vec<Option<Tensor>>,
    /// The result.
    pub dst: Tensor,
    /// The op's params struct, as bytes.
    pub params: Vec<u8>,
}

/// Tensors and nodes. Equal graphs (topology, shapes, dtypes, params) have equal [`Graph::uid`]s.
// Not `PartialEq`: its method `ne` would shadow `Graph::ne` on a `&mut Graph`.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Rows by [`Tensor`] number.
    pub tensors: Vec<TensorDef>,
    /// In execution order.
    pub nodes: Vec<Node>,
    error: Option<Error>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// The graph, or the first mistake made while building it.
    pub fn finish(self) -> Result<Graph> {
        match self.error {
            Some(e) => Err(e),
            None => Ok(self),
        }
    }

    /// The first mistake made so far.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// The row of a tensor.
    pub fn def(&self, t: Tensor) -> &TensorDef {
        &self.tensors[t.0 as usize]
    }

    /// Elements per dim of a tensor.
    pub fn ne(&self, t: Tensor) -> Shape {
        self.def(t).ne
    }

    /// The tensor that owns the bytes of `t`: itself, or what it views.
    pub fn owner(&self, t: Tensor) -> Tensor {
        self.def(t).view.map_or(t, |(base, _)| base)
    }

    /// The tensor with this name.
    pub fn find(&self, name: &str) -> Option<Tensor> {
        self.tensors.iter().position(|t| t.name == name).map(|i| Tensor(i as u32))
    }

    /// A weight, by its name in the file.
    pub fn weight(&mut self, name: &str, dtype: DType, dims: &[u64], role: Role) -> Tensor {
        self.leaf(name, dtype, dims, Kind::Weight, role)
    }

    /// A tensor the caller sets before each run.
    pub fn input(&mut self, name: &str, dtype: DType, dims: &[u64]) -> Tensor {
        self.leaf(name, dtype, dims, Kind::Input, Role::Other)
    }

    /// A tensor whose bytes stay between runs.
    pub fn state(&mut self, name: &str, dtype: DType, dims: &[u64], role: Role) -> Tensor {
        self.leaf(name, dtype, dims, Kind::State, role)
    }

    /// Marks a tensor as read by the caller after the run; gives it a name.
    pub fn output(&mut self, t: Tensor, name: &str) -> Tensor {
        let def = &mut self.tensors[t.0 as usize];
        def.output = true;
        def.name = name.to_string();
        t
    }

    /// Names a tensor, for dumps and per-op comparison.
    pub fn name(&mut self, t: Tensor, name: impl Into<String>) -> Tensor {
        self.tensors[t.0 as usize].name = name.into();
        t
    }

    fn leaf(&mut self, name: &str, dtype: DType, dims: &[u64], kind: Kind, role: Role) -> Tensor {
        let (ne, nb) = self.contiguous(name, dtype, shape(dims));
        let def = TensorDef {
            name: name.into(),
            dtype,
            ne,
            nb,
            kind,
            role,
            output: false,
            view: None,
            listed: None,
        };
        self.push_tensor(def)
    }

    /// Appends a node whose result is a new contiguous tensor, by the op's shape rule.
    pub(crate) fn push(&mut self, op: Op, src: &[Option<Tensor>], params: &[u8]) -> Tensor {
        let defs: Vec<_> = src.iter().map(|s| s.map(|t| self.def(t))).collect();
        let (dtype, ne) = match ops::rules(op).infer(&defs, params) {
            Ok(result) => result,
            Err(problem) => {
                let tensor = defs.first().and_then(|d| d.as_ref()).map_or(String::new(), |d| d.name.clone());
                self.fail(Error::Op { op, tensor, problem });
                (DType::F32, [1; 4])
            }
        };
        let name = format!("{}_{}", op.name(), self.nodes.len());
        let (ne, nb) = self.contiguous(&name, dtype, ne);
        let def = TensorDef {
            name,
            dtype,
            ne,
            nb,
            kind: Kind::Computed,
            role: Role::Other,
            output: false,
            view: None,
            listed: None,
        };
        let dst = self.push_tensor(def);
        self.nodes.push(Node { op, src: src.to_vec(), dst, params: params.to_vec() });
        dst
    }

    /// Appends a node that writes into `into` (a state or computed tensor) in place; the result is a view of it.
    pub(crate) fn push_in_place(
        &mut self,
        op: Op,
        into: Tensor,
        src: &[Option<Tensor>],
        params: &[u8],
    ) -> Tensor {
        let defs: Vec<_> = src.iter().map(|s| s.map(|t| self.def(t))).collect();
        if let Err(problem) = ops::rules(op).infer(&defs, params) {
            let tensor = self.def(into).name.clone();
            self.fail(Error::Op { op, tensor, problem });
        }
        let (ne, nb) = (self.def(into).ne, self.def(into).nb);
        let dst = self.view(into, ne, nb, 0);
        self.nodes.push(Node { op, src: src.to_vec(), dst, params: params.to_vec() });
        dst
    }

    /// A view: other dims and strides on the bytes of `t`, from byte `offset` of it.
    pub fn view(&mut self, t: Tensor, ne: Shape, nb: Shape, offset: u64) -> Tensor {
        let (base, base_offset) = self.def(t).view.unwrap_or((t, 0));
        let of = self.def(t);
        let def = TensorDef {
            name: format!("{} (view)", of.name.trim_end_matches(" (view)")),
            dtype: of.dtype,
            ne,
            nb,
            kind: Kind::Computed,
            role: of.role,
            output: false,
            view: Some((base, base_offset.saturating_add(offset))),
            listed: None,
        };
        let end = base_offset.checked_add(offset).and_then(|at| at.checked_add(def.n_bytes()));
        if end.is_none_or(|end| end > self.def(base).n_bytes()) {
            let base = self.def(base);
            let problem = format!(
                "{ne:?} with strides {nb:?} from byte {} ends past the {} bytes",
                base_offset.saturating_add(offset),
                base.n_bytes()
            );
            let tensor = base.name.clone();
            self.fail(Error::View { tensor, problem });
            return t;
        }
        self.push_tensor(def)
    }

    /// The same elements under other dims; `t` must be contiguous.
    pub fn reshape(&mut self, t: Tensor, dims: &[u64]) -> Tensor {
        let ne = shape(dims);
        let def = self.def(t);
        let dtype = def.dtype;
        let n_elems = ne.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        if !def.is_contiguous() || n_elems != Some(def.n_elems()) {
            let problem =
                format!("{:?} (contiguous: {}) cannot become {dims:?}", def.ne, def.is_contiguous());
            let tensor = def.name.clone();
            self.fail(Error::View { tensor, problem });
            return t;
        }
        let (ne, nb) = self.contiguous("reshape", dtype, ne);
        self.view(t, ne, nb, 0)
    }

    /// Dims in another order: dim `d` of the result is dim `axes[d]` of `t`.
    pub fn permute(&mut self, t: Tensor, axes: [usize; 4]) -> Tensor {
        let def = self.def(t);
        let mut sorted = axes;
        sorted.sort_unstable();
        if sorted != [0, 1, 2, 3] || (axes[0] != 0 && def.dtype.is_quantised()) {
            let (tensor, problem) = (def.name.clone(), format!("cannot permute {} by {axes:?}", def.dtype));
            self.fail(Error::View { tensor, problem });
            return t;
        }
        let (ne, nb) = (axes.map(|a| def.ne[a]), axes.map(|a| def.nb[a]));
        self.view(t, ne, nb, 0)
    }

    /// Elements `start..start+len` of dim `dim`.
    pub fn slice(&mut self, t: Tensor, dim: usize, start: u64, len: u64) -> Tensor {
        let def = self.def(t);
        let block = if dim == 0 { def.dtype.block_elems() as u64 } else { 1 };
        let fits = start.checked_add(len).is_some_and(|end| end <= def.ne[dim]);
        if !fits || !start.is_multiple_of(block) || !len.is_multiple_of(block) {
            let problem = format!("no {len} elements from {start} in dim {dim} of {:?}", def.ne);
            let tensor = def.name.clone();
            self.fail(Error::View { tensor, problem });
            return t;
        }
        let (mut ne, nb) = (def.ne, def.nb);
        // A tensor without elements has no bytes to start at.
        let offset = if ne.contains(&0) { 0 } else { start / block * nb[dim] };
        ne[dim] = len;
        self.view(t, ne, nb, offset)
    }

    /// The row `[n, ...]` cut into heads: dim 0 becomes `[n / n_heads, n_heads]`, later dims move out by one.
    /// Works on strided rows (a part of a fused projection).
    pub fn split_heads(&mut self, t: Tensor, n_heads: u64) -> Tensor {
        let def = self.def(t);
        let elem = def.dtype.block_bytes() as u64;
        let (n, ne, nb) = (def.ne[0], def.ne, def.nb);
        if n_heads == 0 || n % n_heads != 0 || !def.has_dense_rows() || def.dtype.is_quantised() || ne[3] != 1
        {
            let (tensor, problem) = (def.name.clone(), format!("{ne:?} cannot be cut into {n_heads} heads"));
            self.fail(Error::View { tensor, problem });
            return t;
        }
        let head = n / n_heads;
        self.view(t, [head, n_heads, ne[1], ne[2]], [elem, head * elem, nb[1], nb[2]], 0)
    }

    /// Keeps the first mistake.
    pub(crate) fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    fn push_tensor(&mut self, def: TensorDef) -> Tensor {
        self.tensors.push(def);
        Tensor(self.tensors.len() as u32 - 1)
    }

    /// Shape and strides without gaps; after a mistake, those of one element.
    fn contiguous(&mut self, name: &str, dtype: DType, ne: Shape) -> (Shape, Shape) {
        match contiguous_strides(dtype, ne) {
            Some(nb) => (ne, nb),
            None => {
                let problem =
                    format!("{ne:?} of {dtype} is not whole blocks of {}, or too big", dtype.block_elems());
                self.fail(Error::Shape { tensor: name.into(), problem });
                let one = [dtype.block_elems() as u64, 1, 1, 1];
                (one, [dtype.block_bytes() as u64; 4])
            }
        }
    }
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
