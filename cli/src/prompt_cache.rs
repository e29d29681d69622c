//! `--prompt-cache`: the keys and values of a prompt, kept in a file between runs.
//!
//! The file: 8 bytes of magic, the length of the header as u32, the header as JSON, the rows of every cache one after
//! the other, and the SHA-256 of all before it. Integers are little-endian.

use crate::error::{Error, Result};
use crate::model::Identity;
use crate::new_file::NewFile;
use crate::output::{n_things, note};
use crate::session::Core;
use llmrt_engine::{CacheRows, EngineOptions, KvState, TokenId};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::path::Path;

const MAGIC: &[u8; 8] = b"LLMRTKV1";

/// Bytes of the SHA-256 at the end.
const DIGEST_BYTES: usize = 32;

/// What must be equal for keys and values to be those that a run would compute: name and value, in the order they are
/// compared.
pub struct Key(Vec<(&'static str, String)>);

impl Key {
    /// That of a run.
    pub fn new(model: &Identity, options: &EngineOptions, devices: &[String]) -> Key {
        Key(vec![
            ("model checksum", model.checksum.clone()),
            ("type of the K cache", options.k_type.name().to_string()),
            ("type of the V cache", options.v_type.name().to_string()),
            ("context size", options.n_ctx.to_string()),
            ("devices", devices.join(", ")),
        ])
    }
}

/// An error if the file could not be written at the end.
pub fn check_writable(path: &Path) -> Result<()> {
    // Dropped, it leaves nothing.
    NewFile::create(path).map(drop)
}

/// Puts what the file holds of a prompt into the prefix cache; how many tokens these are. A file that does not exist yet holds
/// nothing.
pub fn restore(path: &Path, key: &Key, core: &mut Core, prompt: &[TokenId]) -> Result<usize> {
    if !path.exists() {
        return Ok(0);
    }
    let mut state = read(path, key)?;
    // The last token is computed in any case, for its logits.
    let n_same = prompt.iter().zip(&state.tokens).take_while(|(a, b)| a == b).count();
    state.truncate(n_same.min(prompt.len().saturating_sub(1)));
    let n = core.import_prefix(&state).map_err(|e| unusable(path, &e.to_string()))?;
    note(format_args!("(prompt cache: {} restored)", n_things(n, "token")));
    Ok(n)
}

/// Writes what the prefix cache has of a prompt, after which these tokens were generated, in the place of what the file holds.
pub fn save(
    path: &Path,
    key: &Key,
    core: &Core,
    (prompt, generated): (&[TokenId], &[TokenId]),
) -> Result<()> {
    let mut state = core.export_prefix(&[prompt, generated].concat())?;
    state.truncate(prompt.len());
    let mut file = NewFile::create(path)?;
    let failed = |e| Error::output(path, format!("cannot write: {e}"));
    let mut hash = Sha256::new();
    let mut put = |bytes: &[u8]| {
        hash.update(bytes);
        file.out().write_all(bytes)
    };
    let header = header(key, &state);
    put(MAGIC).and_then(|()| put(&(header.len() as u32).to_le_bytes())).map_err(failed)?;
    put(header.as_bytes()).map_err(failed)?;
    state.caches.iter().try_for_each(|cache| put(&cache.rows)).map_err(failed)?;
    let digest = hash.finalize();
    file.out().write_all(&digest).map_err(failed)?;
    file.finish()
}

fn header(key: &Key, state: &KvState) -> String {
    let key: serde_json::Map<_, _> =
        key.0.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    let caches = state.caches.iter().map(|cache| json!({ "name": cache.name, "row_bytes": cache.row_bytes }));
    json!({ "key": key, "tokens": state.tokens, "caches": caches.collect::<Vec<_>>() }).to_string()
}

fn read(path: &Path, key: &Key) -> Result<KvState> {
    let failed = |e| Error::file(path, format!("cannot read: {e}; check the path of --prompt-cache"));
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut magic = [0; MAGIC.len()];
    // A file of another kind may be large: nothing else is read of it.
    if file.read_exact(&mut magic).is_err() || &magic != MAGIC {
        return Err(unusable(path, "it is not a prompt cache of this version"));
    }
    let mut bytes = magic.to_vec();
    file.read_to_end(&mut bytes).map_err(failed)?;
    parse(&bytes, key).map_err(|problem| unusable(path, &problem))
}

/// The state in the bytes of a file that begins with [`MAGIC`].
fn parse(bytes: &[u8], key: &Key) -> std::result::Result<KvState, String> {
    let corrupt = || "it is corrupt: its bytes do not have the checksum at its end".to_string();
    let (bytes, digest) = bytes.split_last_chunk::<DIGEST_BYTES>().ok_or_else(corrupt)?;
    if Sha256::digest(bytes).as_slice() != digest {
        return Err(corrupt());
    }
    let malformed = || "its header is malformed".to_string();
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(malformed)?;
    let (n, rest) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
    let (header, rows) = rest.split_at_checked(u32::from_le_bytes(*n) as usize).ok_or_else(malformed)?;
    let header: Value = serde_json::from_slice(header).map_err(|_| malformed())?;

    for (name, expected) in &key.0 {
        let found = header["key"][*name].as_str().unwrap_or_default();
        if found != expected {
            return Err(format!("its {name} is `{found}` and that of this run `{expected}`"));
        }
    }
    let tokens = header["tokens"].as_array().ok_or_else(malformed)?;
    let token = |id: &Value| id.as_u64().and_then(|id| TokenId::try_from(id).ok());
    let tokens = tokens.iter().map(token).collect::<Option<Vec<_>>>().ok_or_else(malformed)?;
    let mut state = KvState { tokens, caches: Vec::new() };
    let mut rest = rows;
    for cache in header["caches"].as_array().ok_or_else(malformed)? {
        let name = cache["name"].as_str().ok_or_else(malformed)?.to_string();
        let row_bytes = cache["row_bytes"].as_u64().and_then(|n| usize::try_from(n).ok());
        let row_bytes = row_bytes.ok_or_else(malformed)?;
        let n = state.tokens.len().checked_mul(row_bytes).ok_or_else(malformed)?;
        let (rows, after) = rest.split_at_checked(n).ok_or_else(malformed)?;
        rest = after;
        state.caches.push(CacheRows { name, row_bytes, rows: rows.to_vec() });
    }
    if rest.is_empty() { Ok(state) } else { Err(malformed()) }
}

fn unusable(path: &Path, problem: &str) -> Error {
    Error::file(
        path,
        format!("cannot be used as --prompt-cache: {problem}; delete the file or give another name"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(checksum: &str) -> Key {
        Key(vec![("model checksum", checksum.into()), ("type of the K cache", "F16".into())])
    }

    /// A file with two tokens in one cache of rows of three bytes.
    fn file() -> Vec<u8> {
        let rows = vec![1, 2, 3, 4, 5, 6];
        let caches = vec![CacheRows { name: "blk.0.k_cache".into(), row_bytes: 3, rows }];
        let state = KvState { tokens: vec![7, 8], caches };
        signed(&header(&key("m"), &state), &state.caches[0].rows)
    }

    fn signed(header: &str, rows: &[u8]) -> Vec<u8> {
        let length = (header.len() as u32).to_le_bytes();
        let mut bytes = [&MAGIC[..], &length, header.as_bytes(), rows].concat();
        bytes.extend(Sha256::digest(&bytes));
        bytes
    }

    #[test]
    fn a_file_holds_tokens_and_rows() {
        let state = parse(&file(), &key("m")).unwrap();
        assert_eq!((&state.tokens[..], &state.caches[0].rows[..]), (&[7, 8][..], &[1, 2, 3, 4, 5, 6][..]));
    }

    #[test]
    fn every_changed_or_missing_byte_is_found() {
        let whole = file();
        for i in 0..whole.len() {
            let mut changed = whole.clone();
            changed[i] ^= 1;
            assert!(parse(&changed, &key("m")).is_err(), "byte {i} changed");
            assert!(parse(&whole[..i], &key("m")).is_err(), "cut at {i}");
        }
    }

    #[test]
    fn a_file_of_another_run_is_refused_with_what_differs() {
        let error = parse(&file(), &key("n")).unwrap_err();
        assert_eq!(error, "its model checksum is `m` and that of this run `n`");
    }

    #[test]
    fn headers_that_do_not_fit_the_rows_are_refused() {
        let key = Key(Vec::new());
        for (header, rows) in [
            ("7", &[][..]),
            (r#"{"tokens": [1]}"#, &[]),
            (r#"{"tokens": [4294967296], "caches": []}"#, &[]),
            (r#"{"tokens": [1], "caches": [{"name": "k", "row_bytes": 4}]}"#, &[0; 3]),
            (r#"{"tokens": [1], "caches": [{"name": "k", "row_bytes": 2}]}"#, &[0; 3]),
            (r#"{"tokens": [1, 2], "caches": [{"name": "k", "row_bytes": 18446744073709551615}]}"#, &[0; 3]),
        ] {
            assert_eq!(
                parse(&signed(header, rows), &key).unwrap_err(),
                "its header is malformed",
                "{header}"
            );
        }
        let huge = [&MAGIC[..], &u32::MAX.to_le_bytes()].concat();
        let huge = [&huge[..], &Sha256::digest(&huge)].concat();
        assert_eq!(parse(&huge, &key).unwrap_err(), "its header is malformed");
    }
}
