//! `llmrt tokenize` and `llmrt detokenize`: text to ids and back.

use crate::args::{Global, TemplateArgs};
use crate::cmd::Command;
use crate::error::{Error, Result};
use crate::interrupt::UNTIL_INTERRUPTED;
use crate::model::OpenModel;
use crate::templates::Template;
use crate::{output, prompt, text, tokens};
use clap::Args;
use llmrt_engine::TokenId;
use llmrt_host::load::OpenOptions;
use llmrt_tokenizer::{EncodeOptions, Tokenizer};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Turn text into token ids.
///
/// The text is taken as it is, a line end at its end included. With --chat it is the message of a chat, and the ids are
/// those that `run` computes for it.
#[derive(Args, Debug)]
pub struct Tokenize {
    /// Model or vocabulary file [default: the embedded model]. A single word without -p and -f is the text.
    #[arg(value_name = "MODEL")]
    pub model: Option<OsString>,
    /// Text [default: stdin].
    #[arg(value_name = "TEXT", conflicts_with_all = ["prompt", "file", "model_file"])]
    pub text: Option<OsString>,
    /// Model or vocabulary file; then a word is the text.
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// Text.
    #[arg(short = 'p', long = "prompt", value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<String>,
    /// File with the text; `-`: stdin.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Render the text with the chat template first, as `run` does; --system and --chat-template imply it.
    #[arg(long, conflicts_with_all = ["no_bos", "no_parse_special"])]
    pub chat: bool,
    /// System message before the text.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["no_bos", "no_parse_special"])]
    pub system: Option<String>,
    #[command(flatten)]
    pub template: TemplateArgs,
    /// Ids on one line, separated by spaces.
    #[arg(long, conflicts_with = "json")]
    pub ids: bool,
    /// A JSON array of {id, piece}.
    #[arg(long)]
    pub json: bool,
    /// Add no BOS or EOS token.
    #[arg(long, conflicts_with_all = ["chat_template", "chat_template_file"])]
    pub no_bos: bool,
    /// Treat special tokens in the text as text.
    #[arg(long, conflicts_with_all = ["chat_template", "chat_template_file"])]
    pub no_parse_special: bool,
    /// tokenizer.bin of a llama2.c checkpoint [default: beside the checkpoint].
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
}

/// Turn token ids into text.
#[derive(Args, Debug)]
pub struct Detokenize {
    /// Model or vocabulary file [default: the embedded model].
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Ids, separated by spaces or commas [default: stdin].
    #[arg(value_name = "IDS")]
    pub ids: Vec<String>,
    /// Show special tokens as their names.
    #[arg(long)]
    pub special: bool,
    /// tokenizer.bin of a llama2.c checkpoint [default: beside the checkpoint].
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
}

impl Command for Tokenize {
    const NAME: &'static str = "tokenize";

    fn run(&self, _: &Global) -> Result<()> {
        tokenize(self)
    }
}

impl Command for Detokenize {
    const NAME: &'static str = "detokenize";

    fn run(&self, _: &Global) -> Result<()> {
        detokenize(self)
    }
}

