//! Random weights of any type, fast: rows are cut out of one long stretch of random numbers.

use super::rare::{N_CONSTANT, Rarity, normal_quantile};
use super::shape::{Channels, Content, Part};
use llmrt_abi::DType;
use llmrt_gguf::TensorShape;
use llmrt_graph::quant;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;

/// Numbers in the stretch. Many more than a row has, so that rows differ; few enough to be encoded in a moment.
const N: usize = 1 << 21;

/// Rows begin at multiples of this: the largest block of a type.
const STEP: usize = 256;

/// A source of rows. The same seed gives the same numbers in every type, but for the type's rounding.
pub struct Numbers {
    /// Nearly normal, of deviation 1.
    stretch: Vec<f32>,
    /// The stretch in a type, times a deviation, plus a mean.
    encoded: HashMap<(DType, [u32; 2]), Vec<u8>>,
    state: u64,
    n_threads: usize,
    rarity: Rarity,
    /// Of each layer that has such: how often its neurons fire.
    frequencies: Vec<Vec<f64>>,
    /// The last rows that were rare.
    rare: Vec<RareRow>,
}

/// A row whose neuron rarely fires.
#[derive(Clone, Copy)]
struct RareRow {
    /// Where it begins in the stretch.
    start: usize,
    /// The value of its first channels.
    first: f32,
}

/// Of channels that do not decide whether a neuron fires: their deviation beside that of the others. With seven times as many
/// as the others, they have an eighth of these' deviation together.
const SMALL: f32 = 0.05;

/// How often the sums of `positive` rows are positive.
const POSITIVE: f64 = 0.995;

impl Numbers {
    /// The source with this seed; encoding uses so many threads.
    pub fn new(seed: u64, n_threads: usize, rarity: Rarity) -> Numbers {
        let mut state = seed;
        // The sum of four even numbers in -1/2..1/2 has a variance of 1/3.
        let normal = |bits: u64| {
            let quarters = [0, 16, 32, 48].map(|at| (bits >> at & 0xFFFF) as f32 / 65536.0 - 0.5);
            quarters.iter().sum::<f32>() * 3f32.sqrt()
        };
        let stretch = (0..N).map(|_| normal(next(&mut state))).collect();
        let (frequencies, rare) = (Vec::new(), Vec::new());
        Numbers {
            stretch,
            encoded: HashMap::new(),
            state,
            n_threads: n_threads.max(1),
            rarity,
            frequencies,
            rare,
        }
    }

    /// How often the neurons of each layer fire, of the layers that were written.
    pub fn frequencies(&self) -> &[Vec<f64>] {
        &self.frequencies
    }

    /// The bytes of a tensor.
    pub fn write(&mut self, part: &Part, tensor: &TensorShape, out: &mut dyn Write) -> io::Result<()> {
        let (normal, channels) = match part.content {
            Content::Given(ref values) => return out.write_all(&quant::quantise(tensor.dtype, values)),
            Content::Random { mean, deviation, channels } => ([mean, deviation], channels),
        };
        match channels {
            Channels::Signs => return write_signs(tensor, out),
            Channels::Scores => return self.write_scores(normal, tensor, out),
            _ => {}
        }
        let [n, rows @ ..] = tensor.ne;
        let n_rows: u64 = rows.iter().product();
        let first = self.first_channels(channels, normal[1], n, n_rows);
        let n_starts = ((N.saturating_sub(n as usize)) / STEP + 1) as u64;
        let starts: Vec<usize> =
            (0..n_rows).map(|_| (next(&mut self.state) % n_starts) as usize * STEP).collect();
        if let Channels::Rare | Channels::RareBy(_) = channels {
            let row =
                |(&start, first): (&usize, &Option<f32>)| RareRow { start, first: first.unwrap_or(0.0) };
            self.rare = starts.iter().zip(&first).map(row).collect();
        }
        // Rows are of one deviation, or their end is of another.
        let n = n as usize;
        let n_large = if let Channels::RareBy(n_seen) = channels { n.min(n_seen as usize) } else { n };
        let small = [normal[0], normal[1] * SMALL];
        self.encode(normal, tensor.dtype);
        if n_large < n {
            self.encode(small, tensor.dtype);
        }
        for (row, start) in starts.into_iter().enumerate() {
            if row % 1024 == 0 && crate::interrupt::is_requested() {
                return Err(io::Error::other("interrupted"));
            }
            let bytes = self.encoded(normal, tensor.dtype, start..start + n_large);
            match first.get(row) {
                None => out.write_all(bytes)?,
                Some(&Some(value)) => out.write_all(&with_first(value, tensor.dtype, bytes))?,
                Some(None) => out.write_all(&vec![0; bytes.len()])?,
            }
            if n_large < n {
                out.write_all(self.encoded(small, tensor.dtype, start + n_large..start + n))?;
            }
        }
        Ok(())
    }

