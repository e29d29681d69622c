//! Training of predictors: scores = fc2 · relu(fc1 · x), one for each neuron, positive where the neuron is likely to fire.
//!
//! The loss is that of logistic regression, by neuron; neurons that fire weigh by how much they give, so that those are missed
//! last that matter most. Adam (arXiv 1412.6980) over minibatches.

use crate::Error;

/// What a layer computed of some tokens.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    /// Inputs of the predictor, [n_embd] for each token.
    pub x: &'a [f32],
    /// What its neurons gave, [n_ff] for each token; 0: the neuron did not fire.
    pub h: &'a [f32],
    /// Elements of an input.
    pub n_embd: usize,
    /// Neurons.
    pub n_ff: usize,
}

/// How a predictor is trained.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Numbers between the two matrices.
    pub rank: usize,
    /// Passes over the samples.
    pub epochs: usize,
    /// Of the first weights and the order of the samples: the same seed gives the same predictor.
    pub seed: u64,
}

/// One layer's predictor.
#[derive(Clone, PartialEq, Debug)]
pub struct Trained {
    /// [n_embd] for each of `rank` rows.
    pub fc1: Vec<f32>,
    /// [rank] for each neuron.
    pub fc2: Vec<f32>,
    rank: usize,
}

/// Tokens of a step of Adam.
const BATCH: usize = 16;
const RATE: f32 = 2e-3;

impl Samples<'_> {
    /// How many tokens there are.
    pub fn n(&self) -> usize {
        self.x.len() / self.n_embd.max(1)
    }

    fn token(&self, i: usize) -> (&[f32], &[f32]) {
        (&self.x[i * self.n_embd..][..self.n_embd], &self.h[i * self.n_ff..][..self.n_ff])
    }
}

impl Trained {
    /// Scores of all neurons for one input.
    pub fn scores(&self, x: &[f32]) -> Vec<f32> {
        let hidden = hidden(&self.fc1, x);
        self.fc2.chunks_exact(self.rank).map(|row| dot(row, &hidden)).collect()
    }
}

/// Trains a predictor; an error for samples whose sizes do not fit.
pub fn train(samples: &Samples<'_>, options: &Options) -> Result<Trained, Error> {
    let (n, Samples { n_embd, n_ff, .. }) = (samples.n(), *samples);
    if n == 0 || samples.x.len() != n * n_embd || samples.h.len() != n * n_ff || options.rank == 0 {
        let found = format!("{} inputs and {} values", samples.x.len(), samples.h.len());
        return Err(Error::Content { found, expected: "rows of n_embd and n_ff for one token or more" });
    }
    let mut random = Random(options.seed);
    // Inputs of a mean square of 1: the scale is a factor on fc1.
    let scale = (samples.x.iter().map(|x| f64::from(x * x)).sum::<f64>() / samples.x.len() as f64).sqrt();
    let scale = if scale > 0.0 { 1.0 / scale as f32 } else { 1.0 };
    let fired: Vec<f32> = samples.h.iter().map(|h| h.abs()).filter(|h| *h > 0.0).collect();
    let mean = fired.iter().sum::<f32>() / fired.len().max(1) as f32;
    let mut fc1 = Adam::new(random.normals(options.rank * n_embd, (2.0 / n_embd as f32).sqrt()));
    let mut fc2 = Adam::new(random.normals(n_ff * options.rank, (1.0 / options.rank as f32).sqrt()));

    let (mut order, n_steps) = ((0..n).collect::<Vec<_>>(), options.epochs * n.div_ceil(BATCH));
    let mut step = 0;
    for _ in 0..options.epochs {
        random.shuffle(&mut order);
        for batch in order.chunks(BATCH) {
            for &i in batch {
                let (x, h) = samples.token(i);
                let x: Vec<f32> = x.iter().map(|x| x * scale).collect();
                gradient(&x, h, mean, &mut fc1, &mut fc2);
            }
            step += 1;
            let rate = RATE * (1.0 - (step - 1) as f32 / n_steps as f32);
            fc1.step(step, rate, batch.len());
            fc2.step(step, rate, batch.len());
        }
    }
    fc1.weights.iter_mut().for_each(|w| *w *= scale);
    Ok(Trained { fc1: fc1.weights, fc2: fc2.weights, rank: options.rank })
}

