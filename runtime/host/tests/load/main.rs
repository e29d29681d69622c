//! Loading weights: files to devices, in every mode.

mod setup;
mod shelf;

#[allow(dead_code)]
#[path = "../../src/load/testing.rs"]
mod testing;

mod copies;
mod lock;
mod parts;
mod seal_cache;
mod truncated;

use llmrt_abi::DType;
use llmrt_gguf::writer::{self, Tables};
use llmrt_gguf::{TensorShape, Value};
use llmrt_host::load::{self, LoadMode, LoadOptions};
use setup::{FAR, MODES, NEAR, Setup, TINY, address, maps_of};
use testing::{checkpoint, gguf, split_model};

/// Tensors of 1, 3 and 2 pages and a small one.
fn pages() -> Setup {
    Setup::new(&gguf(&[("a", 1024), ("b", 3072), ("c", 2048), ("d", 7)], &[]))
}

#[test]
fn every_mode_brings_the_same_bytes_to_every_kind_of_device() {
    let setup = pages();
    for mode in MODES {
        for row in [NEAR, FAR] {
            let weights = setup.load(&setup.all_on(row), mode).unwrap();
            setup.assert_all_equal(&weights, row);
            assert!(weights.get("a", 1 - row).is_none());
        }
    }
}

#[test]
fn devices_that_read_host_memory_use_the_map_in_place() {
    let setup = pages();
    let weights = setup.load(&setup.all_on(NEAR), LoadMode::Mmap).unwrap();
    let maps = setup.maps();
    for name in ["a", "b", "c", "d"] {
        let at = address(&weights, name, NEAR);
        assert!(maps.iter().any(|map| map.contains(&at)), "{name} at {at:x}, maps {maps:x?}");
        assert_eq!(weights.get(name, NEAR).unwrap().layout_id, 0);
    }
    let one = weights.get("a", NEAR).unwrap();
    assert!(one.buffer.is_same(&weights.get("d", NEAR).unwrap().buffer));
    drop(weights);
    assert_eq!(setup.maps(), []);
}

#[test]
fn a_buffer_keeps_its_memory_when_the_weights_are_gone() {
    for mode in [LoadMode::MmapMlock, LoadMode::ReadMlock] {
        let setup = pages();
        let weights = setup.load(&setup.all_on(NEAR), mode).unwrap();
        let at = weights.get("b", NEAR).unwrap().clone();
        drop(weights);
        let mut bytes = vec![0; 4 * 3072];
        at.buffer.read(at.offset, &mut bytes).unwrap();
        assert_eq!(bytes, testing::data(1, 3072));
    }
}

#[test]
fn without_a_map_nothing_is_mapped() {
    let setup = pages();
    let weights = setup.load(&setup.all_on(NEAR), LoadMode::Read).unwrap();
    assert_eq!(setup.maps(), []);
    assert_eq!(address(&weights, "b", NEAR) % 64, 0);
}

#[test]
fn the_map_shrinks_to_what_is_used_in_place() {
    let setup = pages();
    let weights = setup.load(&setup.all_on(FAR), LoadMode::Mmap).unwrap();
    assert_eq!(setup.maps(), [], "all tensors are elsewhere");
    drop(weights);

    let requests = [
        setup.request("a", NEAR),
        setup.request("b", FAR),
        setup.request("c", FAR),
        setup.request("d", NEAR),
    ];
    let weights = setup.load(&requests, LoadMode::Mmap).unwrap();
    let maps = setup.maps();
    assert_eq!(maps.len(), 2, "a gap where b and c were: {maps:x?}");
    assert!(maps[0].contains(&address(&weights, "a", NEAR)));
    assert!(maps[1].contains(&address(&weights, "d", NEAR)));
    for (name, row) in [("a", NEAR), ("b", FAR), ("c", FAR), ("d", NEAR)] {
        setup.assert_equal(&weights, name, row);
    }
    assert!(weights.buffer_bytes(NEAR) < setup.files.file_bytes());
    assert_eq!(weights.buffer_bytes(FAR), 4 * (3072 + 2048));
}

#[test]
fn a_tensor_can_be_on_two_devices_and_be_requested_twice() {
    let setup = pages();
    let requests = [setup.request("b", NEAR), setup.request("b", FAR), setup.request("b", FAR)];
    let weights = setup.load(&requests, LoadMode::Mmap).unwrap();
    setup.assert_equal(&weights, "b", NEAR);
    setup.assert_equal(&weights, "b", FAR);
    assert_eq!(weights.on(FAR).count(), 1);
}

#[test]
fn weights_with_memory_of_their_own_are_aligned_and_sealed_once() {
    let setup = pages();
    for mode in MODES {
        let weights = setup.load(&setup.all_on(FAR), mode).unwrap();
        for (name, at) in weights.on(FAR) {
            assert_eq!((at.layout_id, at.offset % 256), (shelf::LAYOUT, 0), "{name}");
        }
    }
}

