//! Indexes that contradict themselves: each refused.

use llmrt_abi::DType;
use llmrt_gguf::writer::{Tables, to_vec};
use llmrt_gguf::{Flavour, NEURON_INDEX_ARCH, TensorShape, Value};
use llmrt_sparse::index::{LayerIndex, NeuronIndex};

/// An index of one layer with these numbers, as upstream would write it.
fn file(flags: &[i32], bucket: &[i32]) -> Vec<u8> {
    write(flags, bucket, |_| ())
}

fn write(flags: &[i32], bucket: &[i32], change: impl Fn(&mut Tables)) -> Vec<u8> {
    let mut tables = Tables { flavour: Flavour::PowerInfer, ..Tables::default() };
    tables.metadata.set("general.architecture", NEURON_INDEX_ARCH);
    tables.metadata.set("generic.gpu_index.block_count", 1u32);
    tables.metadata.set("split.vram_capacity", Value::U64(5));
    let shape = |name: &str, n: usize| TensorShape::new(name, DType::I32, &[n as u64]).unwrap();
    tables.tensors = vec![shape("blk.0.gpu_idx", flags.len()), shape("blk.0.gpu_bucket", bucket.len())];
    change(&mut tables);
    let bytes = |numbers: &[i32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    to_vec(&tables, &[&bytes(flags), &bytes(bucket)]).unwrap()
}

fn refused(file: &[u8], expected: &str) {
    let e = NeuronIndex::parse(file).unwrap_err().to_string();
    assert!(e.contains(expected), "{e}");
}

#[test]
fn what_is_written_is_read() {
    for hot in [vec![], vec![0], vec![3], vec![0, 1, 2, 3]] {
        let layers = vec![LayerIndex { n_ff: 4, hot: hot.clone() }, LayerIndex { n_ff: 3, hot: vec![1] }];
        let index = NeuronIndex { vram_capacity: u64::MAX, layers };
        assert_eq!(NeuronIndex::parse(&index.to_vec().unwrap()).unwrap(), index);
    }
    let index = NeuronIndex::parse(&file(&[0, 1, 0, 1], &[1, 3])).unwrap();
    assert_eq!(index.layers[0].hot, [1, 3]);
}

#[test]
fn ids_and_flags_must_agree() {
    refused(&file(&[0, 1, 0, 1], &[1, 4]), "layer 0: the bucket has neuron 4, the layer has 4");
    refused(&file(&[0, 1, 0, 1], &[-1, 3]), "the bucket has neuron -1");
    refused(&file(&[0, 1, 0, 1], &[3, 1]), "neuron 1 after 3");
    refused(&file(&[0, 1, 0, 1], &[1, 1]), "neuron 1 after 1");
    refused(&file(&[0, 2, 0, 1], &[1, 3]), "gpu_idx of neuron 1 is 2");
    refused(&file(&[0, 1, 1, 1], &[1, 3]), "gpu_idx of neuron 2 is 1, which contradicts the bucket");
    refused(&file(&[0, 1, 0, 0], &[1, 3]), "gpu_idx of neuron 3 is 0, which contradicts the bucket");
}

#[test]
fn other_files_are_no_indexes() {
    let write = |change: fn(&mut Tables)| write(&[0, 1, 0, 1], &[1, 3], change);
    refused(&write(|t| t.flavour = Flavour::Dense), "no neuron index");
    refused(&write(|t| t.metadata.set("general.architecture", "llama")), "no neuron index");
    refused(&write(|t| t.metadata.set("generic.gpu_index.block_count", 2u32)), "has 2 tensors for 2 layers");
    refused(&write(|t| drop(t.metadata.remove("split.vram_capacity"))), "`split.vram_capacity` is missing");
    refused(&write(|t| t.tensors[0].dtype = DType::F32), "is F32 [4]: expected a vector of I32");
    refused(b"GGUF", "file ends early");
}

#[test]
fn an_index_out_of_order_is_not_written() {
    let write = |hot| NeuronIndex { vram_capacity: 0, layers: vec![LayerIndex { n_ff: 4, hot }] }.to_vec();
    assert!(write(vec![4]).unwrap_err().to_string().contains("neuron 4"));
    assert!(write(vec![2, 1]).unwrap_err().to_string().contains("neuron 1 after 2"));
}
