//! Checks for tests of plugins only, before `init`: `query` is pure, and unknown names are answered with NULL.

use super::checklist::{self, Refusal};
use super::manifest::Manifest;
use super::open;
use llmrt_abi::{ABI_MINOR, types as c};
use std::path::Path;

/// What a plugin's file and entry declare. Nothing of it was initialised.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The manifest.
    pub manifest: Manifest,
    /// Whether `query` gave the same table, with the same bytes, both times.
    pub same_table: bool,
    /// Whether a host of a far later minor version gets a table too.
    pub serves_later_hosts: bool,
    /// Minor version of the ABI it was built with.
    pub abi_minor: u16,
    /// Bytes of its plugin table.
    pub table_size: u32,
    /// Unknown extensions it gave a table for, as `name version`.
    pub unknown_extensions: Vec<String>,
}

/// Names and versions that no plugin has.
const UNKNOWN: [(&str, u32); 4] =
    [("", 1), ("llmrt.no.such.extension", 1), ("llmrt.devmem", u32::MAX), ("\u{fffd}\u{1f600}", 0)];

impl Probe {
    /// Runs steps 1 to 9 of the load checklist on a file, and then these checks. An error is the reason of a refusal.
    pub fn of_file(path: &Path) -> Result<Probe, String> {
        let checked = checklist::check_file(path, &[], "");
        let checked = checked.map_err(|refusal| match refusal {
            Refusal::Rejected(why) | Refusal::NotStarted(why) | Refusal::Skipped(why) => why,
        })?;
        let query = open::open_file(&checked)?;
        let (first, table) = open::query_table(query)?;
        let (second, again) = open::query_table(query)?;
        let same = |a: &c::Plugin, b: &c::Plugin| {
            let key =
                |t: &c::Plugin| (t.struct_size, t.abi_minor, t.fingerprint, t.build_flags, t.needs_host);
            key(a) == key(b) && a.name.ptr == b.name.ptr && a.name.len == b.name.len
        };
        let unknown = UNKNOWN.into_iter().filter(|&(name, version)| {
            let text = c::Str { ptr: name.as_ptr(), len: name.len() as u64 };
            // SAFETY: the table is the plugin's, its extensions may be queried at any time; the text outlives the call.
            table.get_extension.is_some_and(|query| !unsafe { query(text, version) }.is_null())
        });
        Ok(Probe {
            manifest: checked.manifest,
            same_table: first == second && same(&table, &again),
            serves_later_hosts: !query(u32::from(ABI_MINOR) + 1000).is_null(),
            abi_minor: table.abi_minor,
            table_size: table.struct_size,
            unknown_extensions: unknown.map(|(name, version)| format!("`{name}` {version}")).collect(),
        })
    }
}
