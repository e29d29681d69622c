//! THE knobs table: every environment variable this runtime reads. Nothing else reads the environment.
//!
//! One rule for all of them: [`settings`] parses each once per process; a value that a variable cannot have is an error
//! with the variable, what was found and what is expected (exit code 2 of the command line). What may be a mistake and
//! changes nothing (a relative folder, a variable that nothing reads) is a warning.

use crate::pool::PoolKind;
use crate::threads::MAX_THREADS;
use crate::{Error, Result};
use llmrt_gguf::n_edits;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

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
        "The user's data folder; its `llmrt/plugins` is searched, its `llmrt/models` is the model store; ignored for set-user-id programs.",
        "$HOME/.local/share", "host/src/plugin/search.rs";
    STATE_HOME = "XDG_STATE_HOME",
        "The user's state folder; its `llmrt/history` has the lines of earlier chats.",
        "$HOME/.local/state", "cli/src/cmd/chat/history.rs";
    HOST = "LLMRT_HOST",
        "The server that `llmrt ps`, `stop` and `doctor` request: HOST, HOST:PORT or http(s)://HOST:PORT.",
        "127.0.0.1:8080", "cli/src/remote.rs";
    API_KEY = "LLMRT_API_KEY",
        "The key that clients of `llmrt serve` must send, where --api-key is not given; `llmrt ps`, `stop` and `doctor` send it.",
        "unset", "cli/src/cmd/serve.rs";
    HOME = "HOME",
        "The user's folder, when XDG_DATA_HOME or XDG_STATE_HOME is not set; ignored for set-user-id programs.",
        "unset", "host/src/plugin/search.rs";
    MODELS = "LLMRT_MODELS",
        "The folder of the model store.",
        "$XDG_DATA_HOME/llmrt/models", "cli/src/store.rs";
    HUB = "HF_ENDPOINT",
        "The address of the hub that names of hf.co are pulled from.",
        "https://huggingface.co", "cli/src/store.rs";
    HUB_TOKEN = "HF_TOKEN",
        "A token that the hub gets, for models that need an account.",
        "unset", "cli/src/store.rs";
    THREADS = "LLMRT_THREADS",
        "Threads of the pool, the calling one included: 1 to 1024; 0: one per core.",
        "0", "host/src/plugin/registry.rs";
    REPACK = "LLMRT_REPACK",
        "0: matrices stay in the mapped file, even where a copy in the device's own layout would be faster.",
        "1", "host/src/load/place.rs";
    SEAL_CACHE = "LLMRT_SEAL_CACHE",
        "The folder of sealed weights, where --seal-cache is not given.",
        "unset", "cli/src/model.rs";
    SPIN_US = "LLMRT_SPIN_US",
        "Microseconds an idle thread of the pool looks for work before it sleeps.",
        "50", "host/src/plugin/registry.rs";
    POOL = "LLMRT_POOL",
        "How scratch memory of devices is managed: auto, legacy (best fit among cached blocks) or vmm (one range of addresses, mapped as used).",
        "auto", "host/src/pool/mod.rs";
    PLUGIN_OPTIONS = "LLMRT_PLUGIN_OPTIONS",
        "Options of plugins, PLUGIN.KEY=VALUE, separated by `;`; those that the program sets take precedence; ignored for set-user-id programs.",
        "unset", "host/src/plugin/registry.rs";
    PLUGIN_OPTION = "LLMRT_<PLUGIN>_<KEY>",
        "The option `<plugin>.<key>`, such as LLMRT_CPU_ISA for `cpu.isa`, where neither the program nor LLMRT_PLUGIN_OPTIONS sets it; `<plugin>.pool` is LLMRT_POOL for one plugin; ignored for set-user-id programs.",
        "unset", "host/src/plugin/services.rs";
    WATCHDOG_MS = "LLMRT_WATCHDOG_MS",
        "Milliseconds that one call of a device may take to compute or to wait before the device is given up; 0: for ever.",
        "0", "host/src/plugin/registry.rs";
    LOG = "LLMRT_LOG",
        "Level up to which messages of plugins are logged: error, warn, info, debug or trace.",
        "warn", "host/src/plugin/services.rs";
    SPARSE_THRESHOLD = "LLAMA_SPARSE_PRED_THRESHOLD",
        "The score from which on a predictor picks a neuron, of models with predictors, where --sparse-threshold is not given; the name is PowerInfer's.",
        "the file's", "engine/src/memory.rs";
    VALIDATE = "LLMRT_VALIDATE",
        "1: every call between host and plugins is checked, and what breaks a rule is logged and refused; slow, for those who write plugins.",
        "0", "host/src/plugin/registry.rs";
}

