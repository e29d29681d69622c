//! Failures at the command line: one message, one exit code.

use llmrt_gguf::{printable, printable_path};
use std::io::ErrorKind;
use std::path::Path;

/// What went wrong, and its exit code.
#[derive(Debug)]
pub struct Error {
    /// Exit code.
    pub exit: Exit,
    /// What was found, what was expected, what to do.
    pub message: String,
    /// Whether the message begins with the file that it is about.
    pub names_file: bool,
}

/// Exit codes, as `llmrt --help` lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// Anything else; output that cannot be written too.
    Failure = 1,
    /// Flags and arguments that make no sense.
    Usage = 2,
    /// A file that cannot be used.
    File = 3,
    /// A device or plugin that failed.
    Device = 4,
    /// Work would fall back, and that was forbidden.
    Strict = 5,
    /// Memory ran out, or would.
    Memory = 6,
    /// A plugin that does not conform, or devices that differ.
    Wrong = 7,
    /// The reader of stdout closed it: ends with the code of [`Exit::Failure`] and no message, as `| head` expects.
    OutputClosed = 129,
    /// Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::OutputClosed => Exit::Failure as u8,
            exit => exit as u8,
        }
    }
}

/// Result of a command.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with its exit code.
    pub fn new(exit: Exit, message: impl std::fmt::Display) -> Error {
        Error { exit, message: message.to_string(), names_file: false }
    }

    /// Wrong usage.
    pub fn usage(message: impl std::fmt::Display) -> Error {
        Error::new(Exit::Usage, message)
    }

    /// A file that cannot be used.
    pub fn file(path: &Path, problem: impl std::fmt::Display) -> Error {
        Error::new(Exit::File, format!("{}: {problem}", printable_path(path))).of_file()
    }

    fn of_file(self) -> Error {
        Error { names_file: true, ..self }
    }

    /// A file or folder that the system does not let us write.
    pub fn unwritable(path: &Path, e: &std::io::Error) -> Error {
        Error::output(path, format!("cannot write: {e}; {}", remedy(e)))
    }

    /// A file that the system does not let us read.
    pub fn unreadable(path: &Path, e: &std::io::Error) -> Error {
        Error::file(path, format!("cannot read: {e}; {}", remedy(e)))
    }

    /// An output that is refused.
    pub fn output(path: &Path, problem: impl std::fmt::Display) -> Error {
        Error::new(Exit::Failure, format!("{}: {problem}", printable_path(path)))
    }

    /// Ctrl-C before there was anything to show for it.
    pub fn interrupted() -> Error {
        Error::new(Exit::Interrupted, "interrupted")
    }

    /// The same failure with the name of the model. File errors name their file already.
    pub fn of_model(self, name: &str) -> Error {
        let name = &*printable(name);
        match self.exit {
            Exit::File if !self.names_file && !self.message.starts_with(name) => {
                Error { message: format!("{name}: {}", self.message), ..self }
            }
            _ => self,
        }
    }
}

impl From<llmrt_host::Error> for Error {
    fn from(e: llmrt_host::Error) -> Error {
        let exit = match &e {
            llmrt_host::Error::Fallback { .. } => Exit::Strict,
            llmrt_host::Error::Knob { .. } | llmrt_host::Error::PluginOption { .. } => Exit::Usage,
            llmrt_host::Error::ModelFile { .. } => Exit::File,
            _ if e.is_oom() => Exit::Memory,
            _ => Exit::Device,
        };
        Error::new(exit, e)
    }
}

impl From<llmrt_host::load::Error> for Error {
    fn from(e: llmrt_host::load::Error) -> Error {
        use llmrt_host::load::Error as Load;
        let exit = match &e {
            Load::Cancelled => Exit::Interrupted,
            Load::Alloc { .. } => Exit::Memory,
            e if e.is_oom() => Exit::Memory,
            Load::Override(_) | Load::NeedlessTokenizer { .. } => Exit::Usage,
            Load::Tensor { .. } | Load::Import { .. } => Exit::Device,
            _ => Exit::File,
        };
        Error::new(exit, e)
    }
}

