//! The emulation of what sm_90 alone has: tensor maps, barriers in shared memory, products of warpgroups. Mistakes are found,
//! what is right passes, and the driver refuses maps that it must.

use cuda_simulator::emu::{kernels, run};
use cuda_simulator::space::Space;
use cuda_simulator::sys::*;
use std::ffi::{c_uint, c_void};

unsafe extern "C" {
    fn cuTensorMapEncodeTiled(
        map: *mut CUtensorMap,
        dtype: c_uint,
        rank: c_uint,
        address: *mut c_void,
        ne: *const u64,
        nb: *const u64,
        tile: *const c_uint,
        steps: *const c_uint,
        interleave: c_uint,
        swizzle: c_uint,
        promotion: c_uint,
        fill: c_uint,
    ) -> CUresult;
}

/// A map's dtype, address, dims, strides, tile, swizzle.
type Described = (c_uint, u64, [u64; 4], [u64; 3], [c_uint; 4], c_uint);

fn map((dtype, address, ne, nb, tile, swizzle): Described) -> Result<CUtensorMap, CUresult> {
    let mut map = CUtensorMap { opaque: [0; 16] };
    let (address, steps) = (address as *mut c_void, [1; 4]);
    let (ne, nb, tile, steps) = (ne.as_ptr(), nb.as_ptr(), tile.as_ptr(), steps.as_ptr());
    // SAFETY: as many numbers as four dims have; the output is ours.
    match unsafe {
        cuTensorMapEncodeTiled(&mut map, dtype, 4, address, ne, nb, tile, steps, 0, swizzle, 2, 0)
    } {
        CUDA_SUCCESS => Ok(map),
        code => Err(code),
    }
}

/// Rows that the tensor of the kernels has, of the 128 of a tile, and numbers of a row, of 64.
const ROWS: usize = 100;
const COLUMNS: usize = 56;

/// Small whole numbers, of three tiles.
fn number(step: usize, row: usize, column: usize) -> f32 {
    (((step * 37 + row * 11 + column * 5) % 13) as f32) - 6.0
}

/// What a kernel of emu/mistakes_hopper.cu made of them, or what was found.
fn ran(name: &str, shared: u32) -> Result<Vec<f32>, String> {
    ran_with(name, shared, 3)
}

/// As above, of tiles with rows of 16 << `swizzle` bytes.
fn ran_with(name: &str, shared: u32, swizzle: c_uint) -> Result<Vec<f32>, String> {
    let Some(kernel) = kernels().find(|kernel| kernel.name() == name) else {
        assert!(kernels().next().is_none(), "no kernel `{name}`");
        return Err("built without kernels".into());
    };
    let mut space = Space::default();
    let (x, y) = (space.alloc(0, 3 * ROWS * COLUMNS * 2), space.alloc(0, 64 * 128 * 4));
    let halves: Vec<u16> = (0..3 * ROWS * COLUMNS)
        .map(|i| number(i / COLUMNS / ROWS, i / COLUMNS % ROWS, i % COLUMNS))
        .map(|x| half::f16::from_f32(x).to_bits())
        .collect();
    let (_, bytes) = space.bytes(x, halves.len() * 2).unwrap();
    // SAFETY: as many bytes, which no other code uses.
    unsafe { bytes.cast::<u16>().copy_from(halves.as_ptr(), halves.len()) };
    let (row, tensor) = (COLUMNS as u64 * 2, (ROWS * COLUMNS) as u64 * 2);
    let dims = [COLUMNS as u64, ROWS as u64, 3, 1];
    let strides = [row, tensor, 3 * tensor];
    let map = map((
        CU_TENSOR_MAP_DATA_TYPE_FLOAT16 as c_uint,
        x,
        dims,
        strides,
        [8 << swizzle, 128, 1, 1],
        swizzle,
    ))
    .unwrap();
    let words = map.opaque.into_iter().chain([y]).chain([0; 7]);
    let params: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    assert_eq!(params.len(), kernel.params_bytes as usize);
    run(kernel, &params, [1, 1, 1], (kernel.max_threads, shared), &space)?;
    let (_, bytes) = space.bytes(y, 64 * 128 * 4).unwrap();
    // SAFETY: as many bytes, which no other code uses.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast::<f32>(), 64 * 128) }.to_vec())
}

/// Four tiles, and what is skipped to begin at a multiple of 1024 or between.
const SHARED: u32 = (65 << 10) + 128;

fn check(name: &str, expected: &str) {
    match ran(name, SHARED) {
        Err(found) if found == "built without kernels" => println!("skipped: no C++ compiler"),
        Err(found) => assert!(found.starts_with(name) && found.contains(expected), "{found}"),
        Ok(_) => panic!("{name} went unnoticed"),
    }
}

