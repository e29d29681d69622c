//! The lines of earlier chats, in the user's state folder, readable by the user alone.

use llmrt_host::knobs;
use rustyline::DefaultEditor;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// The file with the lines; `None` where none is kept.
pub struct History(Option<PathBuf>);

impl History {
    /// `$XDG_STATE_HOME/llmrt/history`, unless no history is kept.
    pub fn new(is_kept: bool) -> History {
        let home = || knobs::HOME.text().map(|home| PathBuf::from(home).join(".local/state"));
        let state = knobs::STATE_HOME.text().map(PathBuf::from).or_else(home);
        let state = state.filter(|folder| is_kept && folder.is_absolute());
        History(state.map(|folder| folder.join("llmrt/history")))
    }

    /// Reads the lines. Where that fails, a chat starts without them.
    pub fn load(&self, editor: &mut DefaultEditor) {
        if let Some(path) = &self.0 {
            let _ = editor.load_history(path);
        }
    }

    /// Writes the lines, with mode 0600. Where that fails, the chat continues.
    pub fn save(&self, editor: &mut DefaultEditor) {
        let Some(path) = &self.0 else { return };
        let mut folders = std::fs::DirBuilder::new();
        folders.recursive(true).mode(0o700);
        if path.parent().is_some_and(|folder| folders.create(folder).is_ok()) {
            let _ = editor.save_history(path);
        }
    }
}
