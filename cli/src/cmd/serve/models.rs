//! The models of a server: their names, and how each is opened and loaded.

use super::Serve;
use crate::args::SpecArgs;
use crate::cmd::run::stored;
use crate::context::{self, Defaults};
use crate::error::{Error, Exit, Result};
use crate::model::{self, OpenModel};
use crate::session::{Session, note_warnings};
use crate::setup::Setup;
use crate::speculation;
use crate::store;
use crate::templates::Template;
use llmrt_abi::DType;
use llmrt_engine::AsyncEngine;
use llmrt_gguf::TensorInfo;
use llmrt_server::{Model, ModelInfo, ModelSource, ModelStore, Placement};
use llmrt_store::{Entry, StoredModel};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What clients call the embedded model.
const EMBEDDED: &str = "stories";

/// A model of the command line.
struct Named {
    name: String,
    origin: Origin,
}

enum Origin {
    Embedded,
    File(PathBuf),
    Stored(Box<StoredModel>, Entry),
}

/// The models of the command line, in its order.
pub fn sources(args: &Serve, setup: &Arc<Setup>) -> Result<Vec<ModelSource>> {
    let named = named(args)?;
    let loader = Loader { needs_draft: named.len() == 1, ..Loader::new(args, setup) };
    let source = |Named { name, origin }| match origin {
        Origin::Embedded => loader.source(name, None),
        Origin::File(path) => loader.source(name, Some(path)),
        Origin::Stored(model, row) => loader.stored(name, *model, row),
    };
    Ok(named.into_iter().map(source).collect())
}

/// The models of the store; `None` if this user has no folder for one.
pub fn store(args: &Serve, setup: &Arc<Setup>) -> Option<ModelStore> {
    let loader = Loader::new(args, setup);
    let source = move |model: StoredModel, row: Entry| loader.stored(row.name.to_string(), model, row);
    Some(ModelStore { store: store::open().ok()?, source: Box::new(source), client: Box::new(store::client) })
}

/// What the store's list has of a model, in the place of what its file has.
fn of_row(info: ModelInfo, row: &Entry) -> ModelInfo {
    ModelInfo { size: row.size, digest: row.id.hex(), modified: seconds(row.modified), ..info }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn named(args: &Serve) -> Result<Vec<Named>> {
    let words = args.model_files.iter().chain(&args.models);
    let models: Vec<Named> = words.map(|word| parse(word)).collect::<Result<_>>()?;
    if models.is_empty() {
        return Ok(vec![Named { name: EMBEDDED.into(), origin: Origin::Embedded }]);
    }
    for (i, model) in models.iter().enumerate() {
        if models[..i].iter().any(|other| other.name == model.name) {
            return Err(Error::usage(format!("two models are named {}: give one as NAME=FILE", model.name)));
        }
    }
    Ok(models)
}

/// `NAME=FILE` or `FILE`, where the file may be a model of the store. A `=` after a slash belongs to the file.
fn parse(word: &OsStr) -> Result<Named> {
    let bytes = word.as_bytes();
    let equals = bytes.iter().position(|b| *b == b'=').filter(|at| !bytes[..*at].contains(&b'/'));
    let (name, path) = match equals {
        Some(at) => (Some(&bytes[..at]), &bytes[at + 1..]),
        None => (None, bytes),
    };
    let path = PathBuf::from(OsStr::from_bytes(path));
    let name = name.map(|name| String::from_utf8_lossy(name).into_owned());
    let (own_name, origin) = match store::find(&path)? {
        Some(model) => {
            let row = store::open()?.entry(&model.name)?;
            (model.name.to_string(), Origin::Stored(Box::new(model), row))
        }
        None if path.exists() => {
            (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), Origin::File(path))
        }
        None => {
            let problem = "there is no such file, and no such model in the store: expected FILE or NAME=FILE";
            return Err(Error::file(&path, problem));
        }
    };
    let name = name.unwrap_or(own_name);
    match name.is_empty() {
        true => {
            Err(Error::usage(format!("{}: the model's name is empty: expected NAME=FILE", word.display())))
        }
        false => Ok(Named { name, origin }),
    }
}

/// What models are loaded with.
#[derive(Clone)]
struct Loader {
    template: crate::args::TemplateArgs,
    context: crate::args::ContextArgs,
    requests: crate::args::RequestsArgs,
    loading: crate::args::ModelArgs,
    speculation: crate::args::SpecArgs,
    /// Whether `--model-draft` must fit the model; one of several may go without.
    needs_draft: bool,
    parallel: usize,
    setup: Arc<Setup>,
    /// What a chat without a system message begins with.
    system: Option<String>,
    /// What comes after it.
    messages: Vec<Value>,
}

impl Loader {
    fn new(args: &Serve, setup: &Arc<Setup>) -> Loader {
        Loader {
            template: args.template.clone(),
            context: args.context.clone(),
            requests: args.requests.clone(),
            loading: args.loading.clone(),
            speculation: args.speculation.clone(),
            needs_draft: false,
            parallel: args.parallel,
            setup: setup.clone(),
            system: None,
            messages: Vec::new(),
        }
    }

    /// A file, or without one the embedded model, under a name.
    fn source(&self, name: String, path: Option<PathBuf>) -> ModelSource {
        let (describing, loading, described) = (self.clone(), self.clone(), path.clone());
        ModelSource {
            name,
            stored: None,
            describe: Box::new(move || describing.describe(described.as_deref()).map_err(|e| e.message)),
            load: Box::new(move || loading.load(path.as_deref()).map_err(|e| e.message)),
        }
    }

