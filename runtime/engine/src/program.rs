//! The graph of one shape of step, what it reads and what is read of it.

use crate::batch::Batch;
use crate::device_topk::{Picked, TopKRequest};
use crate::error::Result;
use crate::sampler::Candidate;
use crate::work::NeededWork;
use bytemuck::Pod;
use llmrt_graph::rows::{Firing, NeuronSplit};
use llmrt_graph::{Needed, Tensor};
use llmrt_host::sched::executor::{Executor, Program};
use llmrt_models::config::NgramConfig;
use llmrt_models::{BatchShape, Input, Model};
use std::borrow::Cow;
use std::ops::Range;

/// What a step's graph depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct StepShape {
    /// Tokens, sequences, blocks.
    pub batch: BatchShape,
    /// How many of the largest logits of each row are picked; 0: none.
    pub n_picked: u32,
}

impl StepShape {
    /// The same, with all logits read back.
    pub fn without_picking(self) -> StepShape {
        StepShape { n_picked: 0, ..self }
    }
}

/// The graph of one shape of step.
pub(crate) struct StepProgram {
    pub program: Program,
    inputs: Vec<(Input, Tensor)>,
    ngrams: NgramConfig,
    logits: Tensor,
    hidden: Option<Tensor>,
    picked: Option<Picked>,
    needed: Option<Needed>,
    firings: Vec<Firing>,
}

/// Most tokens of a step in which it shows which neurons fire.
pub(crate) const MAX_SHOWN_TOKENS: u64 = 16;

/// What steps count besides what they compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counting {
    /// Those of one token: what it needs of the weights.
    pub needed: bool,
    /// Those of few tokens: which neurons of divided networks fire.
    pub firings: bool,
}

/// What was read of a step's results. Its memory serves one step after the other.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Results {
    /// Rows in all.
    pub n_rows: usize,
    /// Whether all rows are read where they are, as the CPU reaches them there.
    pub are_in_place: bool,
    /// Else the rows that were read whole, one after the other.
    pub logits: Vec<f32>,
    /// The largest logits of the others, by row; empty for rows that were read whole. No rows: all were.
    pub largest: Vec<Vec<Candidate>>,
    /// By row, what layers that predict ahead take, of models that have some.
    pub hidden: Vec<f32>,
}

impl Results {
    /// Of a step with so many rows, before anything is read.
    pub fn clear(&mut self, n_rows: usize) {
        (self.n_rows, self.are_in_place) = (n_rows, false);
        self.logits.clear();
        self.largest.clear();
        self.hidden.clear();
    }
}

impl StepProgram {
    /// The graph of a shape. What is counted of divided networks is counted by part.
    pub fn new(
        model: &Model,
        shape: &StepShape,
        counting: Counting,
        neurons: &NeuronSplit,
    ) -> Result<StepProgram> {
        let step = model.graph(&shape.batch)?;
        let is_counted = counting.needed && shape.batch.n_tokens == 1;
        let is_shown = counting.firings && shape.batch.n_tokens <= MAX_SHOWN_TOKENS;
        // Else networks are divided where the graph is placed.
        let mut graph = match (is_counted || is_shown) && !neurons.layers.is_empty() {
            true => step.graph.split_neurons(neurons),
            false => step.graph,
        };
        let needed = if is_counted { graph.count_needed() } else { None };
        let firings = if is_shown { graph.firings() } else { Vec::new() };
        let picked = (shape.n_picked > 0).then(|| Picked::new(&mut graph, step.logits, shape.n_picked));
        let program = Program::new(graph.finish().map_err(llmrt_models::Error::from)?);
        Ok(StepProgram {
            program,
            inputs: step.inputs,
            ngrams: model.config.ngrams.clone(),
            logits: step.logits,
            hidden: step.hidden,
            picked,
            needed,
            firings,
        })
    }

    /// Whether it picks the largest logits.
    pub fn picks(&self) -> bool {
        self.picked.is_some()
    }

