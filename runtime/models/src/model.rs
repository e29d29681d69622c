//! A model: the configuration in its metadata, its tensors, and its graphs.

use crate::arch::{self, Arch, DraftLayers};
use crate::batch::{BatchShape, ModelGraph, StepOutput};
use crate::blocks::classifier;
use crate::builder::{Builder, Lookup};
use crate::config::{Config, HiddenActivation, SparseMode, SparseOptions};
use crate::error::{Error, Result};
use crate::spec::ModelSpec;
use llmrt_abi::DType;
use llmrt_gguf::Metadata;
use llmrt_graph::rows::layer_of;
use llmrt_graph::{Graph, Shape, Tensor};
use std::collections::{HashMap, HashSet};

/// A model whose metadata make sense and whose tensors are there.
#[derive(Clone, Debug)]
pub struct Model {
    /// The configuration in the metadata.
    pub config: Config,
    arch: &'static Arch,
    spec: ModelSpec,
    tensors: HashMap<String, (DType, Shape)>,
    tensor_names: Vec<String>,
    /// Layers of the file, with those that predict ahead.
    n_blocks: u64,
    /// Layers that predict ahead, from a file of their own, with their configuration.
    drafts: Option<(&'static DraftLayers, Config)>,
}

impl Model {
    /// Reads the metadata and checks every tensor that the model needs: present, and of the dims the metadata require
    /// for. `tensors` finds a tensor's type and dims (innermost first, 1 past the last) by its name in the file.
    pub fn new(meta: &Metadata, tensors: impl Fn(&str) -> Option<(DType, Shape)>) -> Result<Model> {
        let (name, arch) = arch::of(meta)?;
        let config = arch.config(meta, name)?;
        let n_blocks = meta.require(&format!("{name}.block_count"))?;
        let layers = arch::draft_layers(name).filter(|layers| layers.are_in(meta));
        let with_config =
            |layers: &'static DraftLayers| Ok::<_, Error>((layers, layers.config(meta, &config)?));
        let drafts = layers.map(with_config).transpose()?;

        Model::of(config, arch, n_blocks, drafts, &tensors)
    }

    fn of(
        config: Config,
        arch: &'static Arch,
        n_blocks: u64,
        drafts: Option<(&'static DraftLayers, Config)>,
        tensors: &Lookup<'_>,
    ) -> Result<Model> {
        // The graph of one token requests every tensor once, that of its scores those of the classifier.
        let mut b = Builder::new(&config, &BatchShape::SMALLEST, tensors);
        (arch.graph)(&mut b)?;
        if ["cls.weight", "cls.output.weight"].iter().any(|name| tensors(name).is_some()) {
            let hidden = b.g.input("hidden", DType::F32, &[config.n_embd, 1]);
            classifier(&mut b, hidden)?;
        }
        if let Some((layers, cfg)) = &drafts {
            layers.build(&mut b, (cfg, &BatchShape::SMALLEST), &config)?;
        }
        let (used, spec) = b.finish_used()?;
        let tensor_names = used.iter().map(|(name, _)| name.clone()).collect();
        Ok(Model { config, arch, spec, tensors: used.into_iter().collect(), tensor_names, n_blocks, drafts })
    }

    /// The model with another choice of the neurons that are computed, of models most of whose neurons give zeros. An error
    /// for a choice that the file's activation or lack of predictors rules out. What the model does not use any more, it
    /// does not find again.
    pub fn with_neurons(mut self, options: SparseOptions) -> Result<Model> {
        let mode = options.mode;
        if mode == SparseMode::Magnitude && options.threshold.is_none() && options.thresholds.is_empty() {
            return Err(Error::NoThresholds);
        }
        self.config.neurons.options = options;
        let tensors = |name: &str| self.tensors.get(name).copied();
        let model = Model::of(self.config, self.arch, self.n_blocks, self.drafts, &tensors)?;
        let skips = model.skips_zeros()?;
        match mode {
            SparseMode::Exact | SparseMode::Predict if !skips => {
                Err(Error::NoZeros { arch: model.config.arch })
            }
            _ => Ok(model),
        }
    }

    /// Which neurons are computed: what was requested, and for `Auto` what the model has.
    pub fn sparse_mode(&self) -> Result<SparseMode> {
        let has_predictors = || self.tensors.keys().any(|name| name.contains(".fc1."));
        Ok(match self.config.neurons.options.mode {
            SparseMode::Auto if !self.skips_zeros()? => SparseMode::Off,
            SparseMode::Auto if has_predictors() => SparseMode::Predict,
            SparseMode::Auto => SparseMode::Exact,
            mode => mode,
        })
    }

    /// Whether products need not read all of their weights, since much of what they multiply is zero.
    pub fn skips_zeros(&self) -> Result<bool> {
        // A last matrix by neurons skips zeros of any activation, but SiLU makes none.
        let makes_zeros = self.config.neurons.activation != Some(HiddenActivation::Silu);
        Ok(makes_zeros && self.graph(&BatchShape::SMALLEST)?.graph.is_sparse())
    }

    /// Names of the weights the model uses, in order of first use: embedding, layers, head.
    pub fn tensor_names(&self) -> &[String] {
        &self.tensor_names
    }

    /// Those of a file's tensors that the model does not use. An error for tensors of more layers than the metadata have, if
    /// these are not layers that predict ahead.
    pub fn unused_tensors<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<Vec<&'n str>> {
        let unused: Vec<&str> = names.into_iter().filter(|name| !self.tensors.contains_key(*name)).collect();
        let ahead = unused.iter().filter(|name| name.contains(".nextn.")).filter_map(|name| layer_of(name));
        let ahead: HashSet<usize> = ahead.collect();
        let layers = unused.iter().filter_map(|name| layer_of(name)).filter(|il| !ahead.contains(il));
        match layers.max() {
            Some(last) if last as u64 >= self.n_blocks => Err(Error::BadValue {
                key: format!("{}.block_count", self.config.arch),
                found: self.n_blocks.to_string(),
                expected: format!("{}, as the file has tensors of layer {last}", last.saturating_add(1)),
            }),
            _ => Ok(unused),
        }
    }

