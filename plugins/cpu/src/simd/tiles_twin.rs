//! Tiles in plain Rust, by the pseudo-code of Intel's manual; where an instruction faults, they panic.

use super::tiles::{Config, Dots, Tiles, check, multiply_plainly, product};
use bytemuck::cast_slice;

/// Rows of the largest tile, and bytes of its rows: palette 1.
const MAX_ROWS: usize = 16;
const MAX_BYTES: usize = 64;

/// Eight tiles, and the shapes that were loaded last.
pub struct Twin {
    quads: usize,
    rows: [usize; 8],
    colsb: [usize; 8],
    tiles: [[[u8; MAX_BYTES]; MAX_ROWS]; 8],
}

impl Twin {
    /// LDTILECFG.
    fn ldtilecfg(config: &[u8; 64]) -> Twin {
        assert_eq!(config[0], 1, "#GP: the palette");
        let reserved = config[2..16].iter().chain(&config[32..48]).chain(&config[56..64]);
        assert!(reserved.chain(&config[1..2]).all(|&byte| byte == 0), "#GP: reserved bytes");
        let colsb =
            std::array::from_fn(|t| u16::from_le_bytes([config[16 + 2 * t], config[17 + 2 * t]]) as usize);
        let rows = std::array::from_fn(|t| config[48 + t] as usize);
        let is_within = |(rows, bytes): (&usize, &usize)| {
            (1..=MAX_ROWS).contains(rows) && (1..=MAX_BYTES).contains(bytes)
        };
        assert!(rows.iter().zip(&colsb).all(is_within), "#GP: {rows:?} rows of {colsb:?} bytes");
        Twin { quads: 0, rows, colsb, tiles: [[[0; MAX_BYTES]; MAX_ROWS]; 8] }
    }

    /// TILEZERO.
    fn tilezero(&mut self, t: usize) {
        self.tiles[t] = [[0; MAX_BYTES]; MAX_ROWS];
    }

    /// TILELOADD: bytes and rows past the shape become zero.
    fn tileloadd(&mut self, t: usize, at: &[u8], stride: usize) {
        self.tilezero(t);
        for row in 0..self.rows[t] {
            let n = self.colsb[t];
            self.tiles[t][row][..n].copy_from_slice(&at[row * stride..][..n]);
        }
    }

    /// TILESTORED.
    fn tilestored(&mut self, t: usize, at: &mut [u8], stride: usize) {
        for row in 0..self.rows[t] {
            let n = self.colsb[t];
            at[row * stride..][..n].copy_from_slice(&self.tiles[t][row][..n]);
        }
    }

    /// TDPBSUD.
    fn tdpbsud(&mut self, c: usize, a: usize, b: usize) {
        assert!(c != a && c != b && a != b, "#UD: tiles {c}, {a} and {b} are not three");
        let (rows, colsb) = (self.rows, self.colsb);
        assert!([a, b, c].iter().all(|&t| colsb[t].is_multiple_of(4)), "#UD: no whole numbers of 32 bits");
        assert!(rows[c] == rows[a] && colsb[c] == colsb[b], "#UD: the result has another shape");
        assert_eq!(colsb[a] / 4, rows[b], "#UD: the length of sums");
        for m in 0..rows[c] {
            let mut sums = self.tiles[c][m];
            for k in 0..colsb[a] / 4 {
                for n in 0..colsb[c] / 4 {
                    let (x, y) = (&self.tiles[a][m][4 * k..], &self.tiles[b][k][4 * n..]);
                    let products = (0..4).map(|i| x[i] as i8 as i32 * y[i] as i32);
                    let sum = i32::from_le_bytes(*sums[4 * n..].first_chunk().unwrap());
                    let sum = products.fold(sum, i32::wrapping_add);
                    sums[4 * n..4 * n + 4].copy_from_slice(&sum.to_le_bytes());
                }
            }
            sums[colsb[c]..].fill(0);
            self.tiles[c][m] = sums;
        }
        self.tiles[c][rows[c]..].fill([0; MAX_BYTES]);
    }
}

