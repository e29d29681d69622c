//! Parts of matrices: rows, which follow each other in the file, and columns, which do not.

use crate::setup::{FAR, MODES, NEAR, Setup};
use llmrt_abi::DType;
use llmrt_gguf::TensorShape;
use llmrt_gguf::writer::{self, Tables};
use llmrt_graph::rows::{Cut, Part};
use llmrt_host::TensorDesc;
use llmrt_host::load::WeightRequest;

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

#[test]
fn parts_have_their_bytes_of_each_row_in_every_mode_on_every_device() {
    for dtype in [DType::F16, DType::Q8_0] {
        let (setup, whole) = setup(dtype);
        let row = dtype.row_bytes(COLUMNS).unwrap() as usize;
        for (mode, device) in MODES.into_iter().flat_map(|mode| [(mode, NEAR), (mode, FAR)]) {
            for cut in [Cut::Rows(32), Cut::Columns(32)] {
                let parts = [0, 1].map(|index| Part { whole: "w", index, n: 2, cut });
                let request = |part: &Part<'_>| WeightRequest {
                    name: part.name(),
                    ne: part.shape([COLUMNS, ROWS, 1, 1]),
                    ..setup.request("w", device)
                };
                let requests = [request(&parts[0]), request(&parts[1]), setup.request("after", device)];
                let weights = setup.load(&requests, mode).unwrap();
                setup.assert_equal(&weights, "after", device);
                for (part, request) in parts.iter().zip(&requests) {
                    let (columns, rows) = match cut {
                        Cut::Rows(_) => (0..COLUMNS, part.range(ROWS)),
                        Cut::Columns(_) => (part.range(COLUMNS), 0..ROWS),
                    };
                    let [from, to] =
                        [columns.start, columns.end].map(|n| dtype.row_bytes(n).unwrap() as usize);
                    let of_row = |r: u64| whole[r as usize * row..][from..to].to_vec();
                    let expected: Vec<u8> = rows.flat_map(of_row).collect();
                    let at = weights.get(&request.name, device).unwrap();
                    let desc = TensorDesc { offset: at.offset, ..TensorDesc::contiguous(dtype, request.ne) };
                    let mut found = vec![0; expected.len()];
                    at.buffer.get(&desc, &mut found, 0).unwrap();
                    assert!(found == expected, "{} of {dtype} on {device} by {mode:?}", request.name);
                }
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
