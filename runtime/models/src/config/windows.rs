//! Sliding windows, where some layers have one and some see the whole context.

use super::{Config, Keys, LayerConfig, MAX_DIM};
use crate::error::Result;
use llmrt_gguf::Value;

/// Which layers have a window, where files leave it out: all but one of every so many.
#[derive(Clone, Copy)]
pub(crate) enum AllBut {
    /// The first one sees everything.
    FirstOf(u64),
    /// The last one sees everything.
    LastOf(u64),
}

impl Config {
    /// Gives layers a window as long as the file has it, or `default`; 0: none. In them heads rotate by a base of their own,
    /// if the file has one. Returns which layers have a window.
    pub(crate) fn read_windows(
        &mut self,
        keys: &Keys<'_>,
        default: u32,
        layers: AllBut,
    ) -> Result<Vec<bool>> {
        let window = keys.optional("attention.sliding_window")?.unwrap_or(default);
        let windowed = windowed(keys, self.n_layer, layers)?;
        self.set_window(window, |il| windowed[il]);
        let freq_base = self.rope.params.freq_base;
        self.rope.windowed.freq_base = keys.f32_or_zero("rope.freq_base_swa", freq_base)?;
        Ok(windowed)
    }

    /// Gives layers a window as long as the file has it: those that it lists.
    pub(crate) fn read_listed_windows(&mut self, keys: &Keys<'_>) -> Result<()> {
        const KEY: &str = "attention.sliding_window_pattern";
        let window = keys.count("attention.sliding_window", 0..=MAX_DIM)? as u32;
        match keys.flags(KEY, self.n_layer)? {
            Some(windowed) => self.set_window(window, |il| windowed[il]),
            None => {
                return Err(keys.bad(KEY, "missing", format!("a flag for each of {} layers", self.n_layer)));
            }
        }
        Ok(())
    }

    /// Heads of layers with a window are as long as the file has them, if it does, and are rotated by a base of their own, of
    /// positions that are not stretched. Frequency factors are for the other layers.
    pub(crate) fn read_windowed_heads(&mut self, keys: &Keys<'_>) -> Result<()> {
        let head_dim_k = keys.count_or("attention.key_length_swa", 1..=MAX_DIM, self.head_dim_k)?;
        let head_dim_v = keys.count_or("attention.value_length_swa", 1..=MAX_DIM, self.head_dim_v)?;
        for layer in self.layers.iter_mut().filter(|layer| layer.window > 0) {
            (layer.head_dim_k, layer.head_dim_v) = (head_dim_k, head_dim_v);
        }
        let freq_base = keys.f32_or_zero("rope.freq_base_swa", 10000.0)?;
        self.rope.windowed = self.rope.unstretched(freq_base);
        self.rope.set_windowed_dims(keys, head_dim_k)?;
        self.rope.windows_have_factors = false;
        Ok(())
    }

    /// Layers from `n_own` on read the caches of the last layer before them that has the same window.
    pub(crate) fn share_caches(&mut self, keys: &Keys<'_>, n_own: usize) -> Result<()> {
        for il in n_own..self.n_layer {
            let like =
                |layer: &LayerConfig| (layer.window, layer.n_head_kv, layer.head_dim_k, layer.head_dim_v);
            let [windowed, own] = [2, 1].map(|back| n_own.checked_sub(back));
            let owner = if self.layers[il].window > 0 { windowed } else { own };
            match owner.filter(|&owner| like(&self.layers[owner]) == like(&self.layers[il])) {
                Some(owner) => self.layers[il].cache_of = Some(owner),
                None => {
                    let found = format!("{} of {} layers", self.n_layer - n_own, self.n_layer);
                    let expected =
                        "layers before those with caches like theirs: one with a window, then one without";
                    return Err(keys.bad("attention.shared_kv_layers", found, expected));
                }
            }
        }
        Ok(())
    }
}

fn windowed(keys: &Keys<'_>, n_layer: usize, layers: AllBut) -> Result<Vec<bool>> {
    const KEY: &str = "attention.sliding_window_pattern";
    let is_listed = matches!(keys.meta.get(&keys.name(KEY)), Some(Value::Array(_)));
    match layers {
        AllBut::FirstOf(period) if !is_listed => {
            let period = keys.count_or(KEY, 1..=u32::MAX.into(), period)? as usize;
            Ok((0..n_layer).map(|il| il % period != 0).collect())
        }
        AllBut::FirstOf(period) | AllBut::LastOf(period) => keys.windowed_layers(n_layer, period),
    }
}
