//! The driver's calls as functions with results.

use crate::library::{self, Absent};
use crate::sys::*;
use crate::tables::Cuda;
use llmrt_plugin::Result;
use std::ffi::{CStr, c_int};
use std::path::Path;
use std::sync::Arc;

/// The open driver.
pub struct CudaDriver {
    /// Functions by name, all there.
    pub cuda: Cuda,
}

/// Calls a function of the driver; its name goes into the error. For `unsafe` blocks that justify the arguments.
macro_rules! cu {
    ($driver:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let cuda = &$driver.cuda;
        match $crate::tables::call!(cuda, $name($($arg),*)) {
            Some(status) => $crate::error::check(cuda, stringify!($name), status),
            None => Err(llmrt_plugin::Error::internal(concat!(stringify!($name), " is absent"))),
        }
    }};
}
pub(crate) use cu;

/// What a device reports without a context.
pub struct Identity {
    /// The marketing name.
    pub name: String,
    /// `dddd:bb:dd.f`
    pub pci_id: String,
    /// The driver's number for it, for ever.
    pub uuid: [u8; 16],
    /// Bytes.
    pub memory: u64,
    /// Major and minor, as in sm_90.
    pub capability: (i32, i32),
    /// Multiprocessors.
    pub n_sms: u32,
    /// Addresses and memory can be managed apart.
    pub vmm: bool,
    /// Shares the host's memory.
    pub integrated: bool,
}

impl CudaDriver {
    /// Opens the library and starts it.
    pub fn open(folder: Option<&Path>) -> std::result::Result<Arc<CudaDriver>, Absent> {
        let driver = CudaDriver { cuda: library::driver(folder)? };
        // SAFETY: no flags are defined.
        match unsafe { cu!(driver, cuInit(0)) } {
            Ok(()) => Ok(Arc::new(driver)),
            Err(e) => Err(Absent {
                reason: e.message,
                hint: "check the driver with `nvidia-smi`, and CUDA_VISIBLE_DEVICES",
            }),
        }
    }

    /// The newest CUDA that the driver supports, as 12080.
    pub fn version(&self) -> i32 {
        let mut version = 0;
        // SAFETY: the output is ours.
        unsafe { cu!(self, cuDriverGetVersion(&mut version)) }.map_or(0, |()| version)
    }

    /// Devices that CUDA_VISIBLE_DEVICES lets the driver show.
    pub fn n_devices(&self) -> i32 {
        let mut n = 0;
        // SAFETY: the output is ours.
        unsafe { cu!(self, cuDeviceGetCount(&mut n)) }.map_or(0, |()| n)
    }

    /// The handle of visible device `i`.
    pub fn device(&self, i: i32) -> Result<CUdevice> {
        let mut device = 0;
        // SAFETY: the output is ours.
        unsafe { cu!(self, cuDeviceGet(&mut device, i))? };
        Ok(device)
    }

    /// One of a device's numbers; 0 if the driver does not support it.
    pub fn attribute(&self, device: CUdevice, attribute: CUdevice_attribute) -> i32 {
        let mut value = 0;
        // SAFETY: the output is ours.
        unsafe { cu!(self, cuDeviceGetAttribute(&mut value, attribute, device)) }.map_or(0, |()| value)
    }

    /// Who a device is.
    pub fn identity(&self, device: CUdevice) -> Result<Identity> {
        let (mut name, mut pci_id) = ([0; 256], [0; 32]);
        let (mut uuid, mut memory) = (CUuuid { bytes: [0; 16] }, 0);
        // SAFETY: the outputs are ours, and as large as their lengths.
        unsafe {
            cu!(self, cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device))?;
            cu!(self, cuDeviceGetPCIBusId(pci_id.as_mut_ptr(), pci_id.len() as c_int, device))?;
            cu!(self, cuDeviceGetUuid(&mut uuid, device))?;
            cu!(self, cuDeviceTotalMem_v2(&mut memory, device))?;
        }
        let number = |attribute| self.attribute(device, attribute);
        Ok(Identity {
            name: text(&name),
            pci_id: text(&pci_id).to_lowercase(),
            uuid: uuid.bytes.map(|byte| byte as u8),
            memory: memory as u64,
            capability: (
                number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            ),
            n_sms: number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).max(1) as u32,
            vmm: number(CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED) != 0,
            integrated: number(CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0,
        })
    }
}

/// Up to the first zero.
fn text(chars: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| *c as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or(String::new(), |text| text.to_string_lossy().into_owned())
}
