//! Text and ids, and conversations as prompts.

use crate::error::Failure;
use crate::interrupt::Watch;
use llmrt::TextTables;
use llmrt::engine::BlockHash;
use llmrt::tokenizer::{ChatTemplate, EncodeOptions, Limits, RenderOptions, Tokenizer as Vocabulary};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// The vocabulary of a model and its chat template. Works without its engine.
#[pyclass(frozen, module = "llmrt._llmrt")]
pub struct Tokenizer {
    vocabulary: Arc<Vocabulary>,
    template: Option<Arc<ChatTemplate>>,
    max_tokens: usize,
}

impl Tokenizer {
    /// Of a model whose context has so many tokens: of longer texts at most four times as many are computed, for messages.
    pub fn new(vocabulary: Arc<Vocabulary>, template: Option<Arc<ChatTemplate>>, n_ctx: usize) -> Tokenizer {
        Tokenizer { vocabulary, template, max_tokens: n_ctx.max(4096).saturating_mul(4) }
    }

    /// Runs work that ends at Ctrl-C, and computes at most so many tokens.
    fn interruptible<T: Send>(
        &self,
        py: Python<'_>,
        max_tokens: usize,
        work: impl FnOnce(Limits<'_>) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        let watch = Watch::new();
        let done = py.detach(|| work(Limits { max_tokens, is_cancelled: &|| watch.is_interrupted() }));
        watch.or(done.map_err(PyErr::from))
    }
}

#[pymethods]
impl Tokenizer {
    /// That of a file, whose weights are not read; `None`: of the story model that is part of this library.
    #[staticmethod]
    fn from_file(py: Python<'_>, model: Option<PathBuf>) -> PyResult<Tokenizer> {
        let open = move || match model {
            Some(path) => TextTables::open(llmrt_cli::stored_file(&path).unwrap_or(path)),
            None => TextTables::from_bytes("(embedded model)", llmrt_cli::EMBEDDED),
        };
        let TextTables { tokenizer, template } = py.detach(open).map_err(Failure::from)?;
        Ok(Tokenizer::new(tokenizer, template, usize::MAX))
    }

    /// The names that a prefix cache has for the full blocks of a prompt, shortened to 64 bits.
    #[staticmethod]
    fn block_hashes(ids: Vec<u32>, cache_salt: &str, block_size: usize) -> Vec<u64> {
        let names = BlockHash::of_salt(cache_salt).of_blocks(&ids, block_size.max(1));
        names.into_iter().map(BlockHash::short).collect()
    }

    /// The ids of a text; of one that is limited, at most a few times those of the context.
    fn encode(&self, py: Python<'_>, text: &str, add_special: bool, is_limited: bool) -> PyResult<Vec<u32>> {
        let options = EncodeOptions { add_special, parse_special: true };
        let (vocabulary, most) = (&self.vocabulary, if is_limited { self.max_tokens } else { usize::MAX });
        self.interruptible(py, most, |limits| Ok(vocabulary.encode_within(text, options, limits)?))
    }

    /// The text of ids.
    fn decode(&self, ids: Vec<u32>, render_special: bool) -> PyResult<String> {
        Ok(self.vocabulary.decode(&ids, render_special).map_err(Failure::from)?)
    }

    /// The text of one token, with U+FFFD where its bytes are part of a character; `None`: there is no such token.
    fn piece(&self, id: u32) -> Option<String> {
        self.vocabulary.token_bytes(id).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The prompt of a conversation, and its ids. Messages and further variables are JSON.
    fn chat(
        &self,
        py: Python<'_>,
        messages: &str,
        template: Option<&str>,
        add_generation_prompt: bool,
        variables: &str,
    ) -> PyResult<(String, Vec<u32>)> {
        let json = |e: serde_json::Error| PyValueError::new_err(e.to_string());
        let messages: Vec<serde_json::Value> = serde_json::from_str(messages).map_err(json)?;
        let extra = serde_json::from_str(variables).map_err(json)?;
        let given = template.map(ChatTemplate::new).transpose().map_err(Failure::from)?;
        let template = given.as_ref().or(self.template.as_deref());
        let template = template.ok_or(Failure::Runtime(llmrt::Error::NoChatTemplate))?;
        let vocabulary = &*self.vocabulary;
        self.interruptible(py, self.max_tokens, |limits| {
            let options =
                RenderOptions { add_generation_prompt, extra, ..RenderOptions::for_answer(vocabulary) };
            let prompt = template.render_json_prompt(messages, &options, vocabulary, limits)?;
            let ids = vocabulary.encode_prompt(&prompt, limits)?;
            Ok((prompt.text().to_string(), ids))
        })
    }

    #[getter]
    fn chat_template(&self) -> Option<&str> {
        self.template.as_ref().map(|template| template.source())
    }

    #[getter]
    fn n_tokens(&self) -> usize {
        self.vocabulary.n_tokens()
    }

    #[getter]
    fn bos(&self) -> Option<u32> {
        self.vocabulary.bos()
    }

    #[getter]
    fn eos(&self) -> Option<u32> {
        self.vocabulary.eos()
    }

    #[getter]
    fn pad(&self) -> Option<u32> {
        self.vocabulary.pad()
    }
}
