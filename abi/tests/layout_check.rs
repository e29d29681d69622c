//! A second opinion on layouts: abi_stable compares today's types with those of released minors, by its own means.
//!
//! `cargo ci layout` runs this. abi_stable calls an appended field incompatible; then the lock file has the last word,
//! and the struct's line below goes to `GREW`.
#![cfg(feature = "layout-check")]
#![allow(dead_code, missing_docs)]

use abi_stable::StableAbi;
use abi_stable::abi_stability::abi_checking::check_layout_compatibility;
use abi_stable::type_layout::TypeLayout;
use llmrt_abi::types;
// Required by `v0_1` of its crate.
use llmrt_abi::Reason;

#[path = "../../tests/golden/abi-0.1/types/mod.rs"]
mod v0_1;

/// Structs that have grown at their end since.
const GREW: &[&str] = &[];

/// The complaints of abi_stable, without the two whole layouts that it prints before them.
fn check(old: &'static TypeLayout, new: &'static TypeLayout) {
    if GREW.contains(&old.name()) {
        return;
    }
    if let Err(e) = check_layout_compatibility(old, new) {
        let text = e.to_string();
        let lines: Vec<_> = text.lines().skip_while(|line| !line.contains("Error:")).take(12).collect();
        panic!("{}: {}", old.name(), lines.join("\n"));
    }
}

macro_rules! check {
    ($($name:ident)*) => {
        $(check(v0_1::$name::LAYOUT, types::$name::LAYOUT);)*
        /// `HostThreads` is left out: abi_stable has no support for functions that take a function.
        const CHECKED: usize = [$(stringify!($name)),*].len() + 1;
    };
}

#[test]
fn structs_are_laid_out_as_when_they_were_released() {
    check! {
        Str Error Plugin HostApi TypeInfo OpDesc Device DeviceInfo BufferType DeviceVt Buffer BufferVt BackendParams
        Backend Plan BackendVt Event EventVt Tensor Node Graph Verdict Layout Pool DevmemVt
    }
    assert!(CHECKED <= llmrt_abi::layout::STRUCTS.len());
}

#[test]
fn a_difference_is_found() {
    #[derive(StableAbi)]
    #[repr(C)]
    struct Str {
        ptr: *const u8,
        len: i64,
    }
    assert!(check_layout_compatibility(Str::LAYOUT, types::Str::LAYOUT).is_err());
}
