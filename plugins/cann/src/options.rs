//! The plugin's options. All are read when the plugin starts: the host warns of an option that was not read by then.

use crate::layouts::Requested;
use crate::plan;
use llmrt_plugin::{Error, Host, Result};

/// What the options set.
#[derive(Clone, Debug)]
pub struct Options {
    /// `cann.graphs`: captured graphs that each stream keeps.
    pub n_graphs: usize,
    /// `cann.hccl`: whether cards put results together with HCCL.
    pub hccl: bool,
    /// `cann.probe`.
    pub probes: Probes,
    /// `cann.nz`, `cann.columns`, `cann.tune`, `cann.tune_file`.
    pub layouts: Requested,
}

/// What a card tries when it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probes {
    /// Nothing.
    None,
    /// What leaves it usable.
    Safe,
    /// Copies between cards, too, which may leave a card of no use until it is reset.
    All,
}

impl Options {
    /// Reads the options.
    pub fn of(host: Host) -> Result<Options> {
        Options::parse(|key| host.option(key))
    }

    fn parse(option: impl Fn(&str) -> Option<String>) -> Result<Options> {
        let wrong = |key: &str, text: &str, expected: &str| {
            Err(Error::invalid(format!("option {key}={text}: expected {expected}")))
        };
        let n_graphs = match option("cann.graphs") {
            None => plan::GRAPHS,
            Some(text) => match text.trim().parse() {
                Ok(n) => n,
                Err(_) => {
                    return wrong("cann.graphs", &text, "how many captured graphs a stream keeps; 0: none");
                }
            },
        };
        let hccl = match option("cann.hccl").as_deref().map(str::trim) {
            None | Some("1") => true,
            Some("0") => false,
            Some(text) => return wrong("cann.hccl", text, "1 or 0"),
        };
        let probes = match option("cann.probe").as_deref().map(str::trim) {
            None | Some("0") => Probes::None,
            Some("1") => Probes::Safe,
            Some("all") => Probes::All,
            Some(text) => return wrong("cann.probe", text, "1, 0, or all"),
        };
        Ok(Options { n_graphs, hccl, probes, layouts: Requested::parse(option)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_another_form_is_named() {
        for (key, value) in [("cann.graphs", "many"), ("cann.hccl", "no"), ("cann.probe", "yes")] {
            let e = Options::parse(|name| (name == key).then(|| value.into())).unwrap_err();
            assert!(e.message.contains(&format!("option {key}={value}: expected")), "{}", e.message);
        }
        let options = Options::parse(|name| (name == "cann.probe").then(|| "all".into())).unwrap();
        assert!(options.probes == Probes::All && options.hccl && options.n_graphs == plan::GRAPHS);
    }
}