/// The highest threshold with which neurons are picked that have this share of all weight; `scored`: scores and weights of neurons.
pub fn threshold(scored: &mut [(f32, f64)], share: f64) -> f32 {
    scored.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let required = share * scored.iter().map(|(_, weight)| weight).sum::<f64>();
    let mut sum = 0.0;
    let last = scored.iter().find(|(_, weight)| {
        sum += weight;
        sum >= required
    });
    last.or(scored.last()).map_or(f32::NEG_INFINITY, |(score, _)| *score)
}

/// relu(fc1 · x).
fn hidden(fc1: &[f32], x: &[f32]) -> Vec<f32> {
    fc1.chunks_exact(x.len()).map(|row| dot(row, x).max(0.0)).collect()
}

/// Adds the gradient of one token's loss.
fn gradient(x: &[f32], h: &[f32], mean: f32, fc1: &mut Adam, fc2: &mut Adam) {
    let hidden = hidden(&fc1.weights, x);
    let rank = hidden.len();
    let mut of_hidden = vec![0.0; rank];
    let rows = fc2.weights.chunks_exact(rank).zip(fc2.gradient.chunks_exact_mut(rank));
    for ((row, of_row), h) in rows.zip(h) {
        let of_score = of_score(dot(row, &hidden), *h, mean);
        add_scaled(&mut of_hidden, row, of_score);
        add_scaled(of_row, &hidden, of_score);
    }
    let rows = fc1.gradient.chunks_exact_mut(x.len()).zip(hidden.iter().zip(of_hidden));
    for (of_row, (_, of_hidden)) in rows.filter(|(_, (hidden, _))| **hidden > 0.0) {
        add_scaled(of_row, x, of_hidden);
    }
}

/// The derivative of the loss by the score of a neuron that gave `h`.
fn of_score(score: f32, h: f32, mean: f32) -> f32 {
    let likely = 1.0 / (1.0 + (-score).exp());
    match h == 0.0 {
        true => likely,
        false => -weight(h, mean) * (1.0 - likely),
    }
}

/// How much it counts that a neuron fired which gave `h`, where those that fire give `mean`.
fn weight(h: f32, mean: f32) -> f32 {
    1.0 + 2.0 * (h.abs() / mean).min(4.0)
}

/// Weights, their gradient, and its moving means.
struct Adam {
    weights: Vec<f32>,
    gradient: Vec<f32>,
    mean: Vec<f32>,
    square: Vec<f32>,
}

impl Adam {
    fn new(weights: Vec<f32>) -> Adam {
        let zeros = vec![0.0; weights.len()];
        Adam { gradient: zeros.clone(), mean: zeros.clone(), square: zeros, weights }
    }

    /// Moves the weights against the mean gradient of `n` tokens, and forgets it.
    fn step(&mut self, step: i32, rate: f32, n: usize) {
        let (first, second) = (1.0 - 0.9f32.powi(step), 1.0 - 0.999f32.powi(step));
        let moments = self.mean.iter_mut().zip(&mut self.square);
        let all = self.weights.iter_mut().zip(&mut self.gradient).zip(moments);
        for ((w, gradient), (mean, square)) in all {
            let g = *gradient / n as f32;
            *mean = 0.9 * *mean + 0.1 * g;
            *square = 0.999 * *square + 0.001 * g * g;
            *w -= rate * (*mean / first) / ((*square / second).sqrt() + 1e-8);
            *gradient = 0.0;
        }
    }
}

/// The dot product, in sixteen sums.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

/// y + x · factor.
fn add_scaled(y: &mut [f32], x: &[f32], factor: f32) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += x * factor);
}