    /// Whether it picks, if it does, where the logits are, in memory that is read by copies. Anywhere else picking spares
    /// nothing.
    pub fn uses_device_topk(&self, executor: &Executor) -> Result<bool> {
        let Some(picked) = &self.picked else { return Ok(true) };
        let [ids, logits, sums] = picked.tensors();
        Ok(executor.keeps_together(&self.program, &[self.logits, ids, logits, sums])?)
    }

    /// Computes a batch of its shape.
    pub fn run(&self, executor: &mut Executor, batch: &Batch) -> Result<()> {
        let inputs = inputs(&self.inputs, &self.ngrams, batch);
        Ok(executor.run(&self.program, &borrowed(&inputs))?)
    }

    /// Reads the requested results of the first rows of the last run, and returns how many bytes these are. A row with a NaN
    /// in it is read whole, so that the sampler can name the logit.
    pub fn read(&self, executor: &mut Executor, request: &TopKRequest, results: &mut Results) -> Result<u64> {
        let all = self.program.graph().def(self.logits).ne[1].max(1) as usize;
        let rows = (results.n_rows, all);
        if let Some(hidden) = self.hidden {
            let mut reader = Reader { executor: &mut *executor, program: &self.program, rows, n_bytes: 0 };
            reader.rows(hidden, &mut results.hidden)?;
        }
        let Some(picked) = &self.picked else {
            let mut reader = Reader { executor, program: &self.program, rows, n_bytes: 0 };
            let n_bytes = reader.n_bytes_of(self.logits);
            results.are_in_place = reader.executor.read_in_place(&self.program, self.logits, n_bytes)?;
            match results.are_in_place {
                true => reader.n_bytes += n_bytes,
                false => reader.rows(self.logits, &mut results.logits)?,
            }
            return Ok(reader.n_bytes);
        };
        let mut reader = Reader { executor, program: &self.program, rows, n_bytes: 0 };
        let (mut ids, mut values, mut sums) = (Vec::<u32>::new(), Vec::<f32>::new(), Vec::<f32>::new());
        reader.rows(picked.ids, &mut ids)?;
        reader.rows(picked.logits, &mut values)?;
        reader.rows(picked.sums, &mut sums)?;
        let k = ids.len() / sums.len().max(1);
        for (row, sum) in sums.iter().enumerate() {
            let mut largest = Vec::new();
            if request.is_whole(row) || sum.is_nan() {
                reader.row(self.logits, row, &mut results.logits)?;
            } else {
                let pairs = ids.iter().zip(&values).skip(row * k).take(k);
                largest.extend(pairs.map(|(&id, &logit)| Candidate { id, logit }));
            }
            results.largest.push(largest);
        }
        Ok(reader.n_bytes)
    }

    /// Adds what the last run needed of the weights, if it was counted.
    pub fn add_needed(&self, executor: &mut Executor, work: &mut NeededWork) -> Result<()> {
        let Some(needed) = &self.needed else { return Ok(()) };
        let mut reader = Reader { executor, program: &self.program, rows: (1, 1), n_bytes: 0 };
        let mut count = |t| -> Result<u64> {
            let mut number = Vec::<f32>::new();
            reader.rows(t, &mut number)?;
            Ok(number.iter().sum::<f32>().round() as u64)
        };
        let (neurons, bytes) = (count(needed.neurons)?, count(needed.bytes)?);
        work.add([neurons, needed.n_neurons], [bytes, needed.n_bytes]);
        Ok(())
    }

    /// Whether the last run showed which neurons fire.
    pub fn shows_firings(&self) -> bool {
        !self.firings.is_empty()
    }