impl Knob {
    /// The variable's text; `None` if it is unset or empty.
    pub fn text(&self) -> Option<OsString> {
        self.text_or_empty().filter(|value| !value.is_empty())
    }

    /// The variable's text as it may be shown: a secret is `(hidden)`.
    pub fn shown(&self) -> Option<String> {
        self.text().map(|text| shown(self.name, &text))
    }

    /// The variable's text, for knobs where an empty one means something.
    pub fn text_or_empty(&self) -> Option<OsString> {
        std::env::var_os(self.name)
    }
}

/// A variable's text, unless its name is that of a secret.
fn shown(name: &str, text: &OsStr) -> String {
    let is_secret = ["KEY", "TOKEN", "SECRET", "PASSWORD"].iter().any(|word| name.contains(word));
    if is_secret { "(hidden)".into() } else { text.to_string_lossy().into_owned() }
}

/// The variables that begin with `LLMRT_` and have a value, as it may be shown, by name.
pub fn set_variables() -> Vec<(String, String)> {
    let ours = |(name, text): (OsString, OsString)| {
        let name = name.into_string().ok().filter(|name| name.starts_with("LLMRT_") && !text.is_empty())?;
        let text = shown(&name, &text);
        Some((name, text))
    };
    let mut set: Vec<_> = std::env::vars_os().filter_map(ours).collect();
    set.sort();
    set
}

/// The values of all knobs that are more than text.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Threads of the pool; 0: one per core.
    pub n_threads: usize,
    /// How long an idle thread of the pool spins before it sleeps.
    pub spin: Duration,
    /// Timeout of one call of a device; `None`: no timeout.
    pub watchdog: Option<Duration>,
    /// The score from which on a predictor picks a neuron.
    pub sparse_threshold: Option<f32>,
    /// Whether every call of a plugin is checked.
    pub validate: bool,
    /// Whether matrices are copied into the device's own layout.
    pub repack: bool,
    /// How scratch memory of devices is managed.
    pub pool: PoolKind,
    /// Most detailed log level that is shown, 1 (error) to 5 (trace).
    pub log: u32,
    /// Options of plugins.
    pub options: Vec<(String, String)>,
}

/// Spinning any longer costs more than waking a thread up.
const DEFAULT_SPIN: Duration = Duration::from_micros(50);

/// The settings of this process; the first call parses them.
pub fn settings() -> Result<&'static Settings> {
    static SETTINGS: OnceLock<Result<Settings>> = OnceLock::new();
    let parse = || Settings::parse(|knob| knob.text().filter(|_| knob != PLUGIN_OPTIONS || !is_privileged()));
    SETTINGS.get_or_init(parse).as_ref().map_err(Clone::clone)
}

