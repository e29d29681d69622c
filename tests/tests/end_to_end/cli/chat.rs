//! `run` on a terminal: a chat, typed into a pseudo-terminal of `script`.

use super::text;
use llmrt_tests::build::bin_dir;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Roles and contents; the answer begins after `a:`.
const TEMPLATE: &str =
    "tokenizer.chat_template=str:{% for m in messages %}{{ m.role[0] }}:{{ m.content }} {% endfor %}a:";

/// What the line editor sends when it begins to read: that pasted text shall be marked.
const READY: &str = "\x1b[?2004h";

#[test]
fn a_chat_answers_helps_and_ends_with_bye() {
    let Some(mut chat) = Chat::begin("") else { return };
    chat.until("/help lists commands");
    chat.line("Once upon a time");
    chat.line("/nonsense");
    chat.until("/nonsense: no such command");
    chat.line("/set top-k 5");
    chat.line("/set");
    chat.until("top-k 5");
    chat.line("/help");
    chat.until("leave; so does Ctrl-D");
    chat.line("/clear");
    chat.line("there was a fox");
    chat.line("/bye");
    chat.until("generated ");
    let home = chat.end();
    let file = home.path().join("llmrt/history");
    let history = std::fs::read_to_string(&file).unwrap();
    assert!(history.contains("Once upon a time\n/nonsense\n"), "{history}");
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn ctrl_d_leaves_a_chat_and_no_history_is_kept_where_that_is_given() {
    let Some(mut chat) = Chat::begin("--no-history") else { return };
    chat.line("/show");
    chat.until("template  of the model file");
    chat.until(READY);
    chat.key(4);
    chat.until("generated 0 tokens");
    assert!(!chat.end().path().join("llmrt/history").exists());
}

#[test]
fn a_signal_that_ends_a_chat_leaves_the_terminal_as_it_was() {
    for (signal, code) in [("TERM", 143), ("HUP", 129), ("QUIT", 131)] {
        let embedded = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/assets/stories.gguf");
        let run = format!("'{}' run '{embedded}' --chat-template chatml", bin_dir().join("llmrt").display());
        let defaults = "env --default-signal=HUP,TERM,QUIT";
        let command = format!("sh -c \"echo pid \\$\\$.; exec {defaults} {run}\"; echo code $?; stty -a");
        let Some(mut chat) = Chat::of(&command) else { return };
        chat.until("pid ");
        let pid = chat.before(".");
        chat.until(READY);
        let killed = Command::new("kill").args([format!("-{signal}"), pid]).status();
        assert!(killed.is_ok_and(|status| status.success()), "{signal}");
        chat.until("\x1b[?2004l");
        chat.until(&format!("code {code}"));
        chat.until(" icanon");
        chat.until(" echo ");
        chat.end();
    }
}

#[test]
fn the_embedded_model_turns_a_message_into_a_story() {
    let command = format!("'{}' run --temp 0 -n 3", bin_dir().join("llmrt").display());
    let Some(mut chat) = Chat::of(&command) else { return };
    chat.until("A tiny story teller");
    chat.line("a brave dragon");
    chat.until("Once upon a time, there was a brave dragon named ");
    chat.line("then a fox came");
    chat.until("then a fox came");
    chat.until("then a fox came"); // typed, and as the beginning of the answer
    chat.line("/bye");
    chat.end();
}

#[test]
fn a_conversation_that_fills_the_context_loses_its_oldest_turns_visibly() {
    let Some(mut chat) = Chat::begin("-c 64 --system brief") else { return };
    for _ in 0..3 {
        chat.line("Once upon a time there was a fox and a bear");
    }
    chat.until("(context shift: dropped the oldest 1 turn, ");
    chat.line("/show");
    chat.until("messages  7, the oldest 2 dropped from the context");
    chat.line("/bye");
    chat.end();
}

#[test]
fn a_saved_conversation_is_loaded_and_its_last_answer_generated_again() {
    let Some(mut chat) = Chat::begin("") else { return };
    let file = chat.home.path().join("talk.json");
    chat.line("there was a fox");
    chat.line(&format!("/save {}", file.display()));
    chat.until("(saved to ");
    chat.line("/clear");
    chat.line("/regen");
    chat.until("there is no answer yet");
    chat.line(&format!("/load {}", file.display()));
    chat.until("(loaded 2 messages from ");
    chat.line("/regen");
    chat.until("the answer is the same with every seed");
    chat.line("/show");
    chat.until("messages  2");
    let mut session: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(session["messages"][0]["content"], "there was a fox");
    assert!(TEMPLATE.ends_with(session["chat_template"].as_str().unwrap()), "{session}");
    session["chat_template"] = "{{ messages[-1].content }} b:".into();
    std::fs::write(&file, session.to_string()).unwrap();
    chat.line(&format!("/load {}", file.display()));
    chat.until("its chat template is used from now on, instead of this chat's (of the model file)");

    let other = chat.home.path().join("notes.txt");
    std::fs::write(&other, "my notes").unwrap();
    chat.line(&format!("/save {}", other.display()));
    chat.until("exists and is not a session file: choose another name");
    chat.line(&format!("/load {}", other.display()));
    chat.until("is not a session file: ");
    chat.line("/load");
    chat.until("/load: a file is missing: /load FILE");
    chat.line("/bye");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "my notes");
    chat.end();
}

