//! Names of models: `[HOST/][NAMESPACE/]NAME[:TAG]`. Each part is also the name of a folder, so none may leave the store.

use crate::error::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The registry of names without a host.
pub const DEFAULT_HOST: &str = "registry.ollama.ai";

/// The namespace of names without one.
const DEFAULT_NAMESPACE: &str = "library";

/// The tag of names without one.
const DEFAULT_TAG: &str = "latest";

/// Hosts of model hubs, whose repositories hold GGUF files; the first is what names are stored under.
const HUBS: [&str; 2] = ["hf.co", "huggingface.co"];

/// Most bytes of a part.
const MAX_PART: usize = 128;

/// Most bytes of a host with its port.
const MAX_HOST: usize = 255;

/// The name of a model in a store or a registry. Every part is valid: see [`Name::from_str`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name {
    /// `HOST/NAMESPACE/MODEL/TAG`: no part has a slash.
    path: String,
}

impl Name {
    /// A name of these four parts; an error if one of them cannot be a folder of the store.
    pub fn new(host: &str, namespace: &str, model: &str, tag: &str) -> Result<Name> {
        let text = format!("{host}/{namespace}/{model}:{tag}");
        let bad = |problem: String| Error::BadName { name: text.clone(), problem };
        check_host(host).map_err(bad)?;
        for (what, part) in [("namespace", namespace), ("name", model), ("tag", tag)] {
            check_part(what, part).map_err(bad)?;
        }
        let host = if HUBS.contains(&host) { HUBS[0] } else { host };
        Ok(Name { path: [host, namespace, model, tag].join("/") })
    }

    /// The registry's host, with its port if there is one.
    pub fn host(&self) -> &str {
        self.part(0)
    }

    /// The namespace, such as a user.
    pub fn namespace(&self) -> &str {
        self.part(1)
    }

    /// The model within the namespace.
    pub fn model(&self) -> &str {
        self.part(2)
    }

    /// The tag, such as a size or a quantisation.
    pub fn tag(&self) -> &str {
        self.part(3)
    }

    /// Whether the tag is the one of names without a tag.
    pub fn has_default_tag(&self) -> bool {
        self.tag() == DEFAULT_TAG
    }

    /// Whether the host is a hub of GGUF files.
    pub fn is_on_hub(&self) -> bool {
        self.host() == HUBS[0]
    }

    /// Its manifest's path, from the folder of manifests.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(&self.path)
    }

    fn part(&self, i: usize) -> &str {
        self.path.split('/').nth(i).unwrap_or_default()
    }
}

impl FromStr for Name {
    type Err = Error;

    /// Parses `[HOST/][NAMESPACE/]NAME[:TAG]`. Of two parts the first is a host if it has a dot or a colon, or is
    /// `localhost`. A part is 1 to 128 of the characters `A-Z a-z 0-9 - _ .`, begins with a letter, a digit or `_`, does
    /// not end with a dot and has no `..`.
    fn from_str(text: &str) -> Result<Name> {
        let bad = |problem: &str| Error::BadName { name: text.into(), problem: problem.into() };
        let (path, tag) = match text.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, tag),
            _ => (text, DEFAULT_TAG),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let (host, namespace, model) = match parts[..] {
            [model] => (DEFAULT_HOST, DEFAULT_NAMESPACE, model),
            [host, model] if is_host(host) => (host, DEFAULT_NAMESPACE, model),
            [namespace, model] => (DEFAULT_HOST, namespace, model),
            [host, namespace, model] => (host, namespace, model),
            _ => return Err(bad("has more than three parts between slashes")),
        };
        if HUBS.contains(&host) && parts.len() != 3 {
            return Err(bad("needs a user and a repository: hf.co/USER/REPO[:QUANT]"));
        }
        Name::new(host, namespace, model, tag).map_err(|e| match e {
            Error::BadName { problem, .. } => bad(&problem),
            e => e,
        })
    }
}

impl fmt::Display for Name {
    /// The shortest text that parses to this name, but always with the tag.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, namespace) = (self.host(), self.namespace());
        let is_plain = host == DEFAULT_HOST && !is_host(namespace);
        match is_plain {
            true if namespace == DEFAULT_NAMESPACE => {}
            true => write!(f, "{namespace}/")?,
            false => write!(f, "{host}/{namespace}/")?,
        }
        write!(f, "{}:{}", self.model(), self.tag())
    }
}

/// Whether the first of two parts is a host.
fn is_host(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost"
}

