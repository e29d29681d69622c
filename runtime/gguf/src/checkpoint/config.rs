//! The header of a checkpoint: seven numbers, in format 1 and 2 after a magic and padded to 256 bytes.

use crate::error::Error;
use crate::reader::Reader;

/// Formats 1 and 2 begin with this number.
pub(super) const MAGIC: u32 = 0x616b_3432;
/// Formats 1 and 2 keep this much for the header.
const HEADER_BYTES: u64 = 256;

/// Far above every model. Without it a file of tiny layers would need tables of many times its size.
const MAX_LAYERS: u64 = 4096;

/// The format of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// No magic, f32, old RoPE tables inside.
    V0,
    /// f32, norms first.
    V1,
    /// int8 in groups with f32 scales, norms in f32 first.
    V2,
}

/// The sizes of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Width of the residual stream.
    pub dim: u64,
    /// Width inside the feed-forward network.
    pub hidden_dim: u64,
    /// How many blocks.
    pub n_layers: u64,
    /// Query heads.
    pub n_heads: u64,
    /// Key and value heads; `n_heads` is a multiple of them.
    pub n_kv_heads: u64,
    /// How many tokens.
    pub vocab_size: u64,
    /// The longest sequence.
    pub seq_len: u64,
    /// Whether the classifier is the embedding.
    pub shared_classifier: bool,
}

impl Config {
    /// Width of one head.
    pub fn head_size(&self) -> u64 {
        self.dim / self.n_heads
    }

    /// Width of keys and values.
    pub fn kv_dim(&self) -> u64 {
        self.head_size() * self.n_kv_heads
    }
}

/// What precedes the tensors.
pub(super) struct Header {
    pub version: Version,
    pub config: Config,
    /// Where the tensors begin.
    pub len: u64,
    /// Values that share a scale; format 2 only.
    pub group: Option<u64>,
}

/// The format that the first bytes look like; format 0 if they could be a configuration.
pub(crate) fn version(prefix: &[u8]) -> Option<Version> {
    let number = |at: usize| Some(u32::from_le_bytes(*prefix.get(at..)?.first_chunk()?));
    match (number(0)?, number(4)?) {
        (MAGIC, 1) => Some(Version::V1),
        (MAGIC, 2) => Some(Version::V2),
        (MAGIC, _) => None,
        _ => {
            let mut r = Reader::new(prefix, prefix.len() as u64);
            let looks_right = config(&mut r, Version::V0).is_ok();
            looks_right.then_some(Version::V0)
        }
    }
}

pub(super) fn read(prefix: &[u8], file_len: u64) -> Result<Header, Error> {
    let mut r = Reader::new(prefix, file_len);
    if Reader::new(prefix, file_len).u32(format_args!("the first number"))? != MAGIC {
        let config = config(&mut r, Version::V0)?;
        return Ok(Header { version: Version::V0, config, len: r.pos(), group: None });
    }
    Reader::new(prefix, file_len).take(HEADER_BYTES, format_args!("the header"))?;
    r.u32(format_args!("the magic"))?;
    let version = match r.i32(format_args!("the version"))? {
        1 => Version::V1,
        2 => Version::V2,
        found => {
            return Err(Error::BadCheckpoint(format!("version {found} is not supported: expected 1 or 2")));
        }
    };
    let mut config = config(&mut r, version)?;
    config.shared_classifier = match r.take(1, format_args!("the shared flag"))? {
        [0] => false,
        [1] => true,
        other => {
            return Err(Error::BadCheckpoint(format!("the shared flag is {}: expected 0 or 1", other[0])));
        }
    };
    let group = match version {
        Version::V2 => Some(positive(r.i32(format_args!("the group size"))?, "group size")?),
        _ => None,
    };
    Ok(Header { version, config, len: HEADER_BYTES, group })
}

/// Seven numbers. In format 0 a negative vocabulary size means that the classifier is not shared.
fn config(r: &mut Reader<'_>, version: Version) -> Result<Config, Error> {
    let mut next = |name: &'static str| r.i32(format_args!("{name}"));
    let dim = positive(next("dim")?, "dim")?;
    let hidden_dim = positive(next("hidden_dim")?, "hidden_dim")?;
    let n_layers = positive(next("n_layers")?, "n_layers")?;
    let n_heads = positive(next("n_heads")?, "n_heads")?;
    let n_kv_heads = positive(next("n_kv_heads")?, "n_kv_heads")?;
    let vocab = next("vocab_size")?;
    let shared_classifier = vocab > 0;
    let vocab = if version == Version::V0 { vocab.saturating_abs() } else { vocab };
    let vocab_size = positive(vocab, "vocab_size")?;
    let seq_len = positive(next("seq_len")?, "seq_len")?;

    let refuse =
        |reason: String| Err(Error::BadCheckpoint(format!("{reason}; this is no llama2.c checkpoint")));
    if n_layers > MAX_LAYERS {
        return refuse(format!("n_layers is {n_layers}: expected at most {MAX_LAYERS}"));
    }
    if dim % n_heads != 0 {
        return refuse(format!("dim {dim} is no multiple of n_heads {n_heads}"));
    }
    if (dim / n_heads) % 2 != 0 {
        return refuse(format!("head size {} is odd", dim / n_heads));
    }
    if n_heads % n_kv_heads != 0 {
        return refuse(format!("n_heads {n_heads} is no multiple of n_kv_heads {n_kv_heads}"));
    }
    Ok(Config { dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len, shared_classifier })
}

fn positive(n: i32, name: &str) -> Result<u64, Error> {
    let bad = || Error::BadCheckpoint(format!("{name} is {n}: expected a positive number"));
    u64::try_from(n).ok().filter(|&n| n > 0).ok_or_else(bad)
}
