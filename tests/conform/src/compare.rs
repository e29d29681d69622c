//! How far a result is from the one expected.

use crate::outcome::{Verdict, wrong};
use llmrt_graph::TensorDef;
use llmrt_graph::ops::value::Value;

/// How two results differ.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Difference {
    /// Σ (a - b)² / Σ a² with a expected; equal infinities left out; infinite where one is not finite and the other
    /// differs, or integers differ.
    pub nmse: f64,
    /// Largest |a - b|.
    pub max_abs: f64,
    /// The element with the largest, innermost dim first.
    pub worst: [u64; 4],
    /// What was expected there.
    pub expected: f64,
    /// What was found there.
    pub found: f64,
}

/// Compares the elements of a tensor in the bytes of the tensors that own them.
pub fn difference(def: &TensorDef, expected: &[u8], found: &[u8]) -> Difference {
    let (a, b) = (Value::decode(def, expected), Value::decode(def, found));
    if a.ints().is_empty() && b.ints().is_empty() {
        let (a, b) = (a.floats().iter(), b.floats().iter());
        return floats(def.ne, a.map(|&v| f64::from(v)), b.map(|&v| f64::from(v)));
    }
    if a == b {
        return Difference::default();
    }
    let (a, b) = (a.ints().iter(), b.ints().iter());
    Difference { nmse: f64::INFINITY, ..floats(def.ne, a.map(|&v| f64::from(v)), b.map(|&v| f64::from(v))) }
}

/// Of two results of shape `ne`.
fn floats(ne: [u64; 4], a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> Difference {
    let mut d = Difference { max_abs: -1.0, ..Difference::default() };
    let (mut error, mut size) = (0.0, 0.0);
    for (i, (a, b)) in a.zip(b).enumerate() {
        if a == b && !a.is_finite() || a.is_nan() && b.is_nan() {
            continue;
        }
        let gap = if a.is_finite() && b.is_finite() { (a - b).abs() } else { f64::INFINITY };
        error += gap * gap;
        size += if a.is_finite() { a * a } else { 0.0 };
        if gap > d.max_abs {
            d = Difference { max_abs: gap, worst: index(ne, i), expected: a, found: b, ..d };
        }
    }
    d.max_abs = d.max_abs.max(0.0);
    d.nmse = match (error == 0.0, error.is_infinite() || size == 0.0) {
        (true, _) => 0.0,
        (_, true) => f64::INFINITY,
        _ => error / size,
    };
    d
}

/// Where the i-th element of a tensor of shape `ne` is.
fn index(ne: [u64; 4], i: usize) -> [u64; 4] {
    let mut rest = i as u64;
    ne.map(|n| {
        let at = rest % n.max(1);
        rest /= n.max(1);
        at
    })
}

/// Fails if the difference is over the limit.
pub fn check(d: &Difference, limit: f64) -> Verdict {
    if d.nmse <= limit {
        return Ok(());
    }
    wrong(format!(
        "NMSE {:.2e}, at most {limit:.0e}; element {:?} is {}, expected {} (largest difference {:.3e})",
        d.nmse, d.worst, d.found, d.expected, d.max_abs
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(a: &[f64], b: &[f64], nmse: f64) {
        let ne = [a.len() as u64, 1, 1, 1];
        assert_eq!(floats(ne, a.iter().copied(), b.iter().copied()).nmse, nmse, "{a:?} {b:?}");
    }

    #[test]
    fn what_is_not_finite_must_be_equal() {
        check(&[1.0, f64::NEG_INFINITY], &[1.0, f64::NEG_INFINITY], 0.0);
        check(&[1.0, f64::NAN], &[1.0, f64::NAN], 0.0);
        check(&[1.0, 2.0], &[1.0, f64::NAN], f64::INFINITY);
        check(&[1.0, f64::INFINITY], &[1.0, 2.0], f64::INFINITY);
    }

    #[test]
    fn the_worst_element_is_named_by_its_place_in_each_dim() {
        assert_eq!(index([3, 2, 4, 1], 0), [0, 0, 0, 0]);
        assert_eq!(index([3, 2, 4, 1], 11), [2, 1, 1, 0]);
    }

    #[test]
    fn errors_count_against_the_size_of_the_expected() {
        check(&[3.0, 4.0], &[3.0, 4.5], 0.01);
        check(&[0.0], &[0.0], 0.0);
        check(&[0.0], &[1e-9], f64::INFINITY);
    }
}
