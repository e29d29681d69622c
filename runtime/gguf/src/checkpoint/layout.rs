//! Where each tensor of a checkpoint is stored: roles in file order, each once or once per layer.

use llmrt_abi::DType;

use super::config::{Config, Header, Version};
use super::int8::dequantise;
use crate::error::Error;
use crate::tensor::{TensorInfo, TensorShape};

/// A tensor of a checkpoint under its GGUF name; `shape` is that of the f32 values it stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointTensor {
    /// Name and shape; the type is always F32.
    pub shape: TensorShape,
    /// Where the numbers are stored, and in which format.
    pub storage: Storage,
}

/// How numbers are stored; offsets from the beginning of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Storage {
    /// Little-endian f32.
    F32 { offset: u64 },
    /// One i8 per number, then one f32 scale per `group` numbers, which may span rows.
    Int8Groups { offset: u64, scales_offset: u64, group: u64 },
}

impl CheckpointTensor {
    /// How many numbers there are.
    pub fn n_elements(&self) -> u64 {
        self.shape.ne.iter().product()
    }

    /// The tensor in place, if it is f32.
    pub fn f32_in_place(&self) -> Option<TensorInfo> {
        let Storage::F32 { offset } = self.storage else { return None };
        let TensorShape { name, dtype, ne, n_dims } = self.shape.clone();
        Some(TensorInfo { name, dtype, ne, n_dims, file: 0, offset, nbytes: 4 * self.n_elements() })
    }

    /// The numbers as f32, int8 groups dequantised; `file` is the whole file.
    pub fn read_f32(&self, file: &[u8]) -> Result<Vec<f32>, Error> {
        let n = self.n_elements();
        match self.storage {
            Storage::F32 { offset } => {
                let (chunks, _) = self.bytes(file, offset, 4 * n)?.as_chunks();
                Ok(chunks.iter().map(|&b| f32::from_le_bytes(b)).collect())
            }
            Storage::Int8Groups { offset, scales_offset, group } => {
                let values = self.bytes(file, offset, n)?;
                let scales = self.bytes(file, scales_offset, 4 * (n / group))?;
                Ok(dequantise(values, scales, group as usize))
            }
        }
    }

    fn bytes<'a>(&self, file: &'a [u8], offset: u64, n: u64) -> Result<&'a [u8], Error> {
        let range = usize::try_from(offset).ok().zip(usize::try_from(offset + n).ok());
        range.and_then(|(start, end)| file.get(start..end)).ok_or_else(|| Error::PastEnd {
            tensor: self.shape.name.clone(),
            end: offset + n,
            file_len: file.len() as u64,
        })
    }
}

/// All tensors, once the file is found to be exactly as long as they need.
pub(super) fn tensors(header: &Header, file_len: u64) -> Result<Vec<CheckpointTensor>, Error> {
    let expected = file_bytes(header)?;
    if expected != u128::from(file_len) {
        let version = match header.version {
            Version::V0 => "without magic (v0)",
            Version::V1 => "v1",
            Version::V2 => "v2",
        };
        let expected = u64::try_from(expected).unwrap_or(u64::MAX);
        return Err(Error::CheckpointSize { version, found: file_len, expected });
    }

    let mut tensors = Vec::new();
    let mut offset = header.len;
    for role in roles(header) {
        for layer in 0..role.count(&header.config) {
            if let Some(name) = role.name(layer) {
                let shape = TensorShape::new(name, DType::F32, &role.dims(&header.config))?;
                tensors.push(CheckpointTensor { shape, storage: role.storage(header, offset) });
            }
            offset += role.bytes(header)? as u64; // below file_len, by the check above
        }
    }
    Ok(tensors)
}

/// The bytes of the whole file; factors have 31 bits, so 128 hold every product and sum.
fn file_bytes(header: &Header) -> Result<u128, Error> {
    let mut total = u128::from(header.len);
    for role in roles(header) {
        total += u128::from(role.count(&header.config)) * role.bytes(header)?;
    }
    Ok(total)
}

