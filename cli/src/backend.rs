//! `--backend NAME[:D],…`: which devices a person means.

use crate::error::{Error, Exit, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A device that can be named.
#[derive(Clone, Debug)]
pub struct Offered {
    /// Its id: `cpu`, `cuda:0`.
    pub id: String,
    /// Its plugin's name.
    pub plugin: String,
    /// Its name among the plugin's devices.
    pub device: String,
    /// Its plugin's file; none for the one that is linked in.
    pub path: Option<PathBuf>,
    /// Why it cannot be used.
    pub unusable: Option<String>,
}

impl Offered {
    /// The name of its plugin's file.
    pub fn file_name(&self) -> Option<String> {
        Some(self.path.as_ref()?.file_name()?.to_string_lossy().into_owned())
    }

    /// Whether `name` is the name of its plugin's file, or a path to it.
    fn is_file(&self, name: &OsStr) -> bool {
        self.path.as_deref().is_some_and(|path| is_path(name, path))
    }
}

fn is_path(name: &OsStr, path: &Path) -> bool {
    let is_same = || {
        let named = Path::new(name).canonicalize().ok();
        named.is_some() && named == path.canonicalize().ok()
    };
    path == Path::new(name) || path.file_name() == Some(name) || is_same()
}

/// Whether an entry of `--backend` names this plugin file, which may be one that was not loaded.
pub fn names_file(text: &OsStr, path: &Path) -> bool {
    let text = trimmed(text);
    let name = split_device(text).map_or(text, |(name, _)| name);
    let of_plugin = OsString::from(format!("libllmrt_{}.so", name.display()));
    is_path(text, path) || is_path(name, path) || path.file_name() == Some(&of_plugin)
}

fn trimmed(text: &OsStr) -> &OsStr {
    OsStr::from_bytes(text.as_bytes().trim_ascii())
}

/// Rows of `offered` in the requested order, each once. A name is a device's id, its plugin's name or its plugin's
/// file, by name or path. Of a plugin's devices `:D` takes the one with this index or name, or all whose names go on
/// with a dot after it; without it all are taken.
pub fn choose(names: &[OsString], offered: &[Offered]) -> Result<Vec<usize>> {
    let mut rows = Vec::new();
    for text in names {
        for row in find(trimmed(text), offered)? {
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

fn find(text: &OsStr, offered: &[Offered]) -> Result<Vec<usize>> {
    if text.is_empty() {
        return Err(Error::usage(
            "--backend: an entry is empty: expected NAME or NAME:INDEX between the commas",
        ));
    }
    let rows_where = |is_it: &dyn Fn(&Offered) -> bool| -> Vec<usize> {
        offered.iter().enumerate().filter(|(_, o)| is_it(o)).map(|(row, _)| row).collect()
    };
    let of_plugin = |name: &OsStr| rows_where(&|o| name == o.plugin.as_str() || o.is_file(name));
    let by_id = rows_where(&|o| text == o.id.as_str());
    let whole = if by_id.is_empty() { of_plugin(text) } else { by_id };
    let named = match split_device(text) {
        Some((name, which)) if whole.is_empty() => pick(of_plugin(name), which, offered),
        _ => whole,
    };
    let text = text.display();
    if named.is_empty() {
        return Err(Error::usage(format!(
            "--backend {text}: there is no such device; there {}; `llmrt devices` and `llmrt plugins` show more",
            list(offered)
        )));
    }
    match named.iter().find_map(|&row| Some((row, offered[row].unusable.as_ref()?))) {
        Some((row, why)) => Err(Error::new(
            Exit::Device,
            format!("--backend {text}: {} cannot be used: {why}", offered[row].id),
        )),
        None => Ok(named),
    }
}

/// `NAME:D` at its last colon. A name of a file may be no UTF-8.
fn split_device(text: &OsStr) -> Option<(&OsStr, &str)> {
    let bytes = text.as_bytes();
    let colon = bytes.iter().rposition(|b| *b == b':')?;
    let which = std::str::from_utf8(&bytes[colon + 1..]).ok()?;
    Some((OsStr::from_bytes(&bytes[..colon]), which))
}

/// Of a plugin's devices the ones that `which` means: by name, by the name of a group, or by index.
fn pick(rows: Vec<usize>, which: &str, offered: &[Offered]) -> Vec<usize> {
    let rows_where = |is_it: &dyn Fn(&str) -> bool| -> Vec<usize> {
        rows.iter().copied().filter(|&row| is_it(&offered[row].device)).collect()
    };
    let named = rows_where(&|name| name == which);
    let group = rows_where(&|name| name.strip_prefix(which).is_some_and(|rest| rest.starts_with('.')));
    let is_index = !which.is_empty() && which.bytes().all(|b| b.is_ascii_digit());
    match (named.is_empty(), group.is_empty(), is_index) {
        (false, ..) => named,
        (true, false, _) => group,
        (true, true, true) => rows.get(which.parse().unwrap_or(usize::MAX)).into_iter().copied().collect(),
        (true, true, false) => Vec::new(),
    }
}

fn list(offered: &[Offered]) -> String {
    let names: Vec<_> = offered
        .iter()
        .map(|o| match o.file_name() {
            Some(file) => format!("{} ({file})", o.id),
            None => o.id.clone(),
        })
        .collect();
    match names.len() {
        0 => "are none".into(),
        1 => format!("is {}", names[0]),
        _ => format!("are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered() -> Vec<Offered> {
        let row = |id: &str, plugin: &str, path: Option<&str>, unusable: Option<&str>| Offered {
            id: id.into(),
            plugin: plugin.into(),
            device: id.split_once(':').map_or("0", |(_, device)| device).into(),
            path: path.map(PathBuf::from),
            unusable: unusable.map(String::from),
        };
        vec![
            row("sim:big", "sim", Some("/drivers/libllmrt_sim.so"), None),
            row("sim:small", "sim", Some("/drivers/libllmrt_sim.so"), None),
            row("broken", "broken", Some("/drivers/libllmrt_broken.so"), Some("it did not open")),
            row("cpu", "cpu", None, None),
            row("cards:duo.0", "cards", Some("/drivers/libllmrt_cards.so"), None),
            row("cards:duo.1", "cards", Some("/drivers/libllmrt_cards.so"), None),
            row("cards:solo", "cards", Some("/drivers/libllmrt_cards.so"), None),
        ]
    }

    fn check(names: &str, expected: &[usize]) {
        let names: Vec<_> = names.split(',').map(OsString::from).collect();
        assert_eq!(choose(&names, &offered()).unwrap(), expected);
    }

    fn refused(names: &str, exit: Exit, expected: &str) {
        let names: Vec<_> = names.split(',').map(OsString::from).collect();
        let error = choose(&names, &offered()).unwrap_err();
        assert_eq!(error.exit, exit);
        assert!(error.message.contains(expected), "{}", error.message);
    }

    #[test]
    fn a_plugins_name_means_all_its_devices_and_an_index_one() {
        check("sim", &[0, 1]);
        check("sim:1", &[1]);
        check("cpu:0", &[3]);
    }

    #[test]
    fn ids_file_names_and_paths_work_too() {
        check("sim:small", &[1]);
        check("libllmrt_sim.so", &[0, 1]);
        check("libllmrt_sim.so:1", &[1]);
        check("/drivers/libllmrt_sim.so", &[0, 1]);
        check("/drivers/libllmrt_sim.so:1", &[1]);
    }

    #[test]
    fn names_of_files_need_not_be_utf_8() {
        let mut offered = offered();
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        offered.truncate(2);
        offered[1].path = Some(path(b"/drivers/caf\xe9.so"));
        for name in [&b"caf\xe9.so"[..], b"/drivers/caf\xe9.so", b"caf\xe9.so:0", b" caf\xe9.so"] {
            let found = choose(&[OsStr::from_bytes(name).into()], &offered).unwrap();
            assert_eq!(found, [1], "{}", name.escape_ascii());
            assert!(names_file(OsStr::from_bytes(name), &path(b"/drivers/caf\xe9.so")));
        }
        for name in [&b"caf\xe8.so"[..], b"caf\xe9.so:\xe9", b"\xe9"] {
            let error = choose(&[OsStr::from_bytes(name).into()], &offered).unwrap_err();
            assert!(error.message.contains("there is no such device"), "{}", error.message);
        }
    }

    #[test]
    fn a_file_that_was_not_loaded_is_named_by_its_name_path_or_plugin() {
        let file = Path::new("/drivers/libllmrt_cards.so");
        for name in ["cards", "cards:0", "libllmrt_cards.so", "/drivers/libllmrt_cards.so:duo"] {
            assert!(names_file(OsStr::new(name), file), "{name}");
        }
        for name in ["card", "/other/libllmrt_cards.so", "sim"] {
            assert!(!names_file(OsStr::new(name), file), "{name}");
        }
    }

    #[test]
    fn devices_of_a_plugin_go_by_name_and_a_group_of_them_by_the_part_before_the_dot() {
        check("cards:solo", &[6]);
        check("cards:duo", &[4, 5]);
        check("cards:duo.1", &[5]);
        check("/drivers/libllmrt_cards.so:duo", &[4, 5]);
        refused("cards:du", Exit::Usage, "no such device");
        refused("cards:", Exit::Usage, "no such device");
    }

    #[test]
    fn the_order_is_the_requested_one_and_each_device_comes_once() {
        check("cpu, sim:1,sim", &[3, 1, 0]);
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_is() {
        refused("cuda", Exit::Usage, "there are sim:big (libllmrt_sim.so)");
        refused("cpu:1", Exit::Usage, "--backend cpu:1: there is no such device");
        refused("cpu:99999999999999999999", Exit::Usage, "no such device");
        refused("/other/libllmrt_sim.so", Exit::Usage, "no such device");
        refused("cpu,", Exit::Usage, "an entry is empty");
        refused("broken", Exit::Device, "cannot be used: it did not open");
    }
}
