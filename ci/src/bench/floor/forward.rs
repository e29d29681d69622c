//! The forward pass: plain loops over F32, one token at a time. Rows of products, and heads, are shared out among threads
//! that are started for each of them; sums are kept in 16 parts, as compilers do that may reorder them.

use super::model::{Layer, Linear, Model};

/// A model with a context.
pub struct Floor<'m> {
    model: &'m Model,
    n_threads: usize,
    /// Keys and values of each layer, [n_tokens][n_head_kv · head_dim].
    cache: Vec<[Vec<f32>; 2]>,
    n_tokens: usize,
}

impl<'m> Floor<'m> {
    /// An empty context.
    pub fn new(model: &'m Model, n_threads: usize) -> Floor<'m> {
        let cache = model.layers.iter().map(|_| [Vec::new(), Vec::new()]).collect();
        Floor { model, n_threads, cache, n_tokens: 0 }
    }

    /// Adds a token to the context; gives the logits [n_vocab] of the next one.
    pub fn step(&mut self, token: usize) -> Vec<f32> {
        let m = self.model;
        let mut x = m.token_embd[token * m.n_embd..][..m.n_embd].to_vec(); // [n_embd]
        for (i, layer) in m.layers.iter().enumerate() {
            self.block(i, layer, &mut x);
        }
        self.n_tokens += 1;

        let h = rms_norm(&x, &m.output_norm, m.eps);
        self.mat_vec(m.output.as_ref().unwrap_or(&m.token_embd), &h) // [n_vocab]
    }

    fn block(&mut self, i: usize, layer: &Layer, x: &mut [f32]) {
        let h = rms_norm(x, &layer.attn_norm, self.model.eps);
        let (mut q, mut k) = (self.linear(&layer.q, &h), self.linear(&layer.k, &h));
        let v = self.linear(&layer.v, &h);
        self.rope(&mut q);
        self.rope(&mut k);
        self.cache[i][0].extend(k);
        self.cache[i][1].extend(v);
        let heads = self.attention(&q, &self.cache[i]); // [n_head · head_dim]
        add(x, &self.linear(&layer.attn_output, &heads));

        let h = rms_norm(x, &layer.ffn_norm, self.model.eps);
        let (mut gate, up) = (self.linear(&layer.gate, &h), self.linear(&layer.up, &h)); // [n_ff]
        gate.iter_mut().zip(&up).for_each(|(gate, up)| *gate *= up / (1.0 + (-*gate).exp()));
        add(x, &self.linear(&layer.down, &gate));
    }

    /// Turns each pair of each head by its frequency times the position.
    fn rope(&self, heads: &mut [f32]) {
        let freqs = &self.model.freqs;
        for head in heads.chunks_mut(2 * freqs.len()) {
            for (i, freq) in freqs.iter().enumerate() {
                let (a, b) = if self.model.has_halves { (i, i + freqs.len()) } else { (2 * i, 2 * i + 1) };
                let (sin, cos) = (self.n_tokens as f32 * freq).sin_cos();
                (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
            }
        }
    }

    /// softmax(q · k / √head_dim) · v of each head; the heads of a group share keys and values.
    fn attention(&self, q: &[f32], [keys, values]: &[Vec<f32>; 2]) -> Vec<f32> {
        let (n_head, n_head_kv) = (self.model.n_head, self.model.n_head_kv);
        let head_dim = q.len() / n_head;
        let mut y = vec![0.0; q.len()];
        shared(self.n_threads, &mut y, head_dim, |head, y| {
            let kv_head = head / (n_head / n_head_kv);
            let part = kv_head * head_dim..(kv_head + 1) * head_dim;
            let (keys, values) = (keys.chunks(n_head_kv * head_dim), values.chunks(n_head_kv * head_dim));
            let q = &q[head * head_dim..][..head_dim];
            let scale = (head_dim as f32).sqrt().recip();
            let mut weights: Vec<f32> = keys.map(|k| dot(q, &k[part.clone()]) * scale).collect();
            softmax(&mut weights);
            for (weight, v) in weights.iter().zip(values) {
                y.iter_mut().zip(&v[part.clone()]).for_each(|(y, v)| *y += weight * v);
            }
        });
        y
    }

    fn linear(&self, linear: &Linear, x: &[f32]) -> Vec<f32> {
        let mut y = self.mat_vec(&linear.weight, x);
        linear.bias.iter().for_each(|bias| add(&mut y, bias));
        y
    }

    /// W [rows][columns] times x [columns].
    fn mat_vec(&self, w: &[f32], x: &[f32]) -> Vec<f32> {
        let mut y = vec![0.0; w.len() / x.len()];
        shared(self.n_threads, &mut y, 1, |row, y| y[0] = dot(&w[row * x.len()..][..x.len()], x));
        y
    }
}

/// Calls `f` with each piece of `n` values and its number, the pieces shared out among threads.
fn shared(n_threads: usize, y: &mut [f32], n: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    let n_each = (y.len() / n).div_ceil(n_threads);
    let work = |i: usize, part: &mut [f32]| {
        part.chunks_mut(n).enumerate().for_each(|(j, piece)| f(i * n_each + j, piece));
    };
    std::thread::scope(|scope| {
        let mut parts = y.chunks_mut(n_each * n).enumerate();
        let first = parts.next();
        parts.for_each(|(i, part)| drop(scope.spawn(move || work(i, part))));
        first.into_iter().for_each(|(i, part)| work(i, part));
    });
}

/// Σ a · b, in 16 sums.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let mut sums = [0.0; 16];
    for (a, b) in a.iter().zip(b) {
        for i in 0..16 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

/// x · rsqrt(mean(x²) + eps) · w
fn rms_norm(x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    let scale = (dot(x, x) / x.len() as f32 + eps).sqrt().recip();
    x.iter().zip(w).map(|(x, w)| x * scale * w).collect()
}

/// Scores become weights whose sum is 1.
fn softmax(scores: &mut [f32]) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|score| *score = (*score - max).exp());
    let sum: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= sum);
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}
