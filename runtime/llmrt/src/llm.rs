//! A model that generates text.

use crate::error::{Error, Result};
use crate::options::Options;
use crate::params::Params;
use llmrt_engine::{AsyncEngine, DeviceRunner, Request, RequestStream, memory};
use llmrt_host::Host;
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_tokenizer::{ChatTemplate, EncodeOptions, Limits, Message, RenderOptions, Tokenizer};
use std::path::Path;
use std::sync::Arc;

/// A loaded model on its devices. Dropping it ends its engine.
pub struct Llm {
    engine: AsyncEngine,
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    warnings: Vec<String>,
    n_ctx: usize,
}

impl Llm {
    /// Opens a GGUF file, any part of a split model.
    pub fn open(path: impl AsRef<Path>) -> Result<Llm> {
        Llm::open_with(path, Options::default())
    }

    /// The same with other devices or sizes.
    pub fn open_with(path: impl AsRef<Path>, mut options: Options) -> Result<Llm> {
        let host = Host::new(std::mem::take(&mut options.host));
        let devices = options.devices(&host)?;
        let files = ModelFiles::open(path.as_ref(), &OpenOptions::default());
        let files = files.map_err(|e| Error::File(e.to_string()))?;
        let metadata = &files.model.metadata;
        let tokenizer = Arc::new(Tokenizer::from_metadata(metadata)?);
        let template = match &options.chat_template {
            Some(source) => Some(ChatTemplate::new(source)?),
            None => ChatTemplate::from_metadata(metadata)?,
        };
        if let Some(trained) = files.n_ctx_train() {
            options.engine.n_ctx = options.engine.n_ctx.min(trained);
        }
        let n_ctx = options.engine.n_ctx;
        options.engine.block_size.get_or_insert_with(|| memory::block_size(&devices));
        let load = LoadOptions {
            mode: options.load,
            seal_cache: options.seal_cache.as_ref(),
            ..LoadOptions::default()
        };
        let mut runner = DeviceRunner::new(&host, devices, files, load, options.engine)?;
        let warnings = runner.take_warnings();
        let engine = AsyncEngine::start(runner.into_core(Some(tokenizer.clone()))?)?;
        Ok(Llm { engine, tokenizer, template, warnings, n_ctx })
    }

    /// The text that follows a prompt.
    pub fn generate(&self, prompt: &str, params: &Params) -> Result<String> {
        self.text(params.apply(self.request(prompt)?))
    }

    /// The answer to a conversation, in the words of the chat template.
    pub fn chat(&self, messages: &[Message], params: &Params) -> Result<String> {
        self.text(params.apply(self.chat_request(messages)?))
    }

    /// A request for the text that follows a prompt: the likeliest, until changed.
    pub fn request(&self, prompt: &str) -> Result<Request> {
        let options = EncodeOptions { add_special: true, parse_special: false };
        Ok(Request::greedy(self.tokenizer.encode(prompt, options)?))
    }

    /// A request for the answer to a conversation.
    pub fn chat_request(&self, messages: &[Message]) -> Result<Request> {
        let template = self.template.as_ref().ok_or(Error::NoChatTemplate)?;
        let options = RenderOptions::for_answer(&self.tokenizer);
        let limits = Limits { max_tokens: self.n_ctx, ..Limits::NONE };
        let prompt = template.render_prompt(messages, &options, &self.tokenizer, limits)?;
        let tokens = self.tokenizer.encode_prompt(&prompt, limits)?;
        Ok(Request { continues: false, ..Request::greedy(tokens) })
    }

    /// Queues a request; its stream gives tokens as they come. To drop the stream aborts the request.
    pub fn submit(&self, request: Request) -> Result<RequestStream> {
        Ok(self.engine.generate(request)?)
    }

    /// The engine: how many requests wait and run, abort, drain.
    pub fn engine(&self) -> &AsyncEngine {
        &self.engine
    }

    /// Text and ids.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What did not go as requested while the model was loaded: devices that were left out, memory that could not be locked.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Tokens that a prompt and its text may have.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    fn text(&self, request: Request) -> Result<String> {
        let output = self.submit(request)?.finish()?;
        Ok(output.outputs.into_iter().next().map(|output| output.text).unwrap_or_default())
    }
}
