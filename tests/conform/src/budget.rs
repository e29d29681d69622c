//! How much memory a file from elsewhere may request: a small file that describes terabytes is refused, with a message,
//! before anything is allocated.

use llmrt_graph::TensorDef;

/// Bytes that any file may request.
const ANY: u64 = 256 << 20;
/// Bytes that it may request per byte of its own: enough for weights of two bits, dequantised.
const PER_BYTE: u64 = 64;
/// Bytes that no file may request.
const MAX_BYTES: u64 = 16 << 30;

/// What is left of a file's share.
pub struct Budget {
    file_bytes: u64,
    most: u64,
    requested: u64,
}

impl Budget {
    /// The share of a file of this size.
    pub fn of_file(file_bytes: u64) -> Budget {
        let most = ANY.saturating_add(file_bytes.saturating_mul(PER_BYTE)).min(MAX_BYTES);
        Budget { file_bytes, most, requested: 0 }
    }

    /// Takes what a tensor needs: its bytes, and its elements as `f32`, as references work on them.
    pub fn take(&mut self, def: &TensorDef) -> Result<(), String> {
        let n_elems = def.ne.iter().fold(1u64, |n, &d| n.saturating_mul(d));
        let needed = def.n_bytes().max(n_elems.saturating_mul(4));
        self.requested = self.requested.saturating_add(needed);
        match self.requested <= self.most {
            true => Ok(()),
            false => Err(format!(
                "requests {} bytes of memory; a file of {} bytes may request {}",
                self.requested, self.file_bytes, self.most
            )),
        }
    }
}
