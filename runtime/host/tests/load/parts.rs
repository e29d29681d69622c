//! Parts of matrices: rows, which follow each other in the file, and columns, which do not.

use crate::setup::{FAR, MODES, NEAR, Setup};
use llmrt_abi::DType;
use llmrt_gguf::TensorShape;
use llmrt_gguf::writer::{self, Tables};
use llmrt_graph::rows::{Cut, Part};
use llmrt_host::TensorDesc;
use llmrt_host::load::WeightRequest;
use std::sync::Arc;

const COLUMNS: u64 = 160;
const ROWS: u64 = 70;

/// A matrix between others of its type.
fn setup(dtype: DType) -> (Setup, Vec<u8>) {
    let shapes =
        ["before", "w", "after"].map(|name| TensorShape::new(name, dtype, &[COLUMNS, ROWS]).unwrap());
    let n = dtype.row_bytes(COLUMNS).unwrap() as usize * ROWS as usize;
    let bytes = |seed: usize| (0..n).map(|i| (i * 7 + i / 251 + seed) as u8).collect::<Vec<u8>>();
    let mut tables = Tables::default();
    tables.metadata.set("general.architecture", "test");
    tables.tensors = shapes.into();
    let file = writer::to_vec(&tables, &[&bytes(1), &bytes(2), &bytes(3)]).unwrap();
    (Setup::new(&file), bytes(2))
}

/// Parts, each with its list and with the columns and rows that it has.
type Cuts<'a> = Vec<(Part<'a>, Option<Arc<[u32]>>, Vec<u64>, Vec<u64>)>;

/// Both halves of the rows and columns, and lists of some.
fn cuts() -> Cuts<'static> {
    let part = |index, cut| Part { whole: "w", index, n: 2, cut };
    let (all_columns, all_rows): (Vec<u64>, Vec<u64>) = ((0..COLUMNS).collect(), (0..ROWS).collect());
    let mut cuts = Cuts::new();
    for index in 0..2 {
        let (rows, columns) = (part(index, Cut::Rows(32)), part(index, Cut::Columns(32)));
        cuts.push((rows, None, all_columns.clone(), rows.range(ROWS).unwrap().collect()));
        cuts.push((columns, None, columns.range(COLUMNS).unwrap().collect(), all_rows.clone()));
        let list = |len: u64, run: u64| (0..len).filter(move |i| i / run % 2 == index as u64);
        let as_list = |list: Vec<u64>| Some(list.iter().map(|&i| i as u32).collect());
        for run in [1, 3] {
            let rows: Vec<u64> = list(ROWS, run).collect();
            cuts.push((part(index, Cut::ListedRows), as_list(rows.clone()), all_columns.clone(), rows));
        }
        let columns: Vec<u64> = list(COLUMNS, 32).collect();
        cuts.push((part(index, Cut::ListedColumns), as_list(columns.clone()), columns, all_rows.clone()));
    }
    cuts
}

#[test]
fn parts_have_their_bytes_of_each_row_in_every_mode_on_every_device() {
    for dtype in [DType::F16, DType::Q8_0] {
        let (setup, whole) = setup(dtype);
        let row = dtype.row_bytes(COLUMNS).unwrap() as usize;
        let block = dtype.block_elems() as u64;
        for (mode, device) in MODES.into_iter().flat_map(|mode| [(mode, NEAR), (mode, FAR)]) {
            for (part, listed, columns, rows) in cuts() {
                let request = WeightRequest {
                    name: part.name(),
                    ne: [columns.len() as u64, rows.len() as u64, 1, 1],
                    listed,
                    ..setup.request("w", device)
                };
                let requests = [request, setup.request("after", device)];
                let weights = setup.load(&requests, mode).unwrap();
                setup.assert_equal(&weights, "after", device);
                let blocks = columns.iter().filter(|&&column| column.is_multiple_of(block));
                let of_row = |r: &u64| {
                    let of_block = |column: &u64| {
                        let at = *r as usize * row + dtype.row_bytes(*column).unwrap() as usize;
                        whole[at..at + dtype.block_bytes()].to_vec()
                    };
                    blocks.clone().flat_map(of_block).collect::<Vec<u8>>()
                };
                let expected: Vec<u8> = rows.iter().flat_map(of_row).collect();
                let [request, _] = &requests;
                let at = weights.get(&request.name, device).unwrap();
                let desc = TensorDesc { offset: at.offset, ..TensorDesc::contiguous(dtype, request.ne) };
                let mut found = vec![0; expected.len()];
                at.buffer.get(&desc, &mut found, 0).unwrap();
                assert!(found == expected, "{} of {dtype} on {device} by {mode:?}", request.name);
            }
        }
    }
}

#[test]
fn a_part_of_another_shape_than_requested_is_refused() {
    let (setup, _) = setup(DType::F16);
    let part = Part { whole: "w", index: 0, n: 2, cut: Cut::Columns(32) };
    let request = WeightRequest { name: part.name(), ..setup.request("w", FAR) };
    let error = setup.load(&[request], MODES[0]).unwrap_err().to_string();
    assert!(error.contains("w@0/2|32") && error.contains("[64, 70, 1, 1]"), "{error}");
}

#[test]
fn lists_that_are_not_in_the_matrix_are_refused() {
    let (setup, _) = setup(DType::Q8_0);
    let cases: [(Cut, Option<&[u32]>, _); 4] = [
        (Cut::ListedRows, Some(&[70]), [COLUMNS, 1, 1, 1]),
        (Cut::ListedRows, None, [COLUMNS, 1, 1, 1]),
        (Cut::ListedColumns, Some(&[0]), [1, ROWS, 1, 1]),
        (Cut::ListedRows, Some(&[1, 2]), [COLUMNS, 1, 1, 1]),
    ];
    for (cut, listed, ne) in cases {
        let name = Part { whole: "w", index: 0, n: 2, cut }.name();
        let request = WeightRequest { name, ne, listed: listed.map(Arc::from), ..setup.request("w", FAR) };
        let error = setup.load(&[request], MODES[0]).unwrap_err().to_string();
        assert!(error.contains("w@0/2"), "{error}");
    }
}
