//! Copies of a plugin's function tables in this build's size: what a shorter table lacks is NULL in the copy.
//!
//! A function that is NULL answers "unsupported", so calls never test for it and every fallback has one trigger.

use llmrt_abi::types as c;

/// A struct of the ABI that starts with its size and is valid when all zero.
///
/// # Safety
/// The first field (`magic` aside) is `u32 struct_size` at `SIZE_AT`, and all-zero bytes are a value of the type.
pub(crate) unsafe trait Table: Sized {
    /// Offset of `struct_size`.
    const SIZE_AT: usize = 0;
    /// Bytes that the first version has.
    const MIN_SIZE: usize;
    /// For messages.
    const NAME: &'static str;
}

macro_rules! tables {
    ($($ty:ident $name:literal min = $last:ident;)*) => {$(
        // SAFETY: `repr(C)` with `struct_size` first; numbers, pointers and optional functions may be zero.
        unsafe impl Table for c::$ty {
            const MIN_SIZE: usize = std::mem::offset_of!(c::$ty, $last) + size_of::<usize>();
            const NAME: &'static str = $name;
        }
    )*};
}

tables! {
    DeviceInfo "device info" min = buffer_types;
    DeviceVt "device table" min = backend_create;
    BufferVt "buffer table" min = fill;
    BackendVt "backend table" min = compute;
    EventVt "event table" min = wait;
    OpDesc "op description" min = infer;
    BufferType "buffer type" min = max_size;
    DevmemVt "devmem table" min = va_release;
    CollectiveVt "collective table" min = all_reduce;
}

// SAFETY: `repr(C)` with `struct_size` after `magic`; numbers, pointers and optional functions may be zero.
unsafe impl Table for c::Plugin {
    const SIZE_AT: usize = std::mem::offset_of!(c::Plugin, struct_size);
    const MIN_SIZE: usize = std::mem::offset_of!(c::Plugin, shutdown) + size_of::<usize>();
    const NAME: &'static str = "plugin table";
}

/// Copies what the plugin's table has into a zeroed one of ours.
///
/// # Safety
/// `ptr` is NULL or points to a table with at least `struct_size` readable bytes.
pub(crate) unsafe fn read<T: Table>(ptr: *const T) -> Result<T, String> {
    if ptr.is_null() {
        return Err(format!("{} is NULL", T::NAME));
    }
    if !ptr.is_aligned() {
        return Err(format!("{} is not aligned", T::NAME));
    }
    // SAFETY: the caller's promise; `struct_size` is among the first bytes of every version.
    let size = unsafe { *ptr.cast::<u8>().add(T::SIZE_AT).cast::<u32>() } as usize;
    if size < T::MIN_SIZE {
        return Err(format!("{} has {size} bytes; at least {} are needed", T::NAME, T::MIN_SIZE));
    }
    let mut table = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both sides have that many bytes, and zero is a value of every byte that stays.
    unsafe {
        let n = size.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(ptr.cast::<u8>(), table.as_mut_ptr().cast::<u8>(), n);
        Ok(table.assume_init())
    }
}

/// Names the first mandatory function that is NULL.
macro_rules! mandatory {
    ($table:expr, $what:literal, $($field:ident),+) => {{
        let missing: Option<&str> = None $(.or((&$table).$field.is_none().then_some(stringify!($field))))+;
        match missing {
            None => Ok(()),
            Some(name) => Err(format!("{} lacks mandatory `{name}`", $what)),
        }
    }};
}
pub(crate) use mandatory;

/// A plugin's text; broken UTF-8 is an error here, because names are compared.
///
/// # Safety
/// `text.ptr` is NULL or has `text.len` readable bytes.
pub(crate) unsafe fn text(text: c::Str, what: &str) -> Result<String, String> {
    const LONGEST: u64 = 4096;
    if text.len == 0 {
        return Ok(String::new());
    }
    if text.ptr.is_null() || text.len > LONGEST {
        return Err(format!(
            "{what} has {} bytes at {:?}; at most {LONGEST} are accepted",
            text.len, text.ptr
        ));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(text.ptr, text.len as usize) };
    String::from_utf8(bytes.to_vec()).map_err(|_| format!("{what} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_table(size: u32) -> Result<c::EventVt, String> {
        let vt = c::EventVt { struct_size: size, reserved: 0, destroy: None, query: None, wait: None };
        // SAFETY: the size never exceeds the struct's.
        unsafe { read(&vt) }
    }

    #[test]
    fn a_table_shorter_than_the_first_version_is_refused() {
        let whole = size_of::<c::EventVt>() as u32;
        assert!(event_table(whole).is_ok());
        assert!(event_table(whole - 8).is_err());
        assert!(event_table(0).is_err());
    }

    #[test]
    fn a_missing_function_is_named() {
        let vt = event_table(size_of::<c::EventVt>() as u32).unwrap();
        assert_eq!(mandatory!(vt, "event", destroy, query), Err("event lacks mandatory `destroy`".into()));
    }
}
