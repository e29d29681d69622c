//! What each instruction does to the registers of a lane. An instruction that is not here is an error that names it.

use super::dataflow::n_results;
use super::machine::{Access, Machine, Warp};
use super::sass::{Change, Instruction, Operand, Place, RZ, URZ};
use super::{float, integer, tensor};

const LANES: usize = 32;

/// The lanes of a mask.
pub fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

pub fn execute(
    m: &mut Machine<'_>,
    warp: &mut Warp,
    i: &Instruction,
    lanes: u32,
    pc: usize,
) -> Result<(), String> {
    match &i.op[..] {
        "BRA" => branch(m, warp, i, lanes),
        "CALL" => jump(warp, i, lanes),
        "RET" => lanes_of(lanes).try_for_each(|l| go(warp, l, i64::from(source(m, warp, i, 0, l)?))),
        "BRX" => lanes_of(lanes).try_for_each(|l| go(warp, l, i64::from(source(m, warp, i, 0, l)?))),
        "EXIT" => {
            warp.alive &= !lanes;
            Ok(())
        }
        "BSSY" => barrier(i, |b| lanes_of(lanes).for_each(|l| warp.members[l][b] = lanes)),
        "BSYNC" => barrier(i, |b| lanes_of(lanes).for_each(|l| warp.waits[l] = Some(b))),
        "BREAK" => barrier(i, |b| warp.members.iter_mut().for_each(|of| of[b] &= !lanes)),
        "BAR" => {
            warp.is_at_barrier = true;
            Ok(())
        }
        "NOP" | "WARPSYNC" | "YIELD" | "DEPBAR" | "LDGDEPBAR" | "MEMBAR" | "ERRBAR" | "CCTL" => Ok(()),
        "R2P" => predicates_from(m, warp, i, lanes),
        "SHFL" => shuffle(m, warp, i, lanes),
        "VOTE" => vote(m, warp, i, lanes),
        "LD" | "LDG" | "ST" | "STG" | "LDS" | "STS" | "LDL" | "STL" | "LDGSTS" => memory(m, warp, i, lanes),
        "LDSM" => matrices(m, warp, i, lanes),
        "IMMA" => tensor::product(warp, i, lanes),
        _ => each(m, warp, i, lanes, pc),
    }
}

/// Instructions of which each lane's result is its own. Uniform ones have one result, of the first lane.
fn each(m: &Machine<'_>, warp: &mut Warp, i: &Instruction, lanes: u32, pc: usize) -> Result<(), String> {
    for lane in lanes_of(lanes) {
        let first = lane;
        let result = match integer::result(m, warp, i, lane, pc)? {
            Some(result) => result,
            None => float::result(m, warp, i, lane)?.ok_or("this instruction is not modelled")?,
        };
        let to = if i.is_uniform { 0..LANES } else { lane..lane + 1 };
        for lane in to {
            write(warp, i, lane, &result);
        }
        if i.is_uniform {
            debug_assert_eq!(first, lanes.trailing_zeros() as usize);
            break;
        }
    }
    Ok(())
}

/// Words of the result, and predicates.
#[derive(Default)]
pub struct Output {
    pub words: Vec<u32>,
    pub preds: Vec<bool>,
}

pub fn write(warp: &mut Warp, i: &Instruction, lane: usize, result: &Output) {
    let mut preds = result.preds.iter();
    for operand in i.operands.iter().take(n_results(i)) {
        match operand {
            Operand::Reg(reg, _) if *reg != RZ && *reg != URZ => {
                result.words.iter().zip(*reg..).for_each(|(word, reg)| warp.set(reg, lane, *word));
            }
            Operand::Pred(p, _) => warp.set_pred(*p, lane, preds.next().copied().unwrap_or(false)),
            _ => (),
        }
    }
}

/// Source `n`, results not counted.
pub fn source(m: &Machine<'_>, warp: &Warp, i: &Instruction, n: usize, lane: usize) -> Result<u32, String> {
    let operand = i.operands.get(n_results(i) + n).ok_or_else(|| format!("no source {n}"))?;
    word(m, warp, operand, lane)
}

