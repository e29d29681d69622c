//! Bytes at consecutive addresses of a card, wherever they are stored.

use crate::memory::Bytes;

/// Bytes at consecutive addresses.
pub struct Span {
    pub(crate) parts: Vec<Part>,
    /// How many.
    pub len: usize,
    /// The card.
    pub device: usize,
}

/// Some of them, in one allocation.
pub(crate) struct Part {
    /// The first one's number among all.
    pub at: usize,
    /// Its place in the allocation.
    pub from: usize,
    /// How many.
    pub n: usize,
    /// The allocation.
    pub bytes: Bytes,
}

impl Span {
    /// A copy of the bytes.
    pub fn read(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len);
        for part in &self.parts {
            all.extend_from_slice(&part.bytes.lock()[part.from..][..part.n]);
        }
        all
    }

    /// Overwrites them from byte `at` on.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.store([(at, bytes)]);
    }

    /// Overwrites here and there.
    pub fn store(&self, writes: impl IntoIterator<Item = (usize, impl AsRef<[u8]>)>) {
        if let [part] = &self.parts[..] {
            let mut held = part.bytes.lock();
            let held = &mut held[part.from..][..part.n];
            for (at, bytes) in writes {
                let bytes = bytes.as_ref();
                held[at - part.at..][..bytes.len()].copy_from_slice(bytes);
            }
            return;
        }
        let mut held: Vec<_> = self.parts.iter().map(|part| part.bytes.lock()).collect();
        for (at, bytes) in writes {
            let (mut at, mut bytes) = (at, bytes.as_ref());
            while !bytes.is_empty() {
                let i = self.parts.partition_point(|part| part.at <= at) - 1;
                let part = &self.parts[i];
                let n = (part.at + part.n - at).min(bytes.len());
                held[i][part.from + at - part.at..][..n].copy_from_slice(&bytes[..n]);
                (at, bytes) = (at + n, &bytes[n..]);
            }
        }
    }

    /// Sets every byte.
    pub fn fill(&self, byte: u8) {
        for part in &self.parts {
            part.bytes.lock()[part.from..][..part.n].fill(byte);
        }
    }
}
