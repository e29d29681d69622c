//! Tensor maps: which tiles of which tensor a card copies, in a form that ../emu reads. What the driver's documentation
//! requires of them is checked.

use super::{api, give};
use crate::sys::*;
use crate::world::{Answer, World};
use std::ffi::{c_uint, c_void};

/// A map, as emu/phases.cpp declares it.
#[repr(C)]
#[derive(Default)]
struct Map {
    mark: u64,
    address: u64,
    ne: [u64; 5],
    nb: [u64; 4],
    tile: [u16; 5],
    rank: u8,
    element: u8,
    swizzle: u8,
}

const MARK: u64 = 0x7061_6d2d_7472_6d6c;
const _: () = assert!(size_of::<Map>() <= size_of::<CUtensorMap>());

/// Bytes of an element of a type of maps: two of integers and halves alone, which is what kernels here have.
fn element(dtype: c_uint) -> Option<u8> {
    const F16: c_uint = CU_TENSOR_MAP_DATA_TYPE_FLOAT16 as c_uint;
    const BF16: c_uint = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 as c_uint;
    match dtype {
        0 => Some(1),
        1 | F16 | BF16 => Some(2),
        2 | 3 | 7 => Some(4),
        _ => None,
    }
}

/// Refuses, and reports the reason.
fn ensure(world: &mut World, good: bool, text: impl FnOnce() -> String) -> Answer {
    if !good {
        world.report(format!("a tensor map {}", text()));
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

/// The bytes of a row of a tile under a swizzle, which are spread over as many at most.
fn span(swizzle: c_uint) -> Option<u64> {
    (1..=3).contains(&swizzle).then(|| 16 << swizzle)
}

api! {
    cuTensorMapEncodeTiled(map: *mut CUtensorMap, dtype: c_uint, rank: c_uint, address: *mut c_void, ne: *const u64,
        nb: *const u64, tile: *const c_uint, steps: *const c_uint, interleave: c_uint, swizzle: c_uint,
        promotion: c_uint, fill: c_uint) |world| {
        let capability = world.config.capability;
        ensure(world, capability >= (9, 0), || format!("for a card of {capability:?}"))?;
        ensure(world, !map.is_null() && (map as u64).is_multiple_of(64), || format!("at {map:?}, no multiple of 64"))?;
        ensure(world, (1..=5).contains(&rank), || format!("of {rank} dims"))?;
        let Some(size) = element(dtype) else { return ensure(world, false, || format!("of type {dtype}")) };
        let n = rank as usize;
        // SAFETY: the caller's inputs: as many dims, tiles' dims and steps as the rank, strides of all but one.
        let (ne, nb, tile, steps) = unsafe {
            let nb = if n == 1 { &[] } else { std::slice::from_raw_parts(nb, n - 1) };
            let tile = std::slice::from_raw_parts(tile, n);
            (std::slice::from_raw_parts(ne, n), nb, tile, std::slice::from_raw_parts(steps, n))
        };
        let address = address as u64;
        ensure(world, address.is_multiple_of(16), || format!("of {address:x}, no multiple of 16"))?;
        ensure(world, ne.iter().all(|n| (1..=1 << 32).contains(n)), || format!("of dims {ne:?}"))?;
        let strides = nb.iter().all(|n| n.is_multiple_of(16) && *n < 1 << 40);
        ensure(world, strides, || format!("of strides {nb:?}: multiples of 16 below 2^40"))?;
        // Each stride has whole strides of the dim before, and all of its elements.
        let mut inner = u64::from(size);
        for (i, stride) in nb.iter().enumerate() {
            let holds = i == 0 || stride.is_multiple_of(inner);
            ensure(world, holds && *stride >= inner * ne[i], || format!("of dims {ne:?} with strides {nb:?}"))?;
            inner = *stride;
        }
        ensure(world, tile.iter().all(|n| (1..=256).contains(n)), || format!("with tiles {tile:?}"))?;
        ensure(world, steps.iter().all(|n| *n == 1), || format!("with steps {steps:?}, which is not emulated"))?;
        let row = u64::from(tile[0]) * u64::from(size);
        ensure(world, row.is_multiple_of(16), || format!("with rows of {row} bytes, no multiple of 16"))?;
        ensure(world, interleave == 0 && swizzle <= 3, || format!("of interleave {interleave}, swizzle {swizzle}"))?;
        ensure(world, span(swizzle).is_none_or(|span| row <= span), || format!("with rows of {row} bytes, swizzle {swizzle}"))?;
        ensure(world, promotion <= 3 && fill == 0, || format!("with promotion {promotion}, fill {fill}"))?;
        let mut made = Map { mark: MARK, address, rank: rank as u8, element: size, swizzle: swizzle as u8, ..Map::default() };
        made.ne[..n].copy_from_slice(ne);
        made.nb[..n - 1].copy_from_slice(nb);
        (0..n).for_each(|i| made.tile[i] = tile[i] as u16);
        let mut bytes = CUtensorMap { opaque: [0; 16] };
        // SAFETY: a map is plain numbers, and no larger than what is for it.
        unsafe { std::ptr::from_mut(&mut bytes).cast::<Map>().write(made) };
        give(map, bytes)
    };
}
