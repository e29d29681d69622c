//! The model store: its folder, its models, and what is left over in it.

use super::report::Report;
use crate::error::Error;
use crate::output::{bytes, n_things};
use crate::store;
use llmrt_gguf::printable_path;
use llmrt_host::system;
use llmrt_store::{Health, Store};
use std::path::Path;

/// Less space than this is too little for most models.
const LITTLE_SPACE: u64 = 1 << 30;

/// Checks the store of this user.
pub fn check(report: &Report) {
    let store = match store::open() {
        Ok(store) => store,
        Err(e) => return report.problem("store", e.message),
    };
    match store.check_writable() {
        Ok(()) => space(report, &store),
        Err(e) => report.problem("store", Error::from(e).message),
    }
    match store.health() {
        Ok(health) => contents(report, health),
        Err(e) => report.problem("store", Error::from(e).message),
    }
}

/// The space where the folder is, or would be.
fn space(report: &Report, store: &Store) {
    let folder = store.folder();
    let free = folder.ancestors().find_map(|part| {
        let part = if part.as_os_str().is_empty() { Path::new(".") } else { part };
        system::free_space(part).ok()
    });
    let note = if folder.is_dir() { "" } else { ", made by the first model" };
    let text = format!("{}: writable{note}", printable_path(folder));
    match free {
        Some(n) if n < LITTLE_SPACE => report.warning(
            "store",
            format_args!(
                "{text}, {} free: free some space, or set another folder with LLMRT_MODELS",
                bytes(n)
            ),
        ),
        Some(n) => report.ok("store", format_args!("{text}, {} free", bytes(n))),
        None => report.ok("store", text),
    }
}

fn contents(report: &Report, health: Health) {
    let (n_models, blobs) = (n_things(health.n_models, "model"), health.blobs);
    report.ok("store", format_args!("{n_models}, {}", bytes(blobs.bytes)));
    if health.partial.n > 0 {
        let (files, size) = (n_things(health.partial.n, "unfinished download"), bytes(health.partial.bytes));
        report.warning(
            "store",
            format_args!(
                "{files}, {size}: `llmrt pull NAME` continues them, `llmrt rm` of any model removes those of last week"
            ),
        );
    }
    if health.unused.n > 0 {
        let (files, size) = (n_things(health.unused.n, "blob"), bytes(health.unused.bytes));
        report.warning(
            "store",
            format_args!("{files} that no model has, {size}: the next `llmrt rm` of a model removes them"),
        );
    }
    health.problems.into_iter().for_each(|e| report.problem("store", Error::from(e).message));
}
