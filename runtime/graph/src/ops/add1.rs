//! STUB
pub(super) const RULES: super::Rules = super::MISSING;
