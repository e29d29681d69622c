//! Which model a file of statistics belongs to.

use llmrt_gguf::{Metadata, TensorInfo};
use sha2::{Digest, Sha256};

/// Bytes of each tensor that the digest covers.
const SAMPLE: u64 = 4096;

/// A model's name, and the digest of its weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelId {
    /// Its name in messages.
    pub name: String,
    /// SHA-256 in hexadecimal digits, of [`digest`].
    pub checksum: String,
}

/// SHA-256 over what decides which neurons fire: architecture, activation, and of every tensor the name, type, dims and
/// the bytes in its middle. Other metadata, such as a chat template, may change.
///
/// A megabyte is read of a model of gigabytes; another quantisation has other types, and a finetune other samples.
/// `read(tensor, offset, bytes)` fills `bytes` with those of the tensor from `offset` on.
pub fn digest<E>(
    metadata: &Metadata,
    tensors: &[TensorInfo],
    mut read: impl FnMut(&TensorInfo, u64, &mut [u8]) -> Result<(), E>,
) -> Result<String, E> {
    let arch = metadata.str("general.architecture").unwrap_or_default();
    let activation = metadata.str(&format!("{arch}.hidden_activation")).unwrap_or_default();
    let mut hash = Sha256::new();
    hash.update(format!("{arch} {activation}\n"));
    for tensor in tensors {
        hash.update(format!("{} {} {:?}\n", tensor.name, tensor.dtype, tensor.ne));
        let n = tensor.nbytes.min(SAMPLE);
        let mut bytes = vec![0; n as usize];
        read(tensor, (tensor.nbytes - n) / 2, &mut bytes)?;
        hash.update(&bytes);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
