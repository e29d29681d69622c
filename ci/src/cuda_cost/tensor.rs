//! Instructions that the lanes of a warp execute together on matrices: products of bytes, and loads of matrices from shared
//! memory. Who has which number: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix".

use super::execute::Output;
use super::execute::{address, lanes_of, register, write};
use super::machine::{Machine, Warp};
use super::sass::{Instruction, Operand, Place};

const LANES: usize = 32;

/// Words of a lane of a, b and c, of a product of so many numbers each.
pub fn words(i: &Instruction) -> Option<[u16; 3]> {
    match () {
        () if i.has("16816") => Some([2, 1, 4]),
        () => None,
    }
}

/// c + a b of signed bytes: a has rows place and place + 8 of 16 columns.
pub fn product(warp: &mut Warp, i: &Instruction, lanes: u32) -> Result<(), String> {
    let [n_a, n_b, n_c] = words(i).ok_or("no such shape")?;
    if lanes != u32::MAX || i.mods.iter().filter(|m| *m == "S8").count() != 2 {
        return Err("only of signed bytes, and by all lanes".into());
    }
    let reg = |n: usize| match i.operands.get(n) {
        Some(Operand::Reg(reg, _)) => Ok(*reg),
        _ => Err(format!("operand {n} is no register")),
    };
    let (a, b, c) = (reg(1)?, reg(2)?, reg(3)?);
    let word = |reg: u16, n: u16, lane: usize| register(warp, next(reg, n), lane);
    let dot = |x: u32, y: u32| (0..4).map(|k| byte(x, k) * byte(y, k)).fold(0i32, i32::wrapping_add);
    let mut results = Vec::new();
    for lane in 0..LANES {
        let mut sums = Vec::new();
        for j in 0..n_c {
            let (row, column) = (lane / 4, lane % 4 * 2 + usize::from(j % 2));
            let mut sum = word(c, j, lane) as i32;
            for (quarter, depth) in (0..4).flat_map(|quarter| (0..n_b).map(move |depth| (quarter, depth))) {
                let x = word(a, depth * (n_a / n_b) + j / 2, row * 4 + quarter);
                sum = sum.wrapping_add(dot(x, word(b, depth, column * 4 + quarter)));
            }
            sums.push(sum as u32);
        }
        results.push(sums);
    }
    for (lane, words) in results.into_iter().enumerate() {
        write(warp, i, lane, &Output { words, preds: Vec::new() });
    }
    Ok(())
}

/// Matrices of 8 by 8 halves, of which lanes 8 n and on give where the rows of number n begin; turned: columns.
pub fn load(m: &Machine<'_>, warp: &mut Warp, i: &Instruction, place: &Place) -> Result<(), String> {
    let starts: Vec<u64> = (0..LANES).map(|lane| address(warp, place, lane)).collect();
    let half = |at: u64| {
        let byte = |at: u64| m.shared.get(at as usize).copied().map(u32::from).ok_or("past shared memory");
        Ok::<_, String>(byte(at)? | byte(at + 1)? << 8)
    };
    let is_turned = i.has("MT88");
    for lane in 0..LANES {
        let mut words = Vec::new();
        for matrix in 0..n_matrices(i) {
            let number = |n: usize| {
                let (row, column) = (lane / 4, lane % 4 * 2 + n);
                let (row, column) = if is_turned { (column, row) } else { (row, column) };
                half(starts[8 * usize::from(matrix) + row] + 2 * column as u64)
            };
            words.push(number(0)? | number(1)? << 16);
        }
        write(warp, i, lane, &Output { words, preds: Vec::new() });
    }
    Ok(())
}

/// Matrices that a load brings, a word of a lane each.
pub fn n_matrices(i: &Instruction) -> u16 {
    if i.has("4") {
        4
    } else if i.has("2") {
        2
    } else {
        1
    }
}

/// The addresses and bytes of a load's rows.
pub fn rows(warp: &Warp, i: &Instruction, place: &Place) -> Vec<(u64, u32)> {
    lanes_of(u32::MAX >> (32 - 8 * u32::from(n_matrices(i))))
        .map(|lane| (address(warp, place, lane), 16))
        .collect()
}

fn next(reg: u16, n: u16) -> u16 {
    if reg == super::sass::RZ { reg } else { reg + n }
}

fn byte(word: u32, k: u32) -> i32 {
    i32::from((word >> (8 * k)) as i8)
}
