//! Predictors for random neurons: a shape as PowerInfer's models have it (arXiv 2312.12456).
//!
//! A neuron is predicted to fire where fc2 · relu(fc1 · z) is not below 0. Half as many channels as fc1 has rows decide whether
//! it does; fc1 has each of them and its negative, and fc2 the neuron's numbers there with both signs, so that their product is
//! the sum that decides. The channels beyond these are what the predictor misses.

use super::{Channels, Content, SynthModel, TensorLine};

/// As many rows of fc1 as a quarter of the hidden states' channels.
const QUARTER: u64 = 4;

impl SynthModel {
    /// With predictors, and the last matrix of each network by neurons; refuses a model without neurons that rarely fire.
    pub fn with_predictors(mut self) -> Result<SynthModel, String> {
        let is_rare = |line: &&mut TensorLine| line.content.channels() == Channels::Rare;
        let found = self.tensors.iter_mut().find(is_rare);
        let rare = found.ok_or("--predictors: expected a model with ReLU, such as relu-llama-2-7b")?;
        let &[Some(n_embd), Some(n_ff)] = &rare.dims[..] else {
            return Err(format!("{}: expected a matrix", rare.name));
        };
        let (layers, rank) = (rare.layers.clone(), n_embd / QUARTER);
        let n_seen = rank / 2;
        let deviation = (n_seen as f32).sqrt().recip();
        rare.content = Content::Random { mean: 0.0, deviation, channels: Channels::RareBy(n_seen) };

        for line in self.tensors.iter_mut().filter(|line| line.name.starts_with("blk.ffn_down.")) {
            line.name = line.name.replace("ffn_down", "ffn_down_t");
            line.dims.reverse();
            if let Content::Random { channels, .. } = &mut line.content
                && *channels == Channels::Unmoved
            {
                *channels = Channels::Zero;
            }
        }
        let line = |name: &str, dims: [u64; 2], deviation, channels| TensorLine {
            name: name.into(),
            layers: layers.clone(),
            dims: dims.map(Some).to_vec(),
            content: Content::Random { mean: 0.0, deviation, channels },
        };
        let added = [
            line("blk.fc1.weight", [n_embd, rank], 1.0, Channels::Signs),
            line("blk.fc2.weight", [rank, n_ff], deviation, Channels::Scores),
        ];
        let after = self.tensors.iter().rposition(TensorLine::is_of_layers).map_or(0, |last| last + 1);
        self.tensors.splice(after..after, added);
        Ok(self)
    }
}

impl Content {
    fn channels(&self) -> Channels {
        match self {
            Content::Random { channels, .. } => *channels,
            Content::Given(_) => Channels::Random,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cmd::synth::Shape;

    #[test]
    fn each_layer_gets_a_predictor_and_neurons_as_rows() {
        let model = "opt-6.7b".parse::<Shape>().unwrap().model(Some(2)).unwrap().with_predictors().unwrap();
        let shapes: Vec<_> = model.parts(64).iter().map(|part| part.shape().unwrap()).collect();
        let dims = |name: &str| shapes.iter().find(|shape| shape.name == name).map(|shape| shape.ne);
        assert_eq!(dims("blk.1.fc1.weight"), Some([4096, 1024, 1, 1]));
        assert_eq!(dims("blk.1.fc2.weight"), Some([1024, 16384, 1, 1]));
        assert_eq!(dims("blk.1.ffn_down_t.weight"), Some([4096, 16384, 1, 1]));
        assert_eq!(dims("blk.1.ffn_down_t.bias"), Some([4096, 1, 1, 1]));
        let dense = "llama-3.2-1b".parse::<Shape>().unwrap().model(Some(1)).unwrap();
        assert!(dense.with_predictors().is_err_and(|e| e.contains("relu-llama-2-7b")));
    }
}
