//! What a request has generated, as Python objects. Arrays are views of the memory that the numbers are in.

use crate::progress::{Rows, Snapshot, Text};
use llmrt::engine::Finish;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Ids and log-probabilities, flat.
type Arrays<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<f64>>);

/// `(texts, prompt_logprobs, embeddings, logits, n_cached, first_token, ended)`; a text is `(index, text, token_ids,
/// logprobs, cumulative_logprob, finish_reason, stop_reason)`.
pub fn to_python(py: Python<'_>, snapshot: Snapshot) -> PyResult<Py<PyTuple>> {
    let Snapshot { texts, prompt_rows, embeddings, logits, usage, first_token, ended } = snapshot;
    let texts: Vec<_> = texts.into_iter().map(|text| text_to_python(py, text)).collect::<PyResult<_>>()?;
    let prompt_rows = prompt_rows.map(|rows| arrays(py, rows));
    let embeddings: Vec<_> = embeddings.into_iter().map(|vector| vector.into_pyarray(py)).collect();
    let logits = logits.map(|logits| logits.into_pyarray(py));
    let tuple = (texts, prompt_rows, embeddings, logits, usage.n_cached, first_token, ended);
    Ok(tuple.into_pyobject(py)?.unbind())
}

fn text_to_python(py: Python<'_>, text: Text) -> PyResult<Bound<'_, PyTuple>> {
    let Text { index, text, tokens, rows, cumulative, finish } = text;
    let rows = rows.map(|rows| arrays(py, rows));
    let reason = finish.as_ref().map(|finish| match finish {
        Finish::Length => "length",
        Finish::Stop(_) | Finish::StopToken(_) | Finish::Eos => "stop",
        Finish::Cancelled => "abort",
    });
    let stop = match finish {
        Some(Finish::Stop(text)) => Some(text.into_pyobject(py)?.into_any()),
        Some(Finish::StopToken(id)) => Some(id.into_pyobject(py)?.into_any()),
        _ => None,
    };
    (index, text, tokens, rows, cumulative, reason, stop).into_pyobject(py)
}

fn arrays(py: Python<'_>, rows: Rows) -> Arrays<'_> {
    (rows.ids.into_pyarray(py), rows.values.into_pyarray(py))
}