impl Settings {
    /// Those of an empty environment.
    pub(crate) fn defaults() -> &'static Settings {
        static DEFAULTS: Settings = Settings {
            n_threads: 0,
            spin: DEFAULT_SPIN,
            watchdog: None,
            sparse_threshold: None,
            validate: false,
            repack: true,
            pool: PoolKind::Auto,
            log: 2,
            options: Vec::new(),
        };
        &DEFAULTS
    }

    /// Parses what `text` gives for each knob.
    fn parse(text: impl Fn(Knob) -> Option<OsString>) -> Result<Settings> {
        let number = |knob: Knob, max: u64, expected: &'static str| {
            let Some(value) = text(knob) else { return Ok(None) };
            let found = value.to_str().and_then(|t| t.trim().parse::<u64>().ok()).filter(|&n| n <= max);
            found.map(Some).ok_or_else(|| refused(knob, &value, expected))
        };
        let score = |knob: Knob| {
            let Some(value) = text(knob) else { return Ok(None) };
            let found = value.to_str().and_then(|t| t.trim().parse::<f32>().ok()).filter(|t| !t.is_nan());
            found.map(Some).ok_or_else(|| refused(knob, &value, "a number"))
        };
        let choice = |knob: Knob, names: &[&str], expected: &'static str| {
            let Some(value) = text(knob) else { return Ok(None) };
            let found = value.to_str().and_then(|t| names.iter().position(|name| *name == t.trim()));
            found.map(Some).ok_or_else(|| refused(knob, &value, expected))
        };
        let pools = [PoolKind::Auto, PoolKind::Legacy, PoolKind::Vmm];
        let pool = choice(POOL, &["auto", "legacy", "vmm"], "auto, legacy or vmm")?;
        let levels = ["error", "warn", "info", "debug", "trace"];
        let log = choice(LOG, &levels, "error, warn, info, debug or trace")?;
        const A_DAY_US: u64 = 86_400_000_000;
        let n_threads = number(THREADS, MAX_THREADS as u64, "1 to 1024, or 0 for one per core")?;
        let spin = number(SPIN_US, A_DAY_US, "microseconds, 0 to 86400000000")?;
        let watchdog = number(WATCHDOG_MS, A_DAY_US, "milliseconds, 0 to 86400000000")?;
        Ok(Settings {
            n_threads: n_threads.unwrap_or(0) as usize,
            spin: spin.map_or(DEFAULT_SPIN, Duration::from_micros),
            watchdog: watchdog.filter(|&n| n > 0).map(Duration::from_millis),
            sparse_threshold: score(SPARSE_THRESHOLD)?,
            validate: choice(VALIDATE, &["0", "1"], "0 or 1")? == Some(1),
            repack: choice(REPACK, &["0", "1"], "0 or 1")? != Some(0),
            pool: pool.map_or(PoolKind::Auto, |i| pools[i]),
            log: log.map_or(2, |i| i as u32 + 1),
            options: text(PLUGIN_OPTIONS).map_or(Ok(Vec::new()), |value| options(&value))?,
        })
    }
}

/// The pairs of `LLMRT_PLUGIN_OPTIONS`.
fn options(value: &OsString) -> Result<Vec<(String, String)>> {
    let bad = |text: &str| refused(PLUGIN_OPTIONS, &text.into(), "KEY=VALUE pairs, separated by `;`");
    let text = value.to_string_lossy();
    let pairs = text.split(';').filter(|pair| !pair.trim().is_empty());
    pairs.map(|pair| crate::plugin::option_pair(pair).ok_or_else(|| bad(pair))).collect()
}

fn refused(knob: Knob, value: &OsString, expected: &'static str) -> Error {
    Error::Knob { name: knob.name.into(), value: value.to_string_lossy().into_owned(), expected }
}

/// Parts of the variables with plugin folders that are left out because they are relative.
pub fn relative_plugin_paths() -> Vec<String> {
    let parts = |knob: &Knob| {
        let paths =
            knob.text().into_iter().flat_map(|value| std::env::split_paths(&value).collect::<Vec<_>>());
        let relative = paths.filter(|path| !path.as_os_str().is_empty() && path.is_relative());
        relative.map(|path| relative_part(knob.name, &path)).collect::<Vec<_>>()
    };
    [PLUGIN_PATH, PLUGIN_ADD_PATH].iter().flat_map(parts).collect()
}

fn relative_part(name: &str, path: &Path) -> String {
    format!("{name}: `{}` is relative and not searched; give its absolute path", path.display())
}

