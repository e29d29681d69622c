//! `llmrt quantize`: a GGUF file with its matrices in another type.

mod args;
pub mod mix;
mod rules;

pub use args::Quantize;
pub use mix::Mix;
pub use rules::{Rule, TypeRequest, choose, encodable, fitting};

use crate::args::Global;
use crate::cmd::Command;
use crate::cmd::convert;
use crate::error::{Error, Result};
use crate::model::OpenModel;
use crate::new_file::{self, NewFile};
use crate::output::{bytes, n_things, note};
use crate::{interrupt, setup};
use llmrt_abi::DType;
use llmrt_gguf::writer::{self, Tables, WriteError};
use llmrt_gguf::{Metadata, TensorInfo, TensorShape};
use llmrt_graph::quant;
use llmrt_host::load::{ModelFiles, OpenOptions};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

impl Command for Quantize {
    const NAME: &'static str = "quantize";

    fn run(&self, global: &Global) -> Result<()> {
        quantize(global, self)
    }
}

/// Elements that a thread encodes at a time.
const PIECE: u64 = 1 << 20;

/// The version of the quantised formats that GGUF files of today name.
const QUANTIZATION_VERSION: u32 = 2;

/// Writes the file; it appears under its name only when it is whole.
fn quantize(global: &Global, args: &Quantize) -> Result<()> {
    setup::check_threads(global.threads)?;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let n_threads = global.threads.unwrap_or_else(cores);
    let model = OpenModel::open(Some(&args.input), &OpenOptions::default())?;
    if model.is_checkpoint() {
        return Err(model.error("is a llama2.c checkpoint: make a GGUF file of it with `llmrt convert`"));
    }
    let inputs: Vec<_> = model.files.files().map(|file| file.path.clone()).collect();
    new_file::check_output(&args.output, args.force, inputs.iter().map(AsRef::<Path>::as_ref))?;

    let tensors = &model.files.model.tensors;
    let shapes: Vec<_> = tensors.iter().map(TensorInfo::shape).collect();
    let dtypes = dtypes(args, model.metadata(), &shapes);
    check_requantize(args, &model, &dtypes)?;
    let tables = Tables {
        flavour: model.files.model.flavour,
        metadata: metadata(model.metadata(), args.mix.file_type),
        tensors: shapes
            .into_iter()
            .zip(&dtypes)
            .map(|(shape, &dtype)| TensorShape { dtype, ..shape })
            .collect(),
        ..Tables::default()
    };
    let mut file = NewFile::create(&args.output)?;
    let written = writer::write(file.out(), &tables, |i, out| {
        let (tensor, dtype) = (&tensors[i], dtypes[i]);
        if global.verbose > 0 {
            note(format_args!("{} {:?}: {} to {dtype}", tensor.name, tensor.shape().dims(), tensor.dtype));
        }
        match tensor.dtype == dtype {
            true => convert::copy(&model.files, tensor, out),
            false => encode(&model.files, tensor, dtype, n_threads, out),
        }
    });
    let n = written.map_err(|e| match e {
        _ if interrupt::is_requested() => Error::interrupted(),
        WriteError::Invalid(e) => model.error(e),
        WriteError::Io(e) if e.kind() == io::ErrorKind::InvalidData => model.error(e),
        WriteError::Io(e) => Error::unwritable(&args.output, &e),
        other => Error::output(&args.output, other),
    })?;
    file.finish()?;
    note(format_args!("{}: {}", args.output.display(), summary(&tables.tensors, n)));
    Ok(())
}

/// The type of every tensor; where its rows do not allow the requested one, stderr has a line.
fn dtypes(args: &Quantize, metadata: &Metadata, tensors: &[TensorShape]) -> Vec<DType> {
    let request = TypeRequest {
        mix: args.mix,
        rules: &args.rules,
        output: args.output_tensor_type,
        embedding: args.token_embedding_type,
        pure: args.pure,
    };
    let choices = choose(&request, metadata, tensors);
    for (tensor, choice) in
        tensors.iter().zip(&choices).filter(|(_, choice)| choice.dtype != choice.requested)
    {
        let (name, n, requested) = (&tensor.name, tensor.ne[0], choice.requested);
        note(format_args!(
            "{name}: rows of {n} elements are no whole blocks of {requested}: {} instead",
            choice.dtype
        ));
    }
    let is_mxfp4 =
        args.mix.base == DType::MXFP4 && !choices.iter().any(|choice| choice.dtype == DType::MXFP4);
    if is_mxfp4 {
        note(
            "mxfp4: this type is for the matrices of experts, and the model has none, so its matrices become Q8_0; \
             --pure writes them as MXFP4, q4_k_m is a type of that size for dense models",
        );
    }
    choices.into_iter().map(|choice| choice.dtype).collect()
}

