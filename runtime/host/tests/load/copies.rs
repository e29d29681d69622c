//! Copies of matrices for devices that read host memory and are faster with a layout of their own.

use std::process::Command;

use llmrt_abi::DType;
use llmrt_graph::tensor::Role;
use llmrt_graph::{Graph, Pick};
use llmrt_host::load::{self, Error, LoadMode, LoadOptions, WeightRequest};

use crate::setup::{APART, FULL, MODES, NEAR, Setup, device};
use crate::{pages, shelf};

/// All tensors on a device; `b` is no matrix.
fn requests(setup: &Setup, row: usize) -> Vec<WeightRequest> {
    let role = |name: &str| if name == "b" { Role::Embedding } else { Role::Matrix };
    setup
        .all_on(row)
        .into_iter()
        .map(|request| WeightRequest { role: role(&request.name), ..request })
        .collect()
}

/// The names of those in a layout of the device's own.
fn sealed(setup: &Setup, row: usize, mode: LoadMode) -> (String, Vec<String>) {
    let weights = setup.load(&requests(setup, row), mode).unwrap();
    setup.assert_all_equal(&weights, row);
    let layout = |name: &str| weights.get(name, row).unwrap().layout_id;
    let sealed = ["a", "b", "c", "d"].into_iter().filter(|name| layout(name) == shelf::LAYOUT);
    (sealed.collect(), weights.warnings().to_vec())
}

#[test]
fn matrices_get_copies_and_the_rest_stays_in_the_map() {
    let setup = pages();
    for mode in MODES {
        assert_eq!(sealed(&setup, APART, mode), ("acd".to_string(), vec![]), "{mode}");
        assert_eq!(sealed(&setup, NEAR, mode).0, "", "{mode}: its buffer type does not request copies");
    }
    let weights = setup.load(&requests(&setup, APART), LoadMode::Mmap).unwrap();
    let mapped: usize = setup.maps().iter().map(|map| map.len()).sum();
    assert!((12288..=16384).contains(&mapped), "{mapped} bytes stay mapped for `b`");
    drop(weights);
}

#[test]
fn a_device_without_room_for_all_copies_gets_none_and_a_warning() {
    let setup = pages();
    let (sealed, warnings) = sealed(&setup, FULL, LoadMode::Mmap);
    assert_eq!(sealed, "");
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains("shelf:full: 12316 bytes of weights stay in the file's layout"), "{warning}");
}

#[test]
fn a_load_that_is_cancelled_among_the_copies_leaves_nothing() {
    let setup = pages();
    let mut calls = 0;
    let progress = &mut |_| {
        calls += 1;
        calls < 3
    };
    let options = LoadOptions { mode: LoadMode::Mmap, progress: Some(progress), ..LoadOptions::default() };
    let result = load::load(&setup.files, &requests(&setup, APART), options);
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    assert_eq!(setup.maps(), []);
}

/// Runs itself as a process with the variable set, and there does the load.
#[test]
fn without_repacking_everything_stays_in_the_map() {
    if std::env::var("LLMRT_REPACK").is_err() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "copies::without_repacking_everything_stays_in_the_map", "--nocapture"]);
        let output = child.env("LLMRT_REPACK", "0").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        return;
    }
    assert_eq!(sealed(&pages(), APART, LoadMode::Mmap), (String::new(), vec![]));
}

#[test]
fn what_products_multiply_is_a_matrix_whatever_the_model_calls_it() {
    let mut g = Graph::new();
    let mut weight = |name, role| g.weight(name, DType::F32, &[4, 16], role);
    let tied = weight("tied", Role::Embedding);
    let [table, taps, sliced] =
        [("table", Role::Embedding), ("taps", Role::Matrix), ("sliced", Role::Matrix)]
            .map(|(n, r)| weight(n, r));
    let x = g.input("x", DType::F32, &[4, 1]);
    let ids = g.input("ids", DType::I32, &[1]);
    g.get_rows(tied, ids);
    g.get_rows(table, ids);
    g.mul_mat(tied, x);
    g.add(taps, taps);
    let part = g.slice(sliced, 1, 0, 5);
    g.mul_mat(part, x);
    let roles = |row| [tied, table, taps, sliced].map(|t| WeightRequest::new(&g, t, row, &device(row)).role);
    assert_eq!(roles(NEAR), [Role::Embedding, Role::Embedding, Role::Matrix, Role::Matrix]);
    assert_eq!(roles(APART), [Role::Matrix, Role::Embedding, Role::Other, Role::Other]);
}

#[test]
fn rows_that_products_pick_have_a_role_of_their_own_and_are_copied() {
    let mut g = Graph::new();
    let [picked, by_neurons, shared] =
        ["picked", "by_neurons", "shared"].map(|name| g.weight(name, DType::F32, &[4, 4], Role::Matrix));
    let x = g.input("x", DType::F32, &[4, 1]);
    let scores = g.mul_mat_sparse(picked, x, x, Pick::Above(0.0));
    g.mul_mat_t(by_neurons, scores, None);
    g.mul_mat_sparse(shared, x, scores, Pick::Above(0.0));
    g.mul_mat(shared, x);
    let roles = |row| [picked, by_neurons, shared].map(|t| WeightRequest::new(&g, t, row, &device(row)).role);
    assert_eq!(roles(NEAR), [Role::Matrix; 3]);
    assert_eq!(roles(APART), [Role::PickedRows, Role::PickedRows, Role::Other]);

    let setup = pages();
    let requests = setup.all_on(APART).into_iter();
    let requests: Vec<_> =
        requests.map(|request| WeightRequest { role: Role::PickedRows, ..request }).collect();
    let weights = setup.load(&requests, LoadMode::Mmap).unwrap();
    setup.assert_all_equal(&weights, APART);
    assert_eq!(setup.maps(), [], "all of them are copies");
}
