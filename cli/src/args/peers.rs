//! Flags and commands of llama.cpp, Ollama and vLLM: one table of what is parsed as a flag of llmrt, and what is
//! answered with a hint. A flag that the command has itself is never looked up here.

use crate::error::{Error, Result};
use clap::Command;
use std::ffi::OsString;

/// What a flag of another program means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The same as this flag of llmrt.
    Alias(&'static str),
    /// Nothing; this is what to do instead.
    Hint(&'static str),
}

use Meaning::{Alias, Hint};

const DOWNLOAD: &str =
    "`llmrt pull hf.co/USER/REPO:QUANT` or `llmrt pull NAME` gets a model, llmrt run NAME runs it";
const PLACING: &str = "layers are placed by --backend and by the free memory of each device, neurons of sparse models by \
                       --vram-budget: leave it out; `llmrt plan` and `llmrt inspect --placement` show the result";
const ATTENTION: &str = "attention never stores the matrix of scores, as flash attention: leave it out (-f ./a for a \
                         file named a)";
const KV_TYPE: &str = "--kv-type TYPE sets the type of keys and values together";
const SAMPLER: &str =
    "llmrt has no such sampler: see \"Sampling\" in `llmrt run --help` for those that it has";
const CONSTRAINT: &str = "output constrained by a grammar or a JSON schema is not built yet";
const ROPE: &str =
    "set it in the metadata: --override-kv ARCH.rope.freq_base=float:1000000 (`llmrt inspect` lists keys)";
const SERVER: &str = "`llmrt serve` is the server: llmrt serve FILE.gguf";
const CHATS: &str = "a chat starts by itself: a model with a chat template, no prompt, and a terminal";
const THREADS: &str = "one pool computes prompts and answers: -t N";
const MULTIMODAL: &str = "llmrt reads text only: there are no image or audio models yet";
const NOT_BUILT: &str = "this is not built yet";

/// Flags. Long ones with two dashes, as they are typed.
pub const FLAGS: &[(&[&str], Meaning)] = &[
    (&["--ctx-size", "--max-model-len", "--num-ctx"], Alias("--ctx")),
    (&["--batch-size", "-ub", "--ubatch-size", "--max-num-batched-tokens"], Alias("--batch")),
    (&["--predict", "--max-tokens", "--num-predict"], Alias("--n-predict")),
    (&["--temperature"], Alias("--temp")),
    (&["--typical-p"], Alias("--typical")),
    (&["-l"], Alias("--logit-bias")),
    (&["-r", "--reverse-prompt"], Alias("--stop")),
    (&["-sys", "--system-prompt"], Alias("--system")),
    (&["-no-cnv", "--no-conversation"], Alias("--raw")),
    (&["-sm", "--split-mode"], Alias("--split")),
    (&["-ot", "--override-tensor"], Alias("--tensor-placement")),
    (&["--kv-cache-dtype"], Alias("--kv-type")),
    (&["-md", "--spec-draft-model", "--speculative-model"], Alias("--model-draft")),
    (&["--draft", "--draft-n", "--spec-draft-n-max", "--num-speculative-tokens"], Alias("--draft-max")),
    (&["--spec-draft-p-min"], Alias("--draft-p-min")),
    (
        &["--draft-min", "--draft-n-min", "--spec-draft-n-min"],
        Hint("as many tokens are guessed as --draft-p-min allows: leave it out"),
    ),
    (
        &["-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"],
        Hint(
            "`llmrt pull hf.co/USER/REPO:QUANT` gets a model, --model-draft hf.co/USER/REPO:QUANT guesses with it",
        ),
    ),
    (
        &[
            "-ngld",
            "-devd",
            "-ctkd",
            "-ctvd",
            "-td",
            "-tbd",
            "-otd",
            "--device-draft",
            "--gpu-layers-draft",
            "--n-gpu-layers-draft",
            "--threads-draft",
            "--threads-batch-draft",
            "--ctx-size-draft",
            "--cache-type-k-draft",
            "--cache-type-v-draft",
            "--override-tensor-draft",
        ],
        Hint(
            "the model that guesses has the devices, threads and type of KV cache of the other: leave it out",
        ),
    ),
    (
        &["--speculative-config"],
        Hint("--model-draft FILE or --spec-type ngram guesses next tokens, --draft-max N at a time"),
    ),
    (
        &["-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-hft", "--hf-token", "-mu", "--model-url"],
        Hint(DOWNLOAD),
    ),
    (&["-ngl", "--gpu-layers", "--n-gpu-layers"], Hint(PLACING)),
    (&["-nkvo", "--no-kv-offload"], Hint(PLACING)),
    (
        &["-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe"],
        Hint(
            "--tensor-placement 'ffn_.*_exps=cpu' keeps experts on the CPU; 'blk\\.[0-9]\\..*_exps=cpu' those of the first 10 layers",
        ),
    ),
    (
        &["-mg", "--main-gpu", "-ts", "--tensor-split", "-dev", "--device"],
        Hint("--backend NAME:INDEX,… names devices, first choice first; `llmrt devices` lists them"),
    ),
    (&["--list-devices"], Hint("`llmrt devices` lists them")),
    (
        &["-tp", "--tensor-parallel-size"],
        Hint("--backend NAME with --split row divides every large matrix among its devices"),
    ),
    (
        &["--gpu-memory-utilization"],
        Hint(
            "the KV cache takes what -c needs: `llmrt plan -c N` shows how much; of --batch-file, bench and plan it is --memory-utilization",
        ),
    ),
    (&["-fa", "--flash-attn"], Hint(ATTENTION)),
    (&["-ctk", "--cache-type-k", "-ctv", "--cache-type-v"], Hint(KV_TYPE)),
    (&["-dt", "--defrag-thold"], Hint("the KV cache is paged and has no fragments: leave it out")),
    (&["-tb", "--threads-batch"], Hint(THREADS)),
    (&["-mmp", "--mmap"], Hint("files are mapped unless --no-mmap is given: leave it out")),
    (
        &["--dtype", "--quantization"],
        Hint("weights keep the types of the file; `llmrt quantize` writes a file with others"),
    ),
    (
        &["-e", "--escape", "--no-escape"],
        Hint(
            "prompts are taken as they are, without \\n or \\t: in bash write $'one\\ntwo', or give a file with -f",
        ),
    ),
    (&["-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"], Hint(CHATS)),
    (&["-st", "--single-turn"], Hint("a prompt on the command line is answered once: leave it out")),
    (&["--in-prefix", "--in-suffix", "--chat-template-kwargs"], Hint(NOT_BUILT)),
    (
        &["--jinja", "--no-jinja"],
        Hint("chat templates are always rendered as Jinja: leave it out, or use --raw"),
    ),
    (&["--no-display-prompt"], Hint("the prompt is shown only with --echo: leave it out")),
    (&["--verbose-prompt"], Hint("`llmrt tokenize TEXT` shows the tokens of a text")),
    (
        &["--samplers", "--sampler-seq", "--sampling-seq"],
        Hint("the order of the samplers is fixed: leave it out"),
    ),
    (&["--mirostat", "--mirostat-lr", "--mirostat-ent", "--dynatemp-range", "--dynatemp-exp"], Hint(SAMPLER)),
    (&["--xtc-probability", "--xtc-threshold", "--top-nsigma", "--top-n-sigma"], Hint(SAMPLER)),
    (
        &[
            "--dry-multiplier",
            "--dry-base",
            "--dry-allowed-length",
            "--dry-penalty-last-n",
            "--dry-sequence-breaker",
        ],
        Hint(SAMPLER),
    ),
    (
        &["--grammar", "--grammar-file", "-j", "--json-schema", "--json-schema-file", "-jf", "--format"],
        Hint(CONSTRAINT),
    ),
    (&["--lora", "--lora-scaled", "--control-vector"], Hint("LoRA and control vectors are not built yet")),
    (&["--mmproj", "-mm", "--image", "--audio"], Hint(MULTIMODAL)),
    (
        &["--rope-freq-base", "--rope-freq-scale", "--rope-scale", "--rope-scaling", "--yarn-orig-ctx"],
        Hint(ROPE),
    ),
    (&["-np", "--max-num-seqs"], Alias("--parallel")),
    (&["-a", "--alias", "--served-model-name"], Hint("`llmrt serve NAME=FILE` gives a model its name")),
    (&["-cb", "--cont-batching", "--host", "--port"], Hint(SERVER)),
    (&["--no-warmup", "--warmup"], Hint("there is no warm-up run here: leave it out")),
    (
        &["--numa", "--cpu-mask", "--cpu-range", "--cpu-strict"],
        Hint("choose cores with taskset or numactl, and their number with -t"),
    ),
    (
        &["--prio", "--poll"],
        Hint("LLMRT_SPIN_US sets how long waiting threads spin (`llmrt devices --knobs`)"),
    ),
    (
        &["--log-disable", "--log-file", "-lv", "--verbosity", "--no-perf", "--perf"],
        Hint("notes go to stderr, more of them with -v"),
    ),
    (
        &["-co", "--color", "--simple-io", "--nowordwrap"],
        Hint("text is written as it comes, without colour: leave it out"),
    ),
    (&["-o", "--output"], Hint("--json writes JSON to stdout, without it there is a table")),
    (&["-pg"], Hint("-p N measures prompts and -n N decoding; -d N decodes at a depth")),
    (
        &["--keepalive"],
        Hint("`llmrt serve --keep-alive` has it: here a model is loaded while its command runs"),
    ),
    (&["--think", "--hidethinking"], Hint("what a model thinks is part of its text: leave it out")),
    (&["--insecure"], Hint("`pull` and `push` have it; `run` has it together with --pull")),
    (&["--trust-remote-code"], Hint("llmrt runs no code of models: leave it out")),
];

/// Commands.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["chat", "generate", "complete", "cli"],
        "`llmrt run FILE.gguf` chats, `llmrt run FILE.gguf PROMPT` answers once",
    ),
    (&["download"], DOWNLOAD),
    (&["server"], SERVER),
];

