//! Where plugin files are searched for, and in which order.

use super::trust;
use crate::knobs;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What to search.
#[derive(Clone, Debug, Default)]
pub struct DiscoverOptions {
    /// Files or folders named by the user (`--plugin`); first in order.
    pub extra: Vec<PathBuf>,
    /// Search nothing else: for tests, and for `llmrt conform FILE`.
    pub only_extra: bool,
}

/// What of the environment and the program decides the places.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `LLMRT_PLUGIN_PATH`.
    pub plugin_path: Option<OsString>,
    /// `LLMRT_PLUGIN_ADD_PATH`.
    pub add_path: Option<OsString>,
    /// Folder of the executable.
    pub exe_dir: Option<PathBuf>,
    /// `XDG_DATA_HOME`.
    pub data_home: Option<OsString>,
    /// `HOME`.
    pub home: Option<OsString>,
    /// The program runs with more rights than its user has: the environment is not to be trusted.
    pub is_privileged: bool,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Surroundings {
        let exe = std::env::current_exe().ok();
        Surroundings {
            plugin_path: knobs::PLUGIN_PATH.text_or_empty(),
            add_path: knobs::PLUGIN_ADD_PATH.text(),
            exe_dir: exe.and_then(|exe| Some(exe.parent()?.to_path_buf())),
            data_home: knobs::DATA_HOME.text(),
            home: knobs::HOME.text(),
            is_privileged: knobs::is_privileged(),
        }
    }
}

/// What a search finds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// A file that may be a plugin.
    File(PathBuf),
    /// A folder with such files, all of them skipped, since other users can add to it.
    UnsafeFolder(PathBuf, String),
}

/// Files that may be plugins, in order of preference; each once.
pub fn candidates(options: &DiscoverOptions, around: &Surroundings) -> Vec<Found> {
    let mut found = Vec::new();
    for place in places(options, around) {
        if !place.is_dir() {
            found.push(Found::File(place));
            continue;
        }
        let files = plugin_files(&place);
        match trust::check_folder(&place) {
            Ok(()) => found.extend(files.into_iter().map(Found::File)),
            Err(_) if files.is_empty() => {}
            Err(why) => found.push(Found::UnsafeFolder(place, format!("not searched for plugins: {why}"))),
        }
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|file| seen.insert(file.clone()));
    found
}

/// Folders and files to look at. Never the working directory: an empty or relative part of a path is left out.
fn places(options: &DiscoverOptions, around: &Surroundings) -> Vec<PathBuf> {
    let mut places = options.extra.clone();
    if options.only_extra {
        return places;
    }
    let trusted = |value: &Option<OsString>| value.clone().filter(|_| !around.is_privileged);
    let absolute = |value: OsString| -> Vec<PathBuf> {
        std::env::split_paths(&value).filter(|path| path.is_absolute()).collect()
    };
    if let Some(path) = trusted(&around.plugin_path) {
        places.extend(absolute(path));
        return places;
    }
    places.extend(trusted(&around.add_path).map(absolute).unwrap_or_default());
    if let Some(dir) = &around.exe_dir {
        places.push(dir.clone());
        // An installed program is PREFIX/bin/llmrt. Beside any other folder, `lib` is none of ours.
        let prefix = dir.parent().filter(|_| dir.file_name().is_some_and(|name| name == "bin"));
        places.extend(prefix.map(|prefix| prefix.join("lib/llmrt/plugins")));
    }
    let home = || trusted(&around.home).map(|home| PathBuf::from(home).join(".local/share"));
    let data = trusted(&around.data_home).map(PathBuf::from).or_else(home).filter(|dir| dir.is_absolute());
    places.extend(data.map(|dir| dir.join("llmrt/plugins")));
    places.push("/usr/local/lib/llmrt/plugins".into());
    places.push("/usr/lib/llmrt/plugins".into());
    places.retain(|place| options.extra.contains(place) || place.exists());
    places
}