pub fn word(m: &Machine<'_>, warp: &Warp, operand: &Operand, lane: usize) -> Result<u32, String> {
    Ok(match operand {
        Operand::Reg(reg, change) => changed(register(warp, *reg, lane), *change),
        Operand::Bits(bits) => *bits,
        Operand::Constant(bank, reg, at, change) => {
            let more = reg.map_or(0, |reg| i64::from(register(warp, reg, lane) as i32));
            changed(m.constant(*bank, at + more), *change)
        }
        Operand::Pred(p, not) => u32::from(warp.preds[*p as usize][lane] != *not),
        Operand::Name(name) => special(m, warp, name, lane)?,
        _ => return Err("no number".into()),
    })
}

/// As above, without what changes it, and the change.
pub fn plain(
    m: &Machine<'_>,
    warp: &Warp,
    i: &Instruction,
    n: usize,
    lane: usize,
) -> Result<(u64, Change), String> {
    let operand = i.operands.get(n_results(i) + n).ok_or_else(|| format!("no source {n}"))?;
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    Ok(match operand {
        Operand::Reg(reg, change) => {
            let high = if *reg == RZ || *reg == URZ { 0 } else { register(warp, reg + 1, lane) };
            (pair(register(warp, *reg, lane), high), *change)
        }
        Operand::Constant(bank, None, at, change) => {
            (pair(m.constant(*bank, *at), m.constant(*bank, at + 4)), *change)
        }
        operand => (u64::from(word(m, warp, operand, lane)?), Change::default()),
    })
}

/// Predicates among the sources, in order.
pub fn predicates(warp: &Warp, i: &Instruction, lane: usize) -> Vec<bool> {
    let preds = i.operands.iter().skip(n_results(i)).filter_map(|operand| match operand {
        Operand::Pred(p, not) => Some(warp.preds[*p as usize][lane] != *not),
        _ => None,
    });
    preds.collect()
}

pub fn register(warp: &Warp, reg: u16, lane: usize) -> u32 {
    if reg == RZ || reg >= URZ { 0 } else { warp.regs[reg as usize][lane] }
}

fn changed(word: u32, change: Change) -> u32 {
    let word = if change.byte > 0 { word >> (8 * change.byte) } else { word };
    if change.not {
        !word
    } else if change.neg {
        word.wrapping_neg()
    } else {
        word
    }
}

fn special(m: &Machine<'_>, warp: &Warp, name: &str, lane: usize) -> Result<u32, String> {
    Ok(match name {
        "SR_TID.X" => warp.number * 32 + lane as u32,
        "SR_TID.Y" | "SR_TID.Z" => 0,
        "SR_CTAID.X" => m.block[0],
        "SR_CTAID.Y" => m.block[1],
        "SR_CTAID.Z" => m.block[2],
        "SR_LANEID" => lane as u32,
        "SR_LTMASK" => (1 << lane) - 1,
        "SR_CgaCtaId" => 0,
        // All predicates as bits.
        "PR" => (0..7).fold(0, |bits, p| bits | u32::from(warp.preds[p][lane]) << p),
        other => return Err(format!("no special register {other}")),
    })
}

fn go(warp: &mut Warp, lane: usize, byte: i64) -> Result<(), String> {
    warp.pc[lane] = usize::try_from(byte / 16).map_err(|_| "a branch to nowhere")?;
    Ok(())
}

fn jump(warp: &mut Warp, i: &Instruction, lanes: u32) -> Result<(), String> {
    let target = i.operands.iter().find_map(|operand| match operand {
        Operand::Target(at) => Some(*at),
        _ => None,
    });
    let target = target.ok_or("no target")?;
    lanes_of(lanes).for_each(|lane| warp.pc[lane] = target);
    Ok(())
}

fn branch(m: &Machine<'_>, warp: &mut Warp, i: &Instruction, lanes: u32) -> Result<(), String> {
    // Taken where not all lanes are here.
    if i.has("DIV") {
        return if lanes == warp.alive { Ok(()) } else { jump(warp, i, lanes) };
    }
    let mut taken = lanes;
    for operand in &i.operands {
        match operand {
            Operand::Pred(..) => {
                for lane in lanes_of(lanes) {
                    if word(m, warp, operand, lane)? == 0 {
                        taken &= !(1 << lane);
                    }
                }
            }
            _ => break,
        }
    }
    jump(warp, i, taken)
}

