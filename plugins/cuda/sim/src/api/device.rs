//! Initialisation, attributes of cards, and contexts.

use super::{api, give};
use crate::sys::*;
use crate::world::{Answer, CURRENT, World, uuid};
use std::ffi::{CStr, c_char, c_int, c_uint};

fn card(world: &World, device: CUdevice) -> Answer<usize> {
    if !world.started {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    usize::try_from(device).ok().filter(|d| *d < world.devices.len()).ok_or(CUDA_ERROR_INVALID_DEVICE)
}

fn text(to: *mut c_char, len: c_int, text: &str) -> Answer {
    if to.is_null() || (len as usize) <= text.len() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's output of `len` bytes, of which the text and a zero are fewer.
    unsafe {
        to.cast::<u8>().copy_from(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

const ERROR_TEXTS: [(CUresult, &CStr); 4] = [
    (CUDA_ERROR_OUT_OF_MEMORY, c"out of memory"),
    (CUDA_ERROR_ILLEGAL_ADDRESS, c"an illegal memory access was encountered"),
    (CUDA_ERROR_NO_DEVICE, c"no CUDA-capable device is detected"),
    (CUDA_ERROR_ECC_UNCORRECTABLE, c"uncorrectable ECC error encountered"),
];

api! {
    cuInit(flags: c_uint) |world| {
        world.started = true;
        match (flags, world.devices.len()) {
            (0, 0) => Err(CUDA_ERROR_NO_DEVICE),
            (0, _) => Ok(()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    };
    cuDriverGetVersion(version: *mut c_int) |world| give(version, world.config.version);
    cuGetErrorString(code: CUresult, words: *mut *const c_char) |_world| {
        let text = ERROR_TEXTS.iter().find(|(number, _)| *number == code);
        give(words, text.ok_or(CUDA_ERROR_INVALID_VALUE)?.1.as_ptr())
    };
    cuDeviceGetCount(n: *mut c_int) |world| {
        if !world.started {
            return Err(CUDA_ERROR_NOT_INITIALIZED);
        }
        give(n, world.devices.len() as c_int)
    };
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int) |world| give(device, card(world, ordinal)? as CUdevice);
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) |world| {
        card(world, device)?;
        text(name, len, "Simulated GPU")
    };
    cuDeviceGetUuid(to: *mut u8, device: CUdevice) |world| {
        give(to.cast::<[u8; 16]>(), uuid(world.devices[card(world, device)?].number))
    };
    cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: CUdevice) |world| {
        let number = world.devices[card(world, device)?].number;
        text(id, len, &format!("0000:{:02X}:00.0", 0xA0 + number))
    };
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) |world| {
        card(world, device)?;
        give(value, match attribute {
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => world.config.n_sms as c_int,
            CU_DEVICE_ATTRIBUTE_INTEGRATED => 0,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => world.config.capability.0,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => world.config.capability.1,
            CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED => world.config.vmm as c_int,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    };
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) |world| {
        card(world, device)?;
        give(bytes, world.config.memory)
    };
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) |world| {
        let device = card(world, device)?;
        world.devices[device].n_holders += 1;
        give(context, (device + 1) as CUcontext)
    };
    cuDevicePrimaryCtxRelease_v2(device: CUdevice) |world| {
        let device = card(world, device)?;
        let holders = &mut world.devices[device].n_holders;
        if *holders == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        *holders -= 1;
        if *holders == 0 {
            world.devices[device].sticky = 0;
            world.devices[device].default_stream.clear();
            world.devices[device].peers.clear();
            world.devices.iter_mut().for_each(|card| {
                card.peers.remove(&device);
            });
        }
        Ok(())
    };
    cuCtxSetCurrent(context: CUcontext) |world| {
        let number = context as usize;
        if number > world.devices.len() || (number > 0 && world.devices[number - 1].n_holders == 0) {
            world.report("a context without holders was made current".into());
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        CURRENT.set(number);
        Ok(())
    };
    cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, other: CUdevice) |world| {
        let (device, other) = (card(world, device)?, card(world, other)?);
        give(can, (world.config.peers && device != other) as c_int)
    };
    cuCtxEnablePeerAccess(other: CUcontext, flags: c_uint) |world| {
        let device = world.current()?;
        world.not_capturing()?;
        let other = (other as usize).wrapping_sub(1);
        if flags != 0 || other == device || world.devices.get(other).is_none_or(|card| card.n_holders == 0) {
            world.report("access to a context that is not another card's".into());
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if !world.config.peers {
            world.report("access to a card that cannot be reached".into());
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        if world.devices[device].peers.insert(other) { Ok(()) } else { Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) }
    };
    cuCtxSynchronize() |world| {
        let device = world.current()?;
        let mut captures = world.streams.values_mut().filter(|s| s.device == device);
        // Of any thread: the context encompasses what is captured.
        if let Some(capture) = captures.find_map(|stream| stream.capture.as_mut()) {
            capture.invalid = true;
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let ids: Vec<usize> = world.streams.iter().filter(|(_, s)| s.device == device).map(|(id, _)| *id).collect();
        ids.into_iter().try_for_each(|id| world.finish(id))?;
        world.finish_default_stream(device)
    };
}
