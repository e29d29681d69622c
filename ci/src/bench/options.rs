//! The arguments of `cargo ci bench`.

#[cfg(test)]
mod tests;

use super::cases::Case;
use super::engine;
use super::families::{self, Family};
use super::program::Llmrt;
use std::path::{Path, PathBuf};

/// What is measured.
pub struct Options {
    /// llama.cpp's llama-bench, or a program that takes its flags.
    pub peer: Option<PathBuf>,
    /// Whether the floor is measured too.
    pub floor: bool,
    /// The program under test, if it is not to be built.
    pub llmrt: Option<PathBuf>,
    /// The card that work is for.
    pub card: Option<Card>,
    files: Vec<PathBuf>,
    like: Option<String>,
    types: Vec<String>,
    /// Cases, in order.
    pub cases: Vec<Case>,
    /// The models are those of the families.
    pub has_families: bool,
    /// Threads, in order.
    pub threads: Vec<usize>,
    /// Pairs of runs after the warm-up.
    pub pairs: usize,
    /// A quarter of the tokens.
    pub quick: bool,
    /// Where the numbers go as JSON.
    pub json: Option<PathBuf>,
}

/// A card instead of the CPU, the peer's too.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// The plugin's file.
    pub plugin: PathBuf,
    /// What `--backend` calls it.
    pub name: String,
    /// What a copy on it reads and writes, 10⁹ bytes per second; 0: not known.
    pub read_gb_s: f64,
}

impl Card {
    /// By the file of its plugin, `libllmrt_NAME.so`.
    fn of(plugin: &str) -> Result<Card, String> {
        let path = PathBuf::from(plugin);
        let name = path.file_stem().and_then(|stem| stem.to_str()?.strip_prefix("libllmrt_"));
        let name = name.ok_or_else(|| format!("--plugin {plugin}: expected libllmrt_NAME.so"))?.to_string();
        Ok(Card { plugin: path, name, read_gb_s: 0.0 })
    }
}

/// What is measured by default.
const TYPES: &str = "q4_0,q8_0,q4_k_m,q6_k,f16";
const THREADS: &str = "2,1";

impl Options {
    /// Reads flags and their values.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        let mut options = Options {
            peer: None,
            floor: false,
            llmrt: None,
            card: None,
            files: Vec::new(),
            like: None,
            types: Vec::new(),
            cases: Case::ALL.to_vec(),
            has_families: false,
            threads: Vec::new(),
            pairs: 5,
            quick: false,
            json: None,
        };
        let (mut words, mut read_gb_s) = (words.iter(), 0.0);
        let mut defaults = (TYPES, THREADS);
        while let Some(&flag) = words.next() {
            let switch = match flag {
                "--quick" => Some(&mut options.quick),
                "--floor" => Some(&mut options.floor),
                _ => None,
            };
            if let Some(switch) = switch {
                *switch = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{flag}: expected a value after it"))?;
            match flag {
                "--peer" => options.peer = Some(value.into()),
                "--llmrt" => options.llmrt = Some(value.into()),
                "--plugin" => options.card = Some(Card::of(value)?),
                "--card-gb-s" => {
                    let problem = |_| format!("--card-gb-s {value}: expected a number");
                    read_gb_s = value.parse().map_err(problem)?;
                }
                "-m" => options.files.push(value.into()),
                "--like" => options.like = Some(value.to_string()),
                "--types" => options.types = list(value),
                "--cases" => {
                    options.cases = cases(value)?;
                    options.has_families = value.trim() == families::NAME;
                    defaults = match value.trim() {
                        engine::NAME => engine::DEFAULTS,
                        families::NAME => families::DEFAULTS,
                        _ => defaults,
                    };
                }
                "--threads" => options.threads = counts(value)?,
                "--pairs" => options.pairs = count(value)?,
                "--json" => options.json = Some(value.into()),
                _ => {
                    return Err(format!(
                        "bench {flag}: expected --peer, --floor, --llmrt, --plugin, --card-gb-s, -m, --like, --types, --cases, --threads, --pairs, --quick or --json"
                    ));
                }
            }
        }
        options.card.iter_mut().for_each(|card| card.read_gb_s = read_gb_s);
        if options.types.is_empty() {
            options.types = list(defaults.0);
        }
        if options.threads.is_empty() {
            options.threads = counts(defaults.1)?;
        }
        Ok(options)
    }

    /// The files: those named, else files of random weights, which are made if they are not there yet.
    pub fn models(&self, llmrt: &Llmrt) -> Result<Vec<PathBuf>, String> {
        if !self.files.is_empty() {
            return Ok(self.files.clone());
        }
        let dir = crate::root().join("target/bench");
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        if self.has_families {
            let families = families::like(self.like.as_deref())?;
            return families.map(|family| self.family(llmrt, &dir, family)).collect();
        }
        self.types.iter().map(|name| self.model(llmrt, &dir, name)).collect()
    }

    fn model(&self, llmrt: &Llmrt, dir: &Path, name: &str) -> Result<PathBuf, String> {
        let like = self.like.as_deref().unwrap_or(like(name));
        let path = dir.join(format!("{like}-{name}.gguf"));
        // The mix named MXFP4 has it in experts alone; here all matrices get it.
        let pure = (name == "mxfp4").then_some("--pure");
        if !path.exists() {
            llmrt.synth(like, name, pure.as_slice(), &path)?;
        }
        Ok(path)
    }

    fn family(&self, llmrt: &Llmrt, dir: &Path, family: &Family) -> Result<PathBuf, String> {
        let Family { like, mix, layers } = *family;
        let cut = layers.map(|n| n.to_string());
        let path = match &cut {
            Some(n) => dir.join(format!("{like}-{n}-layers-{mix}.gguf")),
            None => dir.join(format!("{like}-{mix}.gguf")),
        };
        if !path.exists() {
            let flags: Vec<&str> = cut.iter().flat_map(|n| ["--layers", n]).collect();
            llmrt.synth(like, mix, &flags, &path)?;
        }
        Ok(path)
    }
}

/// The smallest shape whose rows are whole blocks of a type.
fn like(name: &str) -> &'static str {
    if has_long_blocks(name) { "llama-3.2-1b" } else { "qwen2.5-0.5b" }
}

/// Whether a type has blocks of 256 elements: K types and IQ4_XS.
pub fn has_long_blocks(name: &str) -> bool {
    name.contains("_k") || name == "iq4_xs"
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(|word| word.trim().to_lowercase()).collect()
}

fn cases(text: &str) -> Result<Vec<Case>, String> {
    let of = |name: &str| match name.trim() {
        engine::NAME => Ok(engine::cases()),
        families::NAME => Ok(families::cases()),
        name => Case::from_name(name).map(|case| vec![case]),
    };
    Ok(text.split(',').map(of).collect::<Result<Vec<_>, _>>()?.concat())
}

fn counts(text: &str) -> Result<Vec<usize>, String> {
    text.split(',').map(count).collect()
}

fn count(text: &str) -> Result<usize, String> {
    let n = text.trim().parse().ok().filter(|&n| n > 0);
    n.ok_or_else(|| format!("{text}: expected a whole number above 0"))
}
