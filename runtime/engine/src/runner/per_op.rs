//! Every op's result, for comparisons.

use super::DeviceRunner;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::kv::pools::CachePools;
use crate::memory;
use crate::program::{borrowed, floats, inputs, words};
use crate::scheduler::ScheduledChunk;
use crate::sequence::{Sequence, SequenceId, TokenId};
use llmrt_abi::DType;
use llmrt_graph::{Graph, Kind, Tensor};
use llmrt_host::sched::executor::Program;
use llmrt_models::StepOutput;

/// Gets an op's result: name, dims, values. What it fails with ends the visit.
pub type VisitOp<'a> = dyn FnMut(&str, [u64; 4], &[f32]) -> std::io::Result<()> + 'a;

impl DeviceRunner {
    /// Computes tokens as one step of a sequence and shows every op's result: name, dims, and values as f32.
    pub fn per_op(&mut self, tokens: &[TokenId], visit: &mut VisitOp<'_>) -> Result<std::io::Result<()>> {
        self.ensure_deployed()?;
        let id = SequenceId(0);
        let mut pools = CachePools::new(self.options.n_blocks(), self.n_states(), self.options.block_size())?
            .with_windows(self.windows())?;
        let mut seq = Sequence::new(id, tokens.to_vec())?;
        if !seq.grow(tokens.len(), &mut pools) {
            return Err(Error::OutOfBlocks { id });
        }
        seq.begin_state(&mut pools.states)?;
        let chunk = ScheduledChunk { id, n_new: tokens.len() };
        let batch = Batch::new(&[chunk], |_| Some((&seq, Some(0))), &pools, self.options.max_blocks())?;
        self.visit_ops(&batch, visit)
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

/// Whether a result can be shown: it has bytes of its own, as numbers of four bytes.
pub(crate) fn is_showable(g: &Graph, t: Tensor) -> bool {
    let def = g.def(t);
    def.kind == Kind::Computed && def.view.is_none() && matches!(def.dtype, DType::F32 | DType::I32)
}
