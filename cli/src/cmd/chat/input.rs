//! Lines of a chat: messages for the model, and commands.

use llmrt_host::knobs;
use std::path::PathBuf;

/// A message or a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// A message for the model.
    Message(String),
    /// `/clear`.
    Clear,
    /// `/system`, or `/system TEXT`.
    System(Option<String>),
    /// `/set`, or `/set NAME VALUE`.
    Set(Option<(String, String)>),
    /// `/regen`.
    Regenerate,
    /// `/show`.
    Show,
    /// `/save FILE`.
    Save(PathBuf),
    /// `/load FILE`.
    Load(PathBuf),
    /// `/help`.
    Help,
    /// `/bye`.
    Bye,
    /// Another word after a slash.
    Unknown(String),
}

/// What marks the beginning and end of a text of several lines.
const FENCE: &str = "\"\"\"";

/// An input that is read line by line.
#[derive(Default)]
pub struct Reading {
    text: String,
    is_open: bool,
}

impl Reading {
    /// Whether a text of several lines has begun.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// What was typed, for the history.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes a line; the input if it is complete now. An empty line is none.
    pub fn push(&mut self, line: &str) -> Option<Input> {
        if self.is_open {
            return self.push_inside(line);
        }
        if let Some(rest) = line.trim_start().strip_prefix(FENCE) {
            self.is_open = true;
            return self.push_inside(rest);
        }
        self.text = line.trim().to_string();
        (!self.text.is_empty()).then(|| parse(&self.text))
    }

    fn push_inside(&mut self, line: &str) -> Option<Input> {
        let (line, is_last) = match line.split_once(FENCE) {
            Some((before, _)) => (before, true),
            None => (line, false),
        };
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        self.is_open = !is_last;
        (is_last && !self.text.trim().is_empty()).then(|| Input::Message(self.text.clone()))
    }
}

fn parse(line: &str) -> Input {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match word {
        "/clear" => Input::Clear,
        "/system" if rest.is_empty() => Input::System(None),
        "/system" => Input::System(Some(if rest == "\"\"" { String::new() } else { rest.into() })),
        "/set" if rest.is_empty() => Input::Set(None),
        "/set" => {
            let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            Input::Set(Some((name.into(), value.trim().into())))
        }
        "/regen" => Input::Regenerate,
        "/show" => Input::Show,
        "/save" => Input::Save(in_home(rest)),
        "/load" => Input::Load(in_home(rest)),
        "/help" | "/?" => Input::Help,
        "/bye" | "/exit" | "/quit" => Input::Bye,
        // A path, `/etc/fstab`, is no command.
        word if word.starts_with('/') && word[1..].chars().all(|c| c.is_ascii_alphabetic()) => {
            Input::Unknown(word.into())
        }
        _ => Input::Message(line.into()),
    }
}

/// A path as a shell reads it: `~/` begins with the home folder.
fn in_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), knobs::HOME.text()) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &str, expected: Option<Input>) {
        let mut reading = Reading::default();
        let found = lines.split('|').find_map(|line| reading.push(line));
        assert_eq!(found, expected, "{lines}");
    }

    fn message(text: &str) -> Option<Input> {
        Some(Input::Message(text.into()))
    }

    #[test]
    fn a_line_is_a_message() {
        check(" hello ", message("hello"));
        check("|  |hello", message("hello"));
        check("what is /clear?", message("what is /clear?"));
        check("/etc/fstab is a file", message("/etc/fstab is a file"));
    }

    #[test]
    fn fences_hold_several_lines() {
        check("\"\"\"one|two|three\"\"\"", message("one\ntwo\nthree"));
        check("\"\"\"one\"\"\"", message("one"));
        check("\"\"\"|/clear|\"\"\"", message("/clear\n"));
        check("\"\"\"one|two", None);
        check("\"\"\"\"\"\"", None);
    }

    #[test]
    fn words_after_a_slash_are_commands() {
        check("/clear", Some(Input::Clear));
        check("/bye", Some(Input::Bye));
        check("/?", Some(Input::Help));
        check("/system  be brief ", Some(Input::System(Some("be brief".into()))));
        check("/system ", Some(Input::System(None)));
        check("/system \"\"", Some(Input::System(Some("".into()))));
        check("/set", Some(Input::Set(None)));
        check("/set temp  0.5", Some(Input::Set(Some(("temp".into(), "0.5".into())))));
        check("/set temp", Some(Input::Set(Some(("temp".into(), "".into())))));
        check("/regen", Some(Input::Regenerate));
        check("/show", Some(Input::Show));
        check("/save my chat.json ", Some(Input::Save("my chat.json".into())));
        let home = PathBuf::from(std::env::var_os("HOME").expect("tests have a home"));
        check("/save ~/chat.json", Some(Input::Save(home.join("chat.json"))));
        check("/load ~/a/~/b", Some(Input::Load(home.join("a/~/b"))));
        check("/load ~other/chat.json", Some(Input::Load("~other/chat.json".into())));
        check("/load chat.json", Some(Input::Load("chat.json".into())));
        check("/nonsense x", Some(Input::Unknown("/nonsense".into())));
    }
}
