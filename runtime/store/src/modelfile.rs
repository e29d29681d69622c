//! Modelfiles: what a model is made of, in lines of an instruction and its text.

mod lines;

use crate::error::{Error, Result};
use crate::model::ChatMessage;
use crate::params::{self, Params};
use lines::Line;
use std::fmt::Write;

/// A line of a Modelfile.
#[derive(Clone, PartialEq, Debug)]
pub enum Instruction {
    /// A GGUF file, or a model of the store.
    From(String),
    /// A parameter and its value, of the type that [`crate::PARAMS`] has.
    Parameter(String, String),
    /// The chat template.
    Template(String),
    /// The system message.
    System(String),
    /// A licence; there may be several.
    License(String),
    /// A message that a chat begins with.
    Message(ChatMessage),
    /// The version that the model needs.
    Requires(String),
}

/// A parsed Modelfile: one `FROM`, then anything.
#[derive(Clone, PartialEq, Debug)]
pub struct Modelfile {
    /// In the order of the file.
    pub instructions: Vec<Instruction>,
}

const ROLES: [&str; 3] = ["system", "user", "assistant"];

const NO_ADAPTERS: &str = "ADAPTER is not supported: merge the adapter into the weights with the tool that made it, and \
                           name the merged GGUF file with FROM";

impl Modelfile {
    /// Parses a Modelfile; an error has the line's number.
    pub fn parse(text: &str) -> Result<Modelfile> {
        let mut instructions = Vec::new();
        let mut checked = Params::new();
        for line in lines::split(text)? {
            let instruction = instruction(&line, &mut checked);
            instructions
                .push(instruction.map_err(|problem| Error::Modelfile { line: line.number, problem })?);
        }
        let n_from = instructions.iter().filter(|i| matches!(i, Instruction::From(_))).count();
        match n_from {
            1 => Ok(Modelfile { instructions }),
            n => {
                let problem = format!("the file has {n} FROM: expected one, FROM FILE.gguf or FROM NAME");
                Err(Error::Modelfile { line: text.lines().count().max(1), problem })
            }
        }
    }

    /// The text after `FROM`.
    pub fn from(&self) -> &str {
        let from = self.instructions.iter().find_map(|i| match i {
            Instruction::From(text) => Some(text.as_str()),
            _ => None,
        });
        from.unwrap_or_default()
    }

    /// The parameters, typed.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        for instruction in &self.instructions {
            if let Instruction::Parameter(name, text) = instruction {
                // Those that a parsed file has are valid.
                let _ = params::set(&mut params, name, text);
            }
        }
        params
    }

    /// The text of a Modelfile that parses to this one; an error for what it has no spelling for.
    pub fn to_text(&self) -> Result<String> {
        let mut text = String::new();
        for instruction in &self.instructions {
            let (word, first, value) = match instruction {
                Instruction::From(value) => ("FROM", None, value),
                Instruction::Parameter(name, value) => ("PARAMETER", Some(name), value),
                Instruction::Template(value) => ("TEMPLATE", None, value),
                Instruction::System(value) => ("SYSTEM", None, value),
                Instruction::License(value) => ("LICENSE", None, value),
                Instruction::Message(message) => ("MESSAGE", Some(&message.role), &message.content),
                Instruction::Requires(value) => ("REQUIRES", None, value),
            };
            let value = lines::quoted(value).ok_or(Error::Unprintable { instruction: word })?;
            let first = first.map_or(String::new(), |first| format!("{first} "));
            let _ = writeln!(text, "{word} {first}{value}");
        }
        Ok(text)
    }
}

/// The instruction of a line. `params` gets the parameters, which checks them.
fn instruction(line: &Line, params: &mut Params) -> std::result::Result<Instruction, String> {
    let text = || line.text().and_then(|text| some(&line.word, text));
    match line.word.to_ascii_uppercase().as_str() {
        "FROM" => text().map(Instruction::From),
        "TEMPLATE" => line.text().map(Instruction::Template),
        "SYSTEM" => line.text().map(Instruction::System),
        "LICENSE" => text().map(Instruction::License),
        "REQUIRES" => text().map(Instruction::Requires),
        "PARAMETER" => {
            let (name, value) = line.word_and_text()?;
            let name = name.to_ascii_lowercase();
            params::set(params, &name, &value)?;
            Ok(Instruction::Parameter(name, value))
        }
        "MESSAGE" => {
            let (role, content) = line.word_and_text()?;
            let role = role.to_ascii_lowercase();
            match ROLES.contains(&role.as_str()) {
                true => Ok(Instruction::Message(ChatMessage { role, content })),
                false => Err(format!("MESSAGE {}: expected {}", role.escape_debug(), ROLES.join(", "))),
            }
        }
        "ADAPTER" => Err(NO_ADAPTERS.into()),
        _ => Err(format!(
            "`{}` is no instruction: expected FROM, PARAMETER, TEMPLATE, SYSTEM, LICENSE, MESSAGE or REQUIRES",
            line.word.chars().take(40).collect::<String>().escape_debug()
        )),
    }
}

fn some(word: &str, text: String) -> std::result::Result<String, String> {
    match text.is_empty() {
        true => Err(format!("{} has no text after it", word.to_ascii_uppercase())),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests;
