//! Results of integer instructions.

use super::execute::{Output, plain, predicates, source};
use super::machine::{Machine, Warp};
use super::sass::{Change, Instruction, Operand};

/// The result for a lane; `None`: it is no integer instruction.
pub fn result(
    m: &Machine<'_>,
    warp: &Warp,
    i: &Instruction,
    lane: usize,
    _pc: usize,
) -> Result<Option<Output>, String> {
    let s = |n: usize| source(m, warp, i, n, lane);
    let preds = predicates(warp, i, lane);
    let word = |word: u32| Ok(Some(Output { words: vec![word], preds: Vec::new() }));
    match &i.op[..] {
        "MOV" | "S2R" | "S2UR" | "R2UR" | "P2R" if i.op != "P2R" => word(s(0)?),
        "P2R" => {
            let bits = (0..7).fold(0, |bits, p| bits | u32::from(warp.preds[p][lane]) << p);
            word(bits & s(2)? | s(1)? & !s(2)?)
        }
        "CS2R" => Ok(Some(Output { words: vec![0, 0], preds: Vec::new() })),
        "LDC" => load_constant(m, warp, i, lane).map(Some),
        "VIADD" => word(s(0)?.wrapping_add(s(1)?)),
        "IADD3" => add(m, warp, i, lane, &preds).map(Some),
        "IMAD" => multiply(m, warp, i, lane, &preds).map(Some),
        "LEA" => shift_and_add(m, warp, i, lane, &preds).map(Some),
        "LOP3" => {
            let y = lut(s(0)?, s(1)?, s(2)?, s(3)?);
            let p = y != 0 || preds.last().copied().unwrap_or(false);
            Ok(Some(Output { words: vec![y], preds: vec![p] }))
        }
        "PLOP3" => {
            let bits = |p: bool| if p { u32::MAX } else { 0 };
            let [a, b, c] = [0, 1, 2].map(|n| bits(preds.get(n).copied().unwrap_or(false)));
            let of = |n: usize| s(n).map(|table| lut(a, b, c, table) & 1 == 1);
            Ok(Some(Output { words: Vec::new(), preds: vec![of(3)?, of(4)?] }))
        }
        "ISETP" => compare(i, s(0)?, s(1)?, &preds).map(Some),
        "SHF" => word(shift(i, s(0)?, s(1)?, s(2)?)),
        "SEL" => word(if preds.last() == Some(&true) { s(0)? } else { s(1)? }),
        "PRMT" => word(permute(s(0)?, s(1)?, s(2)?)),
        "IDP" => word(dot4(s(0)?, s(1)?, s(2)?, !i.has("U8"))),
        "IMNMX" | "VIMNMX" => word(least(i, s(0)?, s(1)?, preds.last() == Some(&true))),
        "VIADDMNMX" => word(least(i, s(0)?.wrapping_add(s(1)?), s(2)?, preds.last() == Some(&true))),
        "POPC" => word(s(0)?.count_ones()),
        // The number of the highest bit, or how far it is from the top; of zero -1.
        "FLO" => word(match s(0)? {
            0 => u32::MAX,
            x if i.has("SH") => x.leading_zeros(),
            x => 31 - x.leading_zeros(),
        }),
        "BREV" => word(s(0)?.reverse_bits()),
        "IABS" => word((s(0)? as i32).unsigned_abs()),
        _ => Ok(None),
    }
}

fn load_constant(m: &Machine<'_>, warp: &Warp, i: &Instruction, lane: usize) -> Result<Output, String> {
    let words = match i.operands.get(1) {
        Some(Operand::Constant(bank, reg, at, change)) => {
            let at = at & !3;
            let of =
                |n| super::execute::word(m, warp, &Operand::Constant(*bank, *reg, at + 4 * n, *change), lane);
            (0..i64::from(i.width().div_ceil(4))).map(of).collect::<Result<Vec<_>, _>>()?
        }
        _ => return Err("no constant".into()),
    };
    Ok(Output { words, preds: Vec::new() })
}

/// What is added for a source: without overflow, so that carries can be seen. Negation is that of two's complement: the
/// inverse and one.
fn term(word: u64, change: Change, bits: u32) -> u64 {
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    match () {
        () if change.not => !word & mask,
        () if change.neg && bits < 64 => (!word & mask) + 1,
        () if change.neg => word.wrapping_neg(),
        () => word & mask,
    }
}

fn add(m: &Machine<'_>, warp: &Warp, i: &Instruction, lane: usize, preds: &[bool]) -> Result<Output, String> {
    let mut sum = 0u64;
    for n in 0..3 {
        let (word, change) = plain(m, warp, i, n, lane)?;
        let word = if change.byte > 0 { word >> (8 * change.byte) } else { word };
        sum += term(word & 0xffff_ffff, change, 32);
    }
    if i.has("X") {
        sum += preds.iter().filter(|p| **p).count() as u64;
    }
    let carry = sum >> 32;
    Ok(Output { words: vec![sum as u32], preds: vec![carry >= 1, carry >= 2] })
}

