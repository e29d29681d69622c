//! The loops that `cargo ci roofline` cuts out.

/// A loop, found by what one turn of it multiplies.
pub struct Kernel {
    pub name: String,
    /// Name of the instruction set, as in `cpu.isa`.
    pub level: &'static str,
    /// Parts of the function's symbol.
    pub function: Vec<String>,
    /// What its name begins with, and how many are in a turn.
    pub instruction: &'static str,
    pub n: usize,
    /// Another instruction of the turn, and how many; 0: any number.
    pub with: (&'static str, usize),
    /// Weights times activations in a turn; of loops that unpack, weights.
    pub macs: usize,
}

impl Kernel {
    /// Whether its vectors have 512 bits.
    pub fn is_wide(&self) -> bool {
        self.level.starts_with("avx512")
    }
}

/// Levels of products of bytes: the function's symbol, the product and how many weights it takes.
const BYTES: [(&str, &str, &str, usize); 4] = [
    ("avx2", "6others6others4avx2", "vpmaddubsw", 32),
    ("avxvnni", "4also", "vpdpbusd", 32),
    ("avx512", "6others6others6avx512", "vpmaddubsw", 64),
    ("avx512vnni", "6others4also", "vpdpbusd", 64),
];
/// Types with the part of the symbol.
const TYPES: [(&str, &str); 4] = [("Q4_0", "4Q4_0"), ("Q8_0", "4Q8_0"), ("Q4_K", "3Q4K"), ("Q6_K", "3Q6K")];
/// Levels of products of floats, and lanes.
const FLOATS: [(&str, &str, usize); 2] = [("avx2", "4avx2", 8), ("avx512", "6avx512", 16)];

/// All loops. Those of the ceilings first, which shares are of.
pub fn kernels() -> Vec<Kernel> {
    let mut all = Vec::new();
    for (level, symbol, instruction, width) in BYTES {
        let is_wide = width == 64;
        let mut add = |name: String, function: [&str; 2], instruction, n, with, macs| {
            let function = vec![format!("{}{symbol}", function[0]), function[1].to_string()];
            all.push(Kernel { name, level, function, instruction, n, with, macs });
        };
        let n = if is_wide { 96 } else { 64 };
        add("int8 ceiling".into(), ["ceiling3dot", ""], instruction, n, ("", 0), n * width);
        for (name, symbol) in TYPES {
            let function = ["product_quantised12with_vectors", symbol];
            // 4 columns of a panel, or 6 of two.
            let n = if is_wide { 96 } else { 64 };
            add(format!("{name} tile"), function, instruction, n, ("", 0), n * width);
            if name == "Q8_0" && instruction == "vpmaddubsw" {
                let n = if is_wide { 192 } else { 16 };
                add("Q8_0 tile of words".into(), function, "vpmaddwd", n, ("", 0), n * width / 2);
            }
            // Blocks of K types are unpacked by loops whose turns are not to be seen.
            if !name.ends_with('K') {
                let (n, scales) = (512 / width, 64 / width);
                add(format!("{name} one column"), function, instruction, n, ("vcvtph2ps", scales), 512);
                add(format!("{name} unpack"), function, "vcvtph2ps", scales, ("", 0), 512);
            }
        }
    }
    for (level, symbol, lanes) in FLOATS {
        let is_wide = lanes == 16;
        let mut add = |name: &str, function: [&str; 2], n: usize, with| {
            let function = vec![format!("{}{symbol}", function[0]), function[1].to_string()];
            let (name, instruction) = (name.to_string(), "vfmadd");
            all.push(Kernel { name, level, function, instruction, n, with, macs: n * lanes });
        };
        add("F32 ceiling", ["ceiling12multiply_add", ""], if is_wide { 24 } else { 20 }, ("", 0));
        add("F32 and F16 tile", ["product_floats6others", ""], if is_wide { 24 } else { 12 }, ("", 0));
        add("BF16 tile", ["product_floats4bf166others", ""], if is_wide { 48 } else { 16 }, ("", 0));
        // 4 rows of queries with two vectors of keys or four of values; with 256 bits a vector of keys, two rows and two vectors.
        let (rows, n) = if is_wide { (4, 16) } else { (2, 8) };
        add("scores, many queries", ["attend9many_rows", ""], 8, ("vbroadcastss", 4));
        add("values, many queries", ["attend9many_rows", ""], n, ("vbroadcastss", rows));
        add("scores, few queries, F16", ["attend10from_cache", "F16"], n, ("vcvtph2ps", 4));
        add("values, few queries, F16", ["attend10from_cache", "F16"], n, ("vbroadcastss", rows));
    }
    all
}
