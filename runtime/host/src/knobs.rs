//! THE knobs table: every environment variable this runtime reads. Nothing else reads the environment.

use crate::{Error, Result};
use std::ffi::OsString;

/// One environment variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knob {
    /// The variable.
    pub name: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// What happens when it is not set.
    pub default: &'static str,
    /// The file that acts on it.
    pub used_in: &'static str,
}

macro_rules! knobs {
    ($($const:ident = $name:literal, $meaning:literal, $default:literal, $used_in:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $const: Knob =
                Knob { name: $name, meaning: $meaning, default: $default, used_in: $used_in };
        )*

        /// All knobs, in the order `llmrt devices --knobs` prints them.
        pub const TABLE: &[Knob] = &[$($const,)*];
    };
}

knobs! {
    PLUGIN_PATH = "LLMRT_PLUGIN_PATH",
        "Folders or files searched for plugins instead of the usual places, separated by `:`; empty: none; ignored for set-user-id programs.",
        "unset", "host/src/plugin/search.rs";
    PLUGIN_ADD_PATH = "LLMRT_PLUGIN_ADD_PATH",
        "Folders or files searched for plugins before the usual places, separated by `:`; ignored for set-user-id programs.",
        "unset", "host/src/plugin/search.rs";
    PLUGINS_DISABLE = "LLMRT_PLUGINS_DISABLE",
        "Names of plugins not to load, separated by `,`; `*` and `?` match.",
        "unset", "host/src/plugin/checklist.rs";
    DATA_HOME = "XDG_DATA_HOME",
        "The user's data folder; its `llmrt/plugins` is searched; ignored for set-user-id programs.",
        "$HOME/.local/share", "host/src/plugin/search.rs";
    HOME = "HOME",
        "The user's folder, when XDG_DATA_HOME is not set; ignored for set-user-id programs.",
        "unset", "host/src/plugin/search.rs";
    THREADS = "LLMRT_THREADS",
        "Threads of the pool, the calling one included; 0: one per core.",
        "0", "host/src/plugin/registry.rs";
    REPACK = "LLMRT_REPACK",
        "0: matrices stay in the mapped file, even where a copy in the device's own layout would be faster.",
        "1", "host/src/load/place.rs";
    SPIN_US = "LLMRT_SPIN_US",
        "Microseconds an idle thread of the pool looks for work before it sleeps.",
        "50", "host/src/plugin/registry.rs";
    POOL = "LLMRT_POOL",
        "How scratch memory of devices is managed: auto, legacy (best fit among cached blocks) or vmm (one range of addresses, mapped as used).",
        "auto", "host/src/pool/mod.rs";
    PLUGIN_OPTIONS = "LLMRT_PLUGIN_OPTIONS",
        "What plugins get when they ask for an option: KEY=VALUE, separated by `;`; what the program sets counts more; ignored for set-user-id programs.",
        "unset", "host/src/plugin/registry.rs";
    PLUGIN_OPTION = "LLMRT_<PLUGIN>_<KEY>",
        "The option `<plugin>.<key>`, such as LLMRT_CPU_ISA for `cpu.isa`, where neither the program nor LLMRT_PLUGIN_OPTIONS sets it; `<plugin>.pool` is LLMRT_POOL for one plugin; ignored for set-user-id programs.",
        "unset", "host/src/plugin/services.rs";
    WATCHDOG_MS = "LLMRT_WATCHDOG_MS",
        "Milliseconds that one call of a device may take to compute or to wait before the device is given up; 0: for ever.",
        "0", "host/src/plugin/registry.rs";
    LOG = "LLMRT_LOG",
        "How much plugins may say: error, warn, info, debug or trace.",
        "warn", "host/src/plugin/services.rs";
    VALIDATE = "LLMRT_VALIDATE",
        "1: every call between host and plugins is checked, and what breaks a rule is logged and refused; slow, for those who write plugins.",
        "0", "host/src/plugin/registry.rs";
}

impl Knob {
    /// The variable's text; `None` if it is unset or empty.
    pub fn text(&self) -> Option<OsString> {
        self.text_or_empty().filter(|value| !value.is_empty())
    }

    /// The variable's text, for knobs where an empty one means something.
    pub fn text_or_empty(&self) -> Option<OsString> {
        std::env::var_os(self.name)
    }

    /// The variable as a number; `None` if it is unset.
    pub fn number(&self) -> Result<Option<u64>> {
        let Some(text) = self.text() else { return Ok(None) };
        let number = text.to_str().and_then(|t| t.trim().parse().ok());
        number.map(Some).ok_or_else(|| Error::Knob {
            name: self.name.into(),
            value: text.to_string_lossy().into_owned(),
            expected: "a whole number, 0 or more",
        })
    }
}

/// The variable of a plugin's option: that of `cpu.isa` is `LLMRT_CPU_ISA`. `None` for a key of another form.
pub fn variable(key: &str) -> Option<String> {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let (plugin, key) = key.split_once('.').filter(|(plugin, key)| is_word(plugin) && is_word(key))?;
    Some(format!("LLMRT_{}_{}", plugin.to_uppercase(), key.to_uppercase()))
}

/// What the environment says of a plugin's option; `None` if nothing. A program that runs with more rights than its
/// user has ignores it: options may name files that plugins load.
pub fn plugin_option(key: &str) -> Option<String> {
    let value = std::env::var_os(variable(key)?).filter(|value| !value.is_empty() && !is_privileged());
    value.map(|value| value.to_string_lossy().into_owned())
}

/// Whether the program runs with more rights than its user has: the environment is not to be trusted.
pub fn is_privileged() -> bool {
    // SAFETY: reads a value that the kernel gave this process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_a_plugin_has_a_variable_if_its_name_is_plain() {
        assert_eq!(variable("cann.lib_dir").as_deref(), Some("LLMRT_CANN_LIB_DIR"));
        for key in ["lib_dir", ".x", "x.", "cann.a.b", "cann.A", "cann.a=b", "\u{e9}.x"] {
            assert_eq!(variable(key), None, "{key}");
        }
        assert_eq!(plugin_option("no_such.plugin"), None);
    }

    #[test]
    fn every_knob_is_there_once_and_says_what_it_does() {
        for (i, knob) in TABLE.iter().enumerate() {
            assert!(knob.meaning.ends_with('.') && !knob.default.is_empty(), "{}", knob.name);
            assert!(TABLE[..i].iter().all(|other| other.name != knob.name), "{} twice", knob.name);
        }
    }

    #[test]
    fn an_unset_knob_has_no_value() {
        let knob = Knob { name: "LLMRT_NO_SUCH_KNOB", meaning: "", default: "", used_in: "" };
        assert_eq!((knob.text(), knob.number()), (None, Ok(None)));
    }
}