/// What a tensor is for.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Role {
    Embedding,
    AttnNorm,
    Q,
    K,
    V,
    AttnOutput,
    FfnNorm,
    Gate,
    Down,
    Up,
    OutputNorm,
    RopeTables,
    Output,
}

/// The roles in file order.
fn roles(header: &Header) -> impl Iterator<Item = Role> + use<> {
    use Role::*;
    let order: &[Role] = match header.version {
        Version::V0 => &[
            Embedding, AttnNorm, Q, K, V, AttnOutput, FfnNorm, Gate, Down, Up, OutputNorm, RopeTables, Output,
        ],
        Version::V1 | Version::V2 => {
            &[AttnNorm, FfnNorm, OutputNorm, Embedding, Q, K, V, AttnOutput, Gate, Down, Up, Output]
        }
    };
    let shared = header.config.shared_classifier;
    order.iter().copied().filter(move |&role| !(shared && role == Output))
}

impl Role {
    fn count(self, c: &Config) -> u64 {
        use Role::*;
        if matches!(self, Embedding | OutputNorm | RopeTables | Output) { 1 } else { c.n_layers }
    }

    /// Innermost first: a matrix maps its first dimension to its second.
    fn dims(self, c: &Config) -> Vec<u64> {
        use Role::*;
        match self {
            Embedding | Output => vec![c.dim, c.vocab_size],
            AttnNorm | FfnNorm | OutputNorm => vec![c.dim],
            Q | AttnOutput => vec![c.dim, c.dim],
            K | V => vec![c.dim, c.kv_dim()],
            Gate | Up => vec![c.dim, c.hidden_dim],
            Down => vec![c.hidden_dim, c.dim],
            RopeTables => vec![c.head_size(), c.seq_len], // cosines, then sines, each half a head wide
        }
    }

    /// GGUF's name; none for the tables, which are computed at run time.
    fn name(self, layer: u64) -> Option<String> {
        let block = |role: &str| Some(format!("blk.{layer}.{role}.weight"));
        match self {
            Role::Embedding => Some("token_embd.weight".into()),
            Role::AttnNorm => block("attn_norm"),
            Role::Q => block("attn_q"),
            Role::K => block("attn_k"),
            Role::V => block("attn_v"),
            Role::AttnOutput => block("attn_output"),
            Role::FfnNorm => block("ffn_norm"),
            Role::Gate => block("ffn_gate"),
            Role::Down => block("ffn_down"),
            Role::Up => block("ffn_up"),
            Role::OutputNorm => Some("output_norm.weight".into()),
            Role::RopeTables => None,
            Role::Output => Some("output.weight".into()),
        }
    }

    /// The group size, if matrices are int8; norms never are.
    fn group(self, header: &Header) -> Option<u64> {
        header.group.filter(|_| !matches!(self, Role::AttnNorm | Role::FfnNorm | Role::OutputNorm))
    }

    fn elements(self, c: &Config) -> u128 {
        self.dims(c).iter().map(|&n| u128::from(n)).product()
    }

    /// Bytes of one tensor, its scales included.
    fn bytes(self, header: &Header) -> Result<u128, Error> {
        let n = self.elements(&header.config);
        match self.group(header).map(u128::from) {
            None => Ok(4 * n),
            Some(group) if n.is_multiple_of(group) => Ok(n + 4 * (n / group)),
            Some(group) => Err(Error::BadCheckpoint(format!(
                "{self:?} has {n} values, no multiple of the group size {group}"
            ))),
        }
    }

    fn storage(self, header: &Header, offset: u64) -> Storage {
        match self.group(header) {
            None => Storage::F32 { offset },
            Some(group) => {
                let scales_offset = offset + self.elements(&header.config) as u64;
                Storage::Int8Groups { offset, scales_offset, group }
            }
        }
    }
}
