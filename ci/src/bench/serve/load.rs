//! What clients send, and what they see.

use super::client::{self, Streamed};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Tokens that each completion generates.
const N_PREDICT: usize = 48;

/// Completions of each stream, one after the other.
const ROUNDS: usize = 2;

/// Tokens of prompts: their common beginning, if they have one, and what is their own.
const SHARED: usize = 512;
const OWN: usize = 128;

/// Streams that run at the same time.
pub struct Load {
    pub n_streams: usize,
    n_shared: usize,
}

/// What the streams of a load saw.
pub struct Measured {
    n_generated: usize,
    wall: Duration,
    first: Vec<Duration>,
    between: Vec<Duration>,
    pub peak_bytes: u64,
}

impl Load {
    /// Prompts that have nothing in common.
    pub fn unshared(n_streams: usize) -> Load {
        Load { n_streams, n_shared: 0 }
    }

    /// Prompts that begin alike.
    pub fn shared(n_streams: usize) -> Load {
        Load { n_streams, n_shared: SHARED }
    }

    /// What of the prompts is shared.
    pub fn name(&self) -> String {
        match self.n_shared {
            0 => format!("unshared, {OWN} tokens"),
            n => format!("{n} of {} tokens shared", n + OWN),
        }
    }

    /// Tokens of a prompt and its completion, rounded up.
    pub fn n_ctx(&self) -> usize {
        (self.n_shared + OWN + N_PREDICT + 16).next_multiple_of(256)
    }

    /// The request of a stream's round. Ids are those of plain tokens in any vocabulary of the usual sizes.
    fn body(&self, stream: usize, round: usize) -> Value {
        let own = stream * ROUNDS + round + 1;
        let shared = (0..self.n_shared).map(|i| 1000 + (i * 7) % 9000);
        let prompt: Vec<usize> = shared.chain((0..OWN).map(|i| 1000 + (i * 13 + own * 997) % 9000)).collect();
        json!({
            "model": "m", "prompt": prompt, "max_tokens": N_PREDICT, "temperature": 0, "ignore_eos": true,
            "stream": true, "stream_options": { "include_usage": true },
        })
    }

    /// Runs all streams to their end. Where a prefix is shared, one request computes it before.
    pub fn run(&self, address: SocketAddr) -> Result<Measured, String> {
        if self.n_shared > 0 {
            client::complete(address, &self.body(self.n_streams, 0))?;
        }
        let started = Instant::now();
        let streams: Vec<Result<Vec<Streamed>, String>> = std::thread::scope(|scope| {
            let one = |stream| {
                scope.spawn(move || {
                    (0..ROUNDS).map(|round| client::complete(address, &self.body(stream, round))).collect()
                })
            };
            let threads: Vec<_> = (0..self.n_streams).map(one).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|outcome| outcome.unwrap_or_else(|_| Err("a stream panicked".into()))).collect()
        });
        let wall = started.elapsed();
        let mut measured =
            Measured { n_generated: 0, wall, first: Vec::new(), between: Vec::new(), peak_bytes: 0 };
        for streamed in streams.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            if streamed.n_generated != N_PREDICT {
                return Err(format!("{} tokens were generated: expected {N_PREDICT}", streamed.n_generated));
            }
            measured.n_generated += streamed.n_generated;
            measured.first.extend(streamed.pieces.first());
            measured.between.extend(streamed.pieces.windows(2).map(|pair| pair[1] - pair[0]));
        }
        measured.first.sort();
        measured.between.sort();
        Ok(measured)
    }
}

impl Measured {
    /// Tokens per second, times to the first token (p50, p99) and between tokens (p99) in ms, and MB.
    pub fn values(&self) -> [f64; 5] {
        let quantile = |sorted: &[Duration], share: f64| {
            let at = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
            sorted.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        [
            self.n_generated as f64 / self.wall.as_secs_f64(),
            quantile(&self.first, 0.5),
            quantile(&self.first, 0.99),
            quantile(&self.between, 0.99),
            self.peak_bytes as f64 / 1e6,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_share_their_beginning_and_nothing_else() {
        let prompt = |load: &Load, stream| {
            load.body(stream, 0)["prompt"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
        };
        let common = |load: &Load| {
            let (a, b): (Vec<u64>, Vec<u64>) = (prompt(load, 0), prompt(load, 1));
            (a.len(), a.iter().zip(&b).take_while(|(a, b)| a == b).count())
        };
        assert_eq!(common(&Load::shared(2)), (SHARED + OWN, SHARED));
        assert_eq!(common(&Load::unshared(2)), (OWN, 0));
    }
}
