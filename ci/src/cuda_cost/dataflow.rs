//! Which registers an instruction reads and writes. Predicates count as registers after the others.

use super::sass::{Instruction, Operand, PT, REGISTERS, RZ, URZ};

/// The number of a predicate among registers.
pub fn of_predicate(p: u16) -> u16 {
    REGISTERS as u16 + p
}

/// All numbers of registers and predicates are below this.
pub const ALL: usize = REGISTERS + 16;

/// Fills in what an instruction reads and writes.
pub fn find(i: &mut Instruction) {
    let n_results = n_results(i);
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    if let Some((p, _)) = i.guard {
        reads.push(of_predicate(p));
    }
    for (n, operand) in i.operands.iter().enumerate() {
        let list = if n < n_results { &mut writes } else { &mut reads };
        match operand {
            Operand::Reg(reg, _) => {
                let n_words = if n < n_results { result_words(i) } else { source_words(i, n) };
                list.extend((0..n_words).map(|word| reg + word).filter(|r| *r < REGISTERS as u16));
            }
            Operand::Pred(p, _) => list.push(of_predicate(*p)),
            Operand::Constant(_, Some(reg), ..) => list.push(*reg),
            Operand::Memory(place) => {
                reads.extend(place.reg);
                reads.extend(place.reg.filter(|_| place.is_wide).map(|reg| reg + 1));
                reads.extend(place.uniform);
                reads.extend(place.uniform.filter(|_| place.is_wide).map(|reg| reg + 1));
            }
            _ => (),
        }
    }
    if i.op == "R2P" {
        writes.extend((0..PT).map(of_predicate));
    }
    let is_fixed = |r: &u16| [RZ, URZ, of_predicate(PT), of_predicate(15)].contains(r);
    reads.retain(|r| !is_fixed(r));
    writes.retain(|r| !is_fixed(r));
    (i.reads, i.writes) = (reads, writes);
}

/// How many of the first operands are results: a register, and predicates before or after it; or two predicates.
pub fn n_results(i: &Instruction) -> usize {
    let is_pred = |n: usize| matches!(i.operands.get(n), Some(Operand::Pred(..)));
    let is_reg = |n: usize| matches!(i.operands.get(n), Some(Operand::Reg(..)));
    match &i.op[..] {
        "ST" | "STG" | "STS" | "STL" | "BRA" | "BRX" | "EXIT" | "RET" | "CALL" | "BSSY" | "BSYNC" | "BAR"
        | "NOP" | "WARPSYNC" | "BREAK" | "LDGSTS" | "DEPBAR" | "LDGDEPBAR" | "R2P" | "RED" | "MEMBAR"
        | "YIELD" => 0,
        "ISETP" | "FSETP" | "PLOP3" => 2,
        "FCHK" => 1,
        // A second predicate is a result where three sources follow.
        "IADD3" if is_pred(1) && is_pred(2) && i.operands.len() >= 6 => 3,
        "LOP3" if is_pred(0) => 2,
        "SHFL" if is_pred(0) => 2,
        "VOTE" => 1 + usize::from(is_reg(0) && is_pred(1) && i.operands.len() == 3),
        "IADD3" | "IMAD" | "LEA" if is_pred(1) => 2,
        _ => 1,
    }
}

fn result_words(i: &Instruction) -> u16 {
    match &i.op[..] {
        "LD" | "LDG" | "LDS" | "LDL" | "LDC" => u16::try_from(i.width().div_ceil(4)).unwrap_or(1),
        "LDSM" => super::tensor::n_matrices(i),
        "IMMA" => super::tensor::words(i).map_or(1, |words| words[2]),
        "IMAD" if i.has("WIDE") => 2,
        "CS2R" if !i.has("32") => 2,
        "F2I" if i.has("U64") || i.has("S64") => 2,
        _ => 1,
    }
}

fn source_words(i: &Instruction, n: usize) -> u16 {
    match &i.op[..] {
        "ST" | "STG" | "STS" | "STL" => u16::try_from(i.width().div_ceil(4)).unwrap_or(1),
        "IMMA" => super::tensor::words(i).map_or(1, |words| words[n - n_results(i)]),
        // The number that a 64-bit product is added to.
        "IMAD" if (i.has("WIDE") || i.has("HI")) && n >= n_results(i) + 2 => 2,
        "I2F" if i.has("U64") || i.has("S64") => 2,
        _ => 1,
    }
}
