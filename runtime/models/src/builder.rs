//! A model's graph while it is built: the graph, the layer at hand, and weights by their names in the file.

use crate::batch::{BatchShape, ModelGraph, StepOutput};
use crate::cache::{CacheGroup, PagedLayer, StateTensor};
use crate::config::{Config, LayerConfig, MlaConfig, Norm};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::spec::ModelSpec;
use llmrt_abi::DType;
use llmrt_graph::{Graph, Role, Shape, Tensor, tensor::shape};
use std::collections::HashMap;
use std::ops::Range;

/// What names of the weights of layers that predict ahead begin with, where they are a file of their own.
pub const DRAFT_PREFIX: &str = "draft.";

/// Finds a tensor's type and dims by its name.
pub(crate) type Lookup<'a> = dyn Fn(&str) -> Option<(DType, Shape)> + 'a;

/// A tensor that a graph reads: its name, type and dims.
pub(crate) type UsedTensor = (String, (DType, Shape));

/// A graph while it is built.
pub(crate) struct Builder<'a> {
    /// The graph so far.
    pub g: Graph,
    /// The model's numbers.
    pub cfg: &'a Config,
    /// The step's numbers.
    pub batch: &'a BatchShape,
    /// K and V caches of the layers so far, with the step's tokens in them.
    pub kv_caches: HashMap<usize, [Tensor; 2]>,
    has_logits: bool,
    /// The normed hidden states that logits are made of, or what layers that predict ahead have in their place.
    pub hidden: Option<Tensor>,
    /// Rows of the table of positions, if there is one.
    pub n_positions: Option<u64>,
    inputs: Vec<(Input, Tensor)>,
    /// Those of the model itself, once layers that predict ahead are built.
    model_inputs: Vec<(Input, Tensor)>,
    /// What names of weights in the file begin with: nothing, or [`DRAFT_PREFIX`].
    prefix: &'static str,
    caches: Vec<CacheGroup>,
    lookup: &'a Lookup<'a>,
    leaves: HashMap<String, Tensor>,
    used: Vec<UsedTensor>,
    il: Option<usize>,
    /// What names of layers' tensors begin with: nothing, or `enc.` and `dec.` where a model has two stacks of layers.
    stack: &'static str,
}