/// Warnings about variables that begin with `LLMRT_` and that nothing reads. `options` are the keys that plugins read,
/// and `plugins` the names of those that were considered: variables of others cannot be judged.
pub fn unknown_variables(
    variables: impl Iterator<Item = String>,
    options: &[String],
    plugins: &[String],
) -> Vec<String> {
    // Read by builds, tests and the simulated vendor libraries of this project.
    const OTHERS: [&str; 6] =
        ["CANN_SIM", "CUDA_SIM", "CUDA_KERNELS", "NVRTC_DIR", "REQUIRE_FIXTURES", "TEST_FAULT"];
    let known: Vec<String> = TABLE
        .iter()
        .map(|knob| knob.name.into())
        .chain(options.iter().filter_map(|key| variable(key)))
        .collect();
    let is_unknown = |name: &String| {
        let rest = name.strip_prefix("LLMRT_")?;
        let of_refused = |plugin: &String| {
            let is_loaded = options.iter().any(|key| key.split('.').next() == Some(plugin));
            !is_loaded && rest.starts_with(&format!("{}_", plugin.to_uppercase()))
        };
        let is_known = known.contains(name) || OTHERS.contains(&rest) || plugins.iter().any(of_refused);
        (!is_known).then(|| format!("{name}: nothing reads this variable{}", did_you_mean(name, &known)))
    };
    let mut found: Vec<_> = variables.filter_map(|name| is_unknown(&name)).collect();
    found.sort();
    found
}

/// Warnings about options for plugins that no plugin read. Options of plugins that are not in use are not judged.
pub(crate) fn unread_options<'a>(
    set: impl Iterator<Item = &'a String>,
    read: &[String],
    in_use: &[String],
) -> Vec<String> {
    let is_unread = |key: &&String| {
        let plugin = key.split_once('.').map(|(plugin, _)| plugin);
        !read.contains(key) && plugin.is_none_or(|plugin| in_use.iter().any(|name| name == plugin))
    };
    let warning =
        |key: &String| format!("plugin option {key}: no plugin reads it{}", did_you_mean(key, read));
    set.filter(is_unread).map(warning).collect()
}

/// `; did you mean NAME?`, if there is a name that differs in a few letters.
fn did_you_mean(name: &str, known: &[String]) -> String {
    let nearest = known.iter().map(|other| (n_edits(name, other), other)).min();
    let near = nearest.filter(|(n, _)| *n <= 1 + name.len() / 6);
    near.map_or(String::new(), |(_, other)| format!("; did you mean {other}?"))
}

/// The variable of a plugin's option: that of `cpu.isa` is `LLMRT_CPU_ISA`. `None` for a key of another form.
pub fn variable(key: &str) -> Option<String> {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let (plugin, key) = key.split_once('.').filter(|(plugin, key)| is_word(plugin) && is_word(key))?;
    Some(format!("LLMRT_{}_{}", plugin.to_uppercase(), key.to_uppercase()))
}

