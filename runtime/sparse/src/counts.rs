//! How often each neuron was active.

use crate::Error;
use crate::pt::Pt;

/// One layer's counts, by neuron: numbers of at least 0. Whole numbers where tokens were counted, but shares are
/// accepted too, since only their ratios matter.
#[derive(Clone, PartialEq, Debug)]
pub struct Counts(Vec<f64>);

impl Counts {
    /// Counts that are all numbers of at least 0.
    pub fn new(counts: Vec<f64>) -> Result<Counts, Error> {
        let bad = counts.iter().enumerate().find(|(_, n)| !(n.is_finite() && **n >= 0.0));
        match bad {
            Some((neuron, &found)) => Err(Error::BadCount { neuron, found }),
            None => Ok(Counts(counts)),
        }
    }

    /// The one tensor of an `activation_<layer>.pt`.
    pub fn from_pt(file: &[u8]) -> Result<Counts, Error> {
        let pt = Pt::parse(file)?;
        let tensor = pt.tensor()?;
        if tensor.sizes.iter().filter(|&&n| n != 1).count() > 1 {
            let found = format!("a tensor of sizes {:?}", tensor.sizes);
            return Err(Error::Content { found, expected: "one count for each neuron" });
        }
        Counts::new(tensor.to_f64s(file))
    }

    /// Refuses counts of a layer that has another number of neurons.
    pub fn check_n_ff(&self, expected: usize) -> Result<(), Error> {
        match self.0.len() {
            found if found == expected => Ok(()),
            found => Err(Error::WrongCounts { found, expected }),
        }
    }

    /// The counts by neuron.
    pub fn as_slice(&self) -> &[f64] {
        &self.0
    }

    /// Each neuron with the mean of its block of so many, which therefore stays together in [`Counts::order`].
    pub fn by_blocks(&self, size: usize) -> Counts {
        let of_block = |block: &[f64]| {
            // Rounding may pass the largest number.
            let mean = block.iter().map(|n| n / block.len() as f64).sum::<f64>().min(f64::MAX);
            std::iter::repeat_n(mean, block.len())
        };
        Counts(self.0.chunks(size.max(1)).flat_map(of_block).collect())
    }

    /// The sum over all neurons.
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    /// Neurons by count, most active first; of equals the lowest id.
    pub fn order(&self) -> Vec<u32> {
        self.ranked().into_iter().map(|(_, neuron)| neuron).collect()
    }

    /// The counts, most first.
    pub fn sorted(&self) -> Vec<f64> {
        self.ranked().into_iter().map(|(key, _)| f64::from_bits(!key)).collect()
    }

    /// (inverted bits, neuron), ascending. The bits of numbers of at least 0 are in their order.
    fn ranked(&self) -> Vec<(u64, u32)> {
        let key = |(i, n): (usize, &f64)| (!(n + 0.0).to_bits(), i as u32); // + 0.0: no negative zero
        let mut ranked: Vec<_> = self.0.iter().enumerate().map(key).collect();
        ranked.sort_unstable();
        ranked
    }

    /// The `k` most active neurons, by id.
    pub fn hottest(&self, k: usize) -> Vec<u32> {
        let mut hot = self.order();
        hot.truncate(k);
        hot.sort_unstable();
        hot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_neurons_the_lowest_comes_first() {
        let counts = Counts::new(vec![1.0, 3.0, 0.0, 3.0, -0.0, 0.5]).unwrap();
        assert_eq!(counts.order(), [1, 3, 0, 5, 2, 4]);
        assert_eq!(counts.sorted(), [3.0, 3.0, 1.0, 0.5, 0.0, 0.0]);
        assert_eq!(counts.hottest(3), [0, 1, 3]);
    }

    #[test]
    fn blocks_stay_together() {
        let counts = Counts::new(vec![0.0, 2.0, 9.0, 0.0, 1.0, 1.0, 3.0]).unwrap();
        assert_eq!(counts.by_blocks(2).as_slice(), [1.0, 1.0, 4.5, 4.5, 1.0, 1.0, 3.0]);
        assert_eq!(counts.by_blocks(2).order(), [2, 3, 6, 0, 1, 4, 5]);
        assert_eq!(counts.by_blocks(1), counts);
        let large = Counts::new(vec![f64::MAX; 3]).unwrap();
        assert!(large.by_blocks(3).as_slice().iter().all(|n| n.is_finite()));
    }

    #[test]
    fn what_is_no_count_is_refused() {
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            let e = Counts::new(vec![0.0, bad]).unwrap_err();
            assert!(e.to_string().contains("neuron 1 has a count of"), "{e}");
        }
    }
}
