//! Every op's result, for comparisons, and what products multiply, for statistics.

use super::DeviceRunner;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::kv::pools::CachePools;
use crate::program::{borrowed, floats, inputs, words};
use crate::scheduler::ScheduledChunk;
use crate::sequence::{Sequence, SequenceId, TokenId};
use llmrt_abi::{DType, Op};
use llmrt_graph::{Graph, Kind, Node, Tensor};
use llmrt_host::sched::executor::Program;
use llmrt_models::StepOutput;

/// Gets an op's result: name, dims, values. What it fails with ends the visit.
pub type VisitOp<'a> = dyn FnMut(&str, [u64; 4], &[f32]) -> std::io::Result<()> + 'a;

/// Gets what weights are multiplied with: their name, the elements of a row of inputs, and all rows. Or a result, by its own name.
pub type VisitInputs<'a> = dyn FnMut(&str, usize, &[f32]) + 'a;

impl DeviceRunner {
    /// Computes tokens as one step of a sequence and shows every op's result, in order of execution: name, dims, and values as f32.
    pub fn per_op(&mut self, tokens: &[TokenId], visit: &mut VisitOp<'_>) -> Result<std::io::Result<()>> {
        let (program, shown) = self.run_keeping(tokens, |g| results(g, &|_| true))?;
        for Shown { name, x, .. } in shown {
            let values = self.values(&program, x)?;
            if let Err(e) = visit(&name, program.graph().def(x).ne, &values) {
                return Ok(Err(e));
            }
        }
        Ok(Ok(()))
    }

    /// Computes tokens as one step of a sequence, with logits of all, and shows what matrices of weights are multiplied with, and
    /// the results of which `is_shown` holds.
    pub fn product_inputs(
        &mut self,
        tokens: &[TokenId],
        is_shown: &dyn Fn(&str) -> bool,
        visit: &mut VisitInputs<'_>,
    ) -> Result<()> {
        let keep = |g: &Graph| products(g).into_iter().chain(results(g, is_shown)).collect();
        let (program, shown) = self.run_keeping(tokens, keep)?;
        for Shown { name, x, n } in shown {
            visit(&name, n, &self.values(&program, x)?);
        }
        Ok(())
    }

    /// Computes tokens as one step of a sequence, with logits of all of them; what `keep` chooses is kept to the end.
    fn run_keeping(
        &mut self,
        tokens: &[TokenId],
        keep: impl FnOnce(&Graph) -> Vec<Shown>,
    ) -> Result<(Program, Vec<Shown>)> {
        let batch = self.alone(tokens)?;
        let shape = self.options.shape_of(&batch, StepOutput::Logits);
        let step = self.model().graph(&shape)?;
        let ngrams = self.model().config.ngrams.clone();
        let mut graph = step.graph;
        let kept = keep(&graph);
        kept.iter().for_each(|kept| graph.tensors[kept.x.0 as usize].output = true);
        let program = Program::new(graph);
        self.executor().run(&program, &borrowed(&inputs(&step.inputs, &ngrams, &batch)))?;
        Ok((program, kept))
    }

    /// What a program computed, as f32.
    fn values(&mut self, program: &Program, t: Tensor) -> Result<Vec<f32>> {
        let bytes = self.executor().output(program, t)?;
        Ok(match program.graph().def(t).dtype {
            DType::I32 => words(&bytes).map(|w| i32::from_ne_bytes(w) as f32).collect(),
            _ => floats(&bytes),
        })
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
}

/// What a matrix of weights is multiplied with, or a result.
struct Shown {
    /// Of the weights, or of the result.
    name: String,
    x: Tensor,
    /// Elements of a row of x.
    n: usize,
}

/// The inputs of products with matrices of weights, of those that can be shown.
fn products(g: &Graph) -> Vec<Shown> {
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
        found.then(|| Shown { name: w.name.clone(), x, n: def.ne[0] as usize })
    };
    nodes.filter_map(product).collect()
}

/// The results with these names, of those that can be shown.
fn results(g: &Graph, is_shown: &dyn Fn(&str) -> bool) -> Vec<Shown> {
    let named =
        g.nodes.iter().map(|node| node.dst).filter(|t| is_shown(&g.def(*t).name) && is_showable(g, *t));
    named.map(|x| Shown { name: g.def(x).name.clone(), x, n: g.def(x).ne[0] as usize }).collect()
}

/// Whether a result can be shown: it has bytes of its own, as numbers of four bytes.
fn is_showable(g: &Graph, t: Tensor) -> bool {
    let def = g.def(t);
    def.kind == Kind::Computed && def.view.is_none() && matches!(def.dtype, DType::F32 | DType::I32)
}
