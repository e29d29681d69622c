//! Modules, kernels and launches.

use super::{api, give};
use crate::config::Takes;
use crate::emu;
use crate::sys::*;
use crate::task::Task;
use crate::world::{Answer, World};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// Whether a driver takes an image: the emulated compiler's, a real binary, or PTX.
fn check_image(world: &World, image: *const c_void) -> Answer {
    if image.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: images have more bytes than the longest of these marks, or end with a zero before.
    let head = unsafe { CStr::from_ptr(image.cast()) }.to_bytes();
    let made = head.strip_prefix(crate::nvrtc::MARK).and_then(|rest| std::str::from_utf8(rest).ok());
    let made = made.and_then(|rest| rest.split_once(" by "));
    let is_ptx = match made {
        Some((target, _)) => target.starts_with("compute_"),
        None if head.starts_with(b"\x7fELF") => false,
        None if head.starts_with(b"//") || head.starts_with(b".version") => true,
        None => return Err(CUDA_ERROR_INVALID_IMAGE),
    };
    let taken = match world.config.takes {
        Takes::All => true,
        Takes::Ptx => is_ptx,
        Takes::Made => made.is_some(),
        Takes::Nothing => false,
    };
    if !taken {
        return Err(if is_ptx { CUDA_ERROR_UNSUPPORTED_PTX_VERSION } else { CUDA_ERROR_NO_BINARY_FOR_GPU });
    }
    let Some((target, release)) = made else { return Ok(()) };
    if release.parse::<i32>().is_ok_and(|release| release > world.config.version / 1000) {
        return Err(if is_ptx { CUDA_ERROR_UNSUPPORTED_PTX_VERSION } else { CUDA_ERROR_INVALID_IMAGE });
    }
    let (major, minor) = world.config.capability;
    let chip = format!("sm_{major}{minor}");
    // With an `a`: what that chip alone has, too.
    let is_for_it = is_ptx || target == chip || target.strip_suffix('a') == Some(&chip);
    if is_for_it { Ok(()) } else { Err(CUDA_ERROR_NO_BINARY_FOR_GPU) }
}

api! {
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void) |world| {
        let device = world.current()?;
        world.not_capturing()?;
        check_image(world, image)?;
        let id = world.handle();
        world.modules.insert(id, device);
        give(module, id as CUmodule)
    };
    cuModuleUnload(module: CUmodule) |world| {
        let device = world.current()?;
        if world.modules.get(&(module as usize)) != Some(&device) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        world.modules.remove(&(module as usize));
        world.functions.retain(|_, (of, _)| *of != module as usize);
        Ok(())
    };
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) |world| {
        world.current()?;
        if !world.modules.contains_key(&(module as usize)) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        // SAFETY: the caller's text, which ends.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let chip = world.config.capability;
        let mut kernels = emu::kernels().filter(|kernel| kernel.is_for(chip));
        let kernel = kernels.find(|kernel| kernel.name() == name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let id = world.handle();
        world.functions.insert(id, (module as usize, kernel));
        give(function, id as CUfunction)
    };
    cuFuncSetAttribute(function: CUfunction, attribute: c_int, value: c_int) |world| {
        world.current()?;
        let is_room = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as c_int;
        if !world.functions.contains_key(&(function as usize)) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let value = u32::try_from(value).ok().filter(|n| is_room && *n <= emu::MAX_SHARED);
        world.shared.insert(function as usize, value.ok_or(CUDA_ERROR_INVALID_VALUE)?);
        Ok(())
    };
    cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) |world| {
        world.current()?;
        let (_, kernel) = world.functions.get(&(function as usize)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if index != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        give(offset, 0)?;
        give(size, kernel.params_bytes as usize)
    };
    cuLaunchKernel(function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) |world| {
        let id = world.own_stream(stream)?;
        let device = world.current()?;
        let Some((module, kernel)) = world.functions.get(&(function as usize)).copied() else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        if world.modules.get(&module) != Some(&device) {
            world.report(format!("`{}` of another card was launched", kernel.name()));
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        if params.is_null() || !extra.is_null() {
            // A driver does not begin an argument with an alignment of 64 bytes, as tensor maps have, where such a piece begins.
            world.report(format!("`{}` with arguments in one piece", kernel.name()));
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let blocks = gx as u64 * gy as u64 * gz as u64;
        if blocks == 0 || gx > i32::MAX as u32 || gy > 65535 || gz > 65535 || by != 1 || bz != 1 {
            world.report(format!("`{}` over {gx}, {gy}, {gz} blocks of {bx}, {by}, {bz}", kernel.name()));
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if bx == 0 || !bx.is_multiple_of(32) || bx > kernel.max_threads {
            world.report(format!("`{}` in blocks of {bx} threads", kernel.name()));
            return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        let most = world.shared.get(&(function as usize)).copied().unwrap_or(emu::SHARED);
        if shared > most {
            world.report(format!("`{}` with {shared} bytes of shared memory, of {most}", kernel.name()));
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if kernel.name() == world.config.refused {
            return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        world.count("launch", 1);
        world.count(kernel.name(), 1);
        // SAFETY: the caller's list of as many addresses as the kernel has arguments, one, of as many bytes as that has.
        let params = unsafe { std::slice::from_raw_parts((*params).cast(), kernel.params_bytes as usize) }.to_vec();
        world.enqueue(id, Task::Launch { kernel, params, grid: [gx, gy, gz], threads: bx, shared })
    };
}