/// Splitmix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Normal numbers of this deviation: sums of twelve even ones.
    fn normals(&mut self, n: usize, deviation: f32) -> Vec<f32> {
        let mut normal = || (0..12).map(|_| (self.next() >> 40) as f32 / (1 << 24) as f32).sum::<f32>() - 6.0;
        (0..n).map(|_| deviation * normal()).collect()
    }

    fn shuffle(&mut self, items: &mut [usize]) {
        for i in (1..items.len()).rev() {
            items.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N_EMBD: usize = 24;
    const N_FF: usize = 40;

    /// Tokens whose neurons fire by a small network of their own.
    fn samples(n: usize, seed: u64) -> (Vec<f32>, Vec<f32>) {
        let mut random = Random(seed);
        let gates = Random(99).normals(N_FF * N_EMBD, 1.0);
        let x = random.normals(n * N_EMBD, 3.0);
        let h = x.chunks_exact(N_EMBD).flat_map(|x| {
            let gates = gates.chunks_exact(N_EMBD);
            gates.map(|gate| (dot(gate, x) - 12.0).max(0.0)).collect::<Vec<_>>()
        });
        let h = h.collect();
        (x, h)
    }

    #[test]
    fn most_of_what_fires_is_found_among_few_neurons() {
        let (x, h) = samples(1500, 1);
        let options = Options { rank: 32, epochs: 20, seed: 3 };
        let all = Samples { x: &x, h: &h, n_embd: N_EMBD, n_ff: N_FF };
        let trained = train(&all, &options).unwrap();
        assert_eq!(trained, train(&all, &options).unwrap(), "the same seed");
        let (x, h) = samples(200, 2);
        let scores = x.chunks_exact(N_EMBD).flat_map(|x| trained.scores(x));
        let mut scored: Vec<_> = scores.zip(h.iter().map(|h| f64::from(*h))).collect();
        let threshold = threshold(&mut scored, 0.98);
        let is_picked = |(score, _): &&(f32, f64)| *score >= threshold;
        let found: f64 = scored.iter().filter(is_picked).map(|(_, h)| h).sum();
        let sum: f64 = h.iter().map(|h| f64::from(*h)).sum();
        let (picked, fired) =
            (scored.iter().filter(is_picked).count(), h.iter().filter(|h| **h > 0.0).count());
        assert!(found / sum >= 0.98, "{} of what neurons give is found", found / sum);
        assert!(fired * 6 > h.len() && picked * 5 < h.len() * 2, "{picked} picked, {fired} fire");
    }

    #[test]
    fn a_threshold_is_the_score_that_completes_the_share() {
        let mut scored = [(1.0, 2.0), (3.0, 5.0), (-1.0, 1.0), (2.0, 2.0)];
        for (share, expected) in [(0.5, 3.0), (0.6, 2.0), (0.9, 1.0), (1.0, -1.0), (0.0, 3.0)] {
            assert_eq!(threshold(&mut scored, share), expected, "{share}");
        }
        assert_eq!(threshold(&mut [], 0.5), f32::NEG_INFINITY);
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let (x, h) = samples(1, 5);
        let mut random = Random(8);
        let rank = 6;
        let [mut fc1, mut fc2] = [N_EMBD, N_FF].map(|n| Adam::new(random.normals(rank * n, 0.2)));
        let loss = |fc1: &[f32], fc2: &[f32]| -> f64 {
            let trained = Trained { fc1: fc1.to_vec(), fc2: fc2.to_vec(), rank };
            let of = |(score, h): (&f32, &f32)| match *h == 0.0 {
                true => f64::from(*score).exp().ln_1p(),
                false => f64::from(weight(*h, 2.0)) * f64::from(-*score).exp().ln_1p(),
            };
            trained.scores(&x).iter().zip(&h).map(of).sum()
        };
        gradient(&x, &h, 2.0, &mut fc1, &mut fc2);
        for i in [0, 7, 77, 140] {
            let mut moved = [fc1.weights.clone(), fc1.weights.clone()];
            moved[0][i] += 1e-2;
            moved[1][i] -= 1e-2;
            let slope = (loss(&moved[0], &fc2.weights) - loss(&moved[1], &fc2.weights)) / 2e-2;
            let found = f64::from(fc1.gradient[i]);
            assert!((slope - found).abs() < 0.02 * slope.abs().max(1.0), "fc1 {i}: {found}, slope {slope}");
            let mut moved = [fc2.weights.clone(), fc2.weights.clone()];
            moved[0][i] += 1e-2;
            moved[1][i] -= 1e-2;
            let slope = (loss(&fc1.weights, &moved[0]) - loss(&fc1.weights, &moved[1])) / 2e-2;
            let found = f64::from(fc2.gradient[i]);
            assert!((slope - found).abs() < 0.02 * slope.abs().max(1.0), "fc2 {i}: {found}, slope {slope}");
        }
    }

    #[test]
    fn samples_that_do_not_fit_are_refused() {
        let options = Options { rank: 4, epochs: 1, seed: 0 };
        for (x, h) in [(vec![], vec![]), (vec![0.0; 24], vec![0.0; 39]), (vec![0.0; 25], vec![0.0; 40])] {
            let samples = Samples { x: &x, h: &h, n_embd: N_EMBD, n_ff: N_FF };
            assert!(train(&samples, &options).is_err());
        }
    }
}