impl<'a> Builder<'a> {
    pub fn new(cfg: &'a Config, batch: &'a BatchShape, lookup: &'a Lookup<'a>) -> Builder<'a> {
        Builder {
            g: Graph::new(),
            cfg,
            batch,
            kv_caches: HashMap::new(),
            has_logits: false,
            hidden: None,
            n_positions: None,
            inputs: Vec::new(),
            model_inputs: Vec::new(),
            prefix: "",
            caches: Vec::new(),
            lookup,
            leaves: HashMap::new(),
            used: Vec::new(),
            il: None,
            stack: "",
        }
    }

    /// An array of the step, made on first use.
    pub fn input(&mut self, input: Input) -> Tensor {
        if let Some((_, t)) = self.inputs.iter().find(|(known, _)| *known == input) {
            return *t;
        }
        let name = format!("{}{}", self.prefix, input.name());
        let t = self.g.input(&name, input.dtype(), &input.dims(self.batch));
        self.inputs.push((input, t));
        t
    }

    /// Adds a layer to the group of paged caches with this window.
    pub fn add_paged(&mut self, layer: PagedLayer, window: u32) {
        let known = self.caches.iter_mut().find_map(|cache| match cache {
            CacheGroup::Paged { layers, window: of_group } if *of_group == window => Some(layers),
            _ => None,
        });
        match known {
            Some(layers) => layers.push(layer),
            None => self.caches.push(CacheGroup::Paged { layers: vec![layer], window }),
        }
    }

    /// Adds the layer at hand to the group of indexers' keys, with rows of `n` elements.
    pub fn add_index(&mut self, n: u64) {
        let il = self.il();
        let known = self.caches.iter_mut().find_map(|cache| match cache {
            CacheGroup::Index { layers } => Some(layers),
            _ => None,
        });
        match known {
            Some(layers) => layers.push((il, n)),
            None => self.caches.push(CacheGroup::Index { layers: vec![(il, n)] }),
        }
    }

    /// Adds a layer to the caches of cross attention.
    pub fn add_cross(&mut self, layer: PagedLayer) {
        let known = self.caches.iter_mut().find_map(|cache| match cache {
            CacheGroup::Cross { layers } => Some(layers),
            _ => None,
        });
        match known {
            Some(layers) => layers.push(layer),
            None => self.caches.push(CacheGroup::Cross { layers: vec![layer] }),
        }
    }

    /// The states of the layer at hand, each [row, n_state_slots].
    pub fn states<const N: usize>(&mut self, tensors: [StateTensor; N]) -> [Tensor; N] {
        let (il, n_slots) = (self.il(), self.batch.n_state_slots);
        let known = self.caches.iter_mut().find_map(|cache| match cache {
            CacheGroup::Recurrent { layers, tensors: of_group } if of_group[..] == tensors => Some(layers),
            _ => None,
        });
        match known {
            Some(layers) => layers.push(il),
            None => self.caches.push(CacheGroup::Recurrent { layers: vec![il], tensors: tensors.to_vec() }),
        }
        tensors.map(|StateTensor { name, row }| {
            self.g.state(&format!("blk.{il}.{name}"), DType::F32, &[row, n_slots], Role::Other)
        })
    }

    /// Whether the step gives logits, of a model that has some. If not, the graph ends with normed hidden states.
    pub fn gives_logits(&mut self) -> bool {
        self.has_logits = true;
        matches!(self.batch.output, StepOutput::Logits | StepOutput::Drafts)
    }

    /// Goes on with layers that predict ahead, which have a configuration, arrays and weights of their own.
    pub fn begin_drafts(&mut self, cfg: &'a Config, batch: &'a BatchShape) {
        (self.cfg, self.batch, self.prefix) = (cfg, batch, DRAFT_PREFIX);
        self.model_inputs.append(&mut self.inputs);
    }

    /// A weight of the model itself, while layers that predict ahead are built.
    pub fn weight_of_model(&mut self, name: &str, dims: &[u64], role: Role) -> Result<Tensor> {
        let prefix = std::mem::take(&mut self.prefix);
        let found = self.leaf(name, dims, role);
        let missing = self.missing(name.into(), dims);
        self.prefix = prefix;
        found?.ok_or(missing)
    }

    /// Runs `x` through `block`, once for each layer. Within a block, names mean that layer's tensors.
    pub fn layers(
        &mut self,
        x: Tensor,
        block: impl Fn(&mut Self, Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        self.layers_in(0..self.cfg.n_layer, x, block)
    }

    /// As `layers`, for some of them.
    pub fn layers_in(
        &mut self,
        layers: Range<usize>,
        mut x: Tensor,
        block: impl Fn(&mut Self, Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        for il in layers {
            self.il = Some(il);
            x = block(self, x)?;
        }
        self.il = None;
        Ok(x)
    }

    /// Names of layers' tensors begin with `stack` from here on.
    pub fn set_stack(&mut self, stack: &'static str) {
        self.stack = stack;
    }

    /// Number of the layer at hand.
    pub fn il(&self) -> usize {
        self.il.unwrap_or(0)
    }

    /// Numbers of the layer at hand.
    pub fn layer(&self) -> &'a LayerConfig {
        &self.cfg.layers[self.il()]
    }

    /// Sizes of latent attention in the layer at hand.
    pub fn mla(&self) -> &'a MlaConfig {
        match self.layer().window {
            0 => &self.cfg.mla,
            _ => self.cfg.windowed_mla.as_ref().unwrap_or(&self.cfg.mla),
        }
    }

    /// In the last layer, the rows whose logits are requested; before it all rows are needed, as keys and values.
    /// Called after attention, so the last FFN and the head run on few rows.
    pub fn keep_outputs<const N: usize>(&mut self, rows: [Tensor; N]) -> [Tensor; N] {
        match self.il() + 1 == self.cfg.n_layer {
            true => rows.map(|x| self.outputs(x)),
            false => rows,
        }
    }

    /// The rows whose logits are requested; all, where the classifier takes the mean of a text.
    pub fn outputs(&mut self, x: Tensor) -> Tensor {
        match self.batch.output == StepOutput::Scores && self.cfg.classifier.takes_mean() {
            true => x,
            false => self.rows_of_outputs(x),
        }
    }

    /// The rows of `x` [n, n_tokens] whose logits are requested.
    pub fn rows_of_outputs(&mut self, x: Tensor) -> Tensor {
        let output_ids = self.input(Input::OutputIds);
        self.g.get_rows(x, output_ids)
    }

    /// Norm with the weight of that name, and the bias if the file has it: rows of hidden states or heads.
    pub fn norm(&mut self, name: &str, x: Tensor) -> Result<Tensor> {
        if !self.cfg.has_norm_weights {
            return Ok(self.plain_norm(name, x));
        }
        let n = self.g.ne(x)[0];
        // PLaMo's files name some weights without an ending.
        let bare = self.optional(name, &[n], Role::Norm)?;
        let weight = bare.map_or_else(|| self.weight(&format!("{name}.weight"), &[n], Role::Norm), Ok)?;
        let bias = self.optional(&format!("{name}.bias"), &[n], Role::Bias)?;
        let y = match self.cfg.norm {
            Norm::Rms => {
                let y = self.g.rms_norm(x, weight, self.cfg.norm_eps);
                bias.map_or(y, |bias| self.g.add(y, bias))
            }
            Norm::Layer => self.g.layer_norm(x, weight, bias, self.cfg.norm_eps),
        };
        Ok(self.name(y, name))
    }

    /// Norm, of models whose files may leave it out.
    pub fn norm_if_there(&mut self, name: &str, x: Tensor) -> Result<Tensor> {
        if self.has(&format!("{name}.weight")) { self.norm(name, x) } else { Ok(x) }
    }

    /// Norm without weights.
    pub fn plain_norm(&mut self, name: &str, x: Tensor) -> Tensor {
        let y = match self.cfg.norm {
            Norm::Rms => self.g.rms_norm(x, None, self.cfg.norm_eps),
            Norm::Layer => self.g.layer_norm(x, None, None, self.cfg.norm_eps),
        };
        self.name(y, name)
    }

    /// What a layer's part gives, times the model's factor on it, plus the residual stream.
    pub fn residual(&mut self, name: &str, y: Tensor, x: Tensor) -> Tensor {
        let y = match self.cfg.scales.residual {
            1.0 => y,
            scale => self.g.scale(y, scale),
        };
        self.add(name, y, x)
    }

    /// `t`, copied if it has gaps or another order.
    pub fn contiguous(&mut self, t: Tensor) -> Tensor {
        if self.g.def(t).is_contiguous() { t } else { self.g.cont(t) }
    }

    /// a + b, with a name.
    pub fn add(&mut self, name: &str, a: Tensor, b: Tensor) -> Tensor {
        let y = self.g.add(a, b);
        self.name(y, name)
    }

    /// Names a result in the usual way: `attn_norm-0` in layer 0.
    pub fn name(&mut self, t: Tensor, name: &str) -> Tensor {
        match self.il {
            Some(il) => self.g.name(t, format!("{name}-{il}")),
            None => self.g.name(t, name),
        }
    }

    /// A weight of the layer at hand, or of the whole model. Vectors come out as F32.
    pub fn weight(&mut self, name: &str, dims: &[u64], role: Role) -> Result<Tensor> {
        let found = self.optional(name, dims, role)?;
        found.ok_or_else(|| self.missing(self.path(name), dims))
    }

    /// The caches that attention of layer `il` wrote.
    pub fn kv_caches_of(&self, il: usize) -> Result<[Tensor; 2]> {
        let found = self.kv_caches.get(&il).copied();
        found.ok_or_else(|| {
            self.missing(format!("blk.{il}.attn_k.weight"), &[self.cfg.n_embd, self.cfg.n_embd_k(il)])
        })
    }

    fn missing(&self, tensor: String, dims: &[u64]) -> Error {
        let tensor = format!("{}{tensor}", self.prefix);
        Error::MissingTensor { tensor, arch: self.cfg.arch.clone(), expected: dims.to_vec() }
    }

    /// A weight of one number for each of `n` heads, [1, n]: files have it so, or as [n].
    pub fn per_head(&mut self, name: &str, n: u64) -> Result<Tensor> {
        let is_row = self.find(&self.path(name)).is_some_and(|(_, ne)| ne == shape(&[n]));
        match is_row {
            true => {
                let row = self.weight(name, &[n], Role::Other)?;
                Ok(self.g.reshape(row, &[1, n]))
            }
            false => self.weight(name, &[1, n], Role::Other),
        }
    }

    /// As `weight`, if the file has it.
    pub fn optional(&mut self, name: &str, dims: &[u64], role: Role) -> Result<Option<Tensor>> {
        let path = self.path(name);
        self.leaf(&path, dims, role)
    }

    /// A weight by its full name, if the file has it with these dims. It is made once.
    pub fn leaf(&mut self, path: &str, dims: &[u64], role: Role) -> Result<Option<Tensor>> {
        let Some((dtype, ne)) = self.find(path) else { return Ok(None) };
        if ne != shape(dims) {
            let n_dims = ne.iter().rposition(|&n| n != 1).map_or(1, |i| i + 1);
            let (found, expected) = (ne[..n_dims.max(dims.len())].to_vec(), dims.to_vec());
            return Err(Error::TensorDims { tensor: format!("{}{path}", self.prefix), found, expected });
        }
        let path = format!("{}{path}", self.prefix);
        let leaf = match self.leaves.get(&path) {
            Some(&leaf) => leaf,
            None => {
                let leaf = self.g.weight(&path, dtype, dims, role);
                self.leaves.insert(path.clone(), leaf);
                self.used.push((path, (dtype, ne)));
                leaf
            }
        };
        let is_short = dims.len() == 1 && dtype != DType::F32;
        Ok(Some(if is_short { self.g.cast(leaf, DType::F32) } else { leaf }))
    }

    /// Whether the file has the tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.dims(name).is_some()
    }

    /// The dims of the tensor of this name, if the file has it.
    pub fn dims(&self, name: &str) -> Option<Shape> {
        self.find(&self.path(name)).map(|(_, dims)| dims)
    }

    fn find(&self, path: &str) -> Option<(DType, Shape)> {
        let of_layer = path
            .strip_prefix(self.stack)
            .and_then(|rest| rest.strip_prefix("blk."))
            .and_then(|rest| rest.split_once('.'));
        let name = of_layer.map_or(path, |(_, name)| name);
        match (self.cfg.unused.contains(&name), self.prefix) {
            (true, _) => None,
            (false, "") => (self.lookup)(path),
            (false, prefix) => (self.lookup)(&format!("{prefix}{path}")),
        }
    }

    /// The name of a tensor that belongs to the layer at hand alone, even where several layers have the weights of a block.
    pub fn layer_path(&self, name: &str) -> String {
        match self.il {
            Some(il) => format!("{}blk.{il}.{name}", self.stack),
            None => name.to_string(),
        }
    }

    /// The name in the file of a tensor of the layer at hand.
    pub fn path(&self, name: &str) -> String {
        match self.il {
            Some(il) => format!("{}blk.{}.{name}", self.stack, self.cfg.layers[il].block),
            None => name.to_string(),
        }
    }

    /// The graph, with its logits.
    pub fn finish(mut self, logits: Tensor) -> Result<ModelGraph> {
        self.g.output(logits, "result_output");
        if let Some(hidden) = self.hidden {
            self.g.output(hidden, "result_hidden");
        }
        Ok(ModelGraph { graph: self.g.finish()?, inputs: self.inputs, logits, hidden: self.hidden })
    }

    /// The tensors that were used, in order of first use, and what the caller provides.
    pub fn finish_used(self) -> Result<(Vec<UsedTensor>, ModelSpec)> {
        self.g.finish()?;
        let inputs = self.model_inputs.into_iter().chain(self.inputs).map(|(input, _)| input).collect();
        let (is_causal, pooling) = (self.cfg.is_causal, self.cfg.pooling);
        let (has_logits, n_positions) = (self.has_logits, self.n_positions);
        let spec = ModelSpec { caches: self.caches, inputs, is_causal, has_logits, n_positions, pooling };
        Ok((self.used, spec))
    }
}