/// Replaces flags of other programs by those of llmrt where `command` lacks them; an error where one has no equal.
pub fn translate(words: &[OsString], command: &Command) -> Result<Vec<OsString>> {
    let n_flags = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (flags, rest) = words.split_at(n_flags);
    flags.iter().map(|word| flag(word, command)).chain(rest.iter().map(|word| Ok(word.clone()))).collect()
}

fn flag(word: &OsString, command: &Command) -> Result<OsString> {
    let Some(text) = word.to_str().filter(|text| text.starts_with('-')) else { return Ok(word.clone()) };
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    if has(command, name) {
        return Ok(word.clone());
    }
    match FLAGS.iter().find(|(names, _)| names.contains(&name)) {
        Some((_, Hint(hint))) => Err(Error::usage(format!("{name} is no flag of llmrt: {hint}"))),
        Some((_, Alias(ours))) if has(command, ours) => {
            Ok(value.map_or((*ours).into(), |value| format!("{ours}={value}").into()))
        }
        Some((_, Alias(ours))) => Err(Error::usage(format!(
            "{name} is {ours} in llmrt, and `{}` does not take it: leave it out",
            command.get_name()
        ))),
        None => Ok(word.clone()),
    }
}

/// What to use instead of another program's command.
pub fn command_hint(name: &str) -> Option<String> {
    let (_, hint) = COMMANDS.iter().find(|(names, _)| names.contains(&name))?;
    Some(format!("{name} is no command of llmrt: {hint}"))
}

