//! Tiles: registers of at most 16 rows of 64 bytes, and an instruction that multiplies two of them (AMX of x86).
//!
//! What a product consists of is one list of instructions: `Amx` assembles it, and the tests' twin follows it in plain Rust.

/// Columns that are multiplied at a time.
pub const COLUMNS: usize = 8;

/// Integer products of each of two panels' 16 rows with each column: 16 numbers of 32 bits.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Dots(pub [[[u8; 64]; COLUMNS]; 2]);

impl Dots {
    /// All zeros.
    pub const ZERO: Dots = Dots([[[0; 64]; COLUMNS]; 2]);
}

/// A thread's tiles, shaped for products of as many quads of elements.
pub trait Tiles {
    /// The proof that this machine has tiles.
    type Machine: Copy;

    /// Shapes this thread's tiles for products of `quads` quads, until the value is dropped. Panics if the thread has a
    /// value already.
    fn shaped(machine: Self::Machine, quads: usize) -> Self;

    /// dots[p][c][r] = Σ w·x over the quads, w the unsigned bytes 4r..4r+4 of each quad of panel p, x the signed bytes that
    /// begin c · `stride` bytes after the first. Panics if the columns are not inside `x`, or the quads are not as many.
    fn multiply(&mut self, x: &[u8], stride: usize, w: [&[[u8; 64]]; 2], dots: &mut Dots);
}

/// What `ldtilecfg` loads: the palette, bytes per row and rows of each tile.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Config(pub [u8; 64]);

impl Config {
    /// Tiles 0 and 1 for the results, 2 for the columns, 3 and 4 for the panels; the others are not in use.
    pub fn of(quads: usize) -> Config {
        let mut config = Config([0; 64]);
        config.0[0] = 1;
        for tile in 0..8 {
            let (rows, bytes) = match tile {
                2 => (COLUMNS, 4 * quads),
                3 | 4 => (quads, 64),
                _ => (COLUMNS, 64),
            };
            (config.0[48 + tile], config.0[16 + 2 * tile]) = (rows as u8, bytes as u8);
        }
        config
    }
}

/// Checks what [`Tiles::multiply`] refuses.
#[inline(always)]
pub fn check(x: &[u8], stride: usize, w: [&[[u8; 64]]; 2], quads: usize) {
    let end = stride.checked_mul(COLUMNS - 1).and_then(|last| last.checked_add(4 * quads));
    assert!(end.is_some_and(|end| end <= x.len()), "{COLUMNS} columns {stride} apart in {} bytes", x.len());
    assert!(w.iter().all(|w| w.len() == quads), "{quads} quads of {} and {}", w[0].len(), w[1].len());
}

/// The instructions of [`Tiles::multiply`], for a macro that executes them. Operands are tiles by number, and memory by
/// name: columns `x`, panels `w0` and `w1`, results `dots0` and `dots1`, each followed by what is from a row to the next.
macro_rules! product {
    ($execute:ident $($operands:tt)*) => {
        $execute! { [$($operands)*]
            (tileloadd 2 x x_stride)
            (tileloadd 3 w0 line)
            (tilezero 0)
            (tdpbsud 0 2 3)
            (tilestored 0 dots0 line)
            (tileloadd 4 w1 line)
            (tilezero 1)
            (tdpbsud 1 2 4)
            (tilestored 1 dots1 line)
        }
    };
}
pub(crate) use product;

/// [`Tiles::multiply`] without tiles.
pub fn multiply_plainly(x: &[u8], stride: usize, w: [&[[u8; 64]]; 2], dots: &mut Dots) {
    for (w, dots) in w.iter().zip(&mut dots.0) {
        for (c, dots) in dots.iter_mut().enumerate() {
            for (r, dot) in dots.as_chunks_mut().0.iter_mut().enumerate() {
                let elements = w.iter().flat_map(|quad| &quad[4 * r..4 * r + 4]);
                let products = elements.zip(&x[c * stride..]).map(|(w, x)| *w as i32 * *x as i8 as i32);
                *dot = products.sum::<i32>().to_le_bytes();
            }
        }
    }
}
