//! Merges neighbours, best pair first, until no pair is left. O(n log n) for n symbols.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Joins neighbouring `symbols` for as long as `rule` gives a pair's priority and result. The highest priority goes
/// first, the leftmost among equals. BPE, SPM and llama2.c differ only in their rule.
pub(crate) fn merge<S: Copy + PartialEq, P: Ord>(
    symbols: &[S],
    rule: impl FnMut(S, S) -> Option<(P, S)>,
) -> Vec<S> {
    let mut chain = Chain::new(symbols, rule);
    for left in 1..symbols.len() {
        chain.offer(left - 1, left);
    }
    while let Some(best) = chain.queue.pop() {
        chain.join(best);
    }
    chain.nodes.into_iter().filter(|node| node.alive).map(|node| node.symbol).collect()
}

/// The symbols as a doubly linked list, with the pairs that may be joined.
struct Chain<S, P, F> {
    nodes: Vec<Node<S>>,
    queue: BinaryHeap<Pair<S, P>>,
    rule: F,
}

struct Node<S> {
    symbol: S,
    prev: usize,
    next: usize,
    alive: bool,
}

/// No neighbour on this side.
const END: usize = usize::MAX;

impl<S: Copy + PartialEq, P: Ord, F: FnMut(S, S) -> Option<(P, S)>> Chain<S, P, F> {
    fn new(symbols: &[S], rule: F) -> Self {
        let last = symbols.len().wrapping_sub(1);
        let node = |(at, symbol): (usize, &S)| Node {
            symbol: *symbol,
            prev: at.wrapping_sub(1), // END for the first
            next: if at == last { END } else { at + 1 },
            alive: true,
        };
        Self { nodes: symbols.iter().enumerate().map(node).collect(), queue: BinaryHeap::new(), rule }
    }

    fn offer(&mut self, left: usize, right: usize) {
        let was = (self.nodes[left].symbol, self.nodes[right].symbol);
        if let Some((priority, joined)) = (self.rule)(was.0, was.1) {
            self.queue.push(Pair { priority, left, was, joined });
        }
    }

    /// Joins the pair, unless one of its symbols has changed since it was offered.
    fn join(&mut self, pair: Pair<S, P>) {
        let left = pair.left;
        let right = self.nodes[left].next;
        if !self.nodes[left].alive || right == END {
            return;
        }
        if (self.nodes[left].symbol, self.nodes[right].symbol) != pair.was {
            return;
        }

        let after = self.nodes[right].next;
        self.nodes[right].alive = false;
        self.nodes[left].symbol = pair.joined;
        self.nodes[left].next = after;
        if after != END {
            self.nodes[after].prev = left;
            self.offer(left, after);
        }
        let before = self.nodes[left].prev;
        if before != END {
            self.offer(before, left);
        }
    }
}

/// Two neighbours, the left one's place, and what they would become.
struct Pair<S, P> {
    priority: P,
    left: usize,
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
    use std::cmp::Reverse;

    /// Symbols are (start, length) spans of `text`; `rules` are the pieces that may be made, best first.
    fn check(text: &str, rules: &[&str], expected: &str) {
        let symbols: Vec<(usize, usize)> = (0..text.len()).map(|at| (at, 1)).collect();
        let merged = merge(&symbols, |left, right| {
            let joined = (left.0, left.1 + right.1);
            let rank = rules.iter().position(|r| *r == &text[joined.0..joined.0 + joined.1])?;
            Some((Reverse(rank), joined))
        });
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
