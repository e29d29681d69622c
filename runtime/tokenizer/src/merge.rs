//! Merges neighbours, best pair first, until no pair is left. O(n log n) for n symbols.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::error::{Error, Result};
use crate::limits::{MAX_WORD, Output, out_of_memory, reserve};

/// Joins neighbouring `symbols` for as long as `rule` gives a pair's priority and result, and gives what is left to
/// `visit`. The highest priority goes first, the leftmost among equals. BPE, SPM and llama2.c differ only in their rule.
pub(crate) fn merge<S: Copy + PartialEq, P: Ord>(
    symbols: impl ExactSizeIterator<Item = S>,
    rule: impl FnMut(S, S) -> Option<(P, S)>,
    output: &mut Output,
    mut visit: impl FnMut(S, &mut Output) -> Result<()>,
) -> Result<()> {
    let n = symbols.len();
    if n > MAX_WORD {
        return Err(Error::LongWord { found: n, most: MAX_WORD });
    }
    let mut chain = Chain::new(symbols, rule)?;
    for left in 1..n as u32 {
        chain.offer(left - 1, left)?;
        output.step()?;
    }
    while let Some(best) = chain.queue.pop() {
        chain.join(best)?;
        output.step()?;
    }
    drop(chain.queue);
    chain.nodes.into_iter().filter(|node| node.alive).try_for_each(|node| visit(node.symbol, output))
}

/// The symbols as a doubly linked list, with the pairs that may be joined.
struct Chain<S, P, F> {
    nodes: Vec<Node<S>>,
    queue: BinaryHeap<Pair<S, P>>,
    rule: F,
}

struct Node<S> {
    symbol: S,
    prev: u32,
    next: u32,
    alive: bool,
}

/// No neighbour on this side.
const END: u32 = u32::MAX;

impl<S: Copy + PartialEq, P: Ord, F: FnMut(S, S) -> Option<(P, S)>> Chain<S, P, F> {
    fn new(symbols: impl ExactSizeIterator<Item = S>, rule: F) -> Result<Self> {
        let mut nodes = Vec::new();
        reserve(&mut nodes, symbols.len())?;
        nodes.extend((0..).zip(symbols).map(|(at, symbol)| Node {
            symbol,
            prev: u32::wrapping_sub(at, 1), // END for the first
            next: at + 1,
            alive: true,
        }));
        if let Some(last) = nodes.last_mut() {
            last.next = END;
        }
        Ok(Self { nodes, queue: BinaryHeap::new(), rule })
    }

    fn node(&mut self, at: u32) -> &mut Node<S> {
        &mut self.nodes[at as usize]
    }

    fn offer(&mut self, left: u32, right: u32) -> Result<()> {
        let was = (self.node(left).symbol, self.node(right).symbol);
        if let Some((priority, joined)) = (self.rule)(was.0, was.1) {
            let n = self.queue.len() + 1;
            self.queue.try_reserve(1).map_err(|_| out_of_memory::<Pair<S, P>>(n))?;
            self.queue.push(Pair { priority, left, was, joined });
        }
        Ok(())
    }

    /// Joins the pair, unless one of its symbols has changed since it was offered.
    fn join(&mut self, pair: Pair<S, P>) -> Result<()> {
        let left = pair.left;
        let right = self.node(left).next;
        if !self.node(left).alive || right == END {
            return Ok(());
        }
        if (self.node(left).symbol, self.node(right).symbol) != pair.was {
            return Ok(());
        }

        let after = self.node(right).next;
        self.node(right).alive = false;
        self.node(left).symbol = pair.joined;
        self.node(left).next = after;
        if after != END {
            self.node(after).prev = left;
            self.offer(left, after)?;
        }
        let before = self.node(left).prev;
        if before != END {
            self.offer(before, left)?;
        }
        Ok(())
    }
}

/// Two neighbours, the left one's place, and what they would become.
struct Pair<S, P> {
    priority: P,
    left: u32,
    was: (S, S),
    joined: S,
}

impl<S, P: Ord> Ord for Pair<S, P> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.priority.cmp(&other.priority).then(other.left.cmp(&self.left))
    }
}

impl<S, P: Ord> PartialOrd for Pair<S, P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S, P: Ord> PartialEq for Pair<S, P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<S, P: Ord> Eq for Pair<S, P> {}

/// A token's score as a priority; the two zeros are equal.
#[derive(Clone, Copy)]
pub(crate) struct Score(pub f32);

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0 + 0.0).total_cmp(&(other.0 + 0.0))
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

#[cfg(test)]
mod tests {
    use super::merge;
    use crate::limits::{Limits, Output};
    use std::cmp::Reverse;

    /// Symbols are (start, length) spans of `text`; `rules` are the pieces that may be made, best first.
    fn check(text: &str, rules: &[&str], expected: &str) {
        let symbols: Vec<(usize, usize)> = (0..text.len()).map(|at| (at, 1)).collect();
        let rule = |left: (usize, usize), right: (usize, usize)| {
            let joined = (left.0, left.1 + right.1);
            let rank = rules.iter().position(|r| *r == &text[joined.0..joined.0 + joined.1])?;
            Some((Reverse(rank), joined))
        };
        let mut merged = Vec::new();
        let mut output = Output::new(Limits::NONE);
        let visit = |symbol, _: &mut Output| {
            merged.push(symbol);
            Ok(())
        };
        merge(symbols.into_iter(), rule, &mut output, visit).expect("a short word");
        let pieces: Vec<&str> = merged.iter().map(|(at, len)| &text[*at..at + len]).collect();
        assert_eq!(pieces.join("|"), expected);
    }

    #[test]
    fn the_best_pair_goes_first() {
        check("abc", &["bc", "ab"], "a|bc");
    }

    #[test]
    fn equal_pairs_go_left_to_right() {
        check("aaaaa", &["aa", "aaaa"], "aaaa|a");
    }

    #[test]
    fn a_joined_pair_can_join_again_on_both_sides() {
        check("xabcy", &["bc", "abc", "xabc", "xabcy"], "xabcy");
    }

    #[test]
    fn nothing_and_one_symbol_stay_as_they_are() {
        check("", &["a"], "");
        check("a", &["a"], "a");
    }
}
