//! 100 000 mutated copies of every fixture, fewer of each tiny model: read or refused with a reason, never a panic. Of what is still read, a sample
//! goes on to a tokenizer or a model.

mod commands;

use llmrt_fuzz::accepted;
use llmrt_fuzz::checks::{model, vocab};
use llmrt_gguf::checkpoint::{Checkpoint, TokenizerBin};
use llmrt_gguf::mutate::mutate;
use llmrt_gguf::writer::{Tables, to_vec};
use llmrt_gguf::{Array, Gguf, Metadata, Value, sniff};
use llmrt_sparse::index::NeuronIndex;
use llmrt_sparse::pt::Pt;
use llmrt_tests::fixtures::{architectures, files, fixtures};
use llmrt_tokenizer::Tokenizer;
use std::path::Path;

const N: u64 = 100_000;

#[test]
fn mutated_model_files_are_read_or_refused() {
    let Some(dir) = fixtures("archs") else { return };
    let [known, _] = architectures(&dir);
    // One parser reads them all: as many mutations as 10 files would have.
    mutated_tables(&known, (10 * N / known.len() as u64).min(N));
}

/// Mutates the tables of model files in so many ways each.
fn mutated_tables(paths: &[impl AsRef<Path>], n: u64) {
    each(paths, |bytes| {
        // The data of tensors are not looked at: the tables alone are mutated.
        let tables = Gguf::parse(bytes, bytes.len() as u64).unwrap().data_offset as usize;
        let n_data = (bytes.len() - tables) as u64;
        survives(&bytes[..tables], n, |mutated, seed| {
            let gguf = accepted(Gguf::parse(mutated, mutated.len() as u64 + n_data))?;
            if seed.is_multiple_of(64) {
                model::builds(&gguf);
            }
            Some(())
        });
    });
}

#[test]
fn mutated_models_of_powerinfer_are_read_or_refused() {
    let Some(dir) = fixtures("powerinfer") else { return };
    let mut paths = files(&dir, ".gguf");
    paths.retain(|path| path.to_string_lossy().ends_with(".powerinfer.gguf"));
    assert!(paths.len() >= 6);
    // Together more than the number of each other format.
    mutated_tables(&paths, N / 4);
}

#[test]
fn mutated_vocabularies_are_read_or_refused() {
    let Some(dir) = fixtures("tokenizers") else { return };
    each(&files(&dir, ".gguf"), |bytes| {
        let read = |mutated: &[u8], seed: u64| {
            let gguf = accepted(Gguf::parse(mutated, mutated.len() as u64))?;
            if seed.is_multiple_of(512)
                && let Some(tokenizer) = accepted(Tokenizer::from_metadata(&gguf.metadata))
            {
                vocab::takes_texts(&tokenizer, mutated);
            }
            Some(())
        };
        survives(&with_short_arrays(bytes), N, read);
        survives(bytes, 20, read); // the whole file has nothing new but its length
    });
}

#[test]
fn mutated_checkpoints_are_read_or_refused() {
    let Some(dir) = fixtures("llama2c") else { return };
    let mut paths = files(&dir, ".bin");
    paths.retain(|path| !path.ends_with("tokenizer.bin"));
    each(&paths, |bytes| {
        // A file whose length does not fit its header is refused whatever follows: the header alone is mutated, in
        // half of the cases with the file's length kept.
        let (header, n_rest) = (&bytes[..256], bytes.len() as u64 - 256);
        survives(header, N, |mutated, seed| {
            sniff(mutated);
            let file_len =
                if seed.is_multiple_of(2) { bytes.len() as u64 } else { mutated.len() as u64 + n_rest };
            let checkpoint = accepted(Checkpoint::parse(mutated, file_len))?;
            if seed.is_multiple_of(1024) {
                let is_read = |t: &llmrt_gguf::checkpoint::CheckpointTensor| accepted(t.read_f32(mutated));
                assert!(checkpoint.tensors.iter().any(|t| is_read(t).is_none()), "only the header is here");
            }
            Some(())
        });
    });
}

#[test]
fn mutated_tokenizer_bins_are_read_or_refused() {
    let Some(dir) = fixtures("llama2c") else { return };
    each(&[dir.join("tokenizer.bin")], |bytes| {
        survives(bytes, N, |mutated, seed| {
            let parsed = accepted(TokenizerBin::parse(mutated))?;
            if seed.is_multiple_of(64)
                && let Some(tokenizer) = accepted(Tokenizer::llama2c(parsed.tokens))
            {
                vocab::takes_texts(&tokenizer, mutated);
            }
            Some(())
        });
    });
}

#[test]
fn mutated_files_of_torch_are_read_or_refused() {
    let Some(dir) = fixtures("powerinfer") else { return };
    let mut paths = files(&dir.join("pt/dtypes"), ".pt");
    paths.extend(files(&dir.join("pt"), ".pt"));
    // Most of a file is numbers, of which a mutation changes a value and no more: the small ones have the most to try.
    paths.retain(|path| path.metadata().unwrap().len() < 6000);
    each(&paths, |bytes| {
        survives(bytes, N, |mutated, _| {
            let pt = accepted(Pt::parse(mutated))?;
            accepted(pt.tensor()).map(|tensor| assert_eq!(tensor.to_f64s(mutated).len(), tensor.n_elements()))
        });
    });
}

#[test]
fn mutated_neuron_indexes_are_read_or_refused() {
    let Some(dir) = fixtures("powerinfer") else { return };
    let mut paths = files(&dir.join("split"), ".gpuidx");
    paths.push(dir.join("four-layers.generated.gpuidx"));
    each(&paths, |bytes| {
        survives(bytes, N, |mutated, _| accepted(NeuronIndex::parse(mutated)).map(drop));
    });
}

/// Gives every file to `check`, which panics where a promise is broken.
fn each(paths: &[impl AsRef<Path>], check: impl Fn(&[u8])) {
    for path in paths.iter().map(AsRef::as_ref) {
        eprintln!("{}", path.display());
        check(&std::fs::read(path).unwrap());
    }
}

/// Mutates `bytes` in `n` ways and gives each to `read`, which returns whether it was accepted.
fn survives(bytes: &[u8], n: u64, read: impl Fn(&[u8], u64) -> Option<()>) {
    read(bytes, 0).expect("the fixture itself is good");
    let mut mutated = Vec::new();
    let mut n_read = 0;
    for seed in 0..n {
        mutated.clear();
        mutated.extend_from_slice(bytes);
        mutate(&mut mutated, seed);
        n_read += u64::from(read(&mutated, seed).is_some());
    }
    assert!(n < N || (1..n).contains(&n_read), "{n_read} of {n} were read: the changes miss the parser");
}

/// The file with the first 48 elements of each array: megabytes of vocabulary teach a parser nothing more.
fn with_short_arrays(bytes: &[u8]) -> Vec<u8> {
    let gguf = Gguf::parse(bytes, bytes.len() as u64).unwrap();
    let mut metadata = Metadata::new();
    for (key, value) in gguf.metadata.iter() {
        let mut value = value.clone();
        match &mut value {
            Value::Array(Array::String(a)) => a.truncate(48),
            Value::Array(Array::F32(a)) => a.truncate(48),
            Value::Array(Array::I32(a)) => a.truncate(48),
            // An id beyond the short vocabulary would be all that a tokenizer sees.
            Value::U32(id) if key.ends_with("_token_id") => *id %= 48,
            _ => {}
        }
        metadata.set(key, value);
    }
    to_vec(&Tables { metadata, version: gguf.version, ..Tables::default() }, &[]).unwrap()
}
