//! Shapes of known models: texts that list their metadata and tensors, with numbers from the models' published
//! configurations. A line is `KEY TYPE VALUE…`, `vocabulary TOKENS PRE-TOKENIZER` or `tensor NAME DIMS…`, dims innermost
//! first; `blk.*` are the tensors of all layers, `blk.{0,2}` or `blk.{1-}` of some; `vocab` is the number of tokens. After a
//! `:` come mean and deviation of a tensor's random numbers (else 0 and 1/√columns, which keeps hidden states in range),
//! after a `=` the numbers. After a `@` comes what is special in 32 channels of hidden states ([`Channels`]). `#` starts a comment.

mod predictors;

use llmrt_abi::DType;
use llmrt_gguf::{Array, Metadata, TensorShape, Value};

/// More layers than any model has.
pub const MAX_LAYERS: u64 = 1024;

/// THE table of shapes.
const SHAPES: &[Shape] = &[
    Shape { name: "qwen2.5-0.5b", text: include_str!("shapes/qwen2.5-0.5b.txt") },
    Shape { name: "llama-3.2-1b", text: include_str!("shapes/llama-3.2-1b.txt") },
    Shape { name: "llama-3.1-8b", text: include_str!("shapes/llama-3.1-8b.txt") },
    Shape { name: "mixtral-8x7b", text: include_str!("shapes/mixtral-8x7b.txt") },
    Shape { name: "qwen3-30b-a3b", text: include_str!("shapes/qwen3-30b-a3b.txt") },
    Shape { name: "gemma-3-4b", text: include_str!("shapes/gemma-3-4b.txt") },
    Shape { name: "gpt-oss-20b", text: include_str!("shapes/gpt-oss-20b.txt") },
    Shape { name: "mamba2-1.3b", text: include_str!("shapes/mamba2-1.3b.txt") },
    Shape { name: "rwkv7-1.5b", text: include_str!("shapes/rwkv7-1.5b.txt") },
    Shape { name: "deepseek-v2-lite", text: include_str!("shapes/deepseek-v2-lite.txt") },
    Shape { name: "relu-llama-3.2-1b", text: include_str!("shapes/relu-llama-3.2-1b.txt") },
    Shape { name: "relu-llama-2-7b", text: include_str!("shapes/relu-llama-2-7b.txt") },
    Shape { name: "bamboo-7b", text: include_str!("shapes/bamboo-7b.txt") },
    Shape { name: "opt-6.7b", text: include_str!("shapes/opt-6.7b.txt") },
    Shape { name: "lfm2-1.2b", text: include_str!("shapes/lfm2-1.2b.txt") },
];

/// A model's shape.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    name: &'static str,
    text: &'static str,
}

impl std::str::FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let names = || SHAPES.iter().map(|shape| shape.name).collect::<Vec<_>>().join(", ");
        let found = SHAPES.iter().find(|shape| shape.name.eq_ignore_ascii_case(text));
        found.copied().ok_or_else(|| format!("expected one of {}", names()))
    }
}

impl Shape {
    /// The model, with this many layers instead of its own.
    pub fn model(&self, n_layers: Option<u64>) -> Result<SynthModel, String> {
        let mut model = SynthModel { metadata: Metadata::new(), ..SynthModel::default() };
        model.metadata.set("general.name", format!("{} with random weights", self.name));
        for line in self.text.lines() {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            model.read(&words, n_layers).ok_or_else(|| format!("{}: `{line}` is misshapen", self.name))?;
        }
        Ok(model)
    }
}

/// What a text lists.
#[derive(Default)]
pub struct SynthModel {
    /// All but the vocabulary.
    pub metadata: Metadata,
    /// Tokens of the model's own vocabulary.
    pub n_vocab: u64,
    /// Its pre-tokenizer.
    pub pre: String,
    n_layers: Layers,
    tensors: Vec<TensorLine>,
}

/// Layers of the model, and those that are made.
#[derive(Clone, Copy, Default)]
struct Layers {
    all: u64,
    made: u64,
}

/// A line of the text that stands for a tensor, or for one of each of some layers.
struct TensorLine {
    name: String,
    /// The layers; none if it is the whole model's.
    layers: Vec<u64>,
    /// `None`: as many as tokens.
    dims: Vec<Option<u64>>,
    content: Content,
}

