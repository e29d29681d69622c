//! A model of the store as the model of `run`: its layers are flags that the command line does not have.

use super::Run;
use crate::args::{ContextArgs, SamplerArg, TemplateArgs};
use crate::error::{Error, Result};
use crate::output::note;
use crate::values::Seed;
use crate::{interrupt, store};
use llmrt_store::{Source, StoredModel};
use serde_json::Value;
use std::io::IsTerminal;
use std::path::Path;

/// The model of the store that `path` names. If there is none, `--pull` gets it, or a person on a terminal is offered that.
pub fn find(path: Option<&Path>, args: &Run) -> Result<Option<StoredModel>> {
    let Some(path) = path else { return Ok(None) };
    if let Some(model) = store::find(path)? {
        return Ok(Some(model));
    }
    let Some(source) = store::source_of(path) else { return Ok(None) };
    let is_file_name = path.extension().is_some_and(|end| end == "gguf" || end == "bin");
    if args.pull || (!is_file_name && is_accepted(&source)?) {
        interrupt::ending_at_once(|| store::pull(&source, args.insecure, false))?;
        return store::find(path);
    }
    Ok(None)
}

/// Whether the person at the terminal accepts that the model is pulled.
fn is_accepted(source: &Source) -> Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    let name = &source.name;
    note(format_args!(
        "{name}: there is no such file, and no such model in the store. Pull it from {}? [y/N]",
        name.host()
    ));
    let mut answer = String::new();
    let read = interrupt::ending_at_once(|| std::io::stdin().read_line(&mut answer));
    read.map_err(|e| Error::usage(format!("stdin: cannot read: {e}")))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// The flags of the command line, and those of the model's layers where the command line has none.
pub fn with_layers(args: &Run, model: &StoredModel) -> Run {
    let mut args = args.clone();
    if args.sampling.sampler == SamplerArg::Llama2c {
        return args; // it has flags of its own
    }
    if !args.raw {
        args.system = args.system.or_else(|| model.system.clone());
        set_template(&mut args.template, model);
    }
    let unused: Vec<_> = model.params.iter().filter(|(name, value)| !set(&mut args, name, value)).collect();
    if !unused.is_empty() {
        let names: Vec<_> = unused.iter().map(|(name, _)| name.as_str()).collect();
        note(format_args!("{}: parameters that are not used here: {}", model.name, names.join(", ")));
    }
    if !model.messages.is_empty() {
        note(format_args!("{}: its example messages are not used by `run`", model.name));
    }
    args
}

/// Flags without the system message of the model, for a model without a chat template.
pub fn without_system(args: &Run, given: &Run) -> Option<Run> {
    let is_from_model = args.system.is_some() && given.system.is_none();
    is_from_model.then(|| {
        note("the stored system message is not used, since the model has no chat template");
        Run { system: None, ..args.clone() }
    })
}

/// Sets the flag of the chat template, if the command line does not have it.
pub fn set_template(flags: &mut TemplateArgs, model: &StoredModel) {
    if flags.chat_template.is_some() || flags.chat_template_file.is_some() {
        return;
    }
    match model.has_go_template() {
        true => note(format_args!(
            "{}: its template is in Go's language, which is not rendered: that of the GGUF file is used",
            model.name
        )),
        false => flags.chat_template = model.template.clone(),
    }
}

/// Sets the flag of a parameter, if the command line does not have it; `false` if there is no such flag, or the value
/// is of another type.
fn set(args: &mut Run, name: &str, value: &Value) -> bool {
    let (float, int) = (value.as_f64().map(|v| v as f32), value.as_i64());
    let sampling = &mut args.sampling;
    match name {
        "temperature" => or(&mut sampling.temp, float),
        "top_k" => or(&mut sampling.top_k, int),
        "top_p" => or(&mut sampling.top_p, float),
        "min_p" => or(&mut sampling.min_p, float),
        "typical_p" => or(&mut sampling.typical, float),
        "repeat_penalty" => or(&mut sampling.repeat_penalty, float),
        "repeat_last_n" => or(&mut sampling.repeat_last_n, int),
        "presence_penalty" => or(&mut sampling.presence_penalty, float),
        "frequency_penalty" => or(&mut sampling.frequency_penalty, float),
        "seed" => or(&mut sampling.seed, int.map(|seed| Seed(seed.try_into().ok()))),
        "num_ctx" => set_ctx(&mut args.context, value),
        "num_predict" => or(&mut args.n_predict, int),
        "stop" => {
            let texts =
                value.as_array().map(|texts| texts.iter().filter_map(Value::as_str).map(String::from));
            if let (true, Some(texts)) = (sampling.stop.is_empty(), texts) {
                sampling.stop = texts.collect();
            }
            true
        }
        _ => false,
    }
}

/// Sets the flag of the context, if the command line does not have it; `false` if the value is no size.
pub fn set_ctx(flags: &mut ContextArgs, value: &Value) -> bool {
    or(&mut flags.ctx, value.as_i64().and_then(|n| n.try_into().ok()))
}

fn or<T>(flag: &mut Option<T>, value: Option<T>) -> bool {
    let is_valid = value.is_some();
    *flag = flag.take().or(value);
    is_valid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::flags;
    use llmrt_store::{PARAMS, ParamKind};
    use serde_json::json;

    fn value(kind: ParamKind) -> Value {
        match kind {
            ParamKind::Int => json!(7),
            ParamKind::Float => json!(0.5),
            ParamKind::Bool => json!(true),
            ParamKind::Texts => json!(["x"]),
        }
    }

    #[test]
    fn a_flag_of_the_command_line_stays() {
        let mut args: Run = flags("llmrt run x --temp 1 --stop a -c 5");
        for (name, value) in [
            ("temperature", json!(0.5)),
            ("top_k", json!(3)),
            ("stop", json!(["b"])),
            ("num_ctx", json!(9)),
            ("seed", json!(-1)),
        ] {
            assert!(set(&mut args, name, &value), "{name}");
        }
        let sampling = &args.sampling;
        assert_eq!((sampling.temp, sampling.top_k, args.context.ctx), (Some(1.0), Some(3), Some(5)));
        assert_eq!((&*sampling.stop, sampling.seed), (&["a".to_string()][..], Some(Seed(None))));
    }

    #[test]
    fn the_parameters_without_a_flag_are_these() {
        let mut args: Run = flags("llmrt run x");
        let unused: Vec<_> =
            PARAMS.iter().filter(|(name, kind)| !set(&mut args, name, &value(*kind))).collect();
        let names: Vec<_> = unused.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap"]);
    }
}
