//! A second opinion on layouts: abi_stable compares today's types with those of released minors, by its own means.
//!
//! `cargo ci layout` runs this. abi_stable calls an appended field incompatible; then the lock file has the last word,
//! and the struct goes to `grew` below.
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

/// Structs that have grown at their end since. Those that refer to them have the same complaint.
fn grew() -> Vec<String> {
    let device_info = complaint(v0_1::DeviceInfo::LAYOUT, types::DeviceInfo::LAYOUT);
    vec![device_info.expect("DeviceInfo has fields that 0.1 lacks")]
}

/// What abi_stable complains of, without the two whole layouts that it prints before.
fn complaint(old: &'static TypeLayout, new: &'static TypeLayout) -> Option<String> {
    let text = check_layout_compatibility(old, new).err()?.to_string();
    Some(text.lines().skip_while(|line| !line.contains("Error:")).collect::<Vec<_>>().join("\n"))
}

fn check(old: &'static TypeLayout, new: &'static TypeLayout) {
    let Some(complaint) = complaint(old, new) else { return };
    assert!(grew().contains(&complaint), "{}: {complaint}", old.name());
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