    /// Reads what the neurons of each part gave in the last run, of the first tokens, and the scores that have to pass as well; whether
    /// a device in front of the baseline computed them comes first.
    pub fn read_firings(
        &self,
        executor: &mut Executor,
        n_tokens: usize,
        mut each: impl FnMut(&Firing, bool, &[f32], &[f32]),
    ) -> Result<()> {
        let (mut values, mut scores) = (Vec::<f32>::new(), Vec::<f32>::new());
        for firing in &self.firings {
            let all = self.program.graph().ne(firing.values)[1].max(1) as usize;
            let rows = (n_tokens.min(all), all);
            let mut reader = Reader { executor: &mut *executor, program: &self.program, rows, n_bytes: 0 };
            values.clear();
            scores.clear();
            reader.rows(firing.values, &mut values)?;
            if let Some((t, _)) = firing.scores {
                reader.rows(t, &mut scores)?;
            }
            let on_device = !executor.is_on_baseline(&self.program, firing.values)?;
            each(firing, on_device, &values, &scores);
        }
        Ok(())
    }

    /// The first rows of the last run's logits: where they are, if the CPU reaches them there.
    pub fn logits<'a>(&self, executor: &'a Executor, n_rows: usize) -> Result<Cow<'a, [f32]>> {
        let bytes = match executor.output_in_place(&self.program, self.logits)? {
            Some(bytes) => Cow::Borrowed(bytes),
            None => executor.output(&self.program, self.logits)?,
        };
        let n = bytes.len().min(n_rows * self.program.graph().def(self.logits).nb[1] as usize);
        Ok(match bytes {
            Cow::Borrowed(bytes) if let Ok(logits) = bytemuck::try_cast_slice(&bytes[..n]) => {
                Cow::Borrowed(logits)
            }
            bytes => Cow::Owned(floats(&bytes[..n])),
        })
    }
}

/// Reads results, and counts the bytes.
struct Reader<'a> {
    executor: &'a mut Executor,
    program: &'a Program,
    /// Rows that are read, and those that there are.
    rows: (usize, usize),
    n_bytes: u64,
}

impl Reader<'_> {
    fn row<V: Pod>(&mut self, t: Tensor, row: usize, values: &mut Vec<V>) -> Result<()> {
        let n = self.program.graph().def(t).nb[1];
        let start = row as u64 * n;
        self.values(t, start..start + n, values)
    }

    /// The first rows of a result, whose rows follow each other.
    fn rows<V: Pod>(&mut self, t: Tensor, values: &mut Vec<V>) -> Result<()> {
        self.values(t, 0..self.n_bytes_of(t), values)
    }

    fn n_bytes_of(&self, t: Tensor) -> u64 {
        let (n, all) = self.rows;
        self.program.graph().def(t).n_bytes() / all as u64 * n as u64
    }

    /// Appends values.
    fn values<V: Pod>(&mut self, t: Tensor, part: Range<u64>, values: &mut Vec<V>) -> Result<()> {
        let n_bytes = part.end - part.start;
        values.reserve(n_bytes as usize / size_of::<V>());
        self.executor.read(self.program, t, part, |bytes| match bytemuck::try_cast_slice(bytes) {
            Ok(found) => values.extend_from_slice(found),
            Err(_) => {
                values.extend(bytes.chunks_exact(size_of::<V>()).map(bytemuck::pod_read_unaligned::<V>))
            }
        })?;
        self.n_bytes += n_bytes;
        Ok(())
    }
}

/// The graph's inputs with the bytes of a batch.
pub(crate) fn inputs(
    inputs: &[(Input, Tensor)],
    ngrams: &NgramConfig,
    batch: &Batch,
) -> Vec<(Tensor, Vec<u8>)> {
    let bytes = |ints: &[i32]| ints.iter().flat_map(|i| i.to_ne_bytes()).collect::<Vec<u8>>();
    inputs.iter().map(|&(input, t)| (t, bytes(&batch.values(input, ngrams)))).collect()
}

/// The same, borrowed.
pub(crate) fn borrowed(inputs: &[(Tensor, Vec<u8>)]) -> Vec<(Tensor, &[u8])> {
    inputs.iter().map(|(t, bytes)| (*t, bytes.as_slice())).collect()
}

/// Bytes as floats.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    words(bytes).map(f32::from_ne_bytes).collect()
}

/// Values of four bytes each.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = [u8; 4]> + '_ {
    bytes.as_chunks().0.iter().copied()
}