/// `libllmrt_*.so` of a folder, sorted, so that directory order never matters.
fn plugin_files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let is_plugin = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libllmrt_") && name.ends_with(".so")
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_plugin).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of a program in /opt/bin, in order; folders need not exist.
    fn check(around: Surroundings, expected: &[&str]) {
        let extra = vec!["/x/libllmrt_a.so".into()];
        let options = DiscoverOptions { extra, only_extra: false };
        let around = Surroundings { exe_dir: None, ..around };
        let mut places = places(&options, &around);
        places.retain(|p| !p.starts_with("/usr"));
        assert_eq!(places, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    fn folder() -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap().to_string();
        (dir, path)
    }

    #[test]
    fn what_the_user_names_comes_first_and_the_path_variable_replaces_the_rest() {
        let (_keep, dir) = folder();
        let data = Some(dir.clone().into());
        let named = "/x/libllmrt_a.so";
        check(
            Surroundings { plugin_path: Some("/p:/q".into()), data_home: data, ..Default::default() },
            &[named, "/p", "/q"],
        );
    }

    #[test]
    fn the_add_variable_comes_before_the_usual_places() {
        let (_keep, dir) = folder();
        std::fs::create_dir_all(format!("{dir}/llmrt/plugins")).unwrap();
        let around = Surroundings {
            add_path: Some(dir.clone().into()),
            data_home: Some(dir.clone().into()),
            ..Default::default()
        };
        check(around, &["/x/libllmrt_a.so", &dir, &format!("{dir}/llmrt/plugins")]);
    }

    #[test]
    fn relative_and_empty_parts_are_left_out() {
        check(
            Surroundings { plugin_path: Some(".:rel::/p".into()), ..Default::default() },
            &["/x/libllmrt_a.so", "/p"],
        );
    }

    #[test]
    fn a_privileged_program_ignores_the_environment() {
        let (_keep, dir) = folder();
        let value = Some(OsString::from(dir));
        let around = Surroundings {
            plugin_path: value.clone(),
            add_path: value.clone(),
            data_home: value.clone(),
            home: value,
            is_privileged: true,
            exe_dir: None,
        };
        check(around, &["/x/libllmrt_a.so"]);
    }

    #[test]
    fn files_of_a_folder_are_sorted_and_others_left_alone() {
        let (_keep, dir) = folder();
        for name in ["libllmrt_b.so", "libllmrt_a.so", "libother.so", "libllmrt_c.txt"] {
            std::fs::write(format!("{dir}/{name}"), "").unwrap();
        }
        let options = DiscoverOptions { extra: vec![dir.clone().into()], only_extra: true };
        let files = candidates(&options, &Surroundings::default());
        assert_eq!(
            files,
            [format!("{dir}/libllmrt_a.so"), format!("{dir}/libllmrt_b.so")].map(|f| Found::File(f.into()))
        );
    }

    #[test]
    fn a_folder_that_others_can_add_to_is_refused_as_a_whole() {
        use std::os::unix::fs::PermissionsExt;
        let (_keep, dir) = folder();
        let options = DiscoverOptions { extra: vec![dir.clone().into()], only_extra: true };
        let found = |mode| {
            std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).unwrap();
            candidates(&options, &Surroundings::default())
        };
        assert_eq!(found(0o1777), [], "without plugins there is nothing to report");
        std::fs::write(format!("{dir}/libllmrt_a.so"), "").unwrap();
        for mode in [0o777, 0o1777] {
            let found = found(mode);
            let [Found::UnsafeFolder(place, why)] = &found[..] else { panic!("{found:?}") };
            assert!(place == Path::new(&dir) && why.contains("anyone may write"), "{why}");
        }
        assert_eq!(found(0o700), [Found::File(format!("{dir}/libllmrt_a.so").into())]);
    }

    #[test]
    fn the_library_folder_beside_the_program_is_that_of_an_installed_one() {
        let (_keep, dir) = folder();
        std::fs::create_dir_all(format!("{dir}/lib/llmrt/plugins")).unwrap();
        for (name, is_installed) in [("bin", true), ("b", false), ("release", false)] {
            let exe_dir = PathBuf::from(format!("{dir}/{name}"));
            std::fs::create_dir(&exe_dir).unwrap();
            let around = Surroundings { exe_dir: Some(exe_dir), ..Default::default() };
            let places = places(&DiscoverOptions::default(), &around);
            let library = PathBuf::from(format!("{dir}/lib/llmrt/plugins"));
            assert_eq!(places.contains(&library), is_installed, "{name}");
        }
    }
}
