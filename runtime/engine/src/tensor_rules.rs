//! Weights that are for one device, by patterns of their names.

use llmrt_host::Device;
use regex_automata::meta::Regex;
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

/// `REGEX=DEVICE`: weights whose name matches are on this device, and what is computed with them too.
#[derive(Clone, Debug)]
pub struct TensorRule {
    pattern: Regex,
    text: String,
    device: String,
}

impl FromStr for TensorRule {
    type Err = String;

    fn from_str(text: &str) -> Result<TensorRule, String> {
        let parts =
            text.rsplit_once('=').filter(|(pattern, device)| !pattern.is_empty() && !device.is_empty());
        let (pattern, device) = parts.ok_or("expected REGEX=DEVICE, such as ffn_.*_exps=cpu")?;
        let text = pattern.to_string();
        let pattern = Regex::new(pattern).map_err(|e| format!("{pattern} is no regular expression: {e}"))?;
        Ok(TensorRule { pattern, text, device: device.into() })
    }
}

impl TensorRule {
    /// The name of the device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The row of the device: the one of this name, or the first of the plugin of this name. Case does not count.
    pub fn find(&self, devices: &[Arc<Device>]) -> Option<usize> {
        let is_named = |name: &str| name.eq_ignore_ascii_case(&self.device);
        let by_name = devices.iter().position(|device| is_named(device.name()));
        by_name.or_else(|| devices.iter().position(|device| is_named(device.plugin())))
    }
}

/// The device of each weight that a rule matches; the first such rule counts. Rules of devices that are not there do not count,
/// nor do those that match nothing: the second part has a warning for each.
pub(crate) fn assigned<'a>(
    rules: &'a [TensorRule],
    names: impl Iterator<Item = &'a str>,
    devices: &[Arc<Device>],
) -> (HashMap<String, usize>, Vec<String>) {
    let rows: Vec<Option<usize>> = rules.iter().map(|rule| rule.find(devices)).collect();
    let (mut assigned, mut matched) = (HashMap::new(), vec![false; rules.len()]);
    for name in names {
        let matching = rules.iter().enumerate().filter(|(_, rule)| rule.pattern.is_match(name));
        let mut first = None;
        for (i, _) in matching {
            matched[i] = true;
            first = first.or(Some(i));
        }
        if let Some(row) = first.and_then(|i| rows[i]) {
            assigned.insert(name.to_string(), row);
        }
    }
    let ignored =
        rules.iter().zip(rows).zip(matched).filter_map(|((rule, row), is_matched)| match (row, is_matched) {
            (None, _) => {
                Some(format!("tensors for {} are placed as others: it is not among the devices", rule.device))
            }
            (_, false) => {
                Some(format!("no tensor is placed on {} by `{}`: none matches", rule.device, rule.text))
            }
            _ => None,
        });
    let ignored = ignored.collect();
    (assigned, ignored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_a_pattern_and_a_device() {
        let rule: TensorRule = r"blk\.(1|2)\.=x=sim:big".parse().unwrap();
        assert_eq!(rule.device(), "sim:big");
        assert!(rule.pattern.is_match("blk.1.=x") && !rule.pattern.is_match("blk.3.=x"));
        for (text, problem) in [
            ("exps", "REGEX=DEVICE"),
            ("=cpu", "REGEX=DEVICE"),
            ("exps=", "REGEX=DEVICE"),
            ("(=cpu", "no regular expression"),
        ] {
            let found = text.parse::<TensorRule>().unwrap_err();
            assert!(found.contains(problem), "{found}");
        }
    }
}