impl From<llmrt_engine::Error> for Error {
    fn from(e: llmrt_engine::Error) -> Error {
        use llmrt_engine::Error as Engine;
        let exit = match e {
            Engine::Host(e) => return e.into(),
            Engine::Cancelled | Engine::Load { cancelled: true, .. } => return Error::interrupted(),
            Engine::Load { out_of_memory: true, .. } | Engine::NotEnoughMemory { .. } => Exit::Memory,
            Engine::KvTooSmall { .. } => Exit::Memory,
            Engine::NeverFits(_) => Exit::Usage,
            Engine::Model(e) => return e.into(),
            Engine::SparseFile { .. } => return Error::new(Exit::File, e).of_file(),
            Engine::Load { device: Some(_), .. } => Exit::Device,
            Engine::Load { .. } => Exit::File,
            Engine::BadParam { .. } | Engine::BadBias { .. } | Engine::BiasOutOfVocab { .. } => Exit::Usage,
            Engine::EmptyStop | Engine::PromptTooLong { .. } | Engine::TokenOutOfVocab { .. } => Exit::Usage,
            Engine::BadPool { .. } => Exit::Usage,
            Engine::Strict { .. } => Exit::Strict,
            _ => Exit::Failure,
        };
        Error::new(exit, e)
    }
}

impl From<llmrt_models::Error> for Error {
    fn from(e: llmrt_models::Error) -> Error {
        use llmrt_models::Error as Model;
        let is_flag = matches!(e, Model::BadBatch { .. } | Model::CacheType { .. });
        Error::new(if is_flag { Exit::Usage } else { Exit::File }, e)
    }
}

impl From<llmrt_tokenizer::Error> for Error {
    fn from(e: llmrt_tokenizer::Error) -> Error {
        use llmrt_tokenizer::Error as Text;
        let exit = match e {
            Text::Cancelled => Exit::Interrupted,
            Text::TooManyTokens { .. } | Text::LongWord { .. } | Text::ControlInMessage { .. } => Exit::Usage,
            Text::OutOfMemory { .. } => Exit::Memory,
            _ => Exit::File,
        };
        Error::new(exit, e)
    }
}

impl From<llmrt_gguf::Error> for Error {
    fn from(e: llmrt_gguf::Error) -> Error {
        Error::new(Exit::File, e)
    }
}

/// Writing to stdout failed. A closed pipe ends the program without a message.
impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Error {
        match e.kind() {
            ErrorKind::BrokenPipe => Error::new(Exit::OutputClosed, e),
            _ => Error::new(Exit::Failure, format!("stdout: cannot write: {e}; {}", remedy(&e))),
        }
    }
}

/// What helps against a failure of the file system.
fn remedy(e: &std::io::Error) -> &'static str {
    match e.kind() {
        ErrorKind::StorageFull => "free some space, or write to another file system",
        ErrorKind::QuotaExceeded => "free some space of your quota, or write to another file system",
        ErrorKind::FileTooLarge => {
            "raise the limit of file sizes (ulimit -f), or write to another file system"
        }
        ErrorKind::ReadOnlyFilesystem => "it is mounted read-only: write to another folder",
        ErrorKind::IsADirectory => "it is a directory: give the name of a file",
        ErrorKind::NotADirectory => "a part of the path is a file: check the path",
        ErrorKind::NotFound => "check the path; folders are not made",
        ErrorKind::PermissionDenied => "check the rights of the file and of its folder",
        ErrorKind::InvalidFilename => "choose a shorter name",
        _ => "check the path, the file system and its rights",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_the_file_system_names_its_remedy() {
        for (number, expected) in [
            (28, "free some space"),
            (21, "give the name of a file"),
            (27, "ulimit -f"),
            (30, "another folder"),
        ] {
            let e = std::io::Error::from_raw_os_error(number);
            let error = Error::unwritable(Path::new("out.gguf"), &e);
            assert!(error.message.contains(expected), "{}", error.message);
            assert_eq!(error.exit.code(), 1);
        }
    }

    #[test]
    fn a_file_of_statistics_is_a_file_that_cannot_be_used_and_is_named_alone() {
        let (path, problem) = ("x.sparse.gguf".to_string(), "was made for y.gguf".to_string());
        let error = Error::from(llmrt_engine::Error::SparseFile { path, problem }).of_model("x.gguf");
        assert_eq!((error.exit.code(), &*error.message), (3, "x.sparse.gguf: was made for y.gguf"));
        let error = Error::new(Exit::File, "has no weights").of_model("x.gguf");
        assert_eq!(error.message, "x.gguf: has no weights");
    }

    #[test]
    fn a_closed_pipe_is_a_failure_without_a_message_of_its_own() {
        let error = Error::from(std::io::Error::from_raw_os_error(32));
        assert_eq!((error.exit, error.exit.code()), (Exit::OutputClosed, 1));
    }
}
