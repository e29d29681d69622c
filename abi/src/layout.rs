//! Layout descriptors of every struct in [`crate::types`], the proof that none has padding, and their fingerprint.

use crate::types::*;
use core::mem::{offset_of, size_of};

/// Layout of a struct of the ABI in this build.
pub struct StructLayout {
    /// Rust name; the C name is `llmrt_` and the same in snake case.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Bytes.
    pub align: usize,
    /// Name and offset, in order.
    pub fields: &'static [(&'static str, usize)],
    /// The first so many fields were there from the start and make the fingerprint.
    pub n_first: usize,
}

impl StructLayout {
    /// Whether fields may be appended: the struct carries its size, or its rows a stride.
    pub fn may_grow(&self) -> bool {
        self.fields.iter().any(|(name, _)| *name == "struct_size") || matches!(self.name, "Tensor" | "Node")
    }
}

/// Size of the field that `_f` selects.
const fn size_of_field<S, F>(_f: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! layouts {
    ($($name:ident { $($field:ident)* } $(+ { $($later:ident)* })?)*) => {
        /// All structs, in the order of the header.
        pub const STRUCTS: &[StructLayout] = &[$(StructLayout {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: core::mem::align_of::<$name>(),
            fields: &[
                $((stringify!($field), offset_of!($name, $field)),)*
                $($((stringify!($later), offset_of!($name, $later)),)*)?
            ],
            n_first: { const FIRST: &[&str] = &[$(stringify!($field)),*]; FIRST.len() },
        },)*];

        // Fields add up to the struct: none is missing from the list, and there is no padding.
        $(const _: () = assert!(
            0 $(+ size_of_field(|s: &$name| &s.$field))* $($(+ size_of_field(|s: &$name| &s.$later))*)?
                == size_of::<$name>(),
            concat!(stringify!($name), ": padding, or a field missing from layout.rs"),
        );)*
    };
}

// A field that is appended later goes after the braces: `Plugin { magic … get_extension } + { newer }`; of a struct that
// came later, all fields do.
layouts! {
    Str { ptr len }
    Error { struct_size code scope vendor_code node_index msg_len bytes_requested bytes_available msg }
    Plugin { magic struct_size abi_major abi_minor fingerprint build_flags reserved needs_host name version vendor
             init shutdown get_extension }
    HostApi { struct_size abi_minor ctx log get_option type_info register_op find_op cancelled get_extension }
    HostThreads { struct_size reserved ctx n_threads run barrier }
    TypeInfo { struct_size id block_elems block_bytes flags reserved name }
    OpDesc { struct_size version flags min_src max_src reserved name schema infer reference }
    Device { vt info imp }
    DeviceInfo { struct_size kind caps name description arch pci_id uuid memory_total n_buffer_types bt_stride
                 buffer_types } + { kv_block_size reserved }
    BufferType { struct_size index kind flags alignment max_size name }
    DeviceVt { struct_size reserved open close memory supports buffer_alloc backend_create alloc_size accepts
               event_create import_host }
    Buffer { vt imp }
    BufferVt { struct_size reserved destroy set get fill seal copy host_ptr }
    BackendParams { struct_size flags priority n_threads scratch native_stream }
    Backend { vt imp }
    Plan { imp }
    BackendVt { struct_size reserved destroy synchronize compute set_async get_async copy_async event_record
                event_wait plan_create plan_update plan_compute plan_destroy native_handle }
    Event { vt imp }
    EventVt { struct_size reserved destroy query wait }
    Tensor { id dtype role flags n_dims layout_id ne nb buffer offset nbytes view_offset view_src reserved name }
    Node { op op_version flags dst src n_src params_size params }
    Graph { struct_size tensor_stride node_stride n_tensors n_nodes flags uid binding_gen run_id tensors nodes }
    Verdict { support reason fuse_group est_us workspace }
    Layout { struct_size layout_id flags reserved stored_bytes row_granularity name }
    Pool { struct_size kind ctx alloc free }
    DevmemVt { struct_size flags granularity va_limit raw_alloc raw_free va_reserve va_map va_unmap va_release }
    Group { } + { imp }
    CollectiveVt { } + { struct_size reserved group_create group_destroy all_reduce all_gather broadcast }
}

/// Hash of names and offsets of the fields that were there from the start, pointer size and byte order. A plugin built
/// against another layout has another number and is refused; appended fields change nothing.
pub const FINGERPRINT: u64 = fingerprint(STRUCTS);

const fn fingerprint(structs: &[StructLayout]) -> u64 {
    let mut h = fnv(FNV_START, size_of::<usize>() as u64);
    h = fnv(h, u16::from_ne_bytes([1, 2]) as u64);
    let mut s = 0;
    while s < structs.len() {
        let layout = &structs[s];
        let mut f = 0;
        while f < layout.n_first {
            let (name, offset) = layout.fields[f];
            h = fnv(fnv_str(h, name), offset as u64);
            f += 1;
        }
        s += 1;
    }
    h
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// One FNV-1a step per byte of `word`.
const fn fnv(mut h: u64, word: u64) -> u64 {
    let bytes = word.to_le_bytes();
    let mut i = 0;
    while i < bytes.len() {
        h = (h ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    h
}

const fn fnv_str(mut h: u64, text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        h = fnv(h, bytes[i] as u64);
        i += 1;
    }
    h
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a struct with these fields has the fingerprint of `a` at 0, `b` at 8.
    fn check(fields: &'static [(&'static str, usize)], n_first: usize, is_same: bool) {
        let of =
            |fields, n_first| fingerprint(&[StructLayout { name: "X", size: 0, align: 8, fields, n_first }]);
        assert_eq!(of(fields, n_first) == of(&[("a", 0), ("b", 8)], 2), is_same, "{fields:?}");
    }

    #[test]
    fn what_moves_a_field_changes_the_fingerprint_and_what_is_appended_does_not() {
        check(&[("a", 0), ("b", 8), ("c", 16)], 2, true);
        check(&[("a", 0), ("b", 8), ("c", 16)], 3, false);
        check(&[("a", 0), ("c", 8), ("b", 16)], 3, false);
        check(&[("b", 0), ("a", 8)], 2, false);
        check(&[("a", 0), ("b", 12)], 2, false);
        check(&[("a", 0), ("renamed", 8)], 2, false);
    }
}
