//! The arguments of `cargo ci bench`.

use super::cases::Case;
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
            types: list(TYPES),
            cases: Case::ALL.to_vec(),
            threads: vec![2, 1],
            pairs: 5,
            quick: false,
            json: None,
        };
        let (mut words, mut read_gb_s) = (words.iter(), 0.0);
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
                    options.cases = value.split(',').map(Case::from_name).collect::<Result<_, _>>()?
                }
                "--threads" => options.threads = value.split(',').map(count).collect::<Result<_, _>>()?,
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
        Ok(options)
    }

    /// The files: those named, else files of random weights, which are made if they are not there yet.
    pub fn models(&self, llmrt: &Llmrt) -> Result<Vec<PathBuf>, String> {
        if !self.files.is_empty() {
            return Ok(self.files.clone());
        }
        let dir = crate::root().join("target/bench");
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        self.types.iter().map(|name| self.model(llmrt, &dir, name)).collect()
    }

    fn model(&self, llmrt: &Llmrt, dir: &Path, name: &str) -> Result<PathBuf, String> {
        let like = self.like.as_deref().unwrap_or(like(name));
        let path = dir.join(format!("{like}-{name}.gguf"));
        if !path.exists() {
            llmrt.synth(like, name, &path)?;
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

fn count(text: &str) -> Result<usize, String> {
    let n = text.trim().parse().ok().filter(|&n| n > 0);
    n.ok_or_else(|| format!("{text}: expected a whole number above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_select_what_is_measured() {
        let words = "--types Q4_0,f16 --threads 1,4 --cases decode,memory --pairs 7 --quick --floor";
        let o = Options::parse(&words.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!((o.types, o.threads, o.pairs), (list("q4_0,f16"), vec![1, 4], 7));
        assert_eq!((o.quick, o.floor), (true, true));
        assert_eq!(o.cases, [Case::Decode, Case::Memory]);
    }

    #[test]
    fn a_card_is_named_by_its_plugin() {
        let words = "--card-gb-s 2900 --plugin a/libllmrt_cuda.so --cases together-32,together";
        let o = Options::parse(&words.split(' ').collect::<Vec<_>>()).unwrap();
        let plugin = PathBuf::from("a/libllmrt_cuda.so");
        assert_eq!(o.card, Some(Card { plugin, name: "cuda".into(), read_gb_s: 2900.0 }));
        assert_eq!(o.cases, [Case::Together(32), Case::Together(8)]);
        assert!(Options::parse(&["--plugin", "cuda.so"]).is_err());
    }

    #[test]
    fn k_types_are_measured_in_a_model_that_has_rows_for_them() {
        assert_eq!(["q4_0", "q8_0", "mxfp4", "f16"].map(like), ["qwen2.5-0.5b"; 4]);
        assert_eq!(["q4_k_m", "q6_k", "q2_k", "iq4_xs"].map(like), ["llama-3.2-1b"; 4]);
    }

    #[test]
    fn wrong_flags_are_errors_with_what_is_expected() {
        for (words, problem) in [
            ("--pears 1", "expected --peer"),
            ("--pairs 0", "above 0"),
            ("--cases dance", "expected one of prompt, decode"),
            ("--peer", "expected a value"),
        ] {
            let message = Options::parse(&words.split(' ').collect::<Vec<_>>()).err().unwrap();
            assert!(message.contains(problem), "{message}");
        }
    }
}
