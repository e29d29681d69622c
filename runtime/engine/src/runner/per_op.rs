//! Every op's result, for comparisons, and what products multiply, for statistics.

use super::DeviceRunner;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::kv::pools::CachePools;
use crate::memory;
use crate::program::{borrowed, floats, inputs, words};
use crate::scheduler::ScheduledChunk;
use crate::sequence::{Sequence, SequenceId, TokenId};
use llmrt_abi::{DType, Op};
use llmrt_graph::{Graph, Kind, Node, Tensor};
use llmrt_host::sched::executor::Program;
use llmrt_models::StepOutput;

/// Gets an op's result: name, dims, values. What it fails with ends the visit.
pub type VisitOp<'a> = dyn FnMut(&str, [u64; 4], &[f32]) -> std::io::Result<()> + 'a;

/// Gets what weights are multiplied with: their name, the elements of a row of inputs, and all rows.
pub type VisitInputs<'a> = dyn FnMut(&str, usize, &[f32]) + 'a;

impl DeviceRunner {
    /// Computes tokens as one step of a sequence and shows every op's result: name, dims, and values as f32.
    pub fn per_op(&mut self, tokens: &[TokenId], visit: &mut VisitOp<'_>) -> Result<std::io::Result<()>> {
        let batch = self.alone(tokens)?;
        self.visit_ops(&batch, visit)
    }

    /// Computes tokens as one step of a sequence, with logits of all, and shows what matrices of weights are multiplied with.
    pub fn product_inputs(&mut self, tokens: &[TokenId], visit: &mut VisitInputs<'_>) -> Result<()> {
        let batch = self.alone(tokens)?;
        let shape = self.options.shape_of(&batch, StepOutput::Logits);
        let step = self.model().graph(&shape)?;
        let ngrams = self.model().config.ngrams.clone();
        let mut graph = step.graph;
        let products = products(&graph);
        products.iter().for_each(|product| graph.tensors[product.x.0 as usize].output = true);
        let program = Program::new(graph);
        let executor = self.executor();
        executor.run(&program, &borrowed(&inputs(&step.inputs, &ngrams, &batch)))?;
        for product in products {
            let bytes = executor.output(&program, product.x)?;
            visit(&product.weight, product.n, &floats(&bytes));
        }
        Ok(())
    }

    /// The batch of one sequence with these tokens, with logits of all of them, in an empty cache.
    fn alone(&mut self, tokens: &[TokenId]) -> Result<Batch> {
        self.ensure_deployed()?;
        let id = SequenceId(0);
        let mut pools = CachePools::new(self.options.n_blocks(), self.n_states(), self.options.block_size())?
            .with_windows(self.windows())?;
        let mut seq = Sequence::new(id, tokens.to_vec())?;
        if self.model().spec().has_encoder() {
            seq = seq.with_encoder_tokens(tokens.into());
        }
        if !seq.grow(tokens.len(), &mut pools) {
            return Err(Error::OutOfBlocks { id });
        }
        seq.begin_state(&mut pools.states)?;
        let chunk = ScheduledChunk { id, n_new: tokens.len() };
        Batch::new(&[chunk], |_| Some((&seq, Some(0))), &pools, self.options.max_blocks())
    }

    /// Computes a batch and shows every op's result, in order of execution.
    fn visit_ops(&mut self, batch: &Batch, visit: &mut VisitOp<'_>) -> Result<std::io::Result<()>> {
        let shape = self.options.shape_of(batch, StepOutput::Logits);
        let step = self.model().graph(&shape)?;
        let ngrams = self.model().config.ngrams.clone();
        let (graph, results) = memory::every_result_kept(step.graph);
        let program = Program::new(graph);
        let executor = self.executor();
        executor.run(&program, &borrowed(&inputs(&step.inputs, &ngrams, batch)))?;
        for t in results {
            let def = program.graph().def(t);
            let bytes = executor.output(&program, t)?;
            let values: Vec<f32> = match def.dtype {
                DType::I32 => words(&bytes).map(|w| i32::from_ne_bytes(w) as f32).collect(),
                _ => floats(&bytes),
            };
            if let Err(e) = visit(&def.name, def.ne, &values) {
                return Ok(Err(e));
            }
        }
        Ok(Ok(()))
    }
}

/// A matrix of weights and what it is multiplied with.
struct Product {
    weight: String,
    x: Tensor,
    /// Elements of a row of x.
    n: usize,
}

/// The products with matrices of weights whose inputs can be shown.
fn products(g: &Graph) -> Vec<Product> {
    let nodes = g.nodes.iter().filter(|node| matches!(node.op, Op::MulMat | Op::MulMatT));
    let product = |node: &Node| {
        let (w, x) = (g.def(node.src[0]?), node.src[1]?);
        let def = g.def(x);
        // The same elements in other dims are shown as they are computed.
        let x = match def.view {
            Some((of, 0)) if g.def(of).n_elems() == def.n_elems() && def.is_contiguous() => of,
            _ => x,
        };
        let found = w.kind == Kind::Weight && g.def(x).dtype == DType::F32 && is_showable(g, x);
        found.then(|| Product { weight: w.name.clone(), x, n: def.ne[0] as usize })
    };
    nodes.filter_map(product).collect()
}

/// Whether a result can be shown: it has bytes of its own, as numbers of four bytes.
pub(crate) fn is_showable(g: &Graph, t: Tensor) -> bool {
    let def = g.def(t);
    def.kind == Kind::Computed && def.view.is_none() && matches!(def.dtype, DType::F32 | DType::I32)
}