/// Prints the ids of a text, exactly as it is given, or of a message.
fn tokenize(args: &Tokenize) -> Result<()> {
    let (file, word) = words(args)?;
    let model = open(file, &args.tokenizer)?;
    let tokenizer = model.tokenizer()?;
    let template = template(args, &model)?;
    let text = match (word.or(args.prompt.clone()), &args.file) {
        (Some(text), _) => text,
        (None, file) => {
            let read = file.as_ref().map_or_else(text::of_stdin, |path| text::of_file(path))?;
            if template.is_some() { text::without_last_line_end(read) } else { read }
        }
    };
    let ids = match template {
        Some(template) => {
            let system = args.system.as_deref();
            prompt::check_system(&template.jinja, system);
            prompt::of_message(&tokenizer, &template.jinja, system, &text, UNTIL_INTERRUPTED)
                .map_err(|e| e.of_model(&model.name))?
        }
        None => {
            let options = EncodeOptions { add_special: !args.no_bos, parse_special: !args.no_parse_special };
            tokenizer.encode_within(&text, options, UNTIL_INTERRUPTED)?
        }
    };

    if args.json {
        let rows = ids.iter().map(|&id| Ok(json!({ "id": id, "piece": piece_json(&tokenizer, id)? })));
        return Ok(output::json(&Value::Array(rows.collect::<Result<_>>()?))?);
    }
    let mut lines = String::new();
    if args.ids {
        let words: Vec<_> = ids.iter().map(TokenId::to_string).collect();
        lines = words.join(" ") + "\n";
    } else {
        for &id in &ids {
            lines += &format!("{id:>7}  {:?}\n", String::from_utf8_lossy(&tokenizer.token_bytes(id)?));
        }
    }
    Ok(output::print(lines)?)
}

/// The model's file and the text among the words.
fn words(args: &Tokenize) -> Result<(Option<&Path>, Option<String>)> {
    let (model, text) = match (&args.model, &args.text) {
        (Some(word), None) if args.prompt.is_none() && args.file.is_none() => {
            let is_model = args.model_file.is_none() && Path::new(word).is_file();
            if is_model {
                output::note(
                    "the text is the name of a file: a model comes before a TEXT, -p or -f, or after -m",
                );
            }
            (None, Some(word))
        }
        (Some(_), None) if args.model_file.is_some() => {
            return Err(Error::usage("two texts, or two models: leave out the word, or -m, -p or -f"));
        }
        (model, text) => (model.as_ref(), text.as_ref()),
    };
    let text = text.map(|word| {
        let text = word.to_str().map(String::from);
        text.ok_or_else(|| Error::usage(format!("{}: is no UTF-8 text: give it with -f", word.display())))
    });
    Ok((args.model_file.as_deref().or(model.map(Path::new)), text.transpose()?))
}

/// The template if the text is a message.
fn template(args: &Tokenize, model: &OpenModel) -> Result<Option<Template>> {
    let TemplateArgs { chat_template, chat_template_file } = &args.template;
    if !args.chat && args.system.is_none() && chat_template.is_none() && chat_template_file.is_none() {
        return Ok(None);
    }
    let template = Template::of_chat(&args.template, model)?;
    let none = "the model has no chat template: give one with --chat-template or --chat-template-file";
    template.ok_or_else(|| Error::usage(none)).map(Some)
}

/// Prints the text of ids; a line end follows only on a terminal.
fn detokenize(args: &Detokenize) -> Result<()> {
    let tokenizer = open(args.model.as_deref(), &args.tokenizer)?.tokenizer()?;
    let (given, source) = match args.ids.is_empty() {
        true => (text::of_stdin()?, "stdin"),
        false => (args.ids.join(" "), "IDS"),
    };
    let ids = tokens::parse(&given, source)?;
    tokens::check(&ids, tokenizer.n_tokens() as u64, source)?;
    let line_end = if std::io::stdout().is_terminal() { "\n" } else { "" };
    Ok(output::model_text(&(tokenizer.decode(&ids, args.special)? + line_end))?)
}

fn open(model: Option<&Path>, tokenizer_bin: &Option<PathBuf>) -> Result<OpenModel> {
    let options = OpenOptions { tokenizer: tokenizer_bin.clone(), ..OpenOptions::default() };
    OpenModel::open(model, &options)
}

/// The text that a token writes, or its bytes if they are no text.
pub fn piece_json(tokenizer: &Tokenizer, id: TokenId) -> Result<Value> {
    let bytes = tokenizer.token_bytes(id).map_err(Error::from)?;
    Ok(match std::str::from_utf8(&bytes) {
        Ok(text) => json!(text),
        Err(_) => json!(bytes),
    })
}
