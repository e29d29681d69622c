//! The store of models: its folder, names as models of commands, and pulling with progress.

use crate::error::{Error, Exit, Result};
use crate::output::{bytes, note};
use crate::progress::TransferBar;
use llmrt_host::knobs;
use llmrt_store::{Client, ClientOptions, Event, Source, Store, StoredModel, Watch};
use std::path::{Path, PathBuf};

/// The store of this user: `LLMRT_MODELS`, else a folder of the user's data.
pub fn open() -> Result<Store> {
    let home = || knobs::HOME.text().map(|home| PathBuf::from(home).join(".local/share"));
    let data = knobs::DATA_HOME.text().map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = match knobs::MODELS.text() {
        Some(folder) => Some(PathBuf::from(folder)),
        None => data.or_else(home).map(|data| data.join("llmrt/models")),
    };
    folder
        .map(Store::at)
        .ok_or_else(|| Error::usage("there is no folder for models: set LLMRT_MODELS, XDG_DATA_HOME or HOME"))
}

/// A client with the hub of the environment.
pub fn client(insecure: bool) -> Client {
    let mut options = ClientOptions { insecure, ..ClientOptions::default() };
    let text = |knob: knobs::Knob| knob.text().and_then(|value| value.into_string().ok());
    if let Some(hub) = text(knobs::HUB) {
        options.hub = hub;
    }
    options.hub_token = text(knobs::HUB_TOKEN);
    Client::new(options)
}

/// The model of the store that this text names; `None` if there is a file of that name, or no such model.
pub fn find(path: &Path) -> Result<Option<StoredModel>> {
    let Some(Source { name, .. }) = source_of(path) else { return Ok(None) };
    // Without a folder there are no models; commands of the store report that.
    let Ok(store) = open() else { return Ok(None) };
    match store.has(&name) {
        true => Ok(Some(store.model(&name)?)),
        false => Ok(None),
    }
}

/// The model that a text names, where no file has that name.
pub fn source_of(path: &Path) -> Option<Source> {
    let is_file = path.symlink_metadata().is_ok();
    path.to_str().filter(|_| !is_file)?.parse().ok()
}

/// Pulls a model into the store, with a bar on stderr and a line at the end.
pub fn pull(source: &Source, insecure: bool, quiet: bool) -> Result<()> {
    let store = open()?;
    with_progress(quiet, |watch| client(insecure).pull(&store, source, watch))?;
    let entry = store.entry(&source.name)?;
    if !quiet {
        note(format_args!("{}: pulled, {}", source.name, bytes(entry.size)));
    }
    Ok(())
}

/// Runs long work of the store with a bar on stderr and a line for each retry.
pub fn with_progress<T>(
    quiet: bool,
    work: impl FnOnce(&mut Watch<'_>) -> llmrt_store::Result<T>,
) -> Result<T> {
    let mut bar = TransferBar::new(quiet);
    let mut show = |event: &Event| match event {
        Event::Transfer { digest, done, total } => {
            let what = digest.map_or("file".into(), |digest| digest.short());
            bar.show(&what, *done, *total);
        }
        Event::Retry { why, wait } if !quiet => {
            bar.above(|| note(format_args!("{why}: the next try is in {:.1} s", wait.as_secs_f32())));
        }
        _ => {}
    };
    let is_cancelled = crate::interrupt::is_requested;
    Ok(work(&mut Watch { show: &mut show, is_cancelled: &is_cancelled })?)
}

impl From<llmrt_store::Error> for Error {
    fn from(e: llmrt_store::Error) -> Error {
        use llmrt_store::Error as Store;
        let exit = match &e {
            Store::Cancelled => return Error::interrupted(),
            Store::BadName { .. } | Store::PlainHttp { .. } => Exit::Usage,
            Store::NotFound { .. } | Store::BadManifest { .. } | Store::BadBlob { .. } => Exit::File,
            Store::Unsupported { .. } | Store::Modelfile { .. } | Store::NoBase { .. } => Exit::File,
            Store::NotGguf { .. } | Store::Unprintable { .. } => Exit::File,
            _ => Exit::Failure,
        };
        Error::new(exit, format!("{e}; {}", e.remedy()))
    }
}
