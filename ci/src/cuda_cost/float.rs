//! Results of float instructions and conversions. Modes of rounding but the nearest, and approximations, are the nearest here:
//! only kernels' control flow depends on the numbers.

use super::execute::{Output, plain, predicates, source};
use super::integer::combined;
use super::machine::{Machine, Warp};
use super::sass::{Change, Instruction, Operand};

/// The result for a lane; `None`: it is no such instruction.
pub fn result(m: &Machine<'_>, warp: &Warp, i: &Instruction, lane: usize) -> Result<Option<Output>, String> {
    let f = |n: usize| number(m, warp, i, n, lane);
    let preds = predicates(warp, i, lane);
    let one = |x: f32| Ok(Some(Output { words: vec![x.to_bits()], preds: Vec::new() }));
    match &i.op[..] {
        "FADD" => one(clamped(i, f(0)? + f(1)?)),
        "FMUL" => one(clamped(i, f(0)? * f(1)?)),
        "FFMA" => one(clamped(i, f(0)?.mul_add(f(1)?, f(2)?))),
        "FMNMX" => one(if preds.last() == Some(&true) { f(0)?.min(f(1)?) } else { f(0)?.max(f(1)?) }),
        "FSEL" => one(if preds.last() == Some(&true) { f(0)? } else { f(1)? }),
        "FCHK" => Ok(Some(Output { words: Vec::new(), preds: vec![false] })),
        "FSETP" => {
            let holds = compare(i, f(0)?, f(1)?)?;
            Ok(Some(combined(i, holds, preds.first().copied().unwrap_or(true))))
        }
        "MUFU" => one(function(i, f(0)?)?),
        "HADD2" if i.has("F32") => one(half(m, warp, i, 0, lane)? + half(m, warp, i, 1, lane)?),
        "HADD2" | "HMUL2" | "HFMA2" => halves(m, warp, i, lane).map(Some),
        "I2F" | "I2FP" => from_integer(m, warp, i, lane).map(Some),
        "F2I" => to_integer(i, f(0)?).map(Some),
        "F2F" | "F2FP" => to_half(m, warp, i, lane).map(Some),
        "FRND" => one(f(0)?.round_ties_even()),
        _ => Ok(None),
    }
}

fn number(m: &Machine<'_>, warp: &Warp, i: &Instruction, n: usize, lane: usize) -> Result<f32, String> {
    let (bits, change) = plain(m, warp, i, n, lane)?;
    Ok(signed(f32::from_bits(bits as u32), change))
}

fn signed(x: f32, change: Change) -> f32 {
    let x = if change.abs { x.abs() } else { x };
    if change.neg { -x } else { x }
}

fn clamped(i: &Instruction, x: f32) -> f32 {
    if i.has("SAT") { x.clamp(0.0, 1.0) } else { x }
}

fn compare(i: &Instruction, a: f32, b: f32) -> Result<bool, String> {
    let is_unordered = a.is_nan() || b.is_nan();
    let relation = i.mods.first().ok_or("no relation")?;
    Ok(match &relation[..] {
        "LT" => a < b,
        "LE" => a <= b,
        "GT" => a > b,
        "GE" => a >= b,
        "EQ" => a == b,
        "NE" => a != b && !is_unordered,
        "LTU" => a < b || is_unordered,
        "LEU" => a <= b || is_unordered,
        "GTU" => a > b || is_unordered,
        "GEU" => a >= b || is_unordered,
        "EQU" => a == b || is_unordered,
        "NEU" => a != b,
        "NAN" => is_unordered,
        "NUM" => !is_unordered,
        other => return Err(format!("no relation {other}")),
    })
}

fn function(i: &Instruction, x: f32) -> Result<f32, String> {
    let name = i.mods.first().ok_or("no function")?;
    Ok(match &name[..] {
        "RCP" => 1.0 / x,
        "RSQ" => 1.0 / x.sqrt(),
        "SQRT" => x.sqrt(),
        "EX2" => x.exp2(),
        "LG2" => x.log2(),
        "SIN" => x.sin(),
        "COS" => x.cos(),
        "TANH" => x.tanh(),
        other => return Err(format!("no function {other}")),
    })
}

/// A half of a register as a float.
fn half(m: &Machine<'_>, warp: &Warp, i: &Instruction, n: usize, lane: usize) -> Result<f32, String> {
    let (bits, change) = plain(m, warp, i, n, lane)?;
    let bits = if change.half == 2 { bits >> 16 } else { bits };
    Ok(signed(half_to_float(bits as u16), change))
}

