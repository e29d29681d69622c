//! Description of a plugin and its devices.

use llmrt_abi::types as c;

/// Constants of a plugin; also the source of its manifest.
#[derive(Clone, Copy, Debug)]
pub struct PluginInfo {
    /// Lower case, digits, `_` and `-`; file name is `libllmrt_<name>.so`.
    pub name: &'static str,
    /// Version, usually `env!("CARGO_PKG_VERSION")`.
    pub version: &'static str,
    /// Who made it.
    pub vendor: &'static str,
    /// `abi::types::NEEDS_*` bits.
    pub needs_host: u64,
}

/// What a device is.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// `abi::types::DEVICE_*`.
    pub kind: u32,
    /// `abi::types::CAP_*` bits. EVENTS and HOST_READ decide whether `event` and `import_host` are offered.
    pub caps: u64,
    /// Unique among the plugin's devices.
    pub name: String,
    /// For people: the marketing name.
    pub description: String,
    /// Chip or instruction set.
    pub arch: String,
    /// `dddd:bb:dd.f`, or empty.
    pub pci_id: String,
    /// All zero when unknown.
    pub uuid: [u8; 16],
    /// Bytes.
    pub memory_total: u64,
    /// At least one; the first is the default for tensors.
    pub buffer_types: Vec<BufferTypeInfo>,
    /// Slots of a block of a paged KV cache that attention prefers, a power of two up to 1024; 0: any.
    pub kv_block_size: u32,
}

/// A kind of memory of a device; its number is its place in [`DeviceInfo::buffer_types`].
#[derive(Clone, Debug)]
pub struct BufferTypeInfo {
    /// `abi::types::BUFFER_*`.
    pub kind: u32,
    /// `abi::types::BT_*` bits.
    pub flags: u32,
    /// Power of two; tensor offsets are multiples of it.
    pub alignment: u64,
    /// Largest buffer in bytes; 0: no limit.
    pub max_size: u64,
    /// For people.
    pub name: String,
}

impl DeviceInfo {
    /// A device of a kind, with everything else empty or unknown.
    pub fn new(kind: u32, name: impl Into<String>) -> DeviceInfo {
        DeviceInfo {
            kind,
            caps: 0,
            name: name.into(),
            description: String::new(),
            arch: String::new(),
            pci_id: String::new(),
            uuid: [0; 16],
            memory_total: 0,
            buffer_types: Vec::new(),
            kv_block_size: 0,
        }
    }
}

impl BufferTypeInfo {
    /// Plain host memory, aligned to 64 bytes, that the CPU may address.
    pub fn host() -> BufferTypeInfo {
        BufferTypeInfo {
            kind: c::BUFFER_HOST,
            flags: c::BT_CONCURRENT_SET | c::BT_HOST_PTR,
            alignment: 64,
            max_size: 0,
            name: "host".into(),
        }
    }
}