    /// The numbers of the last rare rows in their first channels, then their negatives.
    fn write_scores(
        &mut self,
        normal: [f32; 2],
        tensor: &TensorShape,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let dtype = tensor.dtype;
        self.encode(normal, dtype);
        let n_seen = tensor.ne[0] as usize / 2;
        for row in &self.rare {
            let bytes = self.encoded(normal, dtype, row.start..row.start + n_seen);
            let bytes = with_first(row.first, dtype, bytes);
            let negatives: Vec<f32> = quant::dequantise(dtype, &bytes).into_iter().map(|x| -x).collect();
            out.write_all(&bytes)?;
            out.write_all(&quant::quantise(dtype, &negatives))?;
        }
        Ok(())
    }

    /// Encodes the stretch, if it is not yet.
    fn encode(&mut self, normal: [f32; 2], dtype: DType) {
        let (stretch, n_threads) = (&self.stretch, self.n_threads);
        let key = (dtype, normal.map(f32::to_bits));
        self.encoded.entry(key).or_insert_with(|| encode(stretch, normal, dtype, n_threads));
    }

    /// Elements of the stretch, which was encoded before.
    fn encoded(&self, normal: [f32; 2], dtype: DType, elements: Range<usize>) -> &[u8] {
        let bytes_of = |n: usize| dtype.row_bytes(n as u64).unwrap_or(0) as usize;
        let all = self.encoded.get(&(dtype, normal.map(f32::to_bits)));
        all.and_then(|all| all.get(bytes_of(elements.start)..bytes_of(elements.end))).unwrap_or_default()
    }

    /// The value of the first channels in each row, as far as rows have one; `None`: the row is zeros.
    fn first_channels(
        &mut self,
        channels: Channels,
        deviation: f32,
        n: u64,
        n_rows: u64,
    ) -> Vec<Option<f32>> {
        match channels {
            Channels::Random | Channels::Signs | Channels::Scores => Vec::new(),
            Channels::Zero => vec![Some(0.0); n_rows as usize],
            Channels::Constant => vec![Some(deviation); n_rows as usize],
            Channels::Unmoved => vec![None; N_CONSTANT.min(n_rows as usize)],
            Channels::Positive => {
                vec![Some((normal_quantile(POSITIVE) * per_channel(deviation, n)) as f32); n_rows as usize]
            }
            Channels::Rare => self.rare_channels(deviation, n, n_rows),
            Channels::RareBy(n_seen) => self.rare_channels(deviation, n_seen.min(n), n_rows),
        }
    }

    /// The value that makes each of these rows as rare as it should be, if its other numbers among `n` have this deviation.
    fn rare_channels(&mut self, deviation: f32, n: u64, n_rows: u64) -> Vec<Option<f32>> {
        let mut frequencies = self.rarity.frequencies(n_rows as usize);
        for i in (1..frequencies.len()).rev() {
            frequencies.swap(i, (next(&mut self.state) % (i as u64 + 1)) as usize);
        }
        let scale = per_channel(deviation, n);
        let first = frequencies.iter().map(|&p| Some((normal_quantile(p) * scale) as f32)).collect();
        self.frequencies.push(frequencies);
        first
    }
}

