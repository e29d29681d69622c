//! Two programs' numbers on the same parts of a text: their ratio, and what it decides.

/// How much worse than the peer's a number may be.
const BOUND: f64 = 0.01;
/// Divergences closer than this count as equal: the peer keeps its base as numbers of 16 bits and prints six digits.
const RESOLUTION: f64 = 2e-6;

/// What one program found in one part: the logarithm of the perplexity, and the mean divergence.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub loss: f64,
    pub kld: f64,
}

/// What both found in each part.
#[derive(Default)]
pub struct Row {
    pub ours: Vec<Found>,
    pub theirs: Vec<Found>,
}

/// Whether llmrt is within the bound; in order of how bad that is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// All ratios that the error allows are within.
    Within,
    /// Some are, some are not: the text is too short to decide.
    Undecided,
    /// None is.
    Beyond,
}

impl Verdict {
    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Within => "yes",
            Verdict::Undecided => "undecided",
            Verdict::Beyond => "no",
        }
    }

    /// What is known of a number that is `error` off at most, if the bound is the most it may be.
    fn of(number: f64, error: f64, bound: f64) -> Verdict {
        match () {
            () if number + error <= bound => Verdict::Within,
            () if number - error <= bound => Verdict::Undecided,
            () => Verdict::Beyond,
        }
    }
}

impl Row {
    /// A line of the table.
    pub fn text(&self, name: &str) -> String {
        let (ppl, kld) = (self.perplexity(), self.divergence());
        let ratio = match kld.theirs < RESOLUTION {
            true => "–".into(),
            false => format!("{:.3} ± {:.3}", kld.ratio, kld.error),
        };
        format!(
            "| {} | {:.4} | {:.4} | {:.4} ± {:.4} | {:.6} | {:.6} | {ratio} | {} |",
            name.to_uppercase(),
            ppl.ours,
            ppl.theirs,
            ppl.ratio,
            ppl.error,
            kld.ours,
            kld.theirs,
            self.verdict().name()
        )
    }

    /// Perplexities within the bound of each other, and a divergence that is not above the peer's by more, each with two
    /// standard errors to either side.
    pub fn verdict(&self) -> Verdict {
        let (ppl, kld) = (self.perplexity(), self.divergence());
        let perplexity = Verdict::of((ppl.ratio - 1.0).abs(), 2.0 * ppl.error, BOUND);
        let divergence = match kld.theirs < RESOLUTION {
            true => Verdict::of(kld.ours - kld.theirs, 0.0, RESOLUTION),
            false => Verdict::of(kld.ratio - 1.0, 2.0 * kld.error + RESOLUTION / kld.theirs, BOUND),
        };
        perplexity.max(divergence)
    }

    fn perplexity(&self) -> Compared {
        Compared::new(self, |found| found.loss, |mean| mean.exp())
    }

    fn divergence(&self) -> Compared {
        Compared::new(self, |found| found.kld, |mean| mean)
    }
}

/// A number of each program over all parts, and their ratio.
struct Compared {
    ours: f64,
    theirs: f64,
    ratio: f64,
    /// Standard error of the ratio: of what it is without each of the parts (the jackknife).
    error: f64,
}

impl Compared {
    fn new(row: &Row, of: impl Fn(&Found) -> f64, value: impl Fn(f64) -> f64) -> Compared {
        let without = |founds: &[Found], left_out: Option<usize>| {
            let kept = founds.iter().enumerate().filter(|(i, _)| Some(*i) != left_out);
            let n = founds.len() - usize::from(left_out.is_some());
            value(kept.map(|(_, found)| of(found)).sum::<f64>() / n.max(1) as f64)
        };
        let ratio = |left_out| without(&row.ours, left_out) / without(&row.theirs, left_out);
        let n = row.ours.len();
        let ratios: Vec<f64> = (0..n).map(|i| ratio(Some(i))).collect();
        let mean = ratios.iter().sum::<f64>() / n as f64;
        let spread = ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>();
        let error = (spread * (n as f64 - 1.0) / n as f64).sqrt();
        Compared {
            ours: without(&row.ours, None),
            theirs: without(&row.theirs, None),
            ratio: ratio(None),
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Divergences of each part, and what they decide.
    fn check(ours: &[f64], theirs: &[f64], expected: Verdict) {
        let founds = |klds: &[f64]| klds.iter().map(|&kld| Found { loss: 1.0, kld }).collect();
        let row = Row { ours: founds(ours), theirs: founds(theirs) };
        assert_eq!(row.verdict(), expected, "{ours:?} {theirs:?}: {}", row.text("q"));
    }

    #[test]
    fn a_loss_counts_where_all_parts_show_it() {
        check(&[0.0102, 0.0204], &[0.01, 0.02], Verdict::Beyond);
        check(&[0.0050, 0.0100], &[0.01, 0.02], Verdict::Within);
        check(&[0.0100, 0.0200], &[0.01, 0.02], Verdict::Within);
    }

    #[test]
    fn parts_that_differ_by_more_than_the_bound_decide_nothing() {
        check(&[0.0130, 0.0200], &[0.01, 0.02], Verdict::Undecided);
        check(&[0.0090, 0.0203], &[0.01, 0.02], Verdict::Undecided);
    }

    #[test]
    fn where_the_peer_shows_no_divergence_there_must_be_none() {
        check(&[1e-6, 1e-6], &[0.0, 0.0], Verdict::Within);
        check(&[1e-5, 1e-5], &[0.0, 0.0], Verdict::Beyond);
    }

    #[test]
    fn perplexities_must_be_near_on_either_side() {
        let row = |loss| Row {
            ours: vec![Found { loss, kld: 0.01 }; 2],
            theirs: vec![Found { loss: 1.0, kld: 0.01 }; 2],
        };
        let verdicts = [0.98, 0.995, 1.005, 1.02].map(|loss| row(loss).verdict());
        assert_eq!(verdicts, [Verdict::Beyond, Verdict::Within, Verdict::Within, Verdict::Beyond]);
    }
}