/// What is quantised already is not quantised again without --allow-requantize.
fn check_requantize(args: &Quantize, model: &OpenModel, dtypes: &[DType]) -> Result<()> {
    let again =
        |(tensor, dtype): &(&TensorInfo, &DType)| tensor.dtype.is_quantised() && tensor.dtype != **dtype;
    match model.files.model.tensors.iter().zip(dtypes).find(again) {
        Some((tensor, dtype)) if !args.allow_requantize => Err(model.error(format_args!(
            "tensor `{}` is {} already and would become {dtype}, which loses twice: start from an F16, BF16 or F32 \
             file, or insist with --allow-requantize",
            tensor.name, tensor.dtype
        ))),
        _ => Ok(()),
    }
}

/// The metadata of a file with this `general.file_type`.
pub fn metadata(of: &Metadata, file_type: u32) -> Metadata {
    let mut metadata = of.clone();
    metadata.set("general.file_type", file_type);
    metadata.set("general.quantization_version", QUANTIZATION_VERSION);
    metadata
}

/// A tensor in another type, in pieces of whole rows that threads encode side by side.
fn encode(
    files: &ModelFiles,
    tensor: &TensorInfo,
    dtype: DType,
    n_threads: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let problem = |what: &str| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("tensor `{}` ({}): {what}", tensor.name, tensor.dtype),
        )
    };
    let [n, n1, n2, n3] = tensor.ne;
    let (Some(from), Some(to)) = (tensor.dtype.row_bytes(n), dtype.row_bytes(n)) else {
        return Err(problem(&format!("rows of {n} elements are no whole blocks of {dtype}")));
    };
    if from == 0 {
        return Ok(()); // no elements
    }
    let n_rows = n1 * n2 * n3;
    let per_piece = (PIECE / n).max(1);
    let mut row = 0;
    while row < n_rows {
        if interrupt::is_requested() {
            return Err(io::Error::other("interrupted"));
        }
        let rows = (per_piece * n_threads as u64).min(n_rows - row);
        let mut source = vec![0; (rows * from) as usize];
        files.read(tensor, row * from, &mut source).map_err(io::Error::other)?;
        let mut result = vec![0; (rows * to) as usize];
        let per_thread = rows.div_ceil(n_threads as u64);
        let pieces =
            source.chunks((per_thread * from) as usize).zip(result.chunks_mut((per_thread * to) as usize));
        let done: std::result::Result<Vec<()>, &str> = std::thread::scope(|scope| {
            let threads: Vec<_> = pieces
                .map(|(from, to)| scope.spawn(|| encode_piece(tensor.dtype, from, dtype, to)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap_or(Err("a thread failed"))).collect()
        });
        done.map_err(problem)?;
        out.write_all(&result)?;
        row += rows;
    }
    Ok(())
}

fn encode_piece(
    from: DType,
    source: &[u8],
    to: DType,
    result: &mut [u8],
) -> std::result::Result<(), &'static str> {
    if quant::find_invalid(from, source).is_some() {
        return Err(
            "an element is NaN or infinite: the file is damaged, or was written from a diverged training",
        );
    }
    result.copy_from_slice(&quant::quantise(to, &quant::dequantise(from, source)));
    match quant::find_invalid(to, result) {
        Some(_) => {
            Err("an element is too large for the type it should become: choose bf16 or f32 with --tensor")
        }
        None => Ok(()),
    }
}

/// `201 tensors, 2.5 GiB, 4.83 bits per weight; 113 F32, 161 Q4_K, 26 Q6_K` for a file of `n` bytes.
pub fn summary(tensors: &[TensorShape], n: u64) -> String {
    let n_elems: u64 = tensors.iter().map(|t| t.ne.iter().product::<u64>()).sum();
    let n_bytes: u64 = tensors.iter().filter_map(|t| t.nbytes().ok()).sum();
    let bits = n_bytes as f64 * 8.0 / n_elems.max(1) as f64;
    let mut n_of = BTreeMap::new();
    tensors.iter().for_each(|t| *n_of.entry(t.dtype).or_insert(0) += 1);
    let counts: Vec<_> = n_of.iter().map(|(t, n)| format!("{n} {t}")).collect();
    let n_tensors = n_things(tensors.len(), "tensor");
    format!("{n_tensors}, {}, {bits:.2} bits per weight; {}", bytes(n), counts.join(", "))
}
