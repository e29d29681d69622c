//! Models whose queries attend to few keys, as `tests/fixtures/models` describes them: what they keep, and when they choose.

use super::{File, SHAPE};
use crate::{BatchShape, CacheGroup, Error, Input};
use llmrt_abi::{DType, Op};
use llmrt_gguf::{Array, Metadata, Value};
use llmrt_graph::tensor::shape;
use std::collections::BTreeMap;

const TEXTS: [(&str, &str); 8] = [
    ("deepseek32", include_str!("../../../../tests/fixtures/models/deepseek32.txt")),
    ("deepseek4", include_str!("../../../../tests/fixtures/models/deepseek4.txt")),
    ("dots3note", include_str!("../../../../tests/fixtures/models/dots3note.txt")),
    ("glm-dsa", include_str!("../../../../tests/fixtures/models/glm-dsa.txt")),
    ("glm5-next", include_str!("../../../../tests/fixtures/models/glm5-next.txt")),
    ("hy_v4", include_str!("../../../../tests/fixtures/models/hy_v4.txt")),
    ("minimax-m3", include_str!("../../../../tests/fixtures/models/minimax-m3.txt")),
    ("qwen4exp", include_str!("../../../../tests/fixtures/models/qwen4exp.txt")),
];

/// Their files.
pub(super) fn files() -> impl Iterator<Item = (&'static str, File)> {
    TEXTS.into_iter().map(|(name, text)| (name, described(text)))
}

fn described(text: &str) -> File {
    let mut file = File { meta: Metadata::new(), tensors: BTreeMap::new() };
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["tensor", name, ref rest @ ..] => {
                let dims: Vec<u64> = rest.iter().map_while(|word| word.parse().ok()).collect();
                for name in expanded(name) {
                    file.tensors.insert(name, (DType::F32, shape(&dims)));
                }
            }
            [key, kind, ref values @ ..] if !key.starts_with('#') && key != "results" => {
                file.meta.set(key, value(kind, values));
            }
            _ => {}
        }
    }
    file
}

/// `blk.{0,1}.x` is `blk.0.x` and `blk.1.x`.
fn expanded(name: &str) -> Vec<String> {
    let parts = name.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)));
    let Some((head, (list, tail))) = parts else { return vec![name.to_string()] };
    list.split(',').map(|i| format!("{head}{i}{tail}")).collect()
}

fn value(kind: &str, values: &[&str]) -> Value {
    let ints = || values.iter().map(|word| word.parse().expect("an integer"));
    match kind {
        "[u32]" => Value::Array(Array::U32(ints().map(|n: u64| n as u32).collect())),
        "[u64]" => Value::Array(Array::U64(ints().collect())),
        "[f32]" => {
            Value::Array(Array::F32(values.iter().map(|word| word.parse().expect("a number")).collect()))
        }
        "[bool]" => Value::Array(Array::Bool(values.iter().map(|word| *word == "true").collect())),
        "bool" => Value::Bool(values[0] == "true"),
        "f32" => Value::F32(values[0].parse().expect("a number")),
        "u32" => Value::U32(values[0].parse().expect("an integer")),
        _ => Value::String(values[0].to_string()),
    }
}

fn file(kind: &str) -> File {
    files().find(|(name, _)| *name == kind).expect(kind).1
}

fn count(file: &File, shape: &BatchShape, op: Op) -> usize {
    let g = file.model().expect("a model").graph(shape).expect("a graph").graph;
    g.nodes.iter().filter(|node| node.op == op).count()
}

#[test]
fn keys_of_indexers_are_cached_beside_latent_rows() {
    let spec = file("glm-dsa").model().expect("a model").spec().clone();
    // Layer 2 takes what the indexer of layer 1 found.
    assert!(spec.caches.contains(&CacheGroup::Index { layers: vec![(0, 64), (1, 64)] }), "{:?}", spec.caches);
    assert!(
        spec.states().contains_key("blk.1.index_cache") && !spec.states().contains_key("blk.2.index_cache")
    );
    // Latent rows of 24 + 8 elements in three layers.
    assert_eq!(spec.bytes_per_token(DType::F16, DType::F32), 2 * (3 * 32 + 2 * 64));
    assert!(!spec.is_recurrent());
}

#[test]
fn queries_choose_where_there_are_more_keys_than_they_attend_to() {
    let long = SHAPE; // 32 positions, of which 12 are chosen
    let short = BatchShape { block_size: 3, ..SHAPE };
    for (kind, n_indexers, n_layers) in
        [("deepseek32", 2, 2), ("glm-dsa", 2, 3), ("hy_v4", 2, 3), ("dots3note", 1, 1)]
    {
        let file = file(kind);
        assert_eq!(count(&file, &long, Op::PagedScores), n_indexers, "{kind}");
        assert_eq!(count(&file, &long, Op::SparseAttention), n_layers, "{kind}");
        assert_eq!(count(&file, &short, Op::SparseAttention), 0, "{kind}: all 12 positions");
        let g = file.model().expect("a model").graph(&short).expect("a graph").graph;
        assert!(g.find("blk.0.index_cache").is_some(), "{kind}: keys are kept for later");
    }
}

#[test]
fn the_last_layer_computes_outputs_alone_after_attention() {
    for (kind, file) in files() {
        let model = file.model().expect(kind);
        let g = model.graph(&SHAPE).expect(kind).graph;
        let rows = |il: usize| g.ne(g.find(&format!("l_out-{il}")).expect(kind))[1];
        let last = model.config.n_layer - 1;
        assert_eq!((rows(last - 1), rows(last)), (SHAPE.n_tokens, SHAPE.n_outputs), "{kind}");
    }
}

#[test]
fn embeddings_of_n_grams_are_an_input() {
    let model = file("qwen4exp").model().expect("a model");
    assert!(model.spec().inputs.contains(&Input::NgramRows(4)));
    assert_eq!((model.config.ngrams.n(), model.config.ngrams.n_rows()), (3, 4));
}

#[test]
fn what_does_not_fit_is_an_error_that_names_its_key() {
    for (kind, line) in [
        ("deepseek32", "deepseek32.attention.indexer.key_length = 7"),
        ("deepseek4", "deepseek4.attention.compress_ratios = 8"),
        ("deepseek4", "deepseek4.attention.output_group_count = 3"),
        ("deepseek4", "deepseek4.expert_gating_func = 2"),
        ("glm-dsa", "glm-dsa.attention.indexer.types = 0"),
        ("glm5-next", "glm5-next.attention.indexer.top_k = 9"),
        ("hy_v4", "hy_v4.hyper_connection.count = 1"),
        ("minimax-m3", "minimax-m3.attention.indexer.head_count = 3"),
        ("qwen4exp", "qwen4exp.ple.head_vocab_sizes = 5"),
        ("qwen4exp", "qwen4exp.ple.ngram_size = 9"),
    ] {
        let key = line.split(' ').next().unwrap();
        match file(kind).with(line).model() {
            Err(e) => assert!(e.to_string().contains(key), "{line}: {e}"),
            Ok(_) => panic!("{line}"),
        }
    }
    let found = file("deepseek32").without("blk.1.indexer.proj.weight").model();
    assert!(matches!(found, Err(Error::MissingTensor { .. })), "{found:?}");
}
