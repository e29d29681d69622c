//! Brings a model from a registry into the store.

use super::download::Download;
use super::http::{Request, header, without_query};
use super::session::{Session, bytes, expect};
use super::{Client, Source};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::manifest::{Layer, Manifest, media};
use crate::store::Store;
use crate::watch::{Event, Watch};
use std::collections::HashSet;

impl Client {
    /// Pulls a model. It appears in the store when all its blobs are there and verified; what an interrupted pull received
    /// is continued.
    pub fn pull(&self, store: &Store, source: &Source, watch: &mut Watch<'_>) -> Result<()> {
        let name = &source.name;
        let replaces = store.has(name);
        let adding = store.begin_adding()?;
        watch.show(Event::Manifest);
        let manifest = match name.is_on_hub() {
            true => self.pull_from_hub(store, name, watch)?,
            false => self.pull_from_registry(store, source, watch)?,
        };
        watch.show(Event::Finish);
        store.put_manifest(name, &manifest)?;
        drop(adding);
        if replaces {
            // Blobs of the model that had the name. What keeps them from being removed is no failure of the pull.
            let _ = store.sweep();
        }
        Ok(())
    }

    /// Pulls the blobs; returns the manifest's bytes.
    fn pull_from_registry(&self, store: &Store, source: &Source, watch: &mut Watch<'_>) -> Result<Vec<u8>> {
        let name = &source.name;
        let mut session = Session::new(self, &self.registry(source)?, None);
        let repository = format!("{}/v2/{}/{}", session.base(), name.namespace(), name.model());
        let url = format!("{repository}/manifests/{}", name.tag());
        let request = Request::new("GET", &url).header("accept", media::MANIFEST);
        let response = session.exchange(&request, watch)?;
        if response.status() == 404 {
            return Err(Error::NotInRegistry { name: name.clone(), host: name.host().into() });
        }
        let response = expect(&url, response, &[200])?;
        let stated = header(response.headers(), "docker-content-digest").and_then(|text| text.parse().ok());
        let text = bytes(&url, response)?;
        let manifest = checked(&url, &text, stated)?;
        if manifest.layers_of(media::MODEL).count() != 1
            || manifest.layers_of(media::ADAPTER).next().is_some()
        {
            let problem = "is not one GGUF file: it has no weights, several, or an adapter".into();
            return Err(Error::Unsupported { name: name.clone(), problem });
        }
        let mut seen = HashSet::new();
        for layer in manifest.blobs().filter(|layer| seen.insert(layer.digest)) {
            let url = format!("{repository}/blobs/{}", layer.digest);
            blob(&url, layer).run(&mut session, &store.blobs, watch)?;
        }
        Ok(text)
    }
}

/// The manifest of an answer; `stated` is the digest that a header has.
fn checked(url: &str, text: &[u8], stated: Option<Digest>) -> Result<Manifest> {
    let found = Digest::of(text);
    if let Some(expected) = stated.filter(|&expected| expected != found) {
        return Err(Error::DigestMismatch { url: without_query(url), expected, found });
    }
    Manifest::parse(text).map_err(|problem| Error::BadAnswer { url: without_query(url), problem })
}

fn blob<'a>(url: &'a str, layer: &Layer) -> Download<'a> {
    Download { url, stem: layer.digest.file_name(), digest: Some(layer.digest), size: Some(layer.size) }
}
