//! Machine code as nvdisasm prints it: kernels, their instructions, and which registers each reads and writes.

use std::collections::BTreeMap;

/// Registers of a lane: 255 and `RZ`, then 63 uniform ones and `URZ`.
pub const REGISTERS: usize = 320;
/// The register that is zero; the uniform one is [`URZ`].
pub const RZ: u16 = 255;
/// As [`RZ`].
pub const URZ: u16 = 319;
/// The predicate that is true; the uniform one is 15.
pub const PT: u16 = 7;

/// A kernel.
pub struct Kernel {
    /// In order; each takes 16 bytes.
    pub code: Vec<Instruction>,
}

/// An instruction.
#[derive(Debug)]
pub struct Instruction {
    /// The predicate that it depends on, and whether it is negated.
    pub guard: Option<(u16, bool)>,
    /// `IMAD`, without the `U` of uniform instructions.
    pub op: String,
    /// `WIDE`, `U32`.
    pub mods: Vec<String>,
    /// In the order of the text.
    pub operands: Vec<Operand>,
    /// Whether it is one of the warp's own, with uniform registers.
    pub is_uniform: bool,
    /// Registers, and predicates after them, that it reads.
    pub reads: Vec<u16>,
    /// As above, that it writes.
    pub writes: Vec<u16>,
}

/// How an operand is changed before its use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// `-`
    pub neg: bool,
    /// `| |`
    pub abs: bool,
    /// `~`
    pub not: bool,
    /// `.H0_H0` is 1, `.H1_H1` is 2.
    pub half: u8,
    /// `.B1` is 1.
    pub byte: u8,
}

/// What an instruction works on.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register.
    Reg(u16, Change),
    /// A predicate, and whether it is negated.
    Pred(u16, bool),
    /// Bits of an integer or a float.
    Bits(u32),
    /// Of a bank of constants: an offset and a register that is added.
    Constant(u8, Option<u16>, i64, Change),
    /// A place in memory.
    Memory(Place),
    /// Where a branch goes, as the number of an instruction.
    Target(usize),
    /// A barrier of a warp.
    Barrier(usize),
    /// A name.
    Name(String),
}

/// register · scale + uniform + offset; both may be 64 bits wide.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Place {
    /// A register.
    pub reg: Option<u16>,
    /// Whether it is a pair.
    pub is_wide: bool,
    /// What it is multiplied with.
    pub scale: u32,
    /// A uniform register.
    pub uniform: Option<u16>,
    /// Bytes.
    pub offset: i64,
}

impl Instruction {
    /// Whether it has a modifier.
    pub fn has(&self, name: &str) -> bool {
        self.mods.iter().any(|m| m == name)
    }

    /// Bytes of a lane that it moves, of a load or a store.
    pub fn width(&self) -> u32 {
        match () {
            () if self.has("U8") || self.has("S8") => 1,
            () if self.has("U16") || self.has("S16") => 2,
            () if self.has("64") => 8,
            () if self.has("128") => 16,
            () => 4,
        }
    }
}

/// The kernel of a section's text.
pub fn kernel(body: &str) -> Result<Kernel, String> {
    let (mut labels, mut lines) = (BTreeMap::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(label) = line.strip_suffix(':').filter(|label| !label.contains(' ')) {
            labels.insert(label.to_string(), lines.len());
        } else if let Some(rest) = line.strip_prefix("/*").and_then(|line| line.split_once("*/")) {
            lines.push(rest.1);
        }
    }
    let code = lines.iter().map(|line| instruction(line, &labels).map_err(|e| format!("`{line}`: {e}")));
    Ok(Kernel { code: code.collect::<Result<_, _>>()? })
}

fn instruction(line: &str, labels: &BTreeMap<String, usize>) -> Result<Instruction, String> {
    let line = line.split("(*").next().unwrap_or("").trim().trim_end_matches(';').trim();
    let (guard, line) = match line.strip_prefix('@') {
        None => (None, line),
        Some(rest) => {
            let (guard, rest) = rest.split_once(' ').ok_or("a guard alone")?;
            let not = guard.starts_with('!');
            (Some((predicate(guard.trim_start_matches('!')).ok_or("no predicate")?, not)), rest.trim())
        }
    };
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut words = name.split('.').map(str::to_string);
    let full = words.next().unwrap_or_default();
    let is_uniform = full.starts_with('U') || ["S2UR", "R2UR", "VOTEU", "BRXU"].contains(&&full[..]);
    let op = match &full[..] {
        "VOTEU" => "VOTE",
        "BRXU" => "BRX",
        full => full.strip_prefix('U').unwrap_or(full),
    };
    let op = op.to_string();
    let mods = words.collect();
    // Of branches by a register, the number after it is relative to the instruction itself.
    let is_float =
        op.starts_with('F') && !["FLO", "F2I"].contains(&&op[..]) || op == "MUFU" || op.starts_with("H");
    let rest = if ["BRX", "RET"].contains(&&op[..]) { rest.split(' ').next().unwrap_or("") } else { rest };
    let rest = rest.replace(".reuse", "");
    let parts = rest.split(", ").map(str::trim).filter(|part| !part.is_empty());
    let operands = parts.map(|part| operand(part, is_float, labels)).collect::<Result<Vec<_>, _>>()?;
    let mut instruction =
        Instruction { guard, op, mods, operands, is_uniform, reads: Vec::new(), writes: Vec::new() };
    super::dataflow::find(&mut instruction);
    Ok(instruction)
}

