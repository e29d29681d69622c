//! Brings a GGUF file from a hub's repository into the store: `hf.co/USER/REPO:QUANT`.

use super::Client;
use super::challenge::encoded;
use super::download::Download;
use super::http::{Request, header};
use super::session::{Session, expect, json};
use crate::create::{config, is_split, rootfs};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::manifest::{Layer, Manifest, media};
use crate::name::Name;
use crate::store::Store;
use crate::watch::Watch;
use serde::Deserialize;

/// The quantisation of names without one, where the repository has it.
const DEFAULT_QUANT: &str = "Q4_K_M";

/// A repository, as the hub's API describes it.
#[derive(Deserialize)]
struct Repository {
    /// The commit.
    sha: Option<String>,
    #[serde(default)]
    siblings: Vec<File>,
}

#[derive(Deserialize, Clone)]
struct File {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize, Clone)]
struct Lfs {
    #[serde(alias = "oid")]
    sha256: Option<String>,
    size: Option<u64>,
}

impl Client {
    /// Pulls the file; returns the bytes of a manifest.
    pub(super) fn pull_from_hub(&self, store: &Store, name: &Name, watch: &mut Watch<'_>) -> Result<Vec<u8>> {
        let hub = self.options.hub.trim_end_matches('/');
        if hub.starts_with("http://") && !self.options.insecure {
            return Err(Error::PlainHttp { host: hub.into() });
        }
        let mut session = Session::new(self, hub, self.options.hub_token.clone());
        let path = format!("{}/{}", name.namespace(), name.model());
        let url = format!("{hub}/api/models/{path}?blobs=true");
        let response = session.exchange(&Request::new("GET", &url), watch)?;
        if response.status() == 404 {
            return Err(Error::NotInRegistry { name: name.clone(), host: name.host().into() });
        }
        let repository: Repository = json(&url, expect(&url, response, &[200])?)?;
        let problem = |problem| Error::Unsupported { name: name.clone(), problem };
        let file = choose(&repository.siblings, name).map_err(problem)?;

        let revision = repository.sha.as_deref().unwrap_or("main");
        let file_path: Vec<_> = file.rfilename.split('/').map(encoded).collect();
        let url = format!("{hub}/{path}/resolve/{}/{}", encoded(revision), file_path.join("/"));
        let stated = Stated::of(&file, &url, &mut session, watch)?;
        let download =
            Download { url: &url, stem: stated.stem(&url), digest: stated.digest, size: stated.size };
        let (digest, size) = download.run(&mut session, &store.blobs, watch)?;
        let layer = Layer { media_type: media::MODEL.into(), digest, size };
        manifest(store, layer, &[("source", Some(url)), ("etag", stated.etag)])
    }
}

/// A manifest of the file alone, whose configuration has where it is from.
fn manifest(store: &Store, layer: Layer, origin: &[(&str, Option<String>)]) -> Result<Vec<u8>> {
    let layers = vec![layer];
    let mut config = config();
    for (key, value) in origin {
        if let Some(value) = value {
            config.insert((*key).into(), value.as_str().into());
        }
    }
    config.insert("rootfs".into(), rootfs(&layers));
    let config = store.blobs.put(media::CONFIG, &serde_json::to_vec(&config).unwrap_or_default())?;
    Ok(Manifest::new(config, layers).to_json())
}

/// What the hub states about a file before it is downloaded.
struct Stated {
    digest: Option<Digest>,
    size: Option<u64>,
    etag: Option<String>,
}