#[test]
fn weights_fill_as_many_buffers_as_the_largest_size_requires() {
    let setup = Setup::new(&gguf(&[("a", 100), ("b", 100), ("c", 100)], &[]));
    let weights = setup.load(&setup.all_on(TINY), LoadMode::Mmap).unwrap();
    setup.assert_all_equal(&weights, TINY);
    let [a, b, c] = ["a", "b", "c"].map(|name| weights.get(name, TINY).unwrap());
    assert!(a.buffer.is_same(&b.buffer) && !a.buffer.is_same(&c.buffer));
}

#[test]
fn too_little_memory_is_an_error_that_names_the_device() {
    let setup = pages();
    let error = setup.load(&setup.all_on(TINY), LoadMode::Mmap).unwrap_err();
    assert!(error.is_oom());
    let message = error.to_string();
    assert!(message.contains("shelf:tiny: cannot take 4096 bytes of weights"), "{message}");
    assert!(message.ends_with("which takes the layers that do not fit: --backend A,B"), "{message}");
    assert_eq!(setup.maps(), []);
}

#[test]
fn large_tensors_come_in_chunks() {
    let setup = Setup::new(&gguf(&[("small", 3), ("large", 9 << 20)], &[]));
    for (mode, row) in [(LoadMode::Mmap, FAR), (LoadMode::Read, FAR), (LoadMode::Read, NEAR)] {
        let mut parts = Vec::new();
        let progress = &mut |part| {
            parts.push(part);
            true
        };
        let options = LoadOptions { mode, progress: Some(progress), ..LoadOptions::default() };
        let weights = load::load(&setup.files, &setup.all_on(row), options).unwrap();
        setup.assert_all_equal(&weights, row);
        assert_eq!(parts.len(), 11, "start, small, eight of nine chunks, end: {parts:?}");
    }
}

#[test]
fn progress_grows_from_0_to_1_which_comes_once_and_last() {
    let setup = pages();
    for (mode, row) in MODES.into_iter().flat_map(|mode| [(mode, NEAR), (mode, FAR)]) {
        let mut parts = Vec::new();
        let progress = &mut |part| {
            parts.push(part);
            true
        };
        load::load(
            &setup.files,
            &setup.all_on(row),
            LoadOptions { mode, check_tensors: true, progress: Some(progress), ..LoadOptions::default() },
        )
        .unwrap();
        assert_eq!((parts[0], parts[parts.len() - 1]), (0.0, 1.0));
        assert!(parts.is_sorted() && parts[parts.len() - 2] < 1.0, "{parts:?}");
    }
    let mut parts = Vec::new();
    let progress = &mut |part| {
        parts.push(part);
        true
    };
    let options = LoadOptions { mode: LoadMode::Mmap, progress: Some(progress), ..LoadOptions::default() };
    load::load(&setup.files, &[], options).unwrap();
    assert_eq!(parts, [1.0], "nothing to load is done at once");
}

#[test]
fn a_load_can_be_cancelled_at_every_step() {
    let setup = pages();
    for (mode, row) in MODES.into_iter().flat_map(|mode| [(mode, NEAR), (mode, FAR)]) {
        for stop_at in 0..5 {
            let mut calls = 0;
            let progress = &mut |_| {
                calls += 1;
                calls <= stop_at
            };
            let options =
                LoadOptions { mode, check_tensors: true, progress: Some(progress), ..LoadOptions::default() };
            let error = load::load(&setup.files, &setup.all_on(row), options).unwrap_err();
            assert!(matches!(error, load::Error::Cancelled), "{mode} {row} {stop_at}: {error}");
            assert_eq!((setup.maps(), calls), (vec![], stop_at + 1));
        }
    }
}

#[test]
fn split_files_load_as_one_model() {
    let setup = Setup::in_folder(|folder| split_model(folder, 3)[1].clone());
    for mode in MODES {
        let requests = [setup.request("t0", NEAR), setup.request("t1", FAR), setup.request("t2", NEAR)];
        let weights = setup.load(&requests, mode).unwrap();
        for (name, row) in [("t0", NEAR), ("t1", FAR), ("t2", NEAR)] {
            setup.assert_equal(&weights, name, row);
        }
        let mapped: Vec<_> = setup.files.files().map(|file| maps_of(&file.path).len()).collect();
        assert_eq!(mapped, if mode.maps() { [1, 0, 1] } else { [0, 0, 0] });
    }
}