/// Whether a command takes a flag, as it is typed.
pub fn has(command: &Command, flag: &str) -> bool {
    let long = |name: &str| {
        let is_it = |arg: &clap::Arg| {
            arg.get_long_and_visible_aliases().is_some_and(|names| names.contains(&name))
                || arg.get_all_aliases().is_some_and(|names| names.contains(&name))
        };
        command.get_arguments().any(is_it)
    };
    match (flag.strip_prefix("--"), flag.strip_prefix('-')) {
        (Some(name), _) => long(name),
        (None, Some(name)) => {
            let mut letters = name.chars();
            let (letter, rest) = (letters.next(), letters.next());
            rest.is_none() && command.get_arguments().any(|arg| arg.get_short() == letter && letter.is_some())
        }
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{is_kept, program};

    fn words(line: &str, command: &str) -> std::result::Result<String, String> {
        let program = {
            let mut program = program();
            program.build();
            program
        };
        let command = program.find_subcommand(command).expect("a command");
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let words = translate(&words, command).map_err(|e| e.message)?;
        Ok(words.iter().map(|word| word.to_str().expect("text")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn aliases_become_flags_of_llmrt_with_their_values() {
        let check = |line: &str, expected: &str| assert_eq!(words(line, "run").as_deref(), Ok(expected));
        check("-m a --ctx-size 512 -ub 64", "-m a --ctx 512 --batch 64");
        check("--temperature=0.5 -r User: -sys hi", "--temp=0.5 --stop User: --system hi");
        check("--mlock --no-mmap --top-k 5 -c 9 -e1", "--mlock --no-mmap --top-k 5 -c 9 -e1");
        check("-p a -- -ngl 3", "-p a -- -ngl 3");
    }

    #[test]
    fn a_flag_of_the_command_itself_comes_first() {
        assert_eq!(words("-r 5 --no-warmup", "bench").as_deref(), Ok("-r 5 --no-warmup"));
        assert_eq!(words("--device x", "conform").as_deref(), Ok("--device x"));
    }

    #[test]
    fn what_has_no_equal_is_refused_with_what_to_do() {
        for (line, command, expected) in [
            ("-hf user/repo", "run", "-hf is no flag of llmrt: `llmrt pull hf.co/USER/REPO:QUANT`"),
            ("-ngl 99", "run", "layers are placed by --backend"),
            ("-ngl=99", "bench", "layers are placed by --backend"),
            ("-fa on", "run", "attention never stores"),
            ("--temperature 1", "bench", "--temperature is --temp in llmrt, and `bench` does not take it"),
        ] {
            let message = words(line, command).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        assert!(command_hint("server").unwrap().contains("llmrt serve"));
        assert_eq!(command_hint("run"), None);
    }

    /// Every row is a golden text, as help texts are; a row that all commands shadow, or that leads nowhere, is dead.
    #[test]
    fn every_row_is_the_one_that_was_read_last_and_leads_somewhere() {
        let mut program = program();
        program.build();
        let commands: Vec<_> = program.get_subcommands().collect();
        let mut text = String::new();
        for (names, meaning) in FLAGS {
            for name in *names {
                assert!(commands.iter().any(|c| !has(c, name)), "{name} is a flag of every command");
            }
            let meaning = match meaning {
                Alias(ours) => {
                    assert!(commands.iter().any(|c| has(c, ours)), "{ours} is no flag");
                    format!("is {ours}")
                }
                Hint(hint) => hint.to_string(),
            };
            text += &format!("{}\n    {meaning}\n", names.join(" "));
        }
        for (names, hint) in COMMANDS {
            assert!(names.iter().all(|name| program.find_subcommand(name).is_none()), "{names:?}");
            text += &format!("llmrt {}\n    {hint}\n", names.join("|"));
        }
        assert!(is_kept("flags-of-others", &text), "the table is now:\n{text}");
    }
}
