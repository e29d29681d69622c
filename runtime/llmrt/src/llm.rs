//! A model that generates text.

use crate::drafts::Drafts;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::params::Params;
use crate::present::Present;
use crate::tables::TextTables;
use llmrt_engine::{
    AsyncEngine, DeviceRunner, EngineEvent, Pooling, Request, RequestOutput, RequestStream, memory,
};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_tokenizer::{ChatTemplate, EncodeOptions, Limits, Message, RenderOptions, Tokenizer};
use std::path::Path;
use std::sync::Arc;

/// A loaded model on its devices. Dropping it ends its engine.
pub struct Llm {
    engine: AsyncEngine,
    tokenizer: Arc<Tokenizer>,
    template: Option<Arc<ChatTemplate>>,
    warnings: Vec<String>,
    n_ctx: usize,
    pooling: Pooling,
    devices: Vec<String>,
}

impl Llm {
    /// Opens a GGUF file, any part of a split model.
    pub fn open(path: impl AsRef<Path>) -> Result<Llm> {
        Llm::open_with(path, Options::default())
    }

    /// The same with other devices or sizes.
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Llm> {
        Llm::load(|open| ModelFiles::open(path.as_ref(), open), options)
    }

    /// A model whose file is in memory; `name` stands in messages.
    pub fn from_bytes(name: &str, bytes: &[u8], options: Options) -> Result<Llm> {
        Llm::load(|open| ModelFiles::from_bytes(name, bytes, open), options)
    }

    fn load(
        open: impl FnOnce(&OpenOptions) -> llmrt_host::load::Result<ModelFiles>,
        mut options: Options,
    ) -> Result<Llm> {
        let present = Present::search(std::mem::take(&mut options.host), &options.discover)?;
        let devices = options.choose(&present)?;
        let mut files = open(&OpenOptions::default()).map_err(|e| Error::File(e.to_string()))?;
        let TextTables { tokenizer, template } = TextTables::read(&files, options.chat_template.as_deref())?;
        let open_draft = |drafts: &Drafts| drafts.open(&mut files, &tokenizer);
        let draft = options.drafts.as_ref().map(open_draft).transpose()?.flatten();
        if let Some(trained) = files.n_ctx_train() {
            options.engine.n_ctx = options.engine.n_ctx.min(trained);
        }
        let n_ctx = options.engine.n_ctx;
        options.engine.max_drafts = options.drafts.as_ref().map_or(0, |drafts| drafts.max);
        options.engine.block_size.get_or_insert_with(|| memory::block_size(&devices));
        let load = LoadOptions {
            mode: options.load,
            seal_cache: options.seal_cache.as_ref(),
            progress: options.progress.as_mut().map(|watch| watch as &mut dyn FnMut(f32) -> bool),
            ..LoadOptions::default()
        };
        let names = devices.iter().map(|device| device.name().to_string()).collect();
        let mut runner = DeviceRunner::new(&present.host, devices.clone(), files, load, options.engine)?;
        let mut warnings = runner.take_warnings();
        let pooling = runner.model().spec().default_pooling();
        let mut core = runner.into_core(Some(tokenizer.clone()))?;
        if let Some(drafts) = &options.drafts {
            warnings.extend(drafts.begin(&mut core, draft, &present.host, devices)?);
        }
        let engine = AsyncEngine::start(core)?;
        Ok(Llm { engine, tokenizer, template, warnings, n_ctx, pooling, devices: names })
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
        let template = self.chat_template()?;
        let options = RenderOptions::for_answer(&self.tokenizer);
        let limits = Limits { max_tokens: self.n_ctx, ..Limits::NONE };
        let prompt = template.render_prompt(messages, &options, &self.tokenizer, limits)?;
        let tokens = self.tokenizer.encode_prompt(&prompt, limits)?;
        Ok(Request { continues: false, ..Request::greedy(tokens) })
    }

    /// The vector of a text, as long as the model's hidden states, divided by its length; its tokens are pooled as the model's
    /// file states.
    pub fn embed(&self, text: &str) -> Result<Vec<f32>> {
        let output = self.output(self.embed_request(self.request(text)?.prompt))?;
        Ok(output.embeddings.into_iter().next().unwrap_or_default())
    }

    /// A request for the vector of a text with these tokens.
    pub fn embed_request(&self, tokens: Vec<u32>) -> Request {
        Request::embed(tokens, self.pooling, true)
    }

    /// The logits after each token of a text, from a position on: `n_vocab` numbers each.
    pub fn logits(&self, tokens: Vec<u32>, from: usize) -> Result<Vec<Vec<f32>>> {
        let mut rows = Vec::new();
        for event in self.submit(Request::logits(tokens, from))? {
            match event {
                EngineEvent::Logits { logits, .. } => rows.push(logits),
                EngineEvent::Failed { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
        Ok(rows)
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
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The model's chat template, or that of [`Options::chat_template`].
    pub fn chat_template(&self) -> Result<&Arc<ChatTemplate>> {
        self.template.as_ref().ok_or(Error::NoChatTemplate)
    }

    /// How the vectors of a text's tokens become one.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Names of the devices that the model may use, first choice first.
    pub fn devices(&self) -> &[String] {
        &self.devices
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
        let output = self.output(request)?;
        Ok(output.outputs.into_iter().next().map(|output| output.text).unwrap_or_default())
    }

    fn output(&self, request: Request) -> Result<RequestOutput> {
        Ok(self.submit(request)?.finish()?)
    }
}
