//! `--override-kv`: one pair per line; a model or a refusal comes of them.

use super::model::builds;
use crate::{Target, accepted, samples};
use llmrt_gguf::Gguf;

/// `--override-kv`, up to the model.
pub const TARGET: Target = Target { name: "overrides", check, seeds };

/// Applies every line to the metadata of a small llama, then builds it.
pub fn check(data: &[u8]) {
    let (tables, _) = samples::model("llama");
    let mut gguf = Gguf::parse(&tables, 1 << 40).expect("the sample is good");
    for line in String::from_utf8_lossy(data).lines() {
        let before = format!("{:?}", gguf.metadata); // compares NaN, too
        match accepted(gguf.metadata.apply_override(line)) {
            Some(()) => {
                let key = line.split('=').next().unwrap_or_default();
                assert!(gguf.metadata.contains(key), "`{line}` set nothing");
            }
            None => {
                assert_eq!(format!("{:?}", gguf.metadata), before, "a refused override changed something")
            }
        }
    }
    builds(&gguf);
}

fn seeds() -> Vec<Vec<u8>> {
    [
        "llama.block_count=int:1\nllama.rope.freq_base=float:1e6\nx=bool:true\ny=str:a=b:c",
        "llama.attention.head_count_kv=int:1\nllama.rope.scaling.type=str:yarn\nllama.rope.scaling.factor=float:4",
        "llama.expert_count=int:4\nllama.expert_used_count=int:2\nllama.attention.sliding_window=int:8",
    ]
    .map(|s| s.as_bytes().to_vec())
    .into()
}
