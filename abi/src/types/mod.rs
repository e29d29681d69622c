//! Objects and function tables, as they cross the ABI.
//!
//! Rules for every struct: fixed-width fields, no implicit padding (checked in [`crate::layout`]), reserved fields
//! zero, `struct_size` first where a struct may grow. Fields marked **M** are mandatory; the host installs a stub for
//! the others. Calls return a [`crate::Status`] number; `err` may be NULL and is owned by the caller.

mod backend;
mod collective;
mod constants;
mod data;
mod device;
mod plugin;
mod verdict;

pub use backend::*;
pub use collective::*;
pub use constants::*;
pub use data::*;
pub use device::*;
pub use plugin::*;
