//! What a device is, in owned and checked form.

use crate::plugin::table;
use llmrt_abi::types as c;

/// What a device is.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceDesc {
    /// `abi::types::DEVICE_*`.
    pub kind: u32,
    /// `abi::types::CAP_*` bits.
    pub caps: u64,
    /// Unique among the plugin's devices.
    pub name: String,
    /// The marketing name.
    pub description: String,
    /// Chip or instruction set.
    pub arch: String,
    /// `dddd:bb:dd.f`, or empty.
    pub pci_id: String,
    /// All zero when unknown.
    pub uuid: [u8; 16],
    /// Bytes.
    pub memory_total: u64,
    /// At least one; the first is the default.
    pub buffer_types: Vec<BufferTypeDesc>,
    /// Slots of a block of a paged KV cache that its attention prefers, a power of two up to [`MAX_KV_BLOCK_SIZE`]; 0: any.
    pub kv_block_size: u32,
}

/// A kind of memory of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferTypeDesc {
    /// `abi::types::BUFFER_*`.
    pub kind: u32,
    /// `abi::types::BT_*` bits.
    pub flags: u32,
    /// Power of two.
    pub alignment: u64,
    /// Largest buffer in bytes; 0: no limit.
    pub max_size: u64,
    /// For people.
    pub name: String,
}

/// Whether a device can be used.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceState {
    /// Yes; nothing needed it yet.
    Ready,
    /// Yes, and it is open.
    Open,
    /// No; the rest of its plugin is fine.
    Unused(String),
    /// It or its plugin broke.
    Quarantined(String),
}

/// Most slots of a block of a paged KV cache.
pub const MAX_KV_BLOCK_SIZE: u32 = 1024;

/// Largest alignment that makes sense: a huge page.
const MAX_ALIGNMENT: u64 = 1 << 30;

impl DeviceDesc {
    /// Reads a plugin's description of a device.
    ///
    /// # Safety
    /// `info` is NULL or data of the plugin that stays readable.
    pub(crate) unsafe fn read(info: *const c::DeviceInfo) -> Result<DeviceDesc, String> {
        // SAFETY: the caller's promise; texts and rows belong to the same data.
        unsafe {
            let info = table::read(info)?;
            let name = table::text(info.name, "device name")?;
            if name.is_empty() {
                return Err("a device without a name".into());
            }
            let kv_block_size = info.kv_block_size;
            if kv_block_size != 0 && !(kv_block_size.is_power_of_two() && kv_block_size <= MAX_KV_BLOCK_SIZE)
            {
                return Err(format!(
                    "device {name}: blocks of {kv_block_size} slots; powers of two up to {MAX_KV_BLOCK_SIZE} are accepted"
                ));
            }
            Ok(DeviceDesc {
                kv_block_size,
                kind: info.kind,
                caps: info.caps,
                description: table::text(info.description, "device description")?,
                arch: table::text(info.arch, "device arch")?,
                pci_id: table::text(info.pci_id, "device pci_id")?,
                uuid: info.uuid,
                memory_total: info.memory_total,
                buffer_types: BufferTypeDesc::read_all(&info).map_err(|e| format!("device {name}: {e}"))?,
                name,
            })
        }
    }

    /// The kind in a word.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            c::DEVICE_CPU => "CPU",
            c::DEVICE_GPU => "GPU",
            c::DEVICE_IGPU => "IGPU",
            c::DEVICE_NPU => "NPU",
            _ => "ACCEL",
        }
    }

    /// Whether another device is the same piece of hardware.
    pub(crate) fn is_same_hardware(&self, other: &DeviceDesc) -> bool {
        (!self.pci_id.is_empty() && self.pci_id.eq_ignore_ascii_case(&other.pci_id))
            || (self.uuid != [0; 16] && self.uuid == other.uuid)
    }
}

impl BufferTypeDesc {
    unsafe fn read_all(info: &c::DeviceInfo) -> Result<Vec<BufferTypeDesc>, String> {
        if !(1..=64).contains(&info.n_buffer_types) || info.buffer_types.is_null() {
            return Err(format!("{} buffer types; 1 to 64 are accepted", info.n_buffer_types));
        }
        if (info.bt_stride as usize) < size_of::<u64>() || !info.bt_stride.is_multiple_of(8) {
            return Err(format!("buffer types {} bytes apart", info.bt_stride));
        }
        let row = |i: u32| {
            let at = info.buffer_types.cast::<u8>().wrapping_add(i as usize * info.bt_stride as usize);
            // SAFETY: the plugin declares that row `i` exists, and its size in bytes.
            unsafe { BufferTypeDesc::read(at.cast(), i) }.map_err(|e| format!("buffer type {i}: {e}"))
        };
        (0..info.n_buffer_types).map(row).collect()
    }

    unsafe fn read(bt: *const c::BufferType, i: u32) -> Result<BufferTypeDesc, String> {
        // SAFETY: the caller's promise.
        let (bt, name) = unsafe {
            let bt = table::read(bt)?;
            let name = table::text(bt.name, "its name")?;
            (bt, name)
        };
        if bt.index != i {
            return Err(format!("its index is {}", bt.index));
        }
        if !bt.alignment.is_power_of_two() || bt.alignment > MAX_ALIGNMENT {
            return Err(format!("alignment {}; expected a power of two up to {MAX_ALIGNMENT}", bt.alignment));
        }
        Ok(BufferTypeDesc {
            kind: bt.kind,
            flags: bt.flags,
            alignment: bt.alignment,
            max_size: bt.max_size,
            name,
        })
    }
}
