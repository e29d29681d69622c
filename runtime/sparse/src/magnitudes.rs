//! Magnitudes of many numbers, in a table of bounded size, and their quantiles.

/// Bins: a number's exponent and the first seven bits of its fraction.
const BINS: usize = 1 << 15;

/// How many numbers have which magnitude, to 0.8 %.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Magnitudes {
    counts: Vec<u64>,
    n: u64,
}

impl Default for Magnitudes {
    fn default() -> Magnitudes {
        Magnitudes { counts: vec![0; BINS], n: 0 }
    }
}

impl Magnitudes {
    /// Counts these numbers; those that are not finite are left out.
    pub fn add(&mut self, numbers: &[f32]) {
        for x in numbers.iter().filter(|x| x.is_finite()) {
            self.counts[(x.abs().to_bits() >> 16) as usize] += 1;
            self.n += 1;
        }
    }

    /// `n` + 1 quantiles, evenly spaced from the least magnitude to the greatest; none without numbers. Within a bin numbers count
    /// as evenly spread.
    pub fn quantiles(&self, n: usize) -> Vec<f32> {
        if self.n == 0 || n == 0 {
            return Vec::new();
        }
        let mut bins = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let (mut bin, mut before) = (bins.next(), 0);
        let quantile = |i: usize| {
            let rank = self.n as f64 * i as f64 / n as f64;
            while let Some((_, &count)) = bin
                && (before + count) as f64 <= rank
                && before + count < self.n
            {
                before += count;
                bin = bins.next();
            }
            let (at, &count) = bin?;
            let edge = |at: usize| f64::from(f32::from_bits((at as u32) << 16));
            let part = (rank - before as f64) / count as f64;
            // The least number is at the lower edge of its bin; above the last bin is infinity.
            let upper = if at + 1 < 0x7f80 { edge(at + 1) } else { edge(at) };
            Some((edge(at) + part.clamp(0.0, 1.0) * (upper - edge(at))) as f32)
        };
        (0..=n).map_while(quantile).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_all_numbers_to_a_percent() {
        let mut magnitudes = Magnitudes::default();
        let numbers: Vec<f32> =
            (1..=100_000).map(|i| i as f32 * if i % 2 == 0 { 0.01 } else { -0.01 }).collect();
        numbers.chunks(777).for_each(|part| magnitudes.add(part));
        magnitudes.add(&[f32::NAN, f32::INFINITY]);
        let found = magnitudes.quantiles(100);
        assert_eq!(found.len(), 101);
        for (i, x) in found.iter().enumerate().skip(1) {
            let expected = 10.0 * i as f32;
            assert!((x - expected).abs() < 0.01 * expected, "quantile {i}: {x}, expected {expected}");
        }
        assert!(found.is_sorted());
    }

    #[test]
    fn of_zeros_all_quantiles_are_zero_and_of_nothing_there_are_none() {
        let mut magnitudes = Magnitudes::default();
        assert!(magnitudes.quantiles(10).is_empty());
        magnitudes.add(&[0.0, -0.0, 0.0]);
        let found = magnitudes.quantiles(4);
        assert_eq!(found.len(), 5);
        assert!(found[..4].iter().all(|x| *x < 1e-37), "{found:?}");
    }
}
