//! `cargo ci templates LLAMA_SERVER TREE`: prompts of conversations in the words of llama.cpp's chat templates, by `llmrt serve`
//! and by llama.cpp's server (`POST /apply-template` of both).

mod conversations;
pub mod model;

use crate::bench::client::post;
use crate::bench::server::{Server, free_port};
use crate::matrix::target;
use crate::{cargo, reference, run};
use conversations::{Conversation, conversations};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What two prompts are to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Same,
    Different,
    BothRefuse,
    OursRefuses,
    PeerRefuses,
}

const OUTCOMES: [(Outcome, &str); 5] = [
    (Outcome::Same, "same"),
    (Outcome::Different, "different"),
    (Outcome::BothRefuse, "both refuse"),
    (Outcome::OursRefuses, "llmrt refuses"),
    (Outcome::PeerRefuses, "llama.cpp refuses"),
];

/// Renders each conversation by each template twice, and prints a Markdown table.
pub fn templates(peer: &str, tree: &str) -> Result<(), String> {
    run(cargo().args(["programs", "--quiet"]))?;
    let out = target().join("templates");
    std::fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let model = model::write(&out.join("model.gguf"), model::vocabulary())?;
    let folder = Path::new(tree).join("models/templates");
    let conversations = conversations();
    let names: Vec<&str> = OUTCOMES.iter().map(|(_, name)| *name).collect();
    println!(
        "| template | {} | conversations that are not the same |\n|---|{}---|",
        names.join(" | "),
        "--:|".repeat(5)
    );
    let mut all = Vec::new();
    for name in reference::names(&folder, "jinja")? {
        let template = folder.join(format!("{name}.jinja"));
        let ours = llmrt(&model, &template);
        let theirs = llama(Path::new(peer), &model, &template);
        let outcomes: Vec<Outcome> = conversations
            .iter()
            .map(|conversation| {
                let prompts = [&ours, &theirs].map(|server| prompt(server, conversation));
                let outcome = outcome(&prompts);
                keep(&out, &name, conversation, outcome, &prompts).map(|()| outcome)
            })
            .collect::<Result<_, _>>()?;
        println!("{}", row(&name, &outcomes, &conversations));
        all.extend(outcomes);
    }
    println!("{}", row("all", &all, &[]));
    println!("\nPrompts that differ are in {}.", out.display());
    Ok(())
}

/// `llmrt serve` with a template, or why it does not start.
fn llmrt(model: &Path, template: &Path) -> Result<Server, String> {
    let port = free_port()?;
    let mut command = Command::new(target().join("debug/llmrt"));
    command.args(["serve", "--port", &port.to_string(), "--chat-template-file"]).arg(template).arg(model);
    Server::start(&mut command, port)
}

/// llama.cpp's server with a template. It does not take an assistant's last message for the beginning of an answer.
fn llama(program: &Path, model: &Path, template: &Path) -> Result<Server, String> {
    let port = free_port()?;
    let mut command = Command::new(program);
    command.args([
        "--port",
        &port.to_string(),
        "--jinja",
        "--no-prefill-assistant",
        "--no-warmup",
        "--chat-template-file",
    ]);
    Server::start(command.arg(template).arg("-m").arg(model), port)
}

/// The prompt of a conversation, or why there is none.
fn prompt(server: &Result<Server, String>, conversation: &Conversation) -> Result<String, String> {
    let server = server.as_ref().map_err(String::clone)?;
    let (status, body) = post(server.address(), "/apply-template", &conversation.body)?;
    match body["prompt"].as_str().filter(|_| status == "200") {
        Some(prompt) => Ok(prompt.into()),
        None => Err(format!("{status}: {body}")),
    }
}

fn outcome(prompts: &[Result<String, String>; 2]) -> Outcome {
    match prompts {
        [Ok(ours), Ok(theirs)] if ours == theirs => Outcome::Same,
        [Ok(_), Ok(_)] => Outcome::Different,
        [Err(_), Err(_)] => Outcome::BothRefuse,
        [Err(_), Ok(_)] => Outcome::OursRefuses,
        [Ok(_), Err(_)] => Outcome::PeerRefuses,
    }
}

/// Writes prompts that are not the same, and removes those of an earlier run.
fn keep(
    out: &Path,
    template: &str,
    conversation: &Conversation,
    outcome: Outcome,
    prompts: &[Result<String, String>; 2],
) -> Result<(), String> {
    let stem = format!("{template}.{}", conversation.name.replace(' ', "-"));
    let files: [PathBuf; 2] = ["llmrt", "llama"].map(|by| out.join(format!("{stem}.{by}.txt")));
    for (file, prompt) in files.iter().zip(prompts) {
        let text = prompt.as_ref().unwrap_or_else(|refusal| refusal);
        match outcome {
            Outcome::Same => drop(std::fs::remove_file(file)),
            _ => std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?,
        }
    }
    Ok(())
}

/// A template's row; names of conversations are those that are not the same.
fn row(name: &str, outcomes: &[Outcome], conversations: &[Conversation]) -> String {
    let counts =
        OUTCOMES.map(|(outcome, _)| outcomes.iter().filter(|found| **found == outcome).count().to_string());
    let others = conversations.iter().zip(outcomes).filter(|(_, outcome)| **outcome != Outcome::Same);
    let others: Vec<&str> = others.map(|(conversation, _)| conversation.name).collect();
    format!("| {name} | {} | {} |", counts.join(" | "), others.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_outcomes_and_names_what_is_not_the_same() {
        let prompts = [
            [Ok("a".into()), Ok("a".into())],
            [Ok("a".into()), Ok("b".into())],
            [Err("400".to_string()), Err("500".to_string())],
            [Err("400".to_string()), Ok("a".into())],
        ];
        let outcomes: Vec<Outcome> = prompts.iter().map(outcome).collect();
        let row = row("t", &outcomes, &conversations()[..4]);
        let names: Vec<&str> = conversations()[1..4].iter().map(|conversation| conversation.name).collect();
        assert_eq!(row, format!("| t | 1 | 1 | 1 | 1 | 0 | {} |", names.join(", ")));
    }
}
