//! Tables of a model file, and changes to them.

use llmrt_abi::DType;
use llmrt_gguf::{Array, Gguf, Metadata, Value};
use llmrt_models::DRAFT_PREFIX;
use llmrt_tests::fixtures::{architectures, files, fixtures};
use llmrt_tests::models::text::{bytes, descriptions};
use std::collections::BTreeMap;
use std::path::Path;

/// What a model is made of but for the numbers of its tensors.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Name of the file.
    pub name: String,
    /// Its keys and values.
    pub metadata: Metadata,
    /// Its tensors.
    pub tensors: BTreeMap<String, (DType, [u64; 4])>,
}

/// Those of the tiny models of every architecture: fixtures, and models described by text.
pub fn models() -> Vec<Tables> {
    let known = fixtures("archs").map_or(vec![], |dir| {
        let [known, _] = architectures(&dir);
        known.into_iter().map(|file| (std::fs::read(&file).expect("a fixture is there"), file)).collect()
    });
    let described = files(&descriptions(), ".txt").into_iter().map(|file| (bytes(&file), file));
    let all = known.into_iter().chain(described);
    let mut all: Vec<Tables> = all.map(|(bytes, file)| Tables::new(&bytes, &file)).collect();
    let layers = all.iter().position(|tables| tables.name == "gemma4-assistant").expect("it is described");
    let layers = all.remove(layers);
    let model = all.iter().find(|tables| tables.name == "gemma4").expect("it is described");
    all.push(layers.attached_to(model));
    all
}

impl Tables {
    fn new(bytes: &[u8], file: &Path) -> Tables {
        let gguf = Gguf::parse(bytes, bytes.len() as u64).expect("a fixture is a GGUF file");
        let tensors = gguf.tensors.iter().map(|t| (t.name.clone(), (t.dtype, t.ne)));
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Tables { name, tensors: tensors.collect(), metadata: gguf.metadata }
    }

    /// Those of a model to which these layers, which predict ahead for it, are attached.
    fn attached_to(self, model: &Tables) -> Tables {
        let mut both = Tables { name: self.name, ..model.clone() };
        for (key, value) in self.metadata.iter().filter(|(key, _)| !key.starts_with("general.")) {
            both.metadata.set(key, value.clone());
        }
        let named = |(name, tensor)| (format!("{DRAFT_PREFIX}{name}"), tensor);
        both.tensors.extend(self.tensors.into_iter().map(named));
        both
    }

    /// Type and dims of a tensor.
    pub fn find(&self, name: &str) -> Option<(DType, [u64; 4])> {
        self.tensors.get(name).copied()
    }

