//! `/save` and `/load`: a conversation as a JSON file.

use super::*;
use crate::model::Identity;
use crate::new_file::NewFile;
use crate::text;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// What the member `format` holds.
const FORMAT: &str = "llmrt session";

/// The newest version of the format.
const VERSION: u64 = 1;

impl Conversation<'_> {
    /// Writes the conversation: all messages, those too that are dropped from the context. A file that is not a session
    /// is never overwritten.
    pub fn save(&self, path: &Path, model: &Identity) -> Result<()> {
        if path.exists() && Contents::read(path).is_err() {
            let problem = "exists and is not a session file: choose another name";
            return Err(Error::new(Exit::Usage, format!("{}: {problem}", path.display())));
        }
        let messages: Vec<_> =
            self.turns.all().map(|m| json!({ "role": m.role, "content": m.content })).collect();
        let session = json!({
            "format": FORMAT,
            "version": VERSION,
            "model": { "name": model.name, "checksum": model.checksum },
            "chat_template": self.template.jinja.source(),
            "messages": messages,
        });
        let mut file = NewFile::create(path)?;
        let failed = |e| Error::output(path, format!("cannot write: {e}"));
        serde_json::to_writer_pretty(file.out(), &session).map_err(|e| failed(e.into()))?;
        writeln!(file.out()).map_err(failed)?;
        file.finish()
    }

    /// Replaces the conversation by that of a file; returns how many messages it has. The template of the file is used
    /// if the model is the same. On an error the conversation stays.
    pub fn load_file(&mut self, path: &Path, model: &Identity) -> Result<usize> {
        let Contents { model_name, checksum, template, messages } = Contents::read(path)?;
        let (source, before) = (self.template.jinja.source(), self.template.name.clone());
        if checksum != model.checksum {
            note(format_args!(
                "{}: was saved with another model ({model_name}); its chat template is not used",
                path.display()
            ));
        } else if template != source {
            self.template = Template::of_session(&template, &path.display().to_string())?;
            note(format_args!(
                "{}: its chat template is used from now on, instead of this chat's ({before})",
                path.display()
            ));
        }
        self.tokens.clear();
        let n_messages = messages.len();
        self.turns = Turns::of_messages(messages);
        Ok(n_messages)
    }
}

/// What a session file holds.
struct Contents {
    model_name: String,
    checksum: String,
    template: String,
    messages: Vec<Message>,
}

impl Contents {
    fn read(path: &Path) -> Result<Contents> {
        Contents::parse(&text::of_file(path)?).map_err(|problem| Error::file(path, problem))
    }

    fn parse(text: &str) -> std::result::Result<Contents, String> {
        let session: Value = serde_json::from_str(text).map_err(|e| format!("is not a session file: {e}"))?;
        if session["format"] != FORMAT {
            return Err(format!("is not a session file: `format` is not \"{FORMAT}\""));
        }
        if session["version"] != VERSION {
            return Err(format!(
                "is a session of version {}: this llmrt reads {VERSION}",
                session["version"]
            ));
        }
        let string = |value: &Value, what: &str| {
            value.as_str().map(String::from).ok_or_else(|| format!("`{what}` is missing or not a string"))
        };
        let messages = session["messages"].as_array().ok_or("`messages` is missing or not an array")?;
        let message = |(i, message): (usize, &Value)| {
            let [role, content] =
                ["role", "content"].map(|key| string(&message[key], &format!("messages[{i}].{key}")));
            Ok(Message::new(role?, content?))
        };
        let messages =
            messages.iter().enumerate().map(message).collect::<std::result::Result<Vec<_>, String>>()?;
        check_roles(&messages)?;
        Ok(Contents {
            model_name: string(&session["model"]["name"], "model.name")?,
            checksum: string(&session["model"]["checksum"], "model.checksum")?,
            template: string(&session["chat_template"], "chat_template")?,
            messages,
        })
    }
}

/// A system message or none, then messages of the user and the assistant in turn, an answer last.
fn check_roles(messages: &[Message]) -> std::result::Result<(), String> {
    let n_system = usize::from(messages.first().is_some_and(|message| message.role == "system"));
    for (i, message) in messages.iter().enumerate().skip(n_system) {
        let expected = if (i - n_system) % 2 == 0 { "user" } else { "assistant" };
        if message.role != expected {
            return Err(format!("messages[{i}].role is {:?}: expected \"{expected}\"", message.role));
        }
    }
    match (messages.len() - n_system) % 2 {
        0 => Ok(()),
        _ => Err(format!("messages[{}] has no answer", messages.len() - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(messages: &str) -> String {
        format!(
            r#"{{"format": "llmrt session", "version": 1, "model": {{"name": "m", "checksum": "c"}},
            "chat_template": "t", "messages": {messages}}}"#
        )
    }

    #[test]
    fn a_session_has_turns_after_a_system_message_or_none() {
        for (messages, n) in [
            ("[]", 0),
            (r#"[{"role": "system", "content": "s"}]"#, 1),
            (r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]"#, 2),
        ] {
            let contents = Contents::parse(&session(messages)).unwrap_or_else(|e| panic!("{messages}: {e}"));
            assert_eq!(contents.messages.len(), n);
        }
    }

    #[test]
    fn what_is_wrong_with_a_session_file_is_named() {
        for (text, expected) in [
            ("", "is not a session file: EOF"),
            ("{}", "`format` is not \"llmrt session\""),
            ("[1, 2]", "`format` is not"),
            (r#"{"format": "llmrt session", "version": 2}"#, "is a session of version 2: this llmrt reads 1"),
            (&session("7"), "`messages` is missing or not an array"),
            (&session("[7]"), "`messages[0].role` is missing or not a string"),
            (
                &session(r#"[{"role": "tool", "content": "x"}]"#),
                "messages[0].role is \"tool\": expected \"user\"",
            ),
            (&session(r#"[{"role": "user", "content": "x"}]"#), "messages[0] has no answer"),
            (&session("[]").replace("\"t\"", "3"), "`chat_template` is missing or not a string"),
        ] {
            let error = Contents::parse(text).err().unwrap_or_else(|| panic!("{text} was accepted"));
            assert!(error.contains(expected), "{error}");
        }
    }
}
