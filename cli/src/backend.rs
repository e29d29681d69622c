//! `--backend NAME[:I],…`: which devices a person means.

use crate::error::{Error, Exit, Result};
use std::path::{Path, PathBuf};

/// A device that can be named.
#[derive(Clone, Debug)]
pub struct Offered {
    /// Its id: `cpu`, `cuda:0`.
    pub id: String,
    /// Its plugin's name.
    pub plugin: String,
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
    fn is_file(&self, name: &str) -> bool {
        let same = |path: &Path| {
            let asked = Path::new(name).canonicalize().ok();
            path == Path::new(name) || (asked.is_some() && asked == path.canonicalize().ok())
        };
        self.file_name().as_deref() == Some(name) || self.path.as_deref().is_some_and(same)
    }
}

/// Rows of `offered` in the order asked for, each once. A name is a device's id, its plugin's name or its plugin's
/// file, by name or path; of several devices `:I` takes one, and without it all are taken.
pub fn choose(wanted: &[String], offered: &[Offered]) -> Result<Vec<usize>> {
    let mut rows = Vec::new();
    for text in wanted {
        for row in find(text.trim(), offered)? {
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

fn find(text: &str, offered: &[Offered]) -> Result<Vec<usize>> {
    if text.is_empty() {
        return Err(Error::usage(
            "--backend: an entry is empty: expected NAME or NAME:INDEX between the commas",
        ));
    }
    let (name, index) = match text.rsplit_once(':') {
        Some((name, digits)) if digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty() => {
            (name, Some(digits.parse().unwrap_or(usize::MAX)))
        }
        _ => (text, None),
    };
    let rows_where = |is_it: &dyn Fn(&Offered) -> bool| -> Vec<usize> {
        offered.iter().enumerate().filter(|(_, o)| is_it(o)).map(|(row, _)| row).collect()
    };
    let exact = rows_where(&|o| o.id == text);
    let named = match exact.is_empty() {
        false => exact,
        true => {
            let all = rows_where(&|o| o.plugin == name || o.is_file(name));
            match index {
                None => all,
                Some(i) => all.get(i).into_iter().copied().collect(),
            }
        }
    };
    if named.is_empty() {
        return Err(Error::usage(format!(
            "--backend {text}: there is no such device; there {}; `llmrt devices` and `llmrt plugins` say more",
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
            path: path.map(PathBuf::from),
            unusable: unusable.map(String::from),
        };
        vec![
            row("sim:big", "sim", Some("/drivers/libllmrt_sim.so"), None),
            row("sim:small", "sim", Some("/drivers/libllmrt_sim.so"), None),
            row("broken", "broken", Some("/drivers/libllmrt_broken.so"), Some("it did not open")),
            row("cpu", "cpu", None, None),
        ]
    }

    fn check(wanted: &str, expected: &[usize]) {
        let wanted: Vec<_> = wanted.split(',').map(String::from).collect();
        assert_eq!(choose(&wanted, &offered()).unwrap(), expected);
    }

    fn refused(wanted: &str, exit: Exit, expected: &str) {
        let wanted: Vec<_> = wanted.split(',').map(String::from).collect();
        let error = choose(&wanted, &offered()).unwrap_err();
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
    fn the_order_is_the_one_asked_for_and_each_device_comes_once() {
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
