//! Sealed copies that are kept between runs.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use llmrt_host::load::{self, LoadMode, LoadOptions, SealCache, Weights};

use crate::setup::{APART, Setup, maps_of};
use crate::{pages, shelf};

fn load_with(setup: &Setup, cache: &SealCache) -> Weights {
    let options = LoadOptions { seal_cache: Some(cache), ..LoadOptions::default() };
    let weights = load::load(&setup.files, &setup.all_on(APART), options).unwrap();
    setup.assert_all_equal(&weights, APART);
    let layout = |name: &str| weights.get(name, APART).unwrap().layout_id;
    assert!(["a", "b", "c", "d"].into_iter().all(|name| layout(name) == shelf::LAYOUT));
    weights
}

fn files_of(cache: &SealCache) -> Vec<PathBuf> {
    cache.entries().unwrap().into_iter().map(|entry| entry.path).collect()
}

fn age(path: &Path, seconds: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

#[test]
fn the_second_load_maps_what_the_first_one_made() {
    let (setup, folder) = (pages(), tempfile::tempdir().unwrap());
    let cache = SealCache::new(&folder.path().join("new"), SealCache::LIMIT);
    let first = load_with(&setup, &cache);
    let [path] = &files_of(&cache)[..] else { panic!("one file") };
    assert_eq!(maps_of(path), []);
    assert_eq!(first.warnings(), [""; 0]);
    drop(first);
    age(path, 1000);

    let second = load_with(&setup, &cache);
    assert_eq!(maps_of(path).len(), 1);
    assert_eq!(setup.maps(), [], "nothing of the model's file is needed");
    assert_eq!((files_of(&cache).len(), second.warnings()), (1, &[][..]));
    let used = cache.entries().unwrap()[0].used;
    assert!(SystemTime::now().duration_since(used).is_ok_and(|d| d < Duration::from_secs(500)), "{used:?}");
    assert!(second.check_files(&setup.files).is_ok());
    // The file is cut while it is in use.
    std::fs::File::options().write(true).open(path).unwrap().set_len(4096).unwrap();
    let lost = second.check_files(&setup.files).unwrap_err();
    assert!(lost.to_string().contains(".seal"), "{lost}");
}

#[test]
fn another_model_or_device_has_a_file_of_its_own() {
    let (setup, folder) = (pages(), tempfile::tempdir().unwrap());
    let cache = SealCache::new(folder.path(), SealCache::LIMIT);
    load_with(&setup, &cache);
    age(&setup.path, 5000);
    load_with(&setup, &cache);
    assert_eq!(files_of(&cache).len(), 2, "the model was written again");
    load_with(&setup, &cache);
    assert_eq!(files_of(&cache).len(), 2);
}

#[test]
fn a_broken_file_is_made_again() {
    let (setup, folder) = (pages(), tempfile::tempdir().unwrap());
    let cache = SealCache::new(folder.path(), SealCache::LIMIT);
    load_with(&setup, &cache);
    let path = files_of(&cache).remove(0);
    let whole = std::fs::read(&path).unwrap();
    let broken: [(&str, Vec<u8>); 5] = [
        ("cut", whole[..whole.len() - 64].to_vec()),
        ("cut in its text", whole[..40].to_vec()),
        ("of another kind", vec![7; 300]),
        ("of another key", whole.iter().map(|b| if *b == b'm' { b'n' } else { *b }).collect()),
        ("empty", Vec::new()),
    ];
    for (what, bytes) in broken {
        std::fs::write(&path, bytes).unwrap();
        let weights = load_with(&setup, &cache);
        let [warning] = weights.warnings() else { panic!("{what}: {:?}", weights.warnings()) };
        assert!(warning.contains("is made again"), "{what}: {warning}");
        assert_eq!(std::fs::read(&path).unwrap(), whole, "{what}");
    }
}

#[test]
fn the_least_recently_used_go_where_the_limit_is_reached() {
    let (folder, models) = (tempfile::tempdir().unwrap(), [pages(), pages(), pages()]);
    let all = SealCache::new(folder.path(), SealCache::LIMIT);
    for (setup, seconds) in models[..2].iter().zip([2000, 1000]) {
        load_with(setup, &all);
        let newest = all.entries().unwrap().pop().unwrap();
        age(&newest.path, seconds);
    }
    let [oldest, newer] = &files_of(&all)[..] else { panic!("two files") };
    let size = all.entries().unwrap()[0].size;
    let path = |name: &str| folder.path().join(name);
    let left_over = path("x-0123456789abcdef.0123456789abcdef.part");
    let others = ["y-0123456789abcdef.fedcba9876543210.part", "video.part", "taxes.seal"].map(path);
    others.iter().chain([&left_over]).for_each(|path| std::fs::write(path, "part").unwrap());
    others[1..].iter().chain([&left_over]).for_each(|path| age(path, 100_000));
    let two = SealCache::new(folder.path(), 2 * size);
    load_with(&models[2], &two);
    let left = files_of(&two);
    assert!(left.len() == 2 && !left.contains(oldest) && left.contains(newer), "{left:?}");

    assert!(!left_over.exists() && others.iter().all(|path| path.exists()), "what others left stays");

    let none = SealCache::new(folder.path(), size - 1);
    age(&models[0].path, 7000);
    let weights = load_with(&models[0], &none);
    assert!(weights.warnings()[0].contains("sealed weights are not stored"), "{:?}", weights.warnings());
    assert_eq!(files_of(&none).len(), 2, "nothing is removed for what cannot be stored");
}

/// What a broken file takes is not counted when it is written again.
#[test]
fn a_broken_file_gives_its_room_to_the_next() {
    let (folder, models) = (tempfile::tempdir().unwrap(), [pages(), pages()]);
    let all = SealCache::new(folder.path(), SealCache::LIMIT);
    models.iter().for_each(|setup| drop(load_with(setup, &all)));
    let entries = all.entries().unwrap();
    std::fs::write(&entries[1].path, "broken").unwrap();
    let two = SealCache::new(folder.path(), 2 * entries[0].size);
    models.iter().for_each(|setup| drop(load_with(setup, &two)));
    assert_eq!(files_of(&two).len(), 2);
}

/// Some of the matrices that a file has, as of a device that takes fewer layers.
#[test]
fn a_file_serves_loads_of_fewer_matrices_and_is_written_again_for_more() {
    let (setup, folder) = (pages(), tempfile::tempdir().unwrap());
    let cache = SealCache::new(folder.path(), SealCache::LIMIT);
    let load = |n: usize| {
        let options = LoadOptions { seal_cache: Some(&cache), ..LoadOptions::default() };
        let weights = load::load(&setup.files, &setup.all_on(APART)[..n], options).unwrap();
        let equal =
            setup.files.model.tensors[..n].iter().map(|t| setup.assert_equal(&weights, &t.name, APART));
        assert_eq!(equal.count(), n);
        let entries = cache.entries().unwrap();
        assert_eq!(entries.len(), 1);
        (entries[0].size, weights.warnings().len())
    };
    let few = load(2);
    assert_eq!((few.1, load(1)), (0, few));
    let (all, n_warnings) = load(4);
    assert!(all > few.0 && n_warnings == 1, "{all} bytes, {n_warnings} warnings");
    assert_eq!(load(2), (all, 0));
}

#[test]
fn a_load_that_is_cancelled_while_it_stores_leaves_nothing() {
    let (setup, folder) = (pages(), tempfile::tempdir().unwrap());
    let cache = SealCache::new(folder.path(), SealCache::LIMIT);
    let mut parts = Vec::new();
    let progress = &mut |part| {
        parts.push(part);
        std::fs::read_dir(folder.path()).unwrap().count() == 0
    };
    let options =
        LoadOptions { seal_cache: Some(&cache), progress: Some(progress), ..LoadOptions::default() };
    let result = load::load(&setup.files, &setup.all_on(APART), options);
    assert!(matches!(result, Err(load::Error::Cancelled)), "{result:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(parts.is_sorted() && parts.last() < Some(&1.0), "{parts:?}");
}

/// Files are not mapped, and all numbers are looked at in the model's.
#[test]
fn modes_that_do_not_map_and_checks_do_without_the_cache() {
    let (setup, folder) = (pages(), tempfile::tempdir().unwrap());
    let cache = SealCache::new(folder.path(), SealCache::LIMIT);
    for (mode, check_tensors) in [(LoadMode::Read, false), (LoadMode::Mmap, true)] {
        let options = LoadOptions { mode, check_tensors, seal_cache: Some(&cache), ..LoadOptions::default() };
        load::load(&setup.files, &setup.all_on(APART), options).unwrap();
        assert!(files_of(&cache).is_empty());
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_a_warning() {
    let (setup, folder) = (pages(), tempfile::tempdir().unwrap());
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let weights = load_with(&setup, &SealCache::new(&file, SealCache::LIMIT));
    assert!(weights.warnings()[0].contains("sealed weights are not stored"), "{:?}", weights.warnings());
}
