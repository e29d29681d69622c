//! Reads the metadata keys of one architecture: `llama.block_count` for `block_count`.

use crate::error::{Error, Result};
use llmrt_gguf::{Array, FromValue, Metadata, Value};
use std::ops::RangeInclusive;

/// Metadata under an architecture's prefix.
pub(crate) struct Keys<'m> {
    pub meta: &'m Metadata,
    pub arch: &'m str,
}

impl<'m> Keys<'m> {
    /// The full key.
    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    /// A value, or `None` if the key is missing.
    pub fn optional<T: FromValue<'m>>(&self, key: &str) -> Result<Option<T>> {
        Ok(self.meta.optional(&self.name(key))?)
    }

    /// A count that must be there.
    pub fn count(&self, key: &str, range: RangeInclusive<u64>) -> Result<u64> {
        let found = self.meta.require(&self.name(key))?;
        self.within(key, found, &range)
    }

    /// A count, or a default. Files write 0 for what they leave out.
    pub fn count_or(&self, key: &str, range: RangeInclusive<u64>, default: u64) -> Result<u64> {
        match self.optional(key)? {
            None | Some(0) => Ok(default),
            Some(found) => self.within(key, found, &range),
        }
    }

    /// A number, or a default. Files write 0 for what they leave out.
    pub fn f32_or_zero(&self, key: &str, default: f32) -> Result<f32> {
        let found = self.optional(key)?;
        Ok(found.filter(|&x| x != 0.0).unwrap_or(default))
    }

    /// A count for every layer: one number for all, or an array, where 0 is a layer without what is counted.
    pub fn per_layer(
        &self,
        key: &str,
        n_layer: usize,
        range: RangeInclusive<u64>,
        default: Option<&[u64]>,
    ) -> Result<Vec<u64>> {
        if let (false, Some(default)) = (self.meta.contains(&self.name(key)), default) {
            return Ok(default.to_vec());
        }
        let Some(Value::Array(_)) = self.meta.get(&self.name(key)) else {
            return Ok(vec![self.count(key, range)?; n_layer]);
        };
        let found: Vec<u32> = self.meta.require(&self.name(key))?;
        self.one_for_each(key, found.len(), n_layer)?;
        found[..n_layer].iter().map(|&n| self.within(key, n as u64, &(0..=*range.end()))).collect()
    }

    /// A flag for every layer: an array, or one number for all. `None` if the key is missing.
    pub fn flags(&self, key: &str, n_layer: usize) -> Result<Option<Vec<bool>>> {
        let flags: Vec<bool> = match self.meta.get(&self.name(key)) {
            None => return Ok(None),
            Some(Value::Array(Array::Bool(flags))) => flags.clone(),
            Some(Value::Array(_)) => {
                let flags: Vec<u32> = self.meta.require(&self.name(key))?;
                flags.into_iter().map(|flag| flag != 0).collect()
            }
            Some(Value::Bool(flag)) => vec![*flag; n_layer],
            Some(_) => vec![self.optional::<u64>(key)? != Some(0); n_layer],
        };
        self.one_for_each(key, flags.len(), n_layer)?;
        Ok(Some(flags))
    }

    /// Which layers have a window: given layer by layer, or by a period whose last layer has none, or all but the last
    /// of every `period`.
    pub fn windowed_layers(&self, n_layer: usize, period: u64) -> Result<Vec<bool>> {
        const KEY: &str = "attention.sliding_window_pattern";
        if let Some(Value::Array(_)) = self.meta.get(&self.name(KEY)) {
            return Ok(self.flags(KEY, n_layer)?.unwrap_or_default());
        }
        let period = self.count_or(KEY, 1..=u32::MAX as u64, period)? as usize;
        Ok((0..n_layer).map(|il| il % period < period - 1).collect())
    }

    /// A number for every layer: one for all, or an array; 0 without the key.
    pub fn f32_per_layer(&self, key: &str, n_layer: usize) -> Result<Vec<f32>> {
        match self.meta.get(&self.name(key)) {
            Some(Value::Array(_)) => {
                let found: Vec<f32> = self.meta.require(&self.name(key))?;
                self.one_for_each(key, found.len(), n_layer)?;
                Ok(found)
            }
            _ => Ok(vec![self.f32_or_zero(key, 0.0)?; n_layer]),
        }
    }

    /// An error about a value.
    pub fn bad(&self, key: &str, found: impl ToString, expected: impl ToString) -> Error {
        let found = Some(found.to_string()).filter(|found| !found.is_empty());
        let found = found.unwrap_or_else(|| "empty".into());
        Error::BadValue { key: self.name(key), found, expected: expected.to_string() }
    }

    fn one_for_each(&self, key: &str, found: usize, n_layer: usize) -> Result<()> {
        match found >= n_layer {
            true => Ok(()),
            false => Err(self.bad(
                key,
                format!("an array of {found}"),
                format!("one for each of {n_layer} layers"),
            )),
        }
    }

    fn within(&self, key: &str, found: u64, range: &RangeInclusive<u64>) -> Result<u64> {
        match range.contains(&found) {
            true => Ok(found),
            false => Err(self.bad(key, found, format!("{} to {}", range.start(), range.end()))),
        }
    }
}