    /// A model of the store under a name.
    fn stored(&self, name: String, model: StoredModel, row: Entry) -> ModelSource {
        let of_file = self.with_layers(&model).source(name, Some(model.gguf.clone()));
        let describe = of_file.describe;
        let describe = Box::new(move || describe().map(|info| of_row(info, &row)));
        ModelSource { stored: Some(model), describe, ..of_file }
    }

    /// The flags of the command line, and those of the model's layers where the command line has none.
    fn with_layers(&self, model: &StoredModel) -> Loader {
        let messages = model.messages.iter().map(|m| json!({ "role": m.role, "content": m.content }));
        let (system, messages) = (model.system.clone(), messages.collect());
        let mut loader = Loader { system, messages, ..self.clone() };
        stored::set_template(&mut loader.template, model);
        if let Some(n_ctx) = model.params.get("num_ctx") {
            stored::set_ctx(&mut loader.context, n_ctx);
        }
        loader
    }

    fn load(&self, path: Option<&Path>) -> Result<Model> {
        let mut model = OpenModel::open(path, &model::open_options(&self.loading))?;
        let mut speculation = self.speculation.clone();
        match speculation::attach(&mut model, &speculation, &self.loading) {
            Err(e) if self.needs_draft || e.exit == Exit::Usage => return Err(e),
            Err(e) => {
                note_warnings(vec![format!(
                    "{}: {}; it has no drafts of next tokens",
                    model.name, e.message
                )]);
                speculation = SpecArgs::default();
            }
            Ok(()) => {}
        }
        let tokenizer = Arc::new(model.tokenizer()?);
        let template = Template::of_chat(&self.template, &model)?;
        let template =
            template.map(|t| llmrt_server::Template { jinja: t.jinja, shows_opening: t.shows_opening });
        let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
        let setup = &self.setup;
        let mut options =
            context::engine_options(&self.context, model.n_ctx_train(), defaults, setup.placing())?;
        options.max_seqs = self.parallel;
        options.max_drafts = speculation::max_drafts(&speculation);
        options.n_batch = options.n_batch.max(options.max_seqs);
        let spec = model.build()?.spec().clone();
        if !spec.is_causal {
            options.n_batch = options.n_batch.max(options.n_ctx);
        }
        self.requests.apply(&mut options, setup, &model)?;
        let session = Session::load(setup, model, &self.loading, options, Some(tokenizer.clone()))?;
        let session = session.speculating(setup, &speculation, &self.loading)?;
        let n_ctx = session.core.n_ctx();
        let placement = Arc::new(Placement::new(computing(setup, &session)));
        let placed = placement.clone();
        let engine = AsyncEngine::start_watched(session.core, move |core| {
            note_warnings(core.runner_mut().take_warnings());
            core.runner().report().into_iter().for_each(|report| placed.set(report));
        })?;
        let (system, messages) = (self.system.clone(), self.messages.clone());
        let pooling = spec.default_pooling();
        Ok(Model { engine, tokenizer, template, system, messages, n_ctx, pooling, placement })
    }

    fn describe(&self, path: Option<&Path>) -> Result<ModelInfo> {
        let model = OpenModel::open(path, &model::open_options(&self.loading))?;
        let architecture = model.metadata().str("general.architecture").unwrap_or_default().to_string();
        let tensors = &model.files.model.tensors;
        let modified = path.and_then(|path| path.metadata().ok()?.modified().ok());
        Ok(ModelInfo {
            size: model.files.file_bytes(),
            n_params: tensors.iter().map(TensorInfo::n_elements).sum(),
            quantization: quantization(tensors),
            n_ctx_train: model.n_ctx_train(),
            n_embd: model.metadata().usize(&format!("{architecture}.embedding_length")),
            digest: model.identity()?.checksum,
            modified: modified.map_or(0, seconds),
            chat_template: Template::of_chat(&self.template, &model)?.map(|t| t.jinja.source().to_string()),
            architecture,
        })
    }
}

/// The devices that have memory to compute the model's steps.
fn computing(setup: &Setup, session: &Session) -> Vec<String> {
    let (_, arenas) = session.core.runner().allocated();
    let used = setup.device_names().into_iter().zip(arenas).filter(|(_, n_bytes)| *n_bytes > 0);
    used.map(|(name, _)| name).collect()
}

/// The type that most bytes of a model have.
fn quantization(tensors: &[TensorInfo]) -> String {
    let mut bytes: HashMap<&str, u64> = HashMap::new();
    for tensor in tensors {
        *bytes.entry(tensor.dtype.name()).or_default() += tensor.nbytes;
    }
    let most = bytes.into_iter().max_by_key(|(name, n)| (*n, *name));
    most.map_or_else(String::new, |(name, _)| name.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::flags;

    #[test]
    fn models_have_the_name_that_is_given_or_the_files() {
        let names = |line: &str| -> Vec<String> {
            named(&flags(line)).unwrap().into_iter().map(|model| model.name).collect()
        };
        assert_eq!(names("llmrt serve"), ["stories"]);
        assert_eq!(names("llmrt serve a=Cargo.toml src/main.rs -m b=src/text.rs"), ["b", "a", "main"]);
        let refused = |line: &str| named(&flags(line)).err().expect("refused").message;
        assert!(refused("llmrt serve Cargo.toml a/../Cargo.toml").contains("there is no such file"));
        assert!(refused("llmrt serve a=Cargo.toml a=src/main.rs").contains("two models are named a"));
        assert!(refused("llmrt serve =Cargo.toml").contains("name is empty"));
    }
}
