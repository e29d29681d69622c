//! Sliding windows, where some layers have one and some see the whole context.

use super::{Config, Keys};
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