    /// The tables with one to three changes, and what these are. The same seed makes the same changes.
    pub fn mutated(&self, seed: u64) -> (Tables, Vec<String>) {
        let of_name =
            self.name.bytes().fold(0, |hash: u64, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let mut rng = Rng((seed ^ of_name).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut mutated = self.clone();
        let n_changes = 1 + rng.below(3);
        let changes = (0..n_changes).map(|_| match rng.below(3) {
            0 => mutated.change_tensor(&mut rng),
            _ => mutated.change_key(&mut rng),
        });
        let changes = changes.collect();
        (mutated, changes)
    }

    fn change_key(&mut self, rng: &mut Rng) -> String {
        // Some files have every key of llama.cpp, most of them 0.
        let only_set = rng.below(4) != 0;
        let counts = |value: &Value| !only_set || !is_unset(value);
        let keys = self.metadata.iter().filter(|(_, value)| counts(value)).map(|(key, _)| key.to_string());
        let keys: Vec<String> = keys.collect();
        let key = rng.pick(&keys);
        if rng.below(4) == 0 {
            self.metadata.remove(key);
            return format!("no {key}");
        }
        let old = self.metadata.get(key).cloned().unwrap_or(Value::Bool(false));
        let new = match rng.below(3) {
            0 => of_another_type(rng),
            _ => changed(old, rng),
        };
        let text = format!("{key} = {new:?}");
        self.metadata.set(key.as_str(), new);
        text.chars().take(200).collect()
    }

    fn change_tensor(&mut self, rng: &mut Rng) -> String {
        let names: Vec<String> = self.tensors.keys().cloned().collect();
        let name = rng.pick(&names).clone();
        let Some((dtype, dims)) = self.tensors.get_mut(&name) else { return String::new() };
        match rng.below(4) {
            0 => {
                self.tensors.remove(&name);
                format!("no tensor {name}")
            }
            1 => {
                *dtype = *rng.pick(&[
                    DType::I32,
                    DType::F16,
                    DType::Q4_0,
                    DType::Q4_K,
                    DType::IQ2_XXS,
                    DType::F64,
                ]);
                format!("type of tensor {name}: {dtype}")
            }
            2 => {
                dims.swap(0, 1);
                format!("tensor {name}: {dims:?}")
            }
            _ => {
                let dim = rng.below(4);
                dims[dim] = number(rng, dims[dim]);
                format!("tensor {name}: {dims:?}")
            }
        }
    }
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::U32(n) => *n == 0,
        Value::I32(n) => *n == 0,
        Value::F32(x) => *x == 0.0,
        Value::Bool(flag) => !flag,
        Value::Array(Array::U32(a)) => a.iter().all(|n| *n == 0),
        Value::Array(Array::F32(a)) => a.iter().all(|x| *x == 0.0),
        Value::Array(array) => array.is_empty(),
        _ => false,
    }
}

/// Numbers at the edges of what sizes can be, and some beside the old one.
fn number(rng: &mut Rng, old: u64) -> u64 {
    let numbers =
        [0, 1, 2, 3, old / 2, old.saturating_sub(1), old.saturating_add(1), old.saturating_mul(2), 1 << 16];
    let huge = [1 << 26, u64::from(u32::MAX), 1 << 31, u64::MAX];
    if rng.below(4) == 0 { *rng.pick(&huge) } else { *rng.pick(&numbers) }
}

fn float(rng: &mut Rng, old: f32) -> f32 {
    *rng.pick(&[0.0, -1.0, 1e-30, 1e30, f32::NAN, f32::INFINITY, -0.0, old * 2.0, 0.5])
}

fn of_another_type(rng: &mut Rng) -> Value {
    match rng.below(9) {
        0 => Value::String("yarn".into()),
        1 => Value::Bool(true),
        2 => Value::F32(1.5),
        3 => Value::I32(-1),
        4 => Value::U64(u64::MAX),
        5 => Value::Array(Array::U32(vec![])),
        6 => Value::Array(Array::U32(vec![2, 0, 4, 3])),
        7 => Value::Array(Array::F32(vec![0.5; 3])),
        _ => Value::Array(Array::String(vec!["x".into(); 5])),
    }
}

/// Another value of the same type.
fn changed(old: Value, rng: &mut Rng) -> Value {
    match old {
        Value::U32(n) => Value::U32(number(rng, n.into()) as u32),
        Value::I32(n) => Value::I32(number(rng, n.unsigned_abs().into()) as i32),
        Value::F32(x) => Value::F32(float(rng, x)),
        Value::Bool(flag) => Value::Bool(!flag),
        Value::Array(Array::U32(mut a)) => {
            let n = rng.below(a.len() + 1);
            match a.get_mut(n) {
                Some(x) => *x = number(rng, u64::from(*x)) as u32,
                None => a.truncate(n / 2),
            }
            Value::Array(Array::U32(a))
        }
        Value::Array(Array::F32(mut a)) => {
            let n = rng.below(a.len() + 1);
            match a.get_mut(n) {
                Some(x) => *x = float(rng, *x),
                None => a.truncate(n / 2),
            }
            Value::Array(Array::F32(a))
        }
        Value::Array(Array::Bool(mut a)) => {
            let n = rng.below(a.len() + 1);
            match a.get_mut(n) {
                Some(x) => *x = !*x,
                None => a.truncate(n / 2),
            }
            Value::Array(Array::Bool(a))
        }
        Value::Array(Array::String(mut a)) => {
            a.truncate(rng.below(a.len() + 1));
            Value::Array(Array::String(a))
        }
        Value::String(_) => Value::String((*rng.pick(&["", "none", "longrope", "llama", "mamba2"])).into()),
        other => other,
    }
}

/// xorshift64*.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) as usize % n.max(1)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
