//! Kernels of a device, loaded at first use and kept as long as the device is open.

use crate::driver::cu;
use crate::gpu::Gpu;
use crate::image::Images;
use crate::kernels;
use crate::sys::*;
use crate::trial::Trials;
use llmrt_plugin::{Error, Level, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

/// Loaded kernels.
pub struct Modules {
    images: Arc<Images>,
    loaded: Mutex<Loaded>,
    /// Which of the kernels that are tried first are used.
    pub trials: Trials,
}

#[derive(Default)]
struct Loaded {
    modules: HashMap<&'static str, Module>,
    functions: HashMap<String, Function>,
}

struct Module(CUmodule);

// SAFETY: a handle that every thread may use after entering the device.
unsafe impl Send for Module {}

/// A kernel of a device.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// The driver's handle.
    pub raw: CUfunction,
    /// Bytes of its argument, where the driver reports them.
    pub param_bytes: Option<usize>,
}

// SAFETY: a handle that every thread may use after entering the device.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Modules {
    /// Of one device.
    pub fn new(images: &Arc<Images>, trials: Trials) -> Modules {
        Modules { images: images.clone(), loaded: Mutex::default(), trials }
    }

    /// A warning in the host's log.
    pub fn warn(&self, text: &str) {
        self.images.host.log(Level::Warn, "cuda", text);
    }

    /// A kernel by family and name, on the entered device, whose blocks may request `shared` bytes of shared memory,
    /// the same number at every call.
    pub fn function(&self, gpu: &Gpu, family: &str, name: &str, shared: u32) -> Result<Function> {
        let mut loaded = self.loaded.lock();
        if let Some(function) = loaded.functions.get(name) {
            return Ok(*function);
        }
        let family =
            kernels::family(family).ok_or_else(|| Error::internal(format!("no kernels `{family}`")))?;
        if !loaded.modules.contains_key(family.name) {
            let load = |image: &[u8]| {
                let mut module = std::ptr::null_mut();
                // SAFETY: a whole image that ends with a zero, read during the call; the output is ours.
                unsafe { cu!(gpu.driver, cuModuleLoadData(&mut module, image.as_ptr().cast()))? };
                Ok(Module(module))
            };
            let module = self.images.load(family, &gpu.identity, load)?;
            loaded.modules.insert(family.name, module);
        }
        let (module, mut function) = (loaded.modules[family.name].0, std::ptr::null_mut());
        let text = CString::new(name).map_err(|e| Error::internal(e.to_string()))?;
        // SAFETY: a live module, a text that ends; the output is ours.
        unsafe { cu!(gpu.driver, cuModuleGetFunction(&mut function, module, text.as_ptr())) }
            .map_err(|e| Error { message: format!("kernel `{name}`: {}", e.message), ..e })?;
        if shared > 0 {
            let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: a function of the entered device.
            unsafe { cu!(gpu.driver, cuFuncSetAttribute(function, attribute, shared as i32))? };
        }
        let function = Function { raw: function, param_bytes: param_bytes(gpu, function)? };
        loaded.functions.insert(name.into(), function);
        Ok(function)
    }

    /// Before the device is closed: its context may outlive us in another's hands.
    pub fn unload(&self, gpu: &Gpu) {
        let mut loaded = self.loaded.lock();
        loaded.functions.clear();
        let is_open = gpu.enter().is_ok();
        for (_, module) in loaded.modules.drain().filter(|_| is_open) {
            // SAFETY: each module once, and no stream is left that runs its kernels.
            let _ = unsafe { cu!(gpu.driver, cuModuleUnload(module.0)) };
        }
    }
}

/// Bytes of a kernel's argument, `None` if the driver is older than that question (CUDA 12.4).
fn param_bytes(gpu: &Gpu, function: CUfunction) -> Result<Option<usize>> {
    if gpu.driver.cuda.cuFuncGetParamInfo.is_none() {
        return Ok(None);
    }
    let (mut offset, mut size) = (0, 0);
    // SAFETY: a function of the entered device; the outputs are ours.
    unsafe { cu!(gpu.driver, cuFuncGetParamInfo(function, 0, &mut offset, &mut size))? };
    Ok(Some(size))
}
