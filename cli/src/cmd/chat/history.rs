//! The lines of earlier chats, in the user's data folder.

use llmrt_host::knobs;
use rustyline::DefaultEditor;
use std::path::PathBuf;

/// Reads them. Without them a chat goes on.
pub fn load(editor: &mut DefaultEditor) {
    if let Some(path) = path() {
        let _ = editor.load_history(&path);
    }
}

/// Keeps them, now with the latest one. Where that cannot be, a chat goes on.
pub fn save(editor: &mut DefaultEditor) {
    let Some(path) = path() else { return };
    if path.parent().is_some_and(|folder| std::fs::create_dir_all(folder).is_ok()) {
        let _ = editor.save_history(&path);
    }
}

/// `$XDG_DATA_HOME/llmrt/history`.
fn path() -> Option<PathBuf> {
    let home = || knobs::HOME.text().map(|home| PathBuf::from(home).join(".local/share"));
    let data = knobs::DATA_HOME.text().map(PathBuf::from).or_else(home)?;
    data.is_absolute().then(|| data.join("llmrt/history"))
}