fn check_part(what: &str, part: &str) -> std::result::Result<(), String> {
    check_text(what, part, MAX_PART, |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn check_host(host: &str) -> std::result::Result<(), String> {
    let (domain, port) = host.split_once(':').map_or((host, None), |(domain, port)| (domain, Some(port)));
    check_text("host", domain, MAX_HOST, |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))?;
    let is_port = |port: &str| {
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    match port.filter(|port| !is_port(port)) {
        Some(port) => Err(format!("has the port `{}`: expected 1 to 65535", port.escape_debug())),
        None => Ok(()),
    }
}

fn check_text(
    what: &str,
    text: &str,
    max: usize,
    is_allowed: fn(char) -> bool,
) -> std::result::Result<(), String> {
    if text.is_empty() {
        return Err(format!("has an empty {what}"));
    }
    if text.len() > max {
        return Err(format!("has a {what} of {} bytes: expected at most {max}", text.len()));
    }
    if let Some(c) = text.chars().find(|&c| !is_allowed(c)) {
        return Err(format!(
            "has `{}` in its {what}: expected letters, digits, `-`, `_` and `.`",
            c.escape_debug()
        ));
    }
    let first_is_good = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if !first_is_good || text.ends_with('.') || text.contains("..") {
        return Err(format!(
            "has the {what} `{text}`: expected a letter, a digit or `_` first, no `..` and no dot at the end"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(text: &str) -> String {
        let name: Name = text.parse().unwrap_or_else(|e| panic!("{e}"));
        [name.host(), name.namespace(), name.model(), name.tag()].join(" ")
    }

    #[test]
    fn what_a_name_leaves_out_has_a_default() {
        assert_eq!(parts("llama3"), "registry.ollama.ai library llama3 latest");
        assert_eq!(parts("qwen2.5:7b-q4_K_M"), "registry.ollama.ai library qwen2.5 7b-q4_K_M");
        assert_eq!(parts("me/tiny"), "registry.ollama.ai me tiny latest");
        assert_eq!(parts("127.0.0.1:5000/tiny:a"), "127.0.0.1:5000 library tiny a");
        assert_eq!(parts("localhost/me/tiny"), "localhost me tiny latest");
        assert_eq!(parts("huggingface.co/User/Repo-GGUF:Q4_K_M"), "hf.co User Repo-GGUF Q4_K_M");
    }

    #[test]
    fn the_shortest_text_has_the_tag() {
        for (text, shortest) in [
            ("registry.ollama.ai/library/llama3", "llama3:latest"),
            ("me/tiny:a", "me/tiny:a"),
            ("example.org/tiny", "example.org/library/tiny:latest"),
            ("registry.ollama.ai/a.b/tiny", "registry.ollama.ai/a.b/tiny:latest"),
        ] {
            assert_eq!(text.parse::<Name>().unwrap().to_string(), shortest);
        }
    }

    #[test]
    fn a_name_that_would_leave_the_store_is_refused() {
        let long = "x".repeat(129);
        for (text, problem) in [
            ("", "empty name"),
            ("..", "expected a letter"),
            ("../../etc/passwd", "more than three parts"),
            ("a/../b", "the namespace `..`"),
            ("/etc/passwd", "empty host"),
            ("a//b", "empty namespace"),
            ("a:", "empty tag"),
            ("a:..", "the tag `..`"),
            ("a:b/../c", "has the port `b`"),
            ("a..b", "no `..`"),
            ("a\0b", "has `\\0` in its name"),
            ("a\nb", "has `\\n` in its name"),
            ("a b", "has ` ` in its name"),
            (".hidden", "first"),
            ("-rf", "first"),
            ("a\\b", "in its name"),
            (&long, "129 bytes"),
            ("localhost:99999/a/b", "port `99999`"),
            ("hf.co/repo", "hf.co/USER/REPO"),
            ("é", "in its name"),
        ] {
            let error = text.parse::<Name>().unwrap_err();
            assert!(error.to_string().contains(problem), "{text}: {error}");
            assert_eq!(error.code(), "bad-name");
        }
    }

    proptest! {
        #[test]
        fn printing_and_parsing_are_inverse(
            host in "([a-z0-9][a-z0-9-]{0,8}(\\.[a-z]{2,3})?(:[1-9][0-9]{0,3})?)",
            namespace in "[A-Za-z0-9_]([A-Za-z0-9_-]{0,6}(\\.[a-z])?)?",
            model in "[A-Za-z0-9_]([A-Za-z0-9_-]{0,6}(\\.[a-z0-9])?)?",
            tag in "[A-Za-z0-9_]([A-Za-z0-9_-]{0,6}(\\.[a-z0-9])?)?",
            is_default in any::<bool>(),
        ) {
            let host = if is_default { DEFAULT_HOST } else { &host };
            let name = Name::new(host, &namespace, &model, &tag).unwrap();
            prop_assert_eq!(name.to_string().parse::<Name>().unwrap(), name);
        }

        #[test]
        fn whatever_parses_stays_below_the_folder_of_manifests(text in "[a-z./:\\\\\\x00-\\x20~-]{0,24}|.{0,24}") {
            if let Ok(name) = text.parse::<Name>() {
                let path = name.path();
                let plain = path.components().all(|c| matches!(c, std::path::Component::Normal(_)));
                prop_assert!(plain && path.components().count() == 4, "{:?}", path);
            }
        }
    }
}