/// What the first channels of a row of `n` numbers have each, so that they are one deviation of the sum of the others.
fn per_channel(deviation: f32, n: u64) -> f64 {
    let others = n.saturating_sub(N_CONSTANT as u64) as f64;
    f64::from(deviation) * others.sqrt() / N_CONSTANT as f64
}

/// Row i is 1 at channel i, and -1 in the second half of the rows.
fn write_signs(tensor: &TensorShape, out: &mut dyn Write) -> io::Result<()> {
    let [n, n_rows, ..] = tensor.ne.map(|n| n as usize);
    let n_seen = n_rows / 2;
    for row in 0..n_rows {
        let mut numbers = vec![0.0; n];
        let sign = if row < n_seen { 1.0 } else { -1.0 };
        numbers.iter_mut().skip(row % n_seen.max(1)).take(1).for_each(|number| *number = sign);
        out.write_all(&quant::quantise(tensor.dtype, &numbers))?;
    }
    Ok(())
}

/// A row whose first channels have this value: the blocks that they are in are encoded again.
fn with_first(value: f32, dtype: DType, row: &[u8]) -> Vec<u8> {
    let n_bytes =
        dtype.row_bytes(N_CONSTANT.next_multiple_of(dtype.block_elems()) as u64).unwrap_or(0) as usize;
    let (blocks, rest) = row.split_at(n_bytes.min(row.len()));
    let mut numbers = quant::dequantise(dtype, blocks);
    numbers.iter_mut().take(N_CONSTANT).for_each(|number| *number = value);
    [&quant::quantise(dtype, &numbers), rest].concat()
}

/// All numbers with this mean and deviation, in a type; pieces on threads side by side.
fn encode(stretch: &[f32], [mean, deviation]: [f32; 2], dtype: DType, n_threads: usize) -> Vec<u8> {
    let piece = stretch.len().div_ceil(n_threads).next_multiple_of(STEP);
    let encode = |part: &[f32]| {
        let scaled: Vec<f32> = part.iter().map(|x| x * deviation + mean).collect();
        quant::quantise(dtype, &scaled)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = stretch.chunks(piece).map(|part| scope.spawn(move || encode(part))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap_or_default()).collect()
    })
}

