//! Everything that can be wrong with a file of sparse inference, with what was found and what helps.

use llmrt_gguf::printable_name as shown;

/// Why bytes are not usable. The caller adds the name of the file.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[allow(missing_docs)] // each field is named in its variant's message
pub enum Error {
    // Files of torch.
    #[error("begins with \"{found}\": expected a file of `torch.save`, which is a ZIP archive")]
    NotTorch { found: String },
    #[error(
        "is in the format of torch before 1.6, which is no ZIP archive: load it with a current torch and save it again"
    )]
    OldTorch,
    #[error(
        "ZIP archive: {what} at byte {at}: the file is damaged or incomplete; copy it again, or save it again with torch"
    )]
    BadZip { what: &'static str, at: u64 },
    #[error(
        "ZIP member `{}` is compressed or encrypted: `torch.save` stores members as they are; save the file again",
        shown(member)
    )]
    PackedMember { member: String },
    #[error("ZIP member `{}` appears twice: save the file again with torch", shown(member))]
    DuplicateMember { member: String },
    #[error("ZIP member `{}` is missing: expected what `torch.save` writes", shown(member))]
    MissingMember { member: String },
    #[error("numbers are big-endian: save the file again on a little-endian machine")]
    BigEndian,
    #[error(
        "data.pkl has {found} bytes, expected at most {limit}: save a tensor or a dict of tensors and nothing else"
    )]
    LongPickle { found: u64, limit: u64 },
    #[error(
        "data.pkl: opcode {opcode:#04x} at byte {at} is none that tensors need, and nothing is executed; save a tensor, or \
         the `state_dict()` of a module"
    )]
    BadOpcode { opcode: u8, at: u64 },
    #[error(
        "data.pkl: it calls for `{}`: only tensors and dicts of them are read, and nothing is executed; save a tensor, or \
         the `state_dict()` of a module",
        shown(name)
    )]
    BadGlobal { name: String },
    #[error("data.pkl: {what} at byte {at}: the file is damaged, or no work of `torch.save`; save it again")]
    BadPickle { what: &'static str, at: u64 },
    #[error(
        "tensor of sizes {sizes:?} and strides {strides:?} from element {offset} on: {problem}; save it again with `.contiguous()`"
    )]
    BadView { sizes: Vec<u64>, strides: Vec<u64>, offset: u64, problem: String },
    #[error(
        "storage `{}` has {found} bytes, {expected} are needed: the file is damaged; save it again",
        shown(key)
    )]
    ShortStorage { key: String, found: u64, expected: u64 },
    #[error("holds {found}: expected {expected}")]
    Content { found: String, expected: &'static str },
    #[error("tensor `{}` is missing; the file has: {}", shown(tensor), shown(found))]
    MissingTensor { tensor: String, found: String },

    // Folders of them.
    #[error("no file {pattern}: give the folder that has one for each layer")]
    NoFiles { pattern: String },
    #[error(
        "file {} is missing, but there is {}: every layer from 0 on needs one",
        shown(missing),
        shown(found)
    )]
    MissingFile { missing: String, found: String },
    #[error("files {} and {} have the same number: remove one of them", shown(first), shown(second))]
    DoubledFile { first: String, second: String },

    // What they hold.
    #[error("neuron {neuron} has a count of {found}: expected a number of at least 0")]
    BadCount { neuron: usize, found: f64 },
    #[error("{found} neurons, the model's layer has {expected}: these are counts of another model")]
    WrongCounts { found: usize, expected: usize },
    #[error(
        "counts of {found} layers, the model has {expected}: they are of another model, or those of a layer are missing"
    )]
    WrongLayers { found: usize, expected: usize },
    #[error(
        "predictor `{tensor}` is {found:?}, expected {expected}: it is of another model, or not in torch's order"
    )]
    WrongPredictor { tensor: &'static str, found: Vec<u64>, expected: String },
    #[error("threshold {found} of {}: expected a number", shown(what))]
    BadThreshold { what: String, found: f32 },

    // Neuron indexes.
    #[error(transparent)]
    Gguf(#[from] llmrt_gguf::Error),
    #[error(
        "is no neuron index: expected magic PWRI and `general.architecture` {}; write it again with `llmrt sparse solve`, or remove it",
        llmrt_gguf::NEURON_INDEX_ARCH
    )]
    NotAnIndex,
    #[error(
        "is no neuron index, or is damaged ({problem}): write it again with `llmrt sparse solve --force`, or remove it"
    )]
    DamagedIndex { problem: String },
    #[error("has {found} tensors for {n_layers} layers, expected two each: write the index again")]
    IndexTensors { found: usize, n_layers: u64 },
    #[error("tensor `{}` is {found}: expected {expected}; write the index again", shown(tensor))]
    IndexTensor { tensor: String, found: String, expected: &'static str },
    #[error("layer {layer}: gpu_idx of neuron {neuron} is {found}, expected 0 or 1; write the index again")]
    IndexFlag { layer: usize, neuron: usize, found: i32 },
    #[error("layer {layer}: the bucket has neuron {found}, the layer has {n_ff}; write the index again")]
    IndexRange { layer: usize, found: i64, n_ff: usize },
    #[error(
        "layer {layer}: the bucket has neuron {found} after {previous}: expected ascending ids, each once; write the index again"
    )]
    IndexOrder { layer: usize, found: u32, previous: u32 },
    #[error(
        "layer {layer}: gpu_idx of neuron {neuron} is {flag}, which contradicts the bucket; write the index again"
    )]
    IndexContradicts { layer: usize, neuron: usize, flag: i32 },
    #[error(
        "is an index of {found} layers, the model has {expected}: remove it, or write it again for this model"
    )]
    IndexLayers { found: usize, expected: usize },
    #[error(
        "layer {layer}: the index has {found} neurons, the model {expected}: remove it, or write it again for this model"
    )]
    IndexNeurons { layer: usize, found: usize, expected: usize },

    // Files of statistics.
    #[error(
        "is no file of sparse statistics: expected GGUF with `general.architecture` {}; remove it, or make it again with \
         `llmrt sparse profile MODEL -f TEXT --force`",
        crate::stats::ARCH
    )]
    NotStats,
    #[error(
        "is no file of sparse statistics, or is damaged ({problem}): remove it, or make it again with `llmrt sparse profile MODEL -f \
         TEXT --force`, and `sparse predictor` where it had predictors"
    )]
    DamagedStats { problem: String },
    #[error("is of version {found}, this llmrt reads {expected}: make it again")]
    StatsVersion { found: u32, expected: u32 },
    #[error(
        "was made for {} (checksum {}), not for {} (checksum {}): the model, its quantisation or its --override-kv is another; \
         replace it with `llmrt sparse profile MODEL -f TEXT --force`, or remove it",
        shown(made_for),
        shown(found),
        shown(model),
        shown(expected)
    )]
    OtherModel { made_for: String, found: String, model: String, expected: String },
    #[error("tensor `{}`: {problem}; make the file again", shown(tensor))]
    StatsTensor { tensor: String, problem: String },

    // Requests to the solver.
    #[error("{what} is {found}: expected {expected}")]
    BadRequest { what: &'static str, found: String, expected: &'static str },
}

/// What is wrong with a file by the parser of GGUF, without what helps with a model's file.
pub(crate) fn cause(e: &llmrt_gguf::Error) -> String {
    let text = e.to_string();
    text.rsplit_once("; ").map_or(text.clone(), |(cause, _)| cause.to_string())
}
