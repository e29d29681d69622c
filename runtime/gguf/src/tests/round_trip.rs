//! read(write(x)) == x, for every value type, both versions and both flavours.

use llmrt_abi::DType;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::writer::{Tables, WriteError, to_vec};
use crate::{Array, Error, Flavour, Gguf, TensorShape, Value};

fn array() -> impl Strategy<Value = Array> {
    let leaf = prop_oneof![
        vec(any::<u8>(), 0..5).prop_map(Array::U8),
        vec(any::<i8>(), 0..5).prop_map(Array::I8),
        vec(any::<u16>(), 0..5).prop_map(Array::U16),
        vec(any::<i16>(), 0..5).prop_map(Array::I16),
        vec(any::<u32>(), 0..5).prop_map(Array::U32),
        vec(any::<i32>(), 0..5).prop_map(Array::I32),
        vec(any::<f32>(), 0..5).prop_map(Array::F32),
        vec(any::<bool>(), 0..5).prop_map(Array::Bool),
        vec("[a-zé▁]{0,6}", 0..5).prop_map(Array::String),
        vec(any::<u64>(), 0..5).prop_map(Array::U64),
        vec(any::<i64>(), 0..5).prop_map(Array::I64),
        vec(any::<f64>(), 0..5).prop_map(Array::F64),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| vec(inner, 0..3).prop_map(Array::Nested))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        "[a-zé▁]{0,9}".prop_map(Value::String),
        array().prop_map(Value::Array),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_map(Value::F64),
    ]
}

/// A type and dims whose rows are whole blocks; the first dimension is counted in blocks.
fn shape() -> impl Strategy<Value = (DType, Vec<u64>)> {
    (0..DType::ALL.len(), vec(1u64..4, 1..=4)).prop_map(|(i, mut dims)| {
        dims[0] *= DType::ALL[i].block_elems() as u64;
        (DType::ALL[i], dims)
    })
}

fn tables() -> impl Strategy<Value = Tables> {
    let alignment = proptest::option::of(prop_oneof![Just(1u32), Just(8), Just(32), Just(4096)]);
    (vec(value(), 0..12), vec(shape(), 0..6), alignment, 2u32..=3, any::<bool>()).prop_map(
        |(values, shapes, alignment, version, sparse)| {
            let flavour = if sparse { Flavour::PowerInfer } else { Flavour::Dense };
            let mut tables = Tables { flavour, version, ..Tables::default() };
            values.into_iter().enumerate().for_each(|(i, v)| tables.metadata.set(format!("key.{i}"), v));
            alignment.into_iter().for_each(|n| tables.metadata.set(crate::ALIGNMENT_KEY, n));
            let allowed =
                |t: &DType| !(sparse && [DType::IQ2_XXS, DType::IQ2_XS, DType::IQ3_XXS].contains(t));
            let named = shapes.into_iter().filter(|(t, _)| allowed(t)).enumerate();
            tables.tensors = named
                .map(|(i, (dtype, dims))| TensorShape::new(format!("t{i}"), dtype, &dims).unwrap())
                .collect();
            tables
        },
    )
}

proptest! {
    #[test]
    fn what_was_written_is_read(tables in tables()) {
        let sizes = tables.tensors.iter().map(|t| t.nbytes().unwrap() as usize);
        let data: Vec<Vec<u8>> = sizes.enumerate().map(|(i, n)| vec![i as u8 + 1; n]).collect();
        let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let bytes = to_vec(&tables, &slices).unwrap();
        let gguf = Gguf::parse(&bytes, bytes.len() as u64).unwrap();

        let shapes = gguf.tensors.iter().map(|t| t.shape()).collect();
        for (t, data) in gguf.tensors.iter().zip(&data) {
            prop_assert_eq!(&bytes[t.offset as usize..][..t.nbytes as usize], data.as_slice());
        }
        let read = Tables { flavour: gguf.flavour, version: gguf.version, metadata: gguf.metadata, tensors: shapes };
        prop_assert_eq!(read, tables);
    }
}

#[test]
fn a_tensor_given_with_too_few_bytes_is_not_written() {
    let mut tables = Tables::default();
    tables.tensors.push(TensorShape::new("a", DType::F32, &[4]).unwrap());
    let error = to_vec(&tables, &[&[0; 15]]).unwrap_err();
    assert_eq!(error.to_string(), "tensor `a`: 15 bytes were given, its shape has 16");
}

#[test]
fn tables_that_no_reader_accepts_are_not_written() {
    let refused = |spoil: fn(&mut Tables), expected: fn(&Error) -> bool| {
        let mut tables = Tables::default();
        spoil(&mut tables);
        match to_vec(&tables, &[]) {
            Err(WriteError::Invalid(error)) => assert!(expected(&error), "{error}"),
            other => panic!("{other:?}"),
        }
    };
    let tensor = |ne| TensorShape { name: "a".into(), dtype: DType::Q8_0, ne, n_dims: 1 };
    assert!(tensor([32, 1, 1, 1]).nbytes().is_ok());

    refused(|t| t.version = 1, |e| matches!(e, Error::BadVersion { found: 1 }));
    refused(|t| t.metadata.set("general.alignment", 3u32), |e| matches!(e, Error::BadAlignment { .. }));
    refused(
        |t| t.tensors = vec![TensorShape::new("a", DType::Q8_0, &[31]).unwrap()],
        |e| matches!(e, Error::PartialBlock { .. }),
    );
    refused(
        |t| t.tensors = vec![TensorShape::new("a", DType::F32, &[1]).unwrap(); 2],
        |e| matches!(e, Error::DuplicateTensor { .. }),
    );
    refused(
        |t| {
            t.tensors =
                (0..4).map(|i| TensorShape::new(i.to_string(), DType::I8, &[1 << 62]).unwrap()).collect()
        },
        |e| matches!(e, Error::TooManyElements { .. }),
    );
    refused(
        |t| {
            t.flavour = Flavour::PowerInfer;
            t.tensors = vec![TensorShape::new("a", DType::IQ2_XXS, &[256]).unwrap()];
        },
        |e| matches!(e, Error::BadTensorType { .. }),
    );
}
