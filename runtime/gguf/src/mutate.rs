//! Mutates bytes for tests of parsers: the same seed mutates the same bytes in the same way.

/// Changes `bytes` in one to four places: flipped bits, boundary values, cuts, insertions and repeats.
///
/// Half of the places are in the first 256 bytes, where files keep their counts.
pub fn mutate(bytes: &mut Vec<u8>, seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..=rng.below(4) {
        if bytes.is_empty() {
            bytes.push(rng.next() as u8);
        }
        let near = if rng.below(2) == 0 { bytes.len().min(256) } else { bytes.len() };
        let at = rng.below(near);
        let n = (1 + rng.below(16)).min(bytes.len() - at);
        match rng.below(8) {
            0 | 1 => bytes[at] ^= 1 << rng.below(8),
            2 => bytes[at] = rng.next() as u8,
            3 | 4 => {
                let number = BOUNDARY_VALUES[rng.below(BOUNDARY_VALUES.len())].to_le_bytes();
                let width = [1, 2, 4, 8][rng.below(4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            5 => bytes.truncate(at),
            6 => drop(bytes.splice(at..at, (0..n).map(|_| rng.next() as u8))),
            _ if rng.below(2) == 0 => drop(bytes.drain(at..at + n)),
            _ => {
                let again = bytes[at..at + n].to_vec();
                drop(bytes.splice(at..at, again));
            }
        }
    }
}

/// Numbers at the edges of what counts and lengths can be.
const BOUNDARY_VALUES: [u64; 12] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
    0x2000_0000_0000_0000,
    0x0100_0000,
];

/// xorshift64*.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}
