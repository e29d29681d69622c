//! The programs of steps, by shape.

use crate::error::Result;
use crate::options::EngineOptions;
use crate::program::{Counting, StepProgram, StepShape};
use crate::runner::ProgramStats;
use llmrt_host::sched::executor::Executor;
use llmrt_models::Model;
use std::collections::{HashMap, HashSet};
use std::ops::Index;
use std::time::Instant;

/// Most programs kept besides those that were made before the first step.
const MAX_PROGRAMS: usize = 32;

/// Programs that were made.
#[derive(Default)]
pub(crate) struct Programs {
    made: HashMap<StepShape, StepProgram>,
    prepared: HashSet<StepShape>,
    stats: ProgramStats,
    counting: Counting,
}

impl Programs {
    /// Those of the largest step, so that no memory moves later, and of a decode step of each number of sequences with the
    /// narrowest block tables. The last one's shape is returned, too.
    pub fn prepare(
        model: &Model,
        executor: &mut Executor,
        options: &EngineOptions,
        counting: Counting,
    ) -> Result<(Programs, Option<StepShape>)> {
        let mut programs = Programs { counting, ..Programs::default() };
        let (started, mut last) = (Instant::now(), None);
        let spec = model.spec();
        let decodes = options.padding().buckets().into_iter().rev().map(|n| options.decode_shape(spec, n));
        // Layers that predict ahead compute a token of each sequence too.
        let ahead = options.padding().buckets().into_iter().filter(|_| model.drafts());
        let ahead = ahead.map(|n| options.ahead_shape(n));
        for batch in std::iter::once(options.largest_shape(spec)).chain(ahead).chain(decodes) {
            let shape = StepShape { batch, n_picked: 0 };
            let step = StepProgram::new(model, &shape, counting, executor.neurons())?;
            executor.prepare(&step.program)?;
            programs.made.insert(shape, step);
            programs.prepared.insert(shape);
            last = Some(shape);
        }
        let (n_prepared, prepare_time) = (programs.prepared.len(), started.elapsed());
        programs.stats = ProgramStats { n_prepared, prepare_time, n_misses: 0 };
        Ok((programs, last))
    }

    /// Makes the program of a shape, if there is none yet: without picking, where that is not done beside the logits.
    pub fn ensure(&mut self, shape: StepShape, model: &Model, executor: &Executor) -> Result<()> {
        if !self.made.contains_key(&shape) {
            if self.made.len() >= self.prepared.len() + MAX_PROGRAMS {
                self.made.retain(|shape, _| self.prepared.contains(shape));
            }
            self.made.insert(shape, StepProgram::new(model, &shape, self.counting, executor.neurons())?);
            self.stats.n_misses += 1;
        }
        if !self.made[&shape].uses_device_topk(executor)? {
            self.without_picking(shape, model, executor)?;
        }
        Ok(())
    }

    /// Makes the program of a shape again, without picking.
    pub fn without_picking(&mut self, shape: StepShape, model: &Model, executor: &Executor) -> Result<()> {
        self.made.insert(
            shape,
            StepProgram::new(model, &shape.without_picking(), self.counting, executor.neurons())?,
        );
        Ok(())
    }

    /// The program of a shape.
    pub fn get(&self, shape: &StepShape) -> Option<&StepProgram> {
        self.made.get(shape)
    }

    /// How many were made, and when.
    pub fn stats(&self) -> ProgramStats {
        self.stats
    }
}

impl Index<&StepShape> for Programs {
    type Output = StepProgram;

    fn index(&self, shape: &StepShape) -> &StepProgram {
        &self.made[shape]
    }
}