fn barrier(i: &Instruction, f: impl FnOnce(usize)) -> Result<(), String> {
    match i.operands.first() {
        Some(Operand::Barrier(b)) => {
            f(*b);
            Ok(())
        }
        _ => Err("no barrier".into()),
    }
}

/// Predicates from the bits of a register, those of a mask.
fn predicates_from(m: &Machine<'_>, warp: &mut Warp, i: &Instruction, lanes: u32) -> Result<(), String> {
    for lane in lanes_of(lanes) {
        let (bits, mask) = (source(m, warp, i, 1, lane)?, source(m, warp, i, 2, lane)?);
        (0..7).filter(|p| mask >> p & 1 == 1).for_each(|p| warp.set_pred(p, lane, bits >> p & 1 == 1));
    }
    Ok(())
}

fn shuffle(m: &Machine<'_>, warp: &mut Warp, i: &Instruction, lanes: u32) -> Result<(), String> {
    let mut values = [0; LANES];
    for lane in lanes_of(lanes) {
        values[lane] = source(m, warp, i, 0, lane)?;
    }
    for lane in lanes_of(lanes) {
        let by = source(m, warp, i, 1, lane)? as usize;
        let from = match () {
            () if i.has("BFLY") => lane ^ by,
            () if i.has("IDX") => by & 31,
            () if i.has("DOWN") => lane + by,
            () => lane.wrapping_sub(by),
        };
        let value = values.get(from).copied().unwrap_or(values[lane]);
        write(warp, i, lane, &Output { words: vec![value], preds: vec![from < LANES] });
    }
    Ok(())
}

fn vote(m: &Machine<'_>, warp: &mut Warp, i: &Instruction, lanes: u32) -> Result<(), String> {
    let last = i.operands.last().ok_or("no vote")?;
    let mut votes = 0u32;
    for lane in lanes_of(lanes) {
        votes |= word(m, warp, last, lane)? << lane;
    }
    let all = votes == lanes;
    let pred = if i.has("ALL") { all } else { votes != 0 };
    let preds = vec![pred];
    let to = if i.is_uniform { u32::MAX } else { lanes };
    lanes_of(to).for_each(|lane| write(warp, i, lane, &Output { words: vec![votes], preds: preds.clone() }));
    Ok(())
}

pub fn address(warp: &Warp, place: &Place, lane: usize) -> u64 {
    let pair =
        |reg: u16| u64::from(register(warp, reg, lane)) | u64::from(register(warp, reg + 1, lane)) << 32;
    let mut at = place.offset as u64;
    if let Some(reg) = place.reg {
        let base = if place.is_wide && reg != RZ { pair(reg) } else { u64::from(register(warp, reg, lane)) };
        at = at.wrapping_add(base.wrapping_mul(u64::from(place.scale)));
    }
    if let Some(reg) = place.uniform {
        at = at.wrapping_add(if place.is_wide { pair(reg) } else { u64::from(register(warp, reg, lane)) });
    }
    if place.is_wide { at } else { u64::from(at as u32) }
}

/// Clocks of shared memory: each of its 32 banks gives one word per clock, to all lanes that read it (CUDA C++ Programming
/// Guide, "Shared Memory" of compute capability 5.x and after).
fn shared_clocks(of_lanes: &[(u64, u32)]) -> u32 {
    let mut words: Vec<u64> =
        of_lanes.iter().flat_map(|(at, n)| at / 4..(at + u64::from(*n)).div_ceil(4)).collect();
    words.sort_unstable();
    words.dedup();
    let mut banks = [0u32; 32];
    words.iter().for_each(|word| banks[(word % 32) as usize] += 1);
    banks.into_iter().max().unwrap_or(0)
}

fn matrices(m: &Machine<'_>, warp: &mut Warp, i: &Instruction, lanes: u32) -> Result<(), String> {
    let place = i.operands.iter().find_map(|operand| match operand {
        Operand::Memory(place) => Some(*place),
        _ => None,
    });
    let place = place.filter(|_| lanes == u32::MAX).ok_or("no place, or not by all lanes")?;
    let clocks = shared_clocks(&tensor::rows(warp, i, &place));
    warp.events.last_mut().ok_or("no event")?.shared_clocks = clocks;
    tensor::load(m, warp, i, &place)
}