impl SynthModel {
    /// Reads a line; `None` if it is misshapen.
    fn read(&mut self, words: &[&str], n_layers: Option<u64>) -> Option<()> {
        match *words {
            [] => {}
            ["vocabulary", n, pre] => (self.n_vocab, self.pre) = (n.parse().ok()?, pre.to_string()),
            ["tensor", name, ref rest @ ..] => {
                let line = TensorLine::read(name, rest, self.n_layers.made)?;
                self.tensors.push(line);
            }
            [key, "u32", n] if key.ends_with(".block_count") => {
                let all = n.parse().ok()?;
                self.n_layers = Layers { all, made: n_layers.unwrap_or(all) };
                self.metadata.set(key, self.n_layers.made as u32);
            }
            [key, kind, ref values @ ..] => self.metadata.set(key, value(kind, values, self.n_layers)?),
            _ => return None,
        }
        Some(())
    }

    /// The tensors in the order of a file: those before the layers, layer by layer, those after.
    pub fn parts(&self, n_vocab: u64) -> Vec<Part> {
        let first = self.tensors.iter().position(|line| line.is_of_layers()).unwrap_or(self.tensors.len());
        let after = self.tensors.iter().rposition(|line| line.is_of_layers()).map_or(first, |last| last + 1);
        let of_layer = |il: u64| {
            let lines = self.tensors[first..after].iter().filter(move |line| line.layers.contains(&il));
            lines.map(move |line| line.part(&line.name.replacen("blk.", &format!("blk.{il}."), 1), n_vocab))
        };
        let whole = |lines: &[TensorLine]| -> Vec<Part> {
            lines.iter().map(|line| line.part(&line.name, n_vocab)).collect()
        };
        let layers = (0..self.n_layers.made).flat_map(of_layer);
        whole(&self.tensors[..first]).into_iter().chain(layers).chain(whole(&self.tensors[after..])).collect()
    }
}

impl TensorLine {
    fn read(name: &str, rest: &[&str], n_layers: u64) -> Option<TensorLine> {
        let of_layers = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let (name, layers) = match of_layers {
            Some((which, name)) => (format!("blk.{name}"), layers(which, n_layers)?),
            None => (name.to_string(), Vec::new()),
        };
        let (rest, channels) = match rest {
            [rest @ .., "@", name] => (rest, Channels::named(name)?),
            _ => (rest, Channels::Random),
        };
        let end = rest.iter().position(|word| matches!(*word, ":" | "=")).unwrap_or(rest.len());
        let dim = |word: &&str| if *word == "vocab" { Some(None) } else { word.parse().ok().map(Some) };
        let dims = rest[..end].iter().map(dim).collect::<Option<Vec<_>>>()?;
        let numbers =
            rest.iter().skip(end + 1).map(|word| word.parse().ok()).collect::<Option<Vec<f32>>>()?;
        let content = match (rest.get(end), &numbers[..]) {
            (None, _) => {
                let deviation = ((*dims.first()?)? as f32).sqrt().recip();
                Content::Random { mean: 0.0, deviation, channels }
            }
            (Some(&":"), &[mean, deviation]) => Content::Random { mean, deviation, channels },
            (Some(&"="), _) => Content::Given(numbers),
            _ => return None,
        };
        Some(TensorLine { name, layers, dims, content })
    }

    fn is_of_layers(&self) -> bool {
        self.name.starts_with("blk.")
    }

    fn part(&self, name: &str, n_vocab: u64) -> Part {
        let dims: Vec<u64> = self.dims.iter().map(|n| n.unwrap_or(n_vocab)).collect();
        let content = match self.content {
            Content::Random { mean, deviation: 0.0, .. } => {
                Content::Given(vec![mean; dims.iter().product::<u64>() as usize])
            }
            ref content => content.clone(),
        };
        Part { name: name.to_string(), dims, content }
    }
}

/// `*`, or `{A,B,C-D,E-}`: those of the layers that are made.
fn layers(text: &str, n_layers: u64) -> Option<Vec<u64>> {
    if text == "*" {
        return Some((0..n_layers).collect());
    }
    let mut all = Vec::new();
    for part in text.strip_prefix('{')?.strip_suffix('}')?.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u64 = first.parse().ok()?;
        let last = if last.is_empty() { MAX_LAYERS } else { last.parse().ok()? };
        all.extend((first..=last).take_while(|il| *il < n_layers));
    }
    Some(all)
}

