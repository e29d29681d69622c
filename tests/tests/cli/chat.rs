//! `run` on a terminal: a chat, typed into a pseudo-terminal of `script`.

use super::text;
use llmrt_tests::build::bin_dir;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Roles and contents; the answer begins after `a:`.
const TEMPLATE: &str =
    "tokenizer.chat_template=str:{% for m in messages %}{{ m.role[0] }}:{{ m.content }} {% endfor %}a:";

/// What the line editor sends when it begins to read: that pasted text shall be marked.
const READY: &str = "\x1b[?2004h";

#[test]
fn a_chat_answers_helps_and_says_goodbye() {
    let Some(mut chat) = Chat::begin() else { return };
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
    let history = chat.end();
    assert!(history.contains("Once upon a time\n/nonsense\n"), "{history}");
}

#[test]
fn ctrl_d_leaves_a_chat() {
    let Some(mut chat) = Chat::begin() else { return };
    chat.until(READY);
    chat.key(4);
    chat.until("generated 0 tokens");
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
    /// `None`, with a message, where there is no `script` of util-linux.
    fn begin() -> Option<Chat> {
        let version = Command::new("script").arg("--version").output();
        if !version.is_ok_and(|out| text(&out.stdout).contains("util-linux")) {
            llmrt_tests::skip::skipped("`script` of util-linux gives the terminal, and is not there");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let embedded = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/assets/stories.gguf");
        let program = bin_dir().join("llmrt");
        let command =
            format!("'{}' run '{embedded}' --temp 0 -n 8 --override-kv '{TEMPLATE}'", program.display());
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .env("LLMRT_PLUGIN_PATH", "")
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env("XDG_DATA_HOME", home.path())
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
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(at) = self.shown.find(expected) {
                self.shown.drain(..at + expected.len());
                return;
            }
            let Ok(bytes) = self.screen.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            else {
                let _ = self.script.kill();
                panic!("the screen does not show {expected:?}, but {:?}", self.shown);
            };
            self.shown.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    /// The program has ended well; what it keeps of what was typed.
    fn end(mut self) -> String {
        drop(self.keys);
        let status = self.script.wait().expect("script ends");
        assert!(status.success(), "{status}: {}", self.shown);
        std::fs::read_to_string(self.home.path().join("llmrt/history")).unwrap_or_default()
    }
}
