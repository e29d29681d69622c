//! What the machine is: the chip, versions, libraries and variables that the libraries read.

use super::Probe;
use llmrt_plugin::Level;
use std::ffi::OsString;
use std::path::Path;

/// Where the driver and the firmware state their versions.
const VERSIONS: [(&str, &str); 2] = [
    ("driver", "/usr/local/Ascend/driver/version.info"),
    ("firmware", "/usr/local/Ascend/firmware/version.info"),
];

pub fn report(probe: &Probe<'_>) {
    let cann = &probe.runtime.cann;
    let or_unknown = |text: String| if text.is_empty() { "unknown".to_string() } else { text };
    probe.log(Level::Info, &format!("chip {}", or_unknown(probe.runtime.soc_name())));
    probe.log(Level::Info, &format!("release {}", or_unknown(probe.runtime.release())));
    probe.log(Level::Info, &format!("libraries {}", cann.files.join(", ")));
    for (part, file) in VERSIONS {
        let text = std::fs::read_to_string(file).ok();
        let version = text.as_deref().and_then(version).unwrap_or_else(|| format!("unknown, no {file}"));
        probe.log(Level::Info, &format!("{part} {version}"));
    }
    for (level, text) in variables(|name| std::env::var_os(name)) {
        probe.log(level, &text);
    }
    if let Some(warning) = &cann.warning {
        probe.log(Level::Warn, warning);
    }
}

/// The value of `Version=` in any case.
fn version(text: &str) -> Option<String> {
    let value = |line: &str| {
        let (name, value) = line.split_once('=')?;
        name.trim().eq_ignore_ascii_case("version").then(|| value.trim().to_string())
    };
    text.lines().find_map(value).filter(|version| !version.is_empty())
}

/// A line per variable; a warning where it is likely to be wrong.
fn variables(get: impl Fn(&str) -> Option<OsString>) -> Vec<(Level, String)> {
    let folder = |name: &str| match get(name) {
        None => (Level::Info, format!("{name} is not set")),
        Some(path) if Path::new(&path).is_dir() => (Level::Info, format!("{name}={}", path.display())),
        Some(path) => {
            (Level::Warn, format!("{name}={} is no folder: run the toolkit's set_env.sh", path.display()))
        }
    };
    let mut lines: Vec<(Level, String)> = ["ASCEND_HOME_PATH", "ASCEND_OPP_PATH"].map(folder).into();
    let plain = |name: &str| get(name).map(|value| (Level::Info, format!("{name}={}", value.display())));
    lines.extend(["ASCEND_RT_VISIBLE_DEVICES", "ACLNN_CACHE_LIMIT"].into_iter().filter_map(plain));
    let Some(paths) = get("LD_LIBRARY_PATH") else { return lines };
    let stubs = std::env::split_paths(&paths)
        .take_while(|path| !path.join("libascendcl.so").is_file() || is_of_stubs(path))
        .find(|path| is_of_stubs(path));
    lines.push(match stubs {
        None => (Level::Info, format!("LD_LIBRARY_PATH={}", paths.display())),
        Some(stubs) => {
            let remedy = "put the toolkit's lib64 and the driver's lib64 before it";
            (
                Level::Warn,
                format!("LD_LIBRARY_PATH has the stub libraries of {} first: {remedy}", stubs.display()),
            )
        }
    });
    lines
}

/// The toolkit's folders of libraries without code.
fn is_of_stubs(folder: &Path) -> bool {
    folder.components().any(|part| matches!(part.as_os_str().to_str(), Some("devlib" | "stub" | "stubs")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_the_files_of_driver_and_firmware() {
        assert_eq!(version("Version=24.1.rc2\nascendhal_version=7.35\n").as_deref(), Some("24.1.rc2"));
        assert_eq!(version("package=x\nversion = 7.1\n").as_deref(), Some("7.1"));
        assert_eq!(version("innerversion=V100\n"), None);
    }

    #[test]
    fn stub_libraries_before_real_ones_are_a_warning() {
        let toolkit = std::env::temp_dir().join(format!("llmrt-stubs-{}", std::process::id()));
        let (real, stubs) = (toolkit.join("lib64"), toolkit.join("devlib"));
        for folder in [&real, &stubs] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("libascendcl.so"), "").unwrap();
        }
        let last = |order: [&Path; 2]| {
            let paths = std::env::join_paths(order).unwrap();
            variables(|name| (name == "LD_LIBRARY_PATH").then(|| paths.clone())).pop().unwrap()
        };
        assert!(matches!(last([&real, &stubs]), (Level::Info, _)));
        let (level, text) = last([&stubs, &real]);
        assert!(matches!(level, Level::Warn) && text.contains("devlib first: put"), "{text}");
        std::fs::remove_dir_all(&toolkit).unwrap();
    }

    #[test]
    fn a_path_that_is_no_folder_is_a_warning() {
        let set = |name: &str| (name == "ASCEND_OPP_PATH").then(|| OsString::from("/gone"));
        let lines = variables(set);
        assert_eq!(lines[0].1, "ASCEND_HOME_PATH is not set");
        assert!(
            matches!(lines[1], (Level::Warn, _)) && lines[1].1.contains("/gone is no folder"),
            "{:?}",
            lines[1].1
        );
    }
}