/// A value of metadata; arrays with one number for each layer end with the layers that are made.
fn value(kind: &str, words: &[&str], n_layers: Layers) -> Option<Value> {
    let n = if words.len() as u64 == n_layers.all { n_layers.made as usize } else { words.len() };
    let words = &words[..n.min(words.len())];
    Some(match (kind, words) {
        ("str", [word]) => (*word).into(),
        ("bool", [word]) => Value::Bool(word.parse().ok()?),
        ("u32", [word]) => Value::U32(word.parse().ok()?),
        ("f32", [word]) => Value::F32(word.parse().ok()?),
        ("[i32]", words) => {
            Value::Array(Array::I32(words.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?))
        }
        _ => return None,
    })
}

/// A tensor and what its numbers are.
pub struct Part {
    name: String,
    /// Innermost first.
    dims: Vec<u64>,
    /// What it is filled with.
    pub content: Content,
}

/// What a tensor is filled with.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    /// Random numbers.
    Random {
        /// Their mean.
        mean: f32,
        /// Their standard deviation.
        deviation: f32,
        /// What is special about them.
        channels: Channels,
    },
    /// These.
    Given(Vec<f32>),
}

/// What is special about a tensor's numbers, most of it in the first 32 channels of hidden states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channels {
    /// Nothing.
    Random,
    /// `constant`: they are all the deviation, in every row.
    Constant,
    /// `unmoved`: rows that are these channels are zeros.
    Unmoved,
    /// `zero`: they are zeros, in every row.
    Zero,
    /// `positive`: they make each row's sum positive.
    Positive,
    /// `rare`: they make each row's sum negative, so that its neuron rarely fires.
    Rare,
    /// As `rare`, and of the others so many first ones decide alone, but for little.
    RareBy(u64),
    /// Row i is the channel i of half of the rows, then its negative.
    Signs,
    /// The first channels of the last rows that were rare, and their negatives.
    Scores,
}

impl Channels {
    fn named(name: &str) -> Option<Channels> {
        let names = [
            ("constant", Channels::Constant),
            ("unmoved", Channels::Unmoved),
            ("zero", Channels::Zero),
            ("positive", Channels::Positive),
            ("rare", Channels::Rare),
        ];
        names.into_iter().find(|(known, _)| *known == name).map(|(_, channels)| channels)
    }
}

impl Part {
    /// As a file would describe it, with F32 elements.
    pub fn shape(&self) -> Result<TensorShape, llmrt_gguf::Error> {
        TensorShape::new(self.name.clone(), DType::F32, &self.dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, n_layers: Option<u64>) -> SynthModel {
        name.parse::<Shape>().unwrap().model(n_layers).unwrap()
    }

    fn check(name: &str, n_params: u64) {
        let model = model(name, None);
        let n: u64 = model.parts(model.n_vocab).iter().map(|part| part.dims.iter().product::<u64>()).sum();
        assert_eq!(n, n_params, "{name}");
    }

    #[test]
    fn shapes_have_as_many_parameters_as_the_models() {
        check("qwen2.5-0.5b", 494_032_768);
        check("llama-3.2-1b", 1_235_814_400 + 32);
        check("llama-3.1-8b", 8_030_261_248 + 64);
        check("mixtral-8x7b", 46_702_792_704);
        check("qwen3-30b-a3b", 30_532_122_624);
        check("gemma-3-4b", 3_880_099_328);
        check("gpt-oss-20b", 20_914_757_184);
        check("mamba2-1.3b", 1_343_757_312);
        check("rwkv7-1.5b", 1_527_799_808);
        check("deepseek-v2-lite", 15_706_484_224);
        check("lfm2-1.2b", 1_170_340_608);
        check("relu-llama-3.2-1b", 1_235_814_400 + 32);
        check("relu-llama-2-7b", 6_738_415_616);
        check("bamboo-7b", 7_241_732_096);
        check("opt-6.7b", 6_658_473_984);
    }

    #[test]
    fn fewer_layers_end_lists_of_layers_too() {
        let model = model("lfm2-1.2b", Some(3));
        let names: Vec<_> = model.parts(10).into_iter().map(|part| part.name).collect();
        let of =
            |name: &str| names.iter().filter(|n| n.contains(name)).map(String::as_str).collect::<Vec<_>>();
        assert_eq!(of("attn_q.weight"), ["blk.2.attn_q.weight"]);
        assert_eq!(of("shortconv.conv"), ["blk.0.shortconv.conv.weight", "blk.1.shortconv.conv.weight"]);
        assert_eq!(model.metadata.i32s("lfm2.attention.head_count_kv"), Some(vec![0, 0, 8]));
        assert_eq!(names.last().map(String::as_str), Some("token_embd_norm.weight"));
    }
}