/// The next 64 random bits (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::synth::Shape;
    use crate::cmd::synth::shape::SynthModel;

    #[test]
    fn numbers_have_the_requested_deviation_in_every_type() {
        for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q4_K, DType::Q6_K] {
            let stretch = Numbers::new(1, 2, Rarity { zeros: 0.9, hot: 0.26 }).stretch;
            let x = quant::dequantise(dtype, &encode(&stretch[..1 << 16], [0.0, 0.02], dtype, 3));
            let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;
            let square = x.iter().map(|&x| f64::from(x * x)).sum::<f64>() / x.len() as f64;
            assert!(mean.abs() < 1e-3, "{dtype}: mean {mean}");
            assert!((square.sqrt() / 0.02 - 1.0).abs() < 0.02, "{dtype}: deviation {}", square.sqrt());
        }
    }

    /// Tensors of the first layer, dequantised.
    fn written(numbers: &mut Numbers, model: &SynthModel, names: &[&str], dtype: DType) -> Vec<Vec<f32>> {
        let parts = model.parts(16);
        let of = |name: &&str| {
            let name = format!("blk.0.{name}.weight");
            let with_shape = parts.iter().map(|part| (part, part.shape().unwrap()));
            let (part, shape) = with_shape.into_iter().find(|(_, shape)| shape.name == name).unwrap();
            let mut bytes = Vec::new();
            numbers.write(part, &TensorShape { dtype, ..shape }, &mut bytes).unwrap();
            quant::dequantise(dtype, &bytes)
        };
        names.iter().map(of).collect()
    }

    /// Hidden states whose first channels are 1 and whose others are normal.
    fn hidden(numbers: &Numbers, token: usize) -> Vec<f32> {
        let mut x = numbers.stretch[token * 4096..][..2048].to_vec();
        x[..N_CONSTANT].fill(1.0);
        x
    }

    fn products<'a>(matrix: &'a [f32], x: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
        matrix.chunks_exact(x.len()).map(move |row| row.iter().zip(x).map(|(a, b)| a * b).sum())
    }

    #[test]
    fn as_many_neurons_of_two_halves_give_zeros_as_requested() {
        for with_predictors in [false, true] {
            let mut numbers = Numbers::new(3, 2, Rarity { zeros: 0.9, hot: 0.26 });
            let model = "bamboo-7b".parse::<Shape>().unwrap().model(Some(1)).unwrap();
            let model = if with_predictors { model.with_predictors().unwrap() } else { model };
            let both = written(&mut numbers, &model, &["ffn_gate", "ffn_up"], DType::Q4_0);
            let x = &numbers.stretch[8192..][..4096].to_vec();
            let x: Vec<f32> = [&[1.0; N_CONSTANT], &x[N_CONSTANT..]].concat();
            let fires =
                products(&both[0], &x).zip(products(&both[1], &x)).filter(|(a, b)| *a > 0.0 && *b > 0.0);
            let zeros = 1.0 - fires.count() as f64 / 14336.0;
            assert!((zeros - 0.9).abs() < 0.02, "{zeros}");
        }
    }

    #[test]
    fn as_many_gates_are_negative_as_requested_in_every_type() {
        for dtype in [DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4_K] {
            for zeros in [0.67, 0.9] {
                let mut numbers = Numbers::new(3, 2, Rarity { zeros, hot: 0.26 });
                let model = "relu-llama-3.2-1b".parse::<Shape>().unwrap().model(Some(1)).unwrap();
                let gates = written(&mut numbers, &model, &["ffn_gate"], dtype).remove(0);
                let (mut n_zeros, mut n) = (0, 0);
                for token in 0..3 {
                    let x = hidden(&numbers, token);
                    n += gates.len() / x.len();
                    n_zeros += products(&gates, &x).filter(|gate| *gate <= 0.0).count();
                }
                let found = n_zeros as f64 / n as f64;
                assert!((found - zeros).abs() < 0.02, "{dtype}: {found} of {zeros}");
            }
        }
    }

    #[test]
    fn predictors_pick_nearly_all_of_what_fires_and_little_else() {
        for dtype in [DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4_K] {
            let mut numbers = Numbers::new(3, 2, Rarity { zeros: 0.9, hot: 0.26 });
            let model = "relu-llama-3.2-1b".parse::<Shape>().unwrap().model(Some(1)).unwrap();
            let model = model.with_predictors().unwrap();
            let [gates, fc1, fc2] =
                written(&mut numbers, &model, &["ffn_gate", "fc1", "fc2"], dtype).try_into().unwrap();
            let (mut all, mut found, mut n_picked, mut n) = (0.0, 0.0, 0, 0);
            for token in 0..3 {
                let x = hidden(&numbers, token);
                let inner: Vec<f32> = products(&fc1, &x).map(|x| x.max(0.0)).collect();
                for (gate, score) in products(&gates, &x).zip(products(&fc2, &inner)) {
                    all += gate.max(0.0);
                    n += 1;
                    if score >= 0.0 {
                        n_picked += 1;
                        found += gate.max(0.0);
                    }
                }
            }
            let (recall, share) = (found / all, n_picked as f32 / n as f32);
            assert!(recall > 0.98 && recall < 1.0, "{dtype}: {recall}");
            assert!((share - 0.1).abs() < 0.02, "{dtype}: {share} are picked");
        }
    }
}