#[test]
fn keys_typed_right_after_ctrl_c_are_kept() {
    let Some(mut chat) = Chat::begin("") else { return };
    chat.until(READY);
    // One write, which the editor reads at once: a line that Ctrl-C discards, and a message of two lines.
    chat.keys.write_all(b"discarded\x03\"\"\"there was\ra fox\"\"\"\r").expect("the terminal takes keys");
    chat.until("Ctrl-D or /bye leaves");
    chat.until("a fox\"\"\"");
    let file = chat.home.path().join("talk.json");
    chat.line(&format!("/save {}", file.display()));
    chat.until("(saved to ");
    // A text of several lines that was begun is discarded as well.
    chat.until(READY);
    chat.keys.write_all(b"\"\"\"lost\r\x03/show\r").expect("the terminal takes keys");
    chat.until("messages  2");
    chat.line("/bye");
    let session: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(session["messages"][0]["content"], "there was\na fox");
    chat.end();
}

#[test]
fn commands_confirm_what_they_did_and_a_bare_system_command_changes_nothing() {
    let Some(mut chat) = Chat::begin("--system brief") else { return };
    chat.line("there was a fox");
    chat.line("/system");
    chat.until("system message: brief");
    chat.line("/show");
    chat.until("messages  3");
    chat.line("/set top-k 5");
    chat.until("(temp 0, top-k 5, ");
    chat.line("/clear");
    chat.until("(the conversation is cleared; the system message stays)");
    chat.line("/system be kind");
    chat.until("(the system message is set and the conversation cleared)");
    chat.line("/system \"\"");
    chat.until("(the system message is removed and the conversation cleared)");
    chat.line("/system");
    chat.until("there is no system message; /system TEXT sets one");
    chat.line("/bye");
    chat.end();
}

#[test]
fn a_chat_notes_that_its_template_has_no_system_role() {
    let Some(mut chat) = Chat::begin("--system brief --chat-template '{{ messages[-1].content }}'") else {
        return;
    };
    chat.until("the system message goes in front of the first message");
    chat.until("/help lists commands");
    chat.line("/bye");
    chat.end();
}

#[test]
fn a_model_without_a_chat_template_requires_a_prompt_on_a_terminal() {
    let embedded = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/assets/stories.gguf");
    for (flags, expected) in
        [("", "there is no prompt, and no chat"), ("--raw -n 3", "the prompt is empty: ")]
    {
        let command = format!("'{}' run '{embedded}' {flags} || exit 0", bin_dir().join("llmrt").display());
        let Some(mut terminal) = Chat::of(&command) else { return };
        terminal.until(expected);
        terminal.end();
    }
}