#[test]
fn products_of_tiles_are_right_and_numbers_outside_of_a_tensor_are_zeros() {
    let Ok(found) = ran("multiplies_tiles", SHARED) else {
        assert!(kernels().next().is_none(), "{:?}", ran("multiplies_tiles", SHARED));
        return;
    };
    for (i, found) in found.into_iter().enumerate() {
        let (row, column) = (i / 128, i % 128);
        let product = |n: usize| number(n / 56, row, n % 56) * number(n / 56, column, n % 56);
        let expected = if column < ROWS { (0..3 * COLUMNS).map(product).sum() } else { 0.0 };
        assert_eq!(found, expected, "row {row}, column {column}");
    }
}

/// The sum over these columns of the first tensor.
#[test]
fn narrower_rows_are_swizzled_less_or_not() {
    for (name, swizzle, columns) in [
        ("multiplies_rows_of_16_bytes", 0, 16),
        ("multiplies_rows_of_32_bytes", 1, 16),
        ("multiplies_rows_of_64_bytes", 2, 32),
    ] {
        let Ok(found) = ran_with(name, SHARED, swizzle) else {
            assert!(kernels().next().is_none(), "{:?}", ran_with(name, SHARED, swizzle));
            continue;
        };
        for (i, found) in found.into_iter().enumerate() {
            let (row, column) = (i / 128, i % 128);
            let product = |n: usize| number(0, row, n) * number(0, column, n);
            let expected = if column < ROWS { (0..columns).map(product).sum() } else { 0.0 };
            assert_eq!(found, expected, "{name}: row {row}, column {column}");
        }
    }
}

#[test]
fn tiles_that_are_read_before_they_are_there_are_found() {
    check("waits_for_no_tile", "where nothing was copied to");
    check("waits_for_another_tile", "before phase 0 of barrier `full`[1] was waited for");
    check("leaves_before_its_tiles_are_there", "the block ends before 2 of its copies are there");
}

#[test]
fn wrong_numbers_of_bytes_are_found() {
    check("expects_one_of_two_tiles", "phase 0 of barrier `full`[1] ends before 1 of its copies are there");
    check("expects_no_bytes", "before phase 1 of barrier `full`[0] was waited for");
    check("expects_more_bytes", "lacks 0 arrivals and 16 bytes");
}

#[test]
fn sums_that_are_touched_while_products_go_on_are_found() {
    check("reads_sums_early", "touched before it was waited for");
    check("leaves_the_fence_out", "no fence came before it");
    check("adds_without_a_fence", "no fence came before it");
}

#[test]
fn tiles_that_are_overwritten_while_they_are_read_are_found() {
    check("releases_a_tile_early", "no barrier shows that warp 0 has read it");
    check("never_waits_for_products", "which a product of warp 0 reads");
    check("overwrites_at_once", "where another is on its way");
    check("releases_for_others", "no barrier shows that warp 1 has read it");
}

#[test]
fn barriers_that_are_not_visible_to_all_are_found() {
    check("shows_no_barrier", "was not shown to copies");
    check("leaves_the_blocks_barrier_out", "while thread 0 makes it");
    check("makes_no_barrier", "before it was made");
}

#[test]
fn tiles_that_begin_unevenly_and_products_that_are_no_warpgroups_are_found() {
    check("begins_between", "no multiple of 128");
    check("begins_in_another_row", "does not begin in the first row of 1024");
    check("requests_another_product", "is another than its warpgroup's");
    check("multiplies_alone", "has not four warps");
    if let Err(found) = ran("multiplies_tiles", 0) {
        assert!(found.contains("has no shared memory") || found == "built without kernels", "{found}");
    }
}

#[test]
fn maps_that_the_driver_must_refuse_are_refused() {
    const GOOD: Described = (6, 0x1000, [64, 8, 2, 1], [128, 1024, 2048], [64, 8, 1, 1], 3);
    assert!(map(GOOD).is_ok());
    let check = |what: &str, change: fn(&mut Described)| {
        let mut described = GOOD;
        change(&mut described);
        assert_eq!(map(described).err(), Some(CUDA_ERROR_INVALID_VALUE), "{what}");
    };
    check("an address between multiples of 16", |m| m.1 += 8);
    check("an unknown type", |m| m.0 = 99);
    check("a dim of nothing", |m| m.2[1] = 0);
    check("a dim above 2^32", |m| m.2[3] = (1 << 32) + 1);
    check("a stride between multiples of 16", |m| m.3[0] = 136);
    check("a stride of 2^40", |m| m.3[2] = 1 << 40);
    check("rows that overlap", |m| m.3[0] = 112);
    check("a stride that is no multiple of the one before", |m| m.3[1] = 1024 + 16);
    check("a tile of nothing", |m| m.4[2] = 0);
    check("a tile of 257 rows", |m| m.4[1] = 257);
    check("rows of a tile between multiples of 16 bytes", |m| m.4[0] = 36);
    check("rows of a tile beyond the swizzle's 128 bytes", |m| m.4[0] = 128);
    check("rows of a tile beyond the swizzle's 64 bytes", |m| m.5 = 2);
    check("an unknown swizzle", |m| m.5 = 7);
}
