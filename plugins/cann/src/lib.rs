//! Huawei Ascend devices, through the vendor's libraries, which are opened at run time: this builds on any machine.

pub mod error;
pub mod library;
pub mod sys;