#[test]
fn echo_is_refused_in_a_chat() {
    let command = format!("'{}' run --echo || exit 0", bin_dir().join("llmrt").display());
    let Some(mut chat) = Chat::of(&command) else { return };
    chat.until("--echo does nothing with a chat: leave it out");
    chat.end();
}

#[test]
fn a_line_with_a_byte_that_is_not_utf_8_is_refused_and_the_chat_goes_on() {
    let Some(mut chat) = Chat::begin("") else { return };
    for line in [&b"caf\xe9\r"[..], b"\xff\r", b"caf\xe9 au lait\r"] {
        chat.until(READY);
        chat.keys.write_all(line).expect("the terminal takes keys");
        chat.until("a byte that is not UTF-8 and is discarded");
        // The rest of the same input is no message; what a person types later is.
        std::thread::sleep(Duration::from_millis(500));
        chat.keys.write_all(b"/show\r").expect("the terminal takes keys");
        chat.until("messages  0");
    }
    chat.line("/bye");
    chat.end();
}

#[test]
fn a_terminal_shows_the_progress_of_a_long_prompt() {
    // A step of one token each takes long enough in any build.
    let prompt = "fox ".repeat(1800);
    let command =
        format!("'{}' run -c 4096 -b 1 -n 1 --temp 0 -p '{prompt}'", bin_dir().join("llmrt").display());
    let Some(mut chat) = Chat::of(&command) else { return };
    chat.until("prompt ");
    chat.until(" tok/s, ");
    chat.until(" s left");
    chat.until("generated ");
    chat.end();
}

/// A chat in a terminal, and a person at it.
struct Chat {
    script: Child,
    keys: ChildStdin,
    screen: Receiver<Vec<u8>>,
    /// What the screen showed and `until` has not passed.
    shown: String,
    home: tempfile::TempDir,
}

impl Chat {
    /// A chat with [`TEMPLATE`] and these flags.
    fn begin(flags: &str) -> Option<Chat> {
        let embedded = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/assets/stories.gguf");
        let program = bin_dir().join("llmrt");
        let program = program.display();
        Chat::of(&format!("'{program}' run '{embedded}' --temp 0 -n 8 --override-kv '{TEMPLATE}' {flags}"))
    }

    /// `None`, with a line on stdout, where there is no `script` of util-linux.
    fn of(command: &str) -> Option<Chat> {
        let version = Command::new("script").arg("--version").output();
        if !version.is_ok_and(|out| text(&out.stdout).contains("util-linux")) {
            llmrt_tests::skip::skipped("`script` of util-linux gives the terminal, and is not there");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--command", command, "/dev/null"])
            .env("LLMRT_PLUGIN_PATH", "")
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env("XDG_STATE_HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script starts");
        let keys = script.stdin.take().expect("a pipe");
        let mut output = script.stdout.take().expect("a pipe");
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Some(Chat { script, keys, screen, shown: String::new(), home })
    }

    /// Types a line once the program reads one; what is typed before that may be lost.
    fn line(&mut self, line: &str) {
        self.until(READY);
        self.keys.write_all(format!("{line}\r").as_bytes()).expect("the terminal takes keys");
    }

    fn key(&mut self, key: u8) {
        self.keys.write_all(&[key]).expect("the terminal takes keys");
    }

    /// Waits until the screen shows this, after what was waited for before.
    fn until(&mut self, expected: &str) {
        self.before(expected);
    }

    /// The same; what the screen showed before it.
    fn before(&mut self, expected: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(at) = self.shown.find(expected) {
                let before = self.shown[..at].to_string();
                self.shown.drain(..at + expected.len());
                return before;
            }
            let Ok(bytes) = self.screen.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            else {
                let _ = self.script.kill();
                panic!("the screen does not show {expected:?}, but {:?}", self.shown);
            };
            self.shown.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    /// The program has ended well; the folder of its state.
    fn end(mut self) -> tempfile::TempDir {
        drop(self.keys);
        let status = self.script.wait().expect("script ends");
        assert!(status.success(), "{status}: {}", self.shown);
        self.home
    }
}
