//! Files that torch wrote.

mod fixtures;

use fixtures::{counts, folder, read};
use llmrt_sparse::pt::{Number, Pt};
use llmrt_sparse::{Counts, Error, Predictor};

#[test]
fn counts_are_those_of_the_text_beside_them() {
    let expected = counts();
    for (i, expected) in expected.iter().enumerate() {
        let found = Counts::from_pt(&read(&format!("pt/activation_{i}.pt"))).unwrap();
        assert_eq!(found.as_slice(), expected);
    }
    assert_eq!(expected.len(), 2);
}

#[test]
fn every_real_type_is_read_with_offset_and_as_a_parameter() {
    let expected = counts();
    for (name, number) in [
        ("0.bfloat16", Number::Bf16),
        ("0.float16", Number::F16),
        ("0.float64", Number::F64),
        ("0.int16", Number::I16),
        ("0.int32", Number::I32),
        ("0.int64", Number::I64),
        ("0.int8", Number::I8),
        ("0.uint8", Number::U8),
        ("0.parameter", Number::F32),
        ("1.offset-1024", Number::I32),
    ] {
        let file = read(&format!("pt/dtypes/activation_{name}.pt"));
        let pt = Pt::parse(&file).unwrap();
        assert_eq!(pt.tensor().unwrap().number, number, "{name}");
        let layer = usize::from(name.starts_with('1'));
        assert_eq!(Counts::from_pt(&file).unwrap().as_slice(), expected[layer], "{name}");
    }
}

#[test]
fn a_predictor_has_its_matrices_and_no_other_model_takes_it() {
    let file = read("pt/model_1.pt");
    let predictor = Predictor::from_pt(&file).unwrap();
    assert_eq!((predictor.rank(), predictor.fc1.number), (32, Number::F16));
    predictor.check(128, 1024).unwrap();
    assert_eq!(predictor.fc2.bytes(&file).len(), 1024 * 32 * 2);
    for (n_embd, n_ff, tensor) in [(64, 1024, "fc1.weight"), (128, 512, "fc2.weight")] {
        let e = predictor.check(n_embd, n_ff).unwrap_err();
        assert!(matches!(e, Error::WrongPredictor { tensor: found, .. } if found == tensor), "{e}");
    }
}

#[test]
fn strides_change_the_order_and_no_number() {
    let path = folder().join("pt/dtypes/model_0.transposed-strides.pt");
    let Ok(file) = std::fs::read(path) else { return }; // among all fixtures only
    let other = read("pt/model_0.pt");
    let (strided, plain) = (Predictor::from_pt(&file).unwrap(), Predictor::from_pt(&other).unwrap());
    let (a, b) = (strided.fc2.to_f64s(&file), plain.fc2.to_f64s(&other));
    assert_eq!(strided.fc2.sizes, plain.fc2.sizes);
    let nearly = a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= b.abs() * 1e-3 + 1e-6); // the strided one is F16
    assert!(nearly);
}

#[test]
fn files_of_other_kinds_are_refused_with_a_remedy() {
    for (name, cause, remedy) in [
        ("activation_0.before-2020-format", "before 1.6", "save it again"),
        ("whole-module", "torch.nn.modules.linear.Linear", "state_dict()"),
    ] {
        let e = Pt::parse(&read(&format!("pt/refuse/{name}.pt"))).unwrap_err().to_string();
        assert!(e.contains(cause) && e.contains(remedy), "{name}: {e}");
    }
    let e = Predictor::from_pt(&read("pt/refuse/model_0.no-fc2.pt")).unwrap_err().to_string();
    assert!(e.contains("`fc2.weight` is missing") && e.contains("the file has: "), "{e}");
}

#[test]
fn a_tensor_is_no_predictor_and_a_dict_no_counts() {
    let e = Predictor::from_pt(&read("pt/activation_0.pt")).unwrap_err().to_string();
    assert_eq!(e, "holds one tensor: expected a dict of tensors");
    let e = Counts::from_pt(&read("pt/model_1.pt")).unwrap_err().to_string();
    assert_eq!(e, "holds a dict: expected one tensor");
}