/// A plugin's option from the environment; `None` if it is not set. A program that runs with more rights than its
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
    fn every_knob_is_there_once_and_has_a_description() {
        for (i, knob) in TABLE.iter().enumerate() {
            assert!(knob.meaning.ends_with('.') && !knob.default.is_empty(), "{}", knob.name);
            assert!(TABLE[..i].iter().all(|other| other.name != knob.name), "{} twice", knob.name);
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let of = |knob: Knob| shown(knob.name, OsStr::new("abc"));
        assert_eq!([API_KEY, HUB_TOKEN, HOST, LOG].map(of), ["(hidden)", "(hidden)", "abc", "abc"]);
    }

    #[test]
    fn an_unset_knob_has_no_value() {
        let knob = Knob { name: "LLMRT_NO_SUCH_KNOB", meaning: "", default: "", used_in: "" };
        assert_eq!(knob.text(), None);
    }

    /// Settings where one variable is set.
    fn parse(knob: Knob, value: &str) -> Result<Settings> {
        Settings::parse(|k| (k == knob).then(|| value.into()))
    }

    #[test]
    fn a_bad_value_of_any_knob_is_an_error_with_what_is_expected() {
        for (knob, value) in [
            (THREADS, "99999999"),
            (THREADS, "1025"),
            (THREADS, "-1"),
            (THREADS, "two"),
            (SPIN_US, "1e3"),
            (WATCHDOG_MS, "5s"),
            (VALIDATE, "2"),
            (VALIDATE, "yes"),
            (REPACK, "no"),
            (POOL, "best"),
            (LOG, "verbose"),
            (SPARSE_THRESHOLD, "high"),
            (SPARSE_THRESHOLD, "nan"),
            (PLUGIN_OPTIONS, "cpu.isa"),
        ] {
            let e = parse(knob, value).unwrap_err();
            assert!(matches!(e, Error::Knob { .. }), "{e:?}");
            let text = e.to_string();
            assert!(text.starts_with(&format!("{}={value}: expected ", knob.name)), "{text}");
        }
    }

    #[test]
    fn good_values_are_settings() {
        let default = Settings::parse(|_| None).unwrap();
        assert_eq!(default, *Settings::defaults());
        assert_eq!((default.n_threads, default.validate, default.repack, default.log), (0, false, true, 2));
        assert_eq!(parse(THREADS, " 1024 ").unwrap(), Settings { n_threads: 1024, ..default.clone() });
        assert_eq!(parse(THREADS, "0").unwrap(), default);
        assert_eq!(parse(VALIDATE, "1").unwrap(), Settings { validate: true, ..default.clone() });
        assert_eq!(parse(VALIDATE, "0").unwrap(), default);
        assert_eq!(parse(REPACK, "0").unwrap(), Settings { repack: false, ..default.clone() });
        assert_eq!(parse(POOL, "vmm").unwrap(), Settings { pool: PoolKind::Vmm, ..default.clone() });
        assert_eq!(parse(LOG, "trace").unwrap(), Settings { log: 5, ..default.clone() });
        assert_eq!(parse(WATCHDOG_MS, "0").unwrap(), default);
        let with_threshold = Settings { sparse_threshold: Some(-1e30), ..default.clone() };
        assert_eq!(parse(SPARSE_THRESHOLD, "-1e30").unwrap(), with_threshold);
        let options = vec![("a.b".to_string(), "c=d".to_string())];
        assert_eq!(parse(PLUGIN_OPTIONS, "a.b=c=d; ").unwrap(), Settings { options, ..default });
    }

    #[test]
    fn variables_that_nothing_reads_are_listed_with_the_nearest_name() {
        let set = [
            "LLMRT_THREDS",
            "LLMRT_THREADS",
            "LLMRT_CPU_ISA",
            "LLMRT_CPU_IAS",
            "LLMRT_CUDA_POOL",
            "LLMRT_X",
            "PATH",
        ];
        let found = unknown_variables(
            set.map(String::from).into_iter(),
            &["cpu.isa".into()],
            &["cpu".into(), "cuda".into()],
        );
        assert_eq!(
            found,
            [
                "LLMRT_CPU_IAS: nothing reads this variable; did you mean LLMRT_CPU_ISA?",
                "LLMRT_THREDS: nothing reads this variable; did you mean LLMRT_THREADS?",
                "LLMRT_X: nothing reads this variable",
            ]
        );
    }

    #[test]
    fn options_that_no_plugin_reads_are_listed() {
        let set = ["cpu.isa", "cpu.ias", "cuda.graphs", "isa"].map(String::from);
        let found = unread_options(set.iter(), &["cpu.isa".into()], &["cpu".into()]);
        assert_eq!(
            found,
            [
                "plugin option cpu.ias: no plugin reads it; did you mean cpu.isa?",
                "plugin option isa: no plugin reads it"
            ]
        );
        assert!(relative_part("LLMRT_PLUGIN_PATH", Path::new("rel/x")).contains("`rel/x` is relative"));
    }
}
