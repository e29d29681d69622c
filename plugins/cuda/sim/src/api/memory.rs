//! Memory of cards and pinned memory, plain and mapped, and copies that block.

use super::{api, give};
use crate::space::copy;
use crate::sys::*;
use crate::task::Task;
use crate::world::{Answer, World};
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_int, c_uint, c_void};

/// Whether host memory is pinned, as a whole.
pub(super) fn is_pinned(world: &World, at: u64, n: usize) -> bool {
    let before = world.pinned.range(..=at).next_back();
    before.is_some_and(|(start, len)| at + n as u64 <= start + *len as u64)
}

/// Bytes of the current card.
fn own(world: &mut World, at: CUdeviceptr, n: usize) -> Answer<*mut u8> {
    let device = world.current()?;
    match world.space.bytes(at, n) {
        Some((owner, bytes)) if owner == device => Ok(bytes),
        Some((owner, _)) => {
            world.report(format!("memory of card {owner} is used in the context of card {device}"));
            Err(CUDA_ERROR_INVALID_VALUE)
        }
        None => {
            world.report(format!("{n} bytes at {at:x} are not in an allocation"));
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }
}

/// Pages and what is mapped come in this size.
const PAGE: usize = 2 << 20;

fn pinned_layout(n: usize) -> Layout {
    Layout::from_size_align(n.max(1), 4096).unwrap_or(Layout::new::<u64>())
}

api! {
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |world| {
        let device = world.current()?;
        give(free, world.config.memory - world.devices[device].used)?;
        give(total, world.config.memory)
    };
    cuMemAlloc_v2(ptr: *mut CUdeviceptr, n: usize) |world| {
        let device = world.current()?;
        world.not_capturing()?;
        if n == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        world.take(device, n)?;
        give(ptr, world.space.alloc(device, n))
    };
    cuMemFree_v2(ptr: CUdeviceptr) |world| {
        let device = world.current()?;
        world.not_capturing()?;
        world.finish_default_stream(device)?;
        match world.space.free(ptr) {
            Some((owner, n)) => {
                world.devices[owner].used -= n;
                if owner != device {
                    world.report(format!("memory of card {owner} was freed in the context of card {device}"));
                }
                Ok(())
            }
            None => {
                world.report(format!("{ptr:x} was freed, which is no allocation"));
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
    };
    cuMemHostAlloc(ptr: *mut *mut c_void, n: usize, flags: c_uint) |world| {
        world.current()?;
        if flags & !7 != 0 || n == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !world.config.pinned {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        // SAFETY: a size above 0.
        let memory = unsafe { alloc(pinned_layout(n)) };
        if memory.is_null() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        // SAFETY: as large.
        unsafe { memory.write_bytes(0xff, n) };
        world.pinned.insert(memory as u64, n);
        give(ptr, memory.cast())
    };
    cuMemFreeHost(ptr: *mut c_void) |world| {
        world.current()?;
        let Some(n) = world.pinned.remove(&(ptr as u64)) else {
            world.report("pinned memory was freed that is none".into());
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let ids: Vec<usize> = world.streams.keys().copied().collect();
        ids.into_iter().for_each(|id| world.finish(id).unwrap_or(()));
        // SAFETY: allocated with this layout, once; no work uses it.
        unsafe { dealloc(ptr.cast(), pinned_layout(n)) };
        Ok(())
    };
    cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, n: usize) |world| {
        let device = world.current()?;
        world.not_capturing()?;
        own(world, dst, n)?;
        world.count("h2d", 1);
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(src.cast::<u8>(), n) }.to_vec();
        world.do_on_default_stream(device, Task::Write(dst, bytes))?;
        // Bytes that are not pinned have been read when the call returns, and may still be on their way.
        if is_pinned(world, src as u64, n) { world.finish_default_stream(device) } else { Ok(()) }
    };
    cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, n: usize) |world| {
        let device = world.current()?;
        world.not_capturing()?;
        world.finish_default_stream(device)?;
        let from = own(world, src, n)?;
        world.count("d2h", 1);
        copy(dst.cast(), from, n);
        Ok(())
    };
    cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, n: usize) |world| {
        let device = world.current()?;
        world.not_capturing()?;
        own(world, dst, n)?;
        own(world, src, n)?;
        world.count("d2d", 1);
        world.do_on_default_stream(device, Task::Copy(dst, src, n))
    };
    cuMemsetD8_v2(ptr: CUdeviceptr, byte: u8, n: usize) |world| {
        let device = world.current()?;
        world.not_capturing()?;
        own(world, ptr, n)?;
        world.do_on_default_stream(device, Task::Fill(ptr, byte, n))
    };
    cuMemGetAllocationGranularity(bytes: *mut usize, prop: *const CUmemAllocationProp, _option: c_int) |world| {
        world.current()?;
        if !world.config.vmm {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        is_plain(prop)?;
        give(bytes, PAGE)
    };
    cuMemAddressReserve(ptr: *mut CUdeviceptr, n: usize, _align: usize, _at: CUdeviceptr, flags: u64) |world| {
        let device = world.current()?;
        if !world.config.vmm || flags != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if n == 0 || !n.is_multiple_of(PAGE) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        give(ptr, world.space.reserve(device, n).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?)
    };
    cuMemAddressFree(ptr: CUdeviceptr, n: usize) |world| {
        world.current()?;
        match world.space.release(ptr, n) {
            true => Ok(()),
            false => {
                world.report("addresses were given back that are mapped or were not reserved so".into());
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
    };
    cuMemCreate(handle: *mut CUmemGenericAllocationHandle, n: usize, prop: *const CUmemAllocationProp, _flags: u64) |world| {
        world.not_capturing()?;
        let device = world.current()?;
        let owner = is_plain(prop)?;
        if n == 0 || !n.is_multiple_of(PAGE) || owner != device {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        world.take(device, n)?;
        let id = world.handle() as u64;
        world.handles.insert(id, (device, n, 1));
        give(handle, id)
    };
    cuMemRelease(handle: CUmemGenericAllocationHandle) |world| {
        world.current()?;
        release(world, handle)
    };
    cuMemMap(ptr: CUdeviceptr, n: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64) |world| {
        world.current()?;
        let Some((_, size, holders)) = world.handles.get_mut(&handle) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        if offset != 0 || flags != 0 || n != *size || !world.space.map(ptr, n, handle) {
            world.report(format!("{n} bytes cannot be mapped at {ptr:x}"));
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        *holders += 1;
        Ok(())
    };
    cuMemUnmap(ptr: CUdeviceptr, n: usize) |world| {
        world.current()?;
        match world.space.unmap(ptr, n) {
            Some(handle) => release(world, handle),
            None => {
                world.report(format!("{n} bytes at {ptr:x} were not mapped so"));
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
    };
    cuMemSetAccess(ptr: CUdeviceptr, n: usize, desc: *const CUmemAccessDesc, count: usize) |world| {
        let device = world.current()?;
        // SAFETY: the caller's input.
        let desc = unsafe { desc.as_ref() }.filter(|_| count == 1).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let good = desc.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE
            && desc.location.id as usize == device
            && desc.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if good && world.space.allow(ptr, n) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    };
}

/// Memory that only a card has; its card.
fn is_plain(prop: *const CUmemAllocationProp) -> Answer<usize> {
    // SAFETY: the caller's input.
    let prop = unsafe { prop.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let flags = prop.allocFlags;
    let good = prop.type_ == CU_MEM_ALLOCATION_TYPE_PINNED
        && prop.requestedHandleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE
        && prop.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE
        && (flags.compressionType, flags.gpuDirectRDMACapable, flags.usage) == (0, 0, 0);
    if good { Ok(prop.location.id as usize) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// One holder less; the last one's memory goes.
fn release(world: &mut World, handle: u64) -> Answer {
    let Some((device, n, holders)) = world.handles.get_mut(&handle) else {
        world.report("physical memory was released that is none".into());
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    *holders -= 1;
    if *holders == 0 {
        world.devices[*device].used -= *n;
        world.handles.remove(&handle);
    }
    Ok(())
}