impl Stated {
    /// From the list of files, else from the headers of the file.
    fn of(file: &File, url: &str, session: &mut Session<'_>, watch: &mut Watch<'_>) -> Result<Stated> {
        let digest = |hex: &str| format!("sha256:{hex}").parse().ok();
        if let Some(lfs) = &file.lfs {
            let digest = lfs.sha256.as_deref().and_then(digest);
            if digest.is_some() {
                return Ok(Stated { digest, size: lfs.size.or(file.size), etag: lfs.sha256.clone() });
            }
        }
        let head = expect(url, session.exchange(&Request::new("HEAD", url), watch)?, &[200])?;
        let value = |name| header(head.headers(), name);
        let etag = value("x-linked-etag").or(value("etag"));
        let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_string());
        let size = value("x-linked-size").or(value("content-length")).and_then(|n| n.parse().ok());
        Ok(Stated { digest: etag.as_deref().and_then(digest), size, etag })
    }

    /// The unfinished file's name: of the digest, else of what identifies the bytes.
    fn stem(&self, url: &str) -> String {
        let identity =
            || Digest::of(format!("{url}\n{}", self.etag.as_deref().unwrap_or_default()).as_bytes());
        match &self.digest {
            Some(digest) => digest.file_name(),
            None => format!("hub-{}", identity().hex()),
        }
    }
}

/// The file that a tag names: by quantisation or by file name; without one Q4_K_M, else the first.
fn choose(files: &[File], name: &Name) -> std::result::Result<File, String> {
    let is_gguf = |file: &&File| {
        let name = file.rfilename.to_lowercase();
        name.ends_with(".gguf") && !name.contains("mmproj")
    };
    let all: Vec<&File> = files.iter().filter(is_gguf).collect();
    let (split, whole): (Vec<&File>, Vec<&File>) =
        all.into_iter().partition(|file| is_split(&file.rfilename));
    let quant = if name.has_default_tag() { DEFAULT_QUANT } else { name.tag() };
    let exact = whole.iter().find(|file| is_of(&file.rfilename, quant));
    let chosen = exact.or(whole.first().filter(|_| name.has_default_tag()));
    if let Some(file) = chosen {
        return Ok((*file).clone());
    }
    if whole.is_empty() && !split.is_empty() {
        return Err("is split into several files, which the store does not join".into());
    }
    let names: Vec<_> = whole.iter().take(20).map(|file| file.rfilename.escape_debug().to_string()).collect();
    match names.is_empty() {
        true => Err("has no GGUF file".into()),
        false => Err(format!("has no GGUF file of the type {quant}: it has {}", names.join(", "))),
    }
}

/// Whether a file's name is this one, or ends in this quantisation after a separator; in any case.
fn is_of(file: &str, quant: &str) -> bool {
    let file = file.rsplit('/').next().unwrap_or_default().to_lowercase();
    let quant = quant.to_lowercase();
    let stem = file.strip_suffix(".gguf").unwrap_or(&file);
    let before = stem.strip_suffix(quant.as_str());
    file == quant || before.is_some_and(|before| before.is_empty() || before.ends_with(['-', '.', '_']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[&str], tag: &str, expected: &str) {
        let file = |name: &&str| File { rfilename: name.to_string(), size: None, lfs: None };
        let files: Vec<_> = files.iter().map(file).collect();
        let name = format!("hf.co/user/repo{tag}").parse().unwrap();
        let found = choose(&files, &name).map(|file| file.rfilename).unwrap_or_else(|problem| problem);
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn a_tag_chooses_a_file_by_quantisation_or_name() {
        let files =
            ["README.md", "mmproj-F16.gguf", "a-Q8_0.gguf", "a-Q4_K.gguf", "b/a.q4_k_m.gguf", "IQ4_K.gguf"];
        check(&files, "", "b/a.q4_k_m.gguf");
        check(&files, ":Q4_K", "a-Q4_K.gguf");
        check(&files, ":q8_0", "a-Q8_0.gguf");
        check(&files, ":IQ4_K.gguf", "IQ4_K.gguf");
        check(&files[..3], "", "a-Q8_0.gguf");
        check(&files, ":Q2_K", "has no GGUF file of the type Q2_K: it has a-Q8_0.gguf,");
        check(&files[..2], "", "has no GGUF file");
        check(&["a-Q4_K_M-00001-of-00002.gguf"], "", "is split into several files");
    }
}