    /// Sets how many tokens a sequence may reach. LongRoPE models (Phi 3) take other frequency factors for contexts
    /// above their original one. The choice holds for the whole life of a KV cache.
    pub fn set_context(&mut self, n_ctx: u64) {
        self.config.rope.n_ctx = n_ctx;
    }

    /// What the caller provides for its steps.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Whether layers predict ahead ([`StepOutput::Drafts`]).
    pub fn drafts(&self) -> bool {
        self.drafts.is_some()
    }

    /// The graph of one step.
    pub fn graph(&self, shape: &BatchShape) -> Result<ModelGraph> {
        shape.check()?;
        let tensors = |name: &str| self.tensors.get(name).copied();
        let mut b = Builder::new(&self.config, shape, &tensors);
        if let (StepOutput::Drafts, Some((layers, cfg))) = (shape.output, &self.drafts) {
            let logits = layers.build(&mut b, (cfg, shape), &self.config)?;
            return b.finish(logits);
        }
        let rows = self.rows(&mut b)?;
        b.hidden = b.hidden.filter(|_| self.drafts());
        b.finish(rows)
    }

    /// The graph of one step with all that the model computes, for placing it: layers that predict ahead too, of a token of
    /// each sequence.
    pub fn whole_graph(&self, shape: &BatchShape) -> Result<Graph> {
        let Some((layers, cfg)) = &self.drafts else { return Ok(self.graph(shape)?.graph) };
        shape.check()?;
        let tensors = |name: &str| self.tensors.get(name).copied();
        let n = shape.n_seqs;
        let ahead = BatchShape { n_tokens: n, n_outputs: n, output: StepOutput::Drafts, ..*shape };
        let mut b = Builder::new(&self.config, shape, &tensors);
        let rows = self.rows(&mut b)?;
        b.g.output(rows, "result_output");
        let logits = layers.build(&mut b, (cfg, &ahead), &self.config)?;
        Ok(b.finish(logits)?.graph)
    }

    fn rows(&self, b: &mut Builder<'_>) -> Result<Tensor> {
        let rows = (self.arch.graph)(b)?;
        if b.batch.output == StepOutput::Scores { classifier(b, rows) } else { Ok(rows) }
    }
}