/// Two halves at once; constants are given one by one.
fn halves(m: &Machine<'_>, warp: &Warp, i: &Instruction, lane: usize) -> Result<Output, String> {
    let mut pairs: Vec<[f32; 2]> = Vec::new();
    let mut constants = Vec::new();
    for (n, operand) in i.operands.iter().enumerate().skip(1) {
        match operand {
            Operand::Bits(bits) => constants.push(f32::from_bits(*bits)),
            Operand::Pred(..) => (),
            _ => {
                let (bits, change) = plain(m, warp, i, n - 1, lane)?;
                let (low, high) = (bits as u16, (bits >> 16) as u16);
                let pair = match change.half {
                    1 => [low, low],
                    2 => [high, high],
                    _ => [low, high],
                };
                pairs.push(pair.map(|bits| signed(half_to_float(bits), change)));
            }
        }
    }
    if let [high, low] = constants[..] {
        pairs.push([low, high]);
    }
    let words = [0, 1].map(|h| match &pairs[..] {
        [a, b] if i.op == "HADD2" => a[h] + b[h],
        [a, b] if i.op == "HMUL2" => a[h] * b[h],
        [a, b, c] => a[h].mul_add(b[h], c[h]),
        _ => f32::NAN,
    });
    let [low, high] = words.map(|x| u32::from(float_to_half(x)));
    Ok(Output { words: vec![low | high << 16], preds: Vec::new() })
}

fn from_integer(m: &Machine<'_>, warp: &Warp, i: &Instruction, lane: usize) -> Result<Output, String> {
    let (pair, change) = plain(m, warp, i, 0, lane)?;
    let bits = if change.byte > 0 { pair >> (8 * change.byte) } else { pair };
    let x = match () {
        () if i.has("U64") => bits as f32,
        () if i.has("S64") => bits as i64 as f32,
        () if i.has("U16") => f32::from(bits as u16),
        () if i.has("S16") => f32::from(bits as i16),
        () if i.has("U8") => f32::from(bits as u8),
        () if i.has("S8") => f32::from(bits as i8),
        () if i.has("U32") => bits as u32 as f32,
        () => bits as i32 as f32,
    };
    // Towards +infinity, as integer divisions need it.
    let x = if i.has("RP")
        && (f64::from(x) as u64) < (bits & if i.has("U64") { u64::MAX } else { 0xffff_ffff })
    {
        x.next_up()
    } else {
        x
    };
    Ok(Output { words: vec![signed(x, change).to_bits()], preds: Vec::new() })
}

fn to_integer(i: &Instruction, x: f32) -> Result<Output, String> {
    let x = if i.has("TRUNC") { x.trunc() } else { x.round_ties_even() };
    let words = match () {
        () if i.has("U64") => vec![x as u64 as u32, ((x as u64) >> 32) as u32],
        () if i.has("S64") => vec![x as i64 as u32, ((x as i64) >> 32) as u32],
        () if i.has("U32") => vec![x as u32],
        () => vec![x as i32 as u32],
    };
    Ok(Output { words, preds: Vec::new() })
}

/// One half, or two packed; BF16 too.
fn to_half(m: &Machine<'_>, warp: &Warp, i: &Instruction, lane: usize) -> Result<Output, String> {
    let is_bf16 = i.has("BF16");
    let narrow = |x: f32| u32::from(if is_bf16 { (x.to_bits() >> 16) as u16 } else { float_to_half(x) });
    if i.op == "F2F" && i.mods.first().is_some_and(|to| to == "F32") {
        let x = half(m, warp, i, 0, lane)?;
        return Ok(Output { words: vec![x.to_bits()], preds: Vec::new() });
    }
    let low = narrow(number(m, warp, i, usize::from(i.op == "F2FP"), lane)?);
    let high = if i.op == "F2FP" { narrow(number(m, warp, i, 0, lane)?) } else { 0 };
    let _ = source(m, warp, i, 0, lane)?;
    Ok(Output { words: vec![low | high << 16], preds: Vec::new() })
}

/// F16 as F32.
pub fn half_to_float(h: u16) -> f32 {
    let (sign, exponent, fraction) =
        (u32::from(h >> 15) << 31, u32::from(h >> 10 & 31), u32::from(h & 0x3ff));
    match exponent {
        0 => f32::from_bits(sign) + if sign == 0 { 1.0 } else { -1.0 } * fraction as f32 * 2f32.powi(-24),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// F32 as F16, rounded towards zero below the last bit.
pub fn float_to_half(x: f32) -> u16 {
    let (sign, a) = ((x.to_bits() >> 16 & 0x8000) as u16, x.abs());
    match () {
        () if x.is_nan() => sign | 0x7e00,
        () if a >= 65520.0 => sign | 0x7c00,
        () if a < 2f32.powi(-14) => sign | (a * 2f32.powi(24)).round_ties_even() as u16,
        () => sign | ((a.to_bits() + 0xfff + (a.to_bits() >> 13 & 1) - (112 << 23)) >> 13) as u16,
    }
}
