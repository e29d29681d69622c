//! When a search ends.

use super::*;

/// The number of beams left after a step in which one of two beams may end with this log-probability.
fn left(early_stopping: EarlyStopping, length_penalty: f64, ending: f64, going_on: f64) -> usize {
    let params = BeamParams { length_penalty, early_stopping };
    let mut search = BeamSearch::new(params, 2, 4, 8);
    let beam = |sequence| Beam { sequence, tokens: vec![7], cumulative_logprob: -1.0 };
    let top = |token, logprob| TokenLogprob { token, logprob };
    let tops = vec![vec![top(0, ending), top(1, going_on)], vec![top(0, ending), top(1, going_on)]];
    search.next(&[beam(1), beam(2)], &tops, |token| token == 0).len()
}

#[test]
fn a_search_with_enough_texts_ends_by_its_rule() {
    assert_eq!(left(EarlyStopping::Always, 1.0, -9.0, -0.1), 0);
    assert_eq!(left(EarlyStopping::Likely, 1.0, -9.0, -0.1), 2, "a beam is better");
    assert_eq!(left(EarlyStopping::Likely, 1.0, -0.1, -9.0), 0, "no beam is better");
    // −1.1 / 5 is worse than −1.5 / 6, but at most 8 tokens make it −1.5 / 12.
    assert_eq!(left(EarlyStopping::Likely, 1.0, -0.1, -0.5), 0);
    assert_eq!(left(EarlyStopping::Never, 1.0, -0.1, -0.5), 2);
    assert_eq!(left(EarlyStopping::Never, 0.0, -0.1, -0.5), 0, "length changes nothing");
}
