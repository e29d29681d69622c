//! Plugin files: what the load checklist reads of them before anything is opened.

use crate::{Target, accepted, samples};
use llmrt_host::plugin::elf::Elf;
use llmrt_host::plugin::manifest::Manifest;

/// Plugin files: ELF and manifest.
pub const TARGET: Target = Target { name: "plugin", check, seeds };

/// Reads an ELF file, its manifest and its symbols; other bytes are taken for a manifest.
pub fn check(data: &[u8]) {
    match accepted(Elf::parse(data)) {
        Some(elf) => {
            accepted(elf.undefined_symbol("llmrt_"));
            accepted(elf.defines("llmrt_plugin_query_v0"));
            elf.build_id();
            accepted(Manifest::read(&elf));
        }
        None => drop(accepted(Manifest::parse(&String::from_utf8_lossy(data)))),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    vec![samples::elf(), samples::MANIFEST.as_bytes().to_vec()]
}