fn memory(m: &mut Machine<'_>, warp: &mut Warp, i: &Instruction, lanes: u32) -> Result<(), String> {
    let places: Vec<Place> = i
        .operands
        .iter()
        .filter_map(|operand| match operand {
            Operand::Memory(place) => Some(*place),
            _ => None,
        })
        .collect();
    let (first, last) = (places.first().ok_or("no place")?, places.last().ok_or("no place")?);
    let (n, is_load) = (i.width(), i.op.starts_with("LD"));
    let is_global = ["LD", "LDG", "ST", "STG", "LDGSTS"].contains(&&i.op[..]);
    let mut sectors = Vec::new();
    let mut is_stream = false;
    let mut shared = Vec::new();
    for lane in lanes_of(lanes) {
        let at = address(warp, last, lane);
        if is_global {
            sectors.extend((at / 32..=(at + u64::from(n) - 1) / 32).collect::<Vec<_>>());
            is_stream |= m.region(at).is_some_and(|region| region.is_stream);
        }
        match &i.op[..] {
            "LDS" | "STS" => shared.push((at, n)),
            "LDGSTS" => shared.push((address(warp, first, lane), n)),
            _ => (),
        }
        match &i.op[..] {
            "LD" | "LDG" => load(warp, i, lane, m.load(at, n)?),
            "LDGSTS" => {
                let (word, to) = (m.load(at, n)?, address(warp, first, lane));
                (0..n).for_each(|b| {
                    m.shared[(to + u64::from(b)) as usize % (228 << 10)] = (word >> (8 * b)) as u8
                });
            }
            "ST" | "STG" => m.store(at, n, stored(m, warp, i, lane)?)?,
            "LDS" => {
                let byte = |b: u32| m.shared.get((at + u64::from(b)) as usize).copied().unwrap_or(0);
                load(warp, i, lane, (0..n).fold(0, |word, b| word | u128::from(byte(b)) << (8 * b)));
            }
            "STS" => {
                let word = stored(m, warp, i, lane)?;
                for b in 0..n {
                    *m.shared.get_mut((at + u64::from(b)) as usize).ok_or("past shared memory")? =
                        (word >> (8 * b)) as u8;
                }
            }
            "LDL" => {
                let byte = |b: u32| warp.local.get(&(lane, at + u64::from(b))).copied().unwrap_or(0);
                let word = (0..n).fold(0, |word, b| word | u128::from(byte(b)) << (8 * b));
                load(warp, i, lane, word);
            }
            _ => {
                let word = stored(m, warp, i, lane)?;
                warp.local.extend((0..n).map(|b| ((lane, at + u64::from(b)), (word >> (8 * b)) as u8)));
            }
        }
    }
    warp.events.last_mut().ok_or("no event")?.shared_clocks = shared_clocks(&shared);
    if is_global {
        sectors.sort_unstable();
        sectors.dedup();
        let access = Access { is_load, width: n, sectors, is_stream };
        warp.events.last_mut().ok_or("no event")?.access = Some(access);
    }
    Ok(())
}

fn load(warp: &mut Warp, i: &Instruction, lane: usize, word: u128) {
    let word = match i.width() {
        1 if i.has("S8") => (word as i8 as i32 as u32).into(),
        2 if i.has("S16") => (word as i16 as i32 as u32).into(),
        _ => word,
    };
    let words = (0..i.width().div_ceil(4)).map(|n| (word >> (32 * n)) as u32).collect();
    write(warp, i, lane, &Output { words, preds: Vec::new() });
}

/// What a store writes: registers from its last operand on.
fn stored(m: &Machine<'_>, warp: &Warp, i: &Instruction, lane: usize) -> Result<u128, String> {
    let Some(operand) = i.operands.last() else { return Err("no source".into()) };
    let Operand::Reg(reg, _) = operand else { return word(m, warp, operand, lane).map(u128::from) };
    let n = u16::try_from(i.width().div_ceil(4)).unwrap_or(1);
    let of = |n: u16| if *reg == RZ { 0 } else { u128::from(register(warp, reg + n, lane)) };
    Ok((0..n).fold(0, |word, n| word | of(n) << (32 * n)))
}
