//! Names, numbers and times that are made up per answer.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

/// A number that differs from call to call.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// An id that begins with `prefix`, such as `chatcmpl-0123456789abcdef` or `msg_0123456789abcdef`.
pub fn id(prefix: &str) -> String {
    format!("{prefix}{:016x}", random())
}

/// Time since 1970.
pub fn since_1970() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