fn operand(text: &str, is_float: bool, labels: &BTreeMap<String, usize>) -> Result<Operand, String> {
    if let Some(label) = text.strip_prefix("`(").and_then(|text| text.strip_suffix(')')) {
        // A return names the kernel that it goes back to.
        return Ok(labels.get(label).map_or_else(|| Operand::Name(label.into()), |at| Operand::Target(*at)));
    }
    if let Some(rest) = text.strip_prefix("desc[").and_then(|text| text.split_once("][")) {
        return place(&format!("[{}", rest.1)).map(Operand::Memory);
    }
    if text.starts_with('[') {
        return place(text).map(Operand::Memory);
    }
    let (mut change, mut bare) = (Change::default(), text);
    for _ in 0..3 {
        match bare.as_bytes().first() {
            Some(b'-') if bare[1..].starts_with(['R', 'U', 'c', '|']) => {
                (change.neg, bare) = (true, &bare[1..])
            }
            Some(b'~') => (change.not, bare) = (true, &bare[1..]),
            Some(b'|') => (change.abs, bare) = (true, bare[1..].trim_end_matches('|')),
            _ => break,
        }
    }
    if let Some(rest) = bare.strip_prefix("c[") {
        return constant(rest, change);
    }
    if let Some(rest) = bare.strip_prefix('!')
        && let Some(p) = predicate(rest)
    {
        return Ok(Operand::Pred(p, true));
    }
    if let Some(p) = predicate(bare) {
        return Ok(Operand::Pred(p, false));
    }
    let mut words = bare.split('.');
    if let Some(reg) = register(words.next().unwrap_or("")) {
        for word in words {
            match word {
                "H0_H0" => change.half = 1,
                "H1_H1" => change.half = 2,
                "B1" => change.byte = 1,
                "B2" => change.byte = 2,
                "B3" => change.byte = 3,
                _ => (),
            }
        }
        return Ok(Operand::Reg(reg, change));
    }
    if let Some(n) = bare.strip_prefix('B').and_then(|n| n.parse().ok()) {
        return Ok(Operand::Barrier(n));
    }
    number(bare, is_float).map_or_else(|| Ok(Operand::Name(bare.into())), |bits| Ok(Operand::Bits(bits)))
}

/// The rest of `c[0x0][R2+0x28]`.
fn constant(rest: &str, change: Change) -> Result<Operand, String> {
    let (bank, at) = rest.split_once("][").ok_or("no bank")?;
    let place = place(&format!("[{at}"))?;
    let bank = integer(bank).ok_or("no bank")? as u8;
    Ok(Operand::Constant(bank, place.reg.or(place.uniform), place.offset, change))
}

fn place(text: &str) -> Result<Place, String> {
    let inner = text.trim_start_matches('[').split(']').next().unwrap_or("");
    let mut place = Place { scale: 1, ..Place::default() };
    for word in inner.split('+') {
        let (sign, word) = word.strip_prefix('-').map_or((1, word), |word| (-1, word));
        let mut parts = word.split('.');
        match register(parts.next().unwrap_or("")) {
            Some(reg) if reg >= 256 => place.uniform = Some(reg),
            Some(reg) => place.reg = Some(reg),
            None => place.offset += sign * integer(word).ok_or_else(|| format!("no place: {text}"))?,
        }
        for part in parts {
            match part {
                "64" => place.is_wide = true,
                "X4" => place.scale = 4,
                "X8" => place.scale = 8,
                "X16" => place.scale = 16,
                _ => (),
            }
        }
    }
    Ok(place)
}

fn register(text: &str) -> Option<u16> {
    match text {
        "RZ" => return Some(RZ),
        "URZ" => return Some(URZ),
        "SRZ" => return Some(RZ),
        _ => (),
    }
    if let Some(n) = text.strip_prefix("UR") {
        return n.parse::<u16>().ok().map(|n| 256 + n);
    }
    text.strip_prefix('R')?.parse().ok()
}

fn predicate(text: &str) -> Option<u16> {
    match text {
        "PT" => Some(PT),
        "UPT" => Some(15),
        _ => match text.strip_prefix("UP") {
            Some(n) => n.parse::<u16>().ok().map(|n| 8 + n),
            None => text.strip_prefix('P')?.parse().ok(),
        },
    }
}

fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let n = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(sign * n)
}

fn number(text: &str, is_float: bool) -> Option<u32> {
    match text {
        "+INF" => return Some(f32::INFINITY.to_bits()),
        "-INF" => return Some(f32::NEG_INFINITY.to_bits()),
        "+QNAN" => return Some(0x7fff_ffff),
        "-QNAN" => return Some(0xffff_ffff),
        _ => (),
    }
    if is_float || text.contains('.') && !text.starts_with("0x") {
        return text.parse::<f32>().ok().map(f32::to_bits);
    }
    integer(text).map(|n| n as u32)
}