/// a · b + c: 32 bits, or 64, or the upper half of those.
fn multiply(
    m: &Machine<'_>,
    warp: &Warp,
    i: &Instruction,
    lane: usize,
    preds: &[bool],
) -> Result<Output, String> {
    let (a, b) = (source(m, warp, i, 0, lane)?, source(m, warp, i, 1, lane)?);
    let (c, change) = plain(m, warp, i, 2, lane)?;
    let carry_in = u64::from(i.has("X") && preds.last() == Some(&true));
    if !i.has("WIDE") && !i.has("HI") {
        let c = term(c & 0xffff_ffff, change, 32);
        let sum = u64::from(a.wrapping_mul(b)) + c + carry_in;
        return Ok(Output { words: vec![sum as u32], preds: vec![sum >> 32 != 0] });
    }
    let product = if i.has("U32") {
        u64::from(a) * u64::from(b)
    } else {
        (i64::from(a as i32) * i64::from(b as i32)) as u64
    };
    let (sum, over) = product.overflowing_add(term(c, change, 64));
    let (sum, more) = sum.overflowing_add(carry_in);
    let words = if i.has("HI") { vec![(sum >> 32) as u32] } else { vec![sum as u32, (sum >> 32) as u32] };
    Ok(Output { words, preds: vec![over || more] })
}

/// (a << n) + b, or the upper half of (c:a << n), plus b.
fn shift_and_add(
    m: &Machine<'_>,
    warp: &Warp,
    i: &Instruction,
    lane: usize,
    preds: &[bool],
) -> Result<Output, String> {
    let carry_in = u64::from(i.has("X") && preds.last() == Some(&true));
    let s = |n: usize| source(m, warp, i, n, lane);
    let (b, change) = plain(m, warp, i, 1, lane)?;
    let b = term(b & 0xffff_ffff, change, 32);
    let shifted = match () {
        () if !i.has("HI") => s(0)?.wrapping_shl(s(2)?),
        () if i.has("SX32") => ((i64::from(s(0)? as i32) << s(2)?) >> 32) as u32,
        () => (((u64::from(s(2)?) << 32 | u64::from(s(0)?)) << s(3)?) >> 32) as u32,
    };
    let sum = u64::from(shifted) + b + carry_in;
    Ok(Output { words: vec![sum as u32], preds: vec![sum >> 32 != 0] })
}

/// Each bit by its three bits' number in a table.
fn lut(a: u32, b: u32, c: u32, table: u32) -> u32 {
    (0..8).filter(|n| table >> n & 1 == 1).fold(0, |y, n| {
        let of = |x: u32, bit: u32| if n & bit != 0 { x } else { !x };
        y | of(a, 4) & of(b, 2) & of(c, 1)
    })
}

fn compare(i: &Instruction, a: u32, b: u32, preds: &[bool]) -> Result<Output, String> {
    let order = if i.has("U32") { a.cmp(&b) } else { (a as i32).cmp(&(b as i32)) };
    // Of the upper halves, where they are equal the lower ones decide.
    let low = preds.get(1).copied().unwrap_or(false);
    let is_extended = i.has("EX");
    let relation = i.mods.first().ok_or("no relation")?;
    let holds = match &relation[..] {
        "LT" => order.is_lt() || is_extended && order.is_eq() && low,
        "LE" => {
            if is_extended {
                order.is_lt() || order.is_eq() && low
            } else {
                order.is_le()
            }
        }
        "GT" => order.is_gt() || is_extended && order.is_eq() && low,
        "GE" => {
            if is_extended {
                order.is_gt() || order.is_eq() && low
            } else {
                order.is_ge()
            }
        }
        "EQ" => order.is_eq() && (!is_extended || low),
        "NE" => order.is_ne() || is_extended && low,
        other => return Err(format!("no relation {other}")),
    };
    Ok(combined(i, holds, preds.first().copied().unwrap_or(true)))
}

/// A relation, and its opposite, with another predicate.
pub fn combined(i: &Instruction, holds: bool, other: bool) -> Output {
    let with = |p: bool| match () {
        () if i.has("OR") => p || other,
        () if i.has("XOR") => p != other,
        () => p && other,
    };
    Output { words: Vec::new(), preds: vec![with(holds), with(!holds)] }
}

fn shift(i: &Instruction, low: u32, by: u32, high: u32) -> u32 {
    let pair = u64::from(high) << 32 | u64::from(low);
    let is_wide = i.has("U64") || i.has("S64");
    let by =
        if i.has("W") { by & if is_wide { 63 } else { 31 } } else { by.min(if is_wide { 63 } else { 32 }) };
    let is_high = i.has("HI");
    match () {
        () if i.has("L") && is_high => ((pair << by.min(63)) >> 32) as u32,
        () if i.has("L") => low.checked_shl(by).unwrap_or(0),
        () if is_high && i.has("S32") => ((i64::from(high as i32)) >> by) as u32,
        () if is_high => high.checked_shr(by).unwrap_or(0),
        () if i.has("S64") => ((pair as i64) >> by) as u32,
        () => (pair >> by) as u32,
    }
}

/// Bytes of two words by four numbers; the highest bit of a number spreads the byte's sign.
fn permute(a: u32, numbers: u32, b: u32) -> u32 {
    let pair = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |y, n| {
        let number = numbers >> (4 * n);
        let byte = (pair >> (8 * (number & 7))) as u8;
        let byte = if number & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        y | u32::from(byte) << (8 * n)
    })
}

fn dot4(a: u32, b: u32, c: u32, is_signed: bool) -> u32 {
    (0..4).fold(c, |sum, n| {
        let byte = |x: u32| (x >> (8 * n)) as u8;
        let product = match is_signed {
            true => i32::from(byte(a) as i8) * i32::from(byte(b) as i8),
            false => i32::from(byte(a)) * i32::from(byte(b)),
        };
        sum.wrapping_add(product as u32)
    })
}

fn least(i: &Instruction, a: u32, b: u32, is_least: bool) -> u32 {
    let order = if i.has("U32") { a.cmp(&b) } else { (a as i32).cmp(&(b as i32)) };
    if order.is_lt() == is_least { a } else { b }
}
