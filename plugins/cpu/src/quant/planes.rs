//! Where a block has its elements: planes of bytes, each with some bits of every element, so that what few elements need is read
//! alone.

/// Some bits of all elements of a block. The upper two bits of Q6_K's 256 elements, for example, are in 64 bytes from byte 128
/// on: bits 0 and 1 of bytes 128..160 belong to elements 0..32, bits 2 and 3 of the same bytes to elements 32..64, and so on;
/// so `start` is 128, `bits` 2, `run` 32 and `up` 4.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plane {
    /// First byte in the block.
    pub start: usize,
    /// How many bytes.
    pub n_bytes: usize,
    /// Bits of an element: 1, 2, 4 or 8.
    pub bits: u32,
    /// Elements whose bits are at the same place of bytes that follow each other: the next ones have the next bits of these bytes.
    pub run: usize,
    /// What these bits are in an element: its bits `up`...
    pub up: u32,
}

impl Plane {
    /// A byte for each element.
    pub const fn bytes(start: usize, n_bytes: usize) -> Plane {
        Plane { start, n_bytes, bits: 8, run: n_bytes, up: 0 }
    }

    /// The low four bits of each element.
    pub const fn nibbles(start: usize, n_bytes: usize, run: usize) -> Plane {
        Plane { start, n_bytes, bits: 4, run, up: 0 }
    }

    /// The bits of an element, in the lowest of a byte; in each byte of the number.
    pub const fn mask(self) -> i32 {
        i32::from_ne_bytes([u8::MAX >> (8 - self.bits); 4])
    }

    /// Elements in a byte.
    #[inline(always)]
    pub const fn in_byte(self) -> usize {
        (8 / self.bits) as usize
    }

    /// Whether a byte of the block is in it.
    #[inline(always)]
    pub const fn has(self, byte: usize) -> bool {
        self.start <= byte && byte < self.start + self.n_bytes
    }

    /// The byte of element `i`, and how many elements have lower bits of it.
    #[inline(always)]
    pub const fn of(self, i: usize) -> (usize, usize) {
        let n = self.in_byte();
        (self.start + i / (n * self.run) * self.run + i % self.run, i / self.run % n)
    }

    /// Where the column of element `i` begins, of `m` rows of a matrix by columns: elements of as many rows share a byte as
    /// elements of a row did.
    #[inline(always)]
    pub const fn column(self, i: usize, m: usize) -> usize {
        let (byte, place) = self.of(i);
        byte * m + place * (m / self.in_byte())
    }
}

/// The plane that has a byte of the block.
#[inline(always)]
pub const fn plane_of(planes: &[Plane], byte: usize) -> Option<Plane> {
    let mut planes = planes;
    while let [plane, rest @ ..] = planes {
        if plane.has(byte) {
            return Some(*plane);
        }
        planes = rest;
    }
    None
}

/// The most elements that share a byte.
pub const fn most_in_byte(planes: &[Plane]) -> usize {
    let (mut planes, mut most) = (planes, 1);
    while let [plane, rest @ ..] = planes {
        if plane.in_byte() > most {
            most = plane.in_byte();
        }
        planes = rest;
    }
    most
}
