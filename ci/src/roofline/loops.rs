//! Loops of a function in the compiler's assembly.

use std::ops::RangeInclusive;

/// Most turns of a loop inside of another that are tried.
const MAX_TURNS: usize = 16;

/// The lines of the first function whose symbol contains all words.
pub fn function<'a>(assembly: &'a str, words: &[impl AsRef<str>]) -> Option<Vec<&'a str>> {
    let mut lines = assembly.lines().skip_while(|line| {
        let symbol = line.strip_suffix(':').filter(|symbol| symbol.starts_with("_R"));
        !symbol.is_some_and(|symbol| words.iter().all(|word| symbol.contains(word.as_ref())))
    });
    lines.next()?;
    Some(lines.take_while(|line| !line.starts_with(".Lfunc_end")).map(str::trim).collect())
}

/// One turn of the shortest loop that has `n` of an instruction and, if that is not 0, as many as given of another. Loops inside that have some of it are repeated,
/// all equally often; others, which prefetch, are left out.
pub fn one_turn<'a>(
    lines: &[&'a str],
    instruction: &str,
    n: usize,
    with: (&str, usize),
) -> Option<Vec<&'a str>> {
    let loops = loops(lines);
    let turns = |at: &&Loop| (1..=MAX_TURNS).find(|turns| total(lines, &loops, at, instruction, *turns) == n);
    let fitting = loops.iter().filter_map(|at| Some(expand(lines, &loops, at, instruction, turns(&at)?)));
    fitting.filter(|body| with.1 == 0 || count(body, with.0) == with.1).min_by_key(Vec::len)
}

/// How often an instruction, or one whose name begins like that, is among lines.
pub fn count(lines: &[&str], instruction: &str) -> usize {
    lines.iter().filter(|line| line.trim_start_matches("{vex}").trim_start().starts_with(instruction)).count()
}

/// How many operate on vectors: not loads, stores, copies, zeros, and broadcasts from memory, which take none of those ports.
pub fn operations(lines: &[&str]) -> usize {
    let is_move = |line: &str| {
        line.starts_with("vmov")
            || line.starts_with("vpxor")
            || line.contains("broadcast") && line.contains('(')
    };
    lines.iter().filter(|line| line.starts_with(['v', '{']) && !is_move(line)).count()
}

/// Lines from a label to the last jump back to it.
type Loop = RangeInclusive<usize>;

fn loops(lines: &[&str]) -> Vec<Loop> {
    let jumps =
        |line: &str, label: &str| line.starts_with('j') && line.split_whitespace().nth(1) == Some(label);
    let label = |(at, line): (usize, &&str)| {
        let label = line.strip_suffix(':').filter(|label| label.starts_with(".LBB"))?;
        let back = (at..lines.len()).rev().find(|i| jumps(lines[*i], label))?;
        Some(at..=back)
    };
    lines.iter().enumerate().filter_map(label).collect()
}

/// The loop's own lines, and the loops directly inside.
fn parts<'a>(loops: &'a [Loop], at: &Loop) -> (Vec<usize>, Vec<&'a Loop>) {
    let (mut own, mut inside, mut i) = (Vec::new(), Vec::new(), *at.start());
    while i <= *at.end() {
        match loops.iter().find(|l| *l.start() == i && *l != at && l.end() <= at.end()) {
            Some(l) => (i, _) = (l.end() + 1, inside.push(l)),
            None => (i, _) = (i + 1, own.push(i)),
        }
    }
    (own, inside)
}

/// How often an instruction is in a loop, where each loop inside has so many turns.
fn total(lines: &[&str], loops: &[Loop], at: &Loop, instruction: &str, turns: usize) -> usize {
    let (own, inside) = parts(loops, at);
    let of_inside: usize = inside.into_iter().map(|l| total(lines, loops, l, instruction, turns)).sum();
    own.into_iter().filter(|i| count(&lines[*i..=*i], instruction) > 0).count() + turns * of_inside
}

/// The instructions of a loop, those of loops inside repeated if they have `instruction`.
fn expand<'a>(lines: &[&'a str], loops: &[Loop], at: &Loop, instruction: &str, turns: usize) -> Vec<&'a str> {
    let (own, inside) = parts(loops, at);
    let is_instruction = |line: &str| !line.is_empty() && !line.starts_with(['.', '#']);
    let mut body: Vec<(usize, Vec<&str>)> = own.into_iter().map(|i| (i, vec![lines[i]])).collect();
    body.retain(|(_, line)| is_instruction(line[0]));
    for l in inside.into_iter().filter(|l| total(lines, loops, l, instruction, turns) > 0) {
        body.push((*l.start(), expand(lines, loops, l, instruction, turns).repeat(turns)));
    }
    body.sort_by_key(|(at, _)| *at);
    body.into_iter().flat_map(|(_, lines)| lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASSEMBLY: &str = "\
_RINvNtC4crate4avx2NtB3_2Q4E:
\t.cfi_startproc
.LBB0_1:
\tmovq %rax, %rbx
.LBB0_2:
\tprefetcht0 (%rax)
\tjne .LBB0_2
.LBB0_3:
\tvmul a
\tvmul b
\tjne .LBB0_3
\tvadd c
\tjne .LBB0_1
.LBB0_4:
\tvmul d
\tjne .LBB0_4
\tretq
.Lfunc_end0:
_RINvNtC4crate4avx2NtB3_2Q5E:
";

    fn check(n: usize, with: (&str, usize), turn: &str) {
        let lines = function(ASSEMBLY, &["4avx2", "Q4"]).unwrap();
        let found = one_turn(&lines, "vmul", n, with).unwrap_or_default();
        assert_eq!(found.join("; "), turn);
    }

    #[test]
    fn the_shortest_loop_is_taken_and_those_inside_are_repeated() {
        check(1, ("", 0), "vmul d; jne .LBB0_4");
        check(2, ("", 0), "vmul a; vmul b; jne .LBB0_3");
        let twice = "vmul a; vmul b; jne .LBB0_3; vmul a; vmul b; jne .LBB0_3";
        check(4, ("", 0), &format!("movq %rax, %rbx; {twice}; vadd c; jne .LBB0_1"));
        check(2, ("vadd", 1), "movq %rax, %rbx; vmul a; vmul b; jne .LBB0_3; vadd c; jne .LBB0_1");
        check(3, ("", 0), "");
    }

    #[test]
    fn moves_and_broadcasts_from_memory_are_no_operations() {
        assert_eq!(
            operations(&[
                "vmovups (%rax), %ymm1",
                "vpbroadcastd 4(%rax), %ymm2",
                "{vex} vpdpbusd a",
                "jne x"
            ]),
            1
        );
    }

    #[test]
    fn a_function_that_is_not_there_gives_nothing() {
        assert!(function(ASSEMBLY, &["avx2", "Q8"]).is_none());
    }
}