/// Follows instructions.
macro_rules! follow {
    ([$twin:ident $memory:ident] $(($name:ident $first:literal $($rest:tt)*))*) => {
        $(follow!(@ $twin $memory $name $first $($rest)*);)*
    };
    (@ $twin:ident $memory:ident $name:ident $tile:literal $at:ident $stride:ident) => {
        $twin.$name($tile, $memory.$at, $memory.$stride)
    };
    (@ $twin:ident $memory:ident $name:ident $($tile:literal)*) => { $twin.$name($($tile),*) };
}

/// The operands of `product!` that are in memory.
struct Memory<'a> {
    x: &'a [u8],
    x_stride: usize,
    w0: &'a [u8],
    w1: &'a [u8],
    dots0: &'a mut [u8],
    dots1: &'a mut [u8],
    line: usize,
}

impl Tiles for Twin {
    type Machine = ();

    fn shaped(_machine: (), quads: usize) -> Twin {
        Twin { quads, ..Twin::ldtilecfg(&Config::of(quads).0) }
    }

    fn multiply(&mut self, x: &[u8], stride: usize, w: [&[[u8; 64]]; 2], dots: &mut Dots) {
        check(x, stride, w, self.quads);
        let [dots0, dots1] = &mut dots.0;
        let memory = Memory {
            x,
            x_stride: stride,
            w0: w[0].as_flattened(),
            w1: w[1].as_flattened(),
            dots0: dots0.as_flattened_mut(),
            dots1: dots1.as_flattened_mut(),
            line: 64,
        };
        let twin = self;
        product!(follow twin memory);
    }
}

#[test]
fn the_list_of_instructions_multiplies_bytes_of_all_sizes() {
    let x: Vec<i8> = (0..7 * 50 + 32).map(|i| [-128, -127, 127, 0, 1, -1][(i * i + i / 7) % 6]).collect();
    let w = [[255u8, 0, 1, 128], [254, 255, 127, 2]].map(|values| {
        [0, 1, 2, 3, 4, 5, 6, 7].map(|j| std::array::from_fn(|i| values[(i * i + i / 5 + j) % 4]))
    });
    for quads in [8, 4] {
        let (mut found, mut expected) = (Dots([[[7; 64]; 8]; 2]), Dots::ZERO);
        let w = [&w[0][..quads], &w[1][..quads]];
        Twin::shaped((), quads).multiply(cast_slice(&x), 50, w, &mut found);
        multiply_plainly(cast_slice(&x), 50, w, &mut expected);
        assert_eq!(found.0, expected.0, "{quads} quads");
    }
}

/// Executes an instruction whose operands have the shapes (rows, bytes) of a result, columns and a panel.
fn shaped_as(shapes: [(u8, u8); 3]) {
    let mut config = Config::of(8).0;
    for (tile, (rows, bytes)) in shapes.into_iter().enumerate() {
        (config[48 + tile], config[16 + 2 * tile]) = (rows, bytes);
    }
    Twin::ldtilecfg(&config).tdpbsud(0, 1, 2);
}

#[test]
fn shapes_that_fit_are_multiplied() {
    shaped_as([(16, 64), (16, 64), (16, 64)]);
    shaped_as([(3, 20), (3, 8), (2, 20)]);
}

#[test]
#[should_panic(expected = "#GP: [17")]
fn more_rows_than_the_palette_has_are_refused() {
    shaped_as([(17, 64), (16, 64), (16, 64)]);
}

#[test]
#[should_panic(expected = "#UD: the length of sums")]
fn columns_longer_than_the_panel_are_refused() {
    shaped_as([(8, 64), (8, 32), (4, 64)]);
}

#[test]
#[should_panic(expected = "#UD: the result has another shape")]
fn results_of_fewer_columns_are_refused() {
    shaped_as([(7, 64), (8, 32), (8, 64)]);
}
