//! [`export_plugin!`] and the manifest it writes.

use llmrt_abi::ABI_MAJOR;

/// Exports a [`crate::Driver`] as a plugin: the entry symbol, its table, and the manifest.
///
/// Optional manifest keys follow the type: `export_plugin!(MyDriver, cpu = "avx2,fma", hint = "install …")`.
/// It also makes `query` in the current module, the same entry for a program that links the plugin in. A program can
/// link one plugin in this way: the entry symbol is there once.
#[macro_export]
macro_rules! export_plugin {
    ($driver:ty $(, $key:ident = $value:literal)* $(,)?) => {
        $crate::plugin_table!($driver);

        /// The plugin's entry.
        #[unsafe(no_mangle)]
        pub extern "C" fn llmrt_plugin_query_v0(host_minor: u32) -> *const $crate::abi::types::Plugin {
            const MANIFEST_PARTS: &[&str] = &$crate::export::manifest_parts!($driver $(, $key = $value)*);
            const MANIFEST_LEN: usize = $crate::export::joined_len(MANIFEST_PARTS);
            #[used]
            #[unsafe(link_section = ".llmrtmf")]
            static MANIFEST: [u8; MANIFEST_LEN] = $crate::export::joined(MANIFEST_PARTS);

            // Keeps the manifest in the linked file.
            std::hint::black_box(&MANIFEST);
            query(host_minor)
        }
    };
}

/// Makes `query` in the current module: a [`crate::Driver`] as a table for the program that links it, without a symbol
/// or manifest. Any number of these fit into a program, each in a module of its own.
#[macro_export]
macro_rules! plugin_table {
    ($driver:ty) => {
        /// The plugin's table, as `llmrt_plugin_query_v0` gives it; NULL if it cannot serve this host.
        pub extern "C" fn query(_host_minor: u32) -> *const $crate::abi::types::Plugin {
            use $crate::entry::plugin as entry;
            static STATE: entry::State<$driver> = entry::State::new();
            static TABLE: entry::Shared<$crate::abi::types::Plugin> = entry::table::<$driver>(init, shutdown);

            unsafe extern "C" fn init(
                host: *const $crate::abi::types::HostApi,
                devices: *mut *const *mut $crate::abi::types::Device,
                n: *mut u32,
                err: *mut $crate::abi::types::Error,
            ) -> i32 {
                // SAFETY: called by a host that keeps the ABI's promises.
                unsafe { entry::init(&STATE, host, devices, n, err) }
            }

            unsafe extern "C" fn shutdown() {
                entry::shutdown(&STATE);
            }

            &TABLE.0
        }
    };
}

/// The manifest's lines in pieces.
#[doc(hidden)]
#[macro_export]
macro_rules! __manifest_parts {
    ($driver:ty $(, $key:ident = $value:literal)*) => {
        [
            "abi=", $crate::export::ABI,
            "\nname=", <$driver as $crate::Driver>::INFO.name,
            "\nversion=", <$driver as $crate::Driver>::INFO.version,
            "\n", $(stringify!($key), "=", $value, "\n",)*
        ]
    };
}
#[doc(hidden)]
pub use crate::__manifest_parts as manifest_parts;

/// [`ABI_MAJOR`] as text.
pub const ABI: &str = match ABI_MAJOR {
    0 => "0",
    1 => "1",
    _ => panic!("write this number here"),
};

/// Bytes of all parts.
pub const fn joined_len(parts: &[&str]) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < parts.len() {
        n += parts[i].len();
        i += 1;
    }
    n
}

/// All parts in one piece.
pub const fn joined<const N: usize>(parts: &[&str]) -> [u8; N] {
    let mut bytes = [0; N];
    let (mut at, mut i) = (0, 0);
    while i < parts.len() {
        let part = parts[i].as_bytes();
        let mut j = 0;
        while j < part.len() {
            bytes[at] = part[j];
            at += 1;
            j += 1;
        }
        i += 1;
    }
    bytes
}
