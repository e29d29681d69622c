//! How fast devices read a model's weights, and what it costs that a layer is divided: measured on its own matrices.

use crate::error::{Error, Result};
use llmrt_abi::DType;
use llmrt_graph::{Graph, Kind, Role, Tensor, TensorDef};
use llmrt_host::Device;
use llmrt_host::load::{self, LoadOptions, ModelFiles, WeightRequest};
use llmrt_host::sched::executor::{Executor, Program};
use llmrt_host::sched::resolve::Sharing;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// How fast a device is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// Bytes of weights that it reads in a second, in products with one token.
    pub bytes_per_second: f64,
    /// Seconds that a layer takes longer when it has a part of it: its input goes there, and a sum comes back. 0 for the CPU.
    pub seconds_per_layer: f64,
}

/// Bytes of weights that are read at most, so that caches do not hold them.
const MAX_BYTES: u64 = 256 << 20;

/// Runs of which the fastest counts.
const N_RUNS: usize = 4;

/// Layers of the chain by which the cost of a divided one is measured.
const N_LAYERS: usize = 16;

/// Measures devices, the CPU last, on matrices and vectors of a graph of the model, which are loaded for it.
pub(crate) fn measure(
    step: &Graph,
    devices: &[Arc<Device>],
    files: &Arc<ModelFiles>,
    n_threads: usize,
) -> Result<Vec<Rate>> {
    let bench = Bench { step, files, n_threads };
    let cpu = devices.len() - 1;
    let rate = |(d, device): (usize, &Arc<Device>)| -> Result<Rate> {
        let with = match d == cpu {
            true => vec![device.clone()],
            false => vec![device.clone(), devices[cpu].clone()],
        };
        let bytes_per_second = bench.bytes_per_second(&with)?;
        let seconds_per_layer = if d == cpu { 0.0 } else { bench.seconds_per_layer(&with)? };
        Ok(Rate { bytes_per_second, seconds_per_layer })
    };
    devices.iter().enumerate().map(rate).collect()
}

struct Bench<'a> {
    step: &'a Graph,
    files: &'a Arc<ModelFiles>,
    n_threads: usize,
}

impl Bench<'_> {
    fn weights(&self, is_it: impl Fn(&TensorDef) -> bool) -> impl Iterator<Item = &TensorDef> {
        self.step.tensors.iter().filter(move |def| def.kind == Kind::Weight && is_it(def))
    }

    /// Of products of one token with matrices that have the same number of columns, as many as memory has room for.
    fn bytes_per_second(&self, devices: &[Arc<Device>]) -> Result<f64> {
        let names = self.step.networks().first().map(|network| network.weights.clone()).unwrap_or_default();
        let of_neurons = self.weights(|def| names.contains(&def.name));
        let columns = of_neurons.max_by_key(|def| def.n_bytes()).map_or(0, |def| def.ne[0]);
        let is_it = |def: &TensorDef| {
            let is_matrix = matches!(def.role, Role::Matrix | Role::MatrixOfZeros);
            is_matrix && def.ne[0] == columns && def.ne[2..] == [1, 1]
        };
        let free = devices[0].memory().map_or(u64::MAX, |(free, _)| free);
        let (mut left, mut n_bytes) = (MAX_BYTES.min(free / 2), 0);
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[columns]);
        let mut sum: Option<Tensor> = None;
        for def in self.weights(is_it) {
            // One at least, however large.
            if def.n_bytes() > left && n_bytes > 0 {
                continue;
            }
            (left, n_bytes) = (left.saturating_sub(def.n_bytes()), n_bytes + def.n_bytes());
            let w = g.weight(&def.name, def.dtype, &def.ne[..2], Role::Matrix);
            let y = g.mul_mat(w, x);
            let y = g.sum(y);
            sum = Some(sum.map_or(y, |sum| g.add(sum, y)));
        }
        let Some(sum) = sum else {
            let problem = "it has no sparse network by whose matrices devices could be measured".into();
            return Err(Error::SparseFile { path: "the model".into(), problem });
        };
        g.output(sum, "sum");
        let x = vec![0; 4 * columns as usize];
        Ok(n_bytes as f64 / self.seconds(g, devices, HashMap::new(), &x)?)
    }

    /// Of a chain of vectors of the model that takes turns between both devices, besides one that stays on the first.
    fn seconds_per_layer(&self, devices: &[Arc<Device>]) -> Result<f64> {
        let mut vectors = self.weights(|def| def.dtype == DType::F32 && def.ne[1..] == [1, 1, 1]);
        let Some(here) = vectors.next() else { return Ok(0.0) };
        let Some(there) = vectors.find(|def| def.ne == here.ne) else { return Ok(0.0) };
        let seconds = |device_of_there: usize| {
            let mut g = Graph::new();
            let mut x = g.input("x", DType::F32, &[here.ne[0]]);
            let pair = [here, there].map(|def| g.weight(&def.name, def.dtype, &def.ne[..1], Role::Norm));
            for w in pair.into_iter().cycle().take(2 * N_LAYERS) {
                x = g.mul(x, w);
            }
            g.output(x, "y");
            let assigned = HashMap::from([(here.name.clone(), 0), (there.name.clone(), device_of_there)]);
            self.seconds(g, devices, assigned, &vec![0; 4 * here.ne[0] as usize])
        };
        let (divided, whole) = (seconds(1)?, seconds(0)?);
        Ok((divided - whole).max(0.0) / N_LAYERS as f64)
    }

    /// The least time of a run of a graph whose input is `x`.
    fn seconds(
        &self,
        g: Graph,
        devices: &[Arc<Device>],
        assigned: HashMap<String, usize>,
        x: &[u8],
    ) -> Result<f64> {
        let g = g.finish().map_err(llmrt_models::Error::from)?;
        let row = |name: &str| assigned.get(name).copied().unwrap_or(0);
        let weights = g.tensors.iter().enumerate().filter(|(_, def)| def.kind == Kind::Weight);
        let requests: Vec<WeightRequest> = weights
            .map(|(i, def)| {
                let d = row(&def.name);
                WeightRequest::new(&g, Tensor(i as u32), d, &devices[d])
            })
            .collect();
        let weights = load::load(self.files, &requests, LoadOptions::default())?;
        let sharing = Sharing { assigned: Arc::new(assigned), ..Sharing::default() };
        let states = HashMap::new();
        let (files, n_threads) = (self.files.clone(), self.n_threads);
        let mut executor =
            Executor::new(devices.to_vec(), files, weights, states, n_threads, (false, sharing))?;
        let x_tensor = g.find("x").unwrap_or(Tensor(0));
        let program = Program::new(g);
        let mut least = f64::INFINITY;
        for _ in 0..=N_RUNS {
            let started = Instant::now();
            executor.run(&program, &[(x_tensor, x)])?;
            least = least.min(started.elapsed().as_secs_f64());
        }
        Ok(least.max(1e-9))
    }
}