#[test]
fn f32_of_a_checkpoint_stay_in_the_file_and_int8_become_f32() {
    for version in [0, 2] {
        let setup = Setup::new(&checkpoint(version));
        for (mode, row) in MODES.into_iter().flat_map(|mode| [(mode, NEAR), (mode, FAR)]) {
            let weights = setup.load(&setup.all_on(row), mode).unwrap();
            setup.assert_all_equal(&weights, row);
            let mapped = setup.maps();
            assert_eq!(mapped.len(), (mode.maps() && row == NEAR) as usize);
            if let Some(map) = mapped.first() {
                assert!(map.contains(&address(&weights, "output_norm.weight", NEAR)));
                assert_eq!(map.contains(&address(&weights, "token_embd.weight", NEAR)), version == 0);
            }
        }
    }
}

#[test]
fn numbers_that_are_not_aligned_in_the_file_are_copied() {
    let mut tables = Tables::default();
    tables.metadata.set("general.alignment", Value::U32(2));
    let shapes = [("x", DType::F32, 8), ("h", DType::F16, 1), ("y", DType::F32, 8)];
    tables.tensors = shapes.map(|(name, dtype, n)| TensorShape::new(name, dtype, &[n]).unwrap()).to_vec();
    let setup = Setup::new(&writer::to_vec(&tables, &[&[1; 32], &[2; 2], &[3; 32]]).unwrap());
    let weights = setup.load(&setup.all_on(NEAR), LoadMode::Mmap).unwrap();
    setup.assert_all_equal(&weights, NEAR);
    let [x, y] = ["x", "y"].map(|name| address(&weights, name, NEAR));
    assert_eq!((x % 4, y % 4), (0, 0));
    let in_map = |at: usize| setup.maps().iter().any(|map| map.contains(&at));
    assert_eq!(in_map(x) as u32 + in_map(y) as u32, 1, "only one of them is aligned");
}

#[test]
fn the_check_names_all_tensors_with_bad_numbers() {
    let mut bytes = gguf(&[("a", 64), ("b", 64), ("c", 64)], &[]);
    let data = bytes.len() - 3 * 256;
    bytes[data + 4 * 5..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    bytes[data + 2 * 256 + 4 * 63..][..4].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes());
    let setup = Setup::new(&bytes);
    for mode in MODES {
        // Tensors that no device requests are checked, too.
        let message = setup.load_checked(&[setup.request("b", FAR)], mode).unwrap_err().to_string();
        assert!(
            message.contains("tensor `a` has invalid data: NaN or infinity in row 0, element 5"),
            "{message}"
        );
        assert!(
            message.contains("tensor `c` has invalid data") && message.contains("element 63"),
            "{message}"
        );
        assert!(!message.contains("`b`"), "{message}");
        assert_eq!(setup.maps(), []);
        setup.load(&setup.all_on(NEAR), mode).unwrap();
    }
    pages().load_checked(&pages().all_on(NEAR), LoadMode::Mmap).unwrap();
}

#[test]
fn a_file_cut_short_after_it_was_opened_is_an_error() {
    for (mode, row) in MODES.into_iter().flat_map(|mode| [(mode, NEAR), (mode, FAR)]) {
        let setup = pages();
        std::fs::OpenOptions::new().write(true).open(&setup.path).unwrap().set_len(5000).unwrap();
        let message = setup.load_checked(&setup.all_on(row), mode).unwrap_err().to_string();
        assert!(message.contains("when it was opened and has 5000 now"), "{mode} {row}: {message}");
    }
}

#[test]
fn weights_can_be_added_later_on_any_device() {
    for mode in MODES {
        let setup = pages();
        let mut weights = setup.load(&setup.all_on(FAR), mode).unwrap();
        weights.add(&setup.files, &setup.request("c", NEAR)).unwrap();
        weights.add(&setup.files, &setup.request("c", NEAR)).unwrap();
        weights.add(&setup.files, &setup.request("d", TINY)).unwrap();
        setup.assert_equal(&weights, "c", NEAR);
        setup.assert_equal(&weights, "d", TINY);
        setup.assert_all_equal(&weights, FAR);
        let mapped: usize = setup.maps().iter().map(|map| map.len()).sum();
        assert!(mapped <= 3 * 4096, "only the pages of c: {mapped}");
        assert_eq!(mapped > 0, mode.maps());
    }
}

#[test]
fn what_the_model_expects_must_be_in_the_file() {
    let setup = pages();
    let mut request = setup.request("b", FAR);
    request.ne = [3, 1, 1, 1];
    let message = setup.load(&[request], LoadMode::Mmap).unwrap_err().to_string();
    assert_eq!(message, "tensor `b` is F32 [3072, 1, 1, 1] in the file: expected F32 [3, 1, 1, 1]");
    let mut request = setup.request("b", FAR);
    request.name = "e".into();
    let message = setup.load(&[request], LoadMode::Mmap).unwrap_err().to_string();
    assert_eq!(message, "tensor `e` is missing from the model file");
}
