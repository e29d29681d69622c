//! AMX of x86 for 8-bit integers, as assembly: the standard library's functions are not stable.
//!
//! A thread's tiles have a shape from `ldtilecfg` to `tilerelease`: some 220 cycles for both. The first tile that a thread
//! loads traps once, for the system makes room for its registers then.

use super::tiles::{Config, Dots, Tiles, check, multiply_plainly, product};
use super::{Isa, Set};
use std::arch::asm;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// The proof that this machine has AMX and this process may use it.
#[derive(Clone, Copy, Debug)]
pub struct Amx(());

impl Amx {
    /// The proof, where it is part of the instruction set.
    #[inline(always)]
    pub fn of(isa: Isa) -> Option<Amx> {
        (isa.set() == Set::Avx512Amx).then_some(Amx(()))
    }

    /// Whether this machine has it, the system lets this process use it, and it multiplies as it must.
    pub fn is_usable() -> bool {
        static IS_USABLE: OnceLock<bool> = OnceLock::new();
        *IS_USABLE.get_or_init(|| has_amx() && is_permitted() && multiplies(Amx(())))
    }
}

/// Whether the processor has tiles and their products of bytes, and the system keeps their state.
fn has_amx() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let bit = |word: u32, n: u32| word >> n & 1 == 1;
    if __cpuid(0).eax < 7 || !bit(__cpuid(1).ecx, 27) {
        return false;
    }
    let features = __cpuid_count(7, 0).edx;
    // SAFETY: bit 27 above states that the system has enabled the instruction.
    let state = unsafe { std::arch::x86_64::_xgetbv(0) };
    bit(features, 24) && bit(features, 25) && state >> 17 & 0b11 == 0b11
}

/// Requests the state of tiles for this process, which Linux keeps for those alone that requested it.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and no memory of this process.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// Other systems have other ways.
#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// Whether products of both shapes are those of plain Rust.
fn multiplies(machine: Amx) -> bool {
    let bytes = |n: usize| (n * 37 % 256) as u8;
    let x: Vec<u8> = (0..8 * 48).map(bytes).collect();
    let w: [Vec<[u8; 64]>; 2] = [100, 1000]
        .map(|start| (0..8).map(|j| std::array::from_fn(|i| bytes(start + 64 * j + 3 * i))).collect());
    [8, 4].into_iter().all(|quads| {
        let (mut found, mut expected) = (Dots::ZERO, Dots::ZERO);
        let w = [&w[0][..quads], &w[1][..quads]];
        AmxTiles::shaped(machine, quads).multiply(&x, 48, w, &mut found);
        multiply_plainly(&x, 48, w, &mut expected);
        found.0 == expected.0
    })
}

thread_local! {
    /// Whether this thread's tiles have a shape.
    static ARE_SHAPED: Cell<bool> = const { Cell::new(false) };
}

/// Tiles with a shape, of this thread alone, the only value that it has.
pub struct AmxTiles {
    quads: usize,
    of_this_thread: PhantomData<*const ()>,
}

/// An instruction of [`product!`] as text.
macro_rules! text {
    (tilezero $tile:literal) => {
        concat!("tilezero tmm", $tile)
    };
    (tileloadd $tile:literal $at:ident $stride:ident) => {
        concat!("tileloadd tmm", $tile, ", [{", stringify!($at), "} + {", stringify!($stride), "}]")
    };
    (tilestored $tile:literal $at:ident $stride:ident) => {
        concat!("tilestored [{", stringify!($at), "} + {", stringify!($stride), "}], tmm", $tile)
    };
    (tdpbsud $to:literal $x:literal $w:literal) => {
        concat!("tdpbsud tmm", $to, ", tmm", $x, ", tmm", $w)
    };
}

/// Assembles instructions.
macro_rules! assemble {
    ([$($operands:tt)*] $(($($part:tt)*))*) => { asm!($(text!($($part)*),)* $($operands)*) };
}

impl Tiles for AmxTiles {
    type Machine = Amx;

    #[inline(always)]
    fn shaped(_machine: Amx, quads: usize) -> AmxTiles {
        assert!(quads == 8 || quads == 4, "tiles of {quads} quads");
        assert!(!ARE_SHAPED.replace(true), "the tiles of this thread are in use");
        let config = Config::of(quads);
        // SAFETY: the proof is at hand; the shapes are within the limits of palette 1, and 64 bytes are read.
        unsafe {
            asm!(
                "ldtilecfg [{}]", in(reg) config.0.as_ptr(),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(readonly, nostack, preserves_flags)
            )
        };
        AmxTiles { quads, of_this_thread: PhantomData }
    }

    #[inline(always)]
    fn multiply(&mut self, x: &[u8], stride: usize, w: [&[[u8; 64]]; 2], dots: &mut Dots) {
        check(x, stride, w, self.quads);
        let [dots0, dots1] = &mut dots.0;
        // SAFETY: a value of this type, of which a thread has one at a time, proves that its tiles have their shape. `check`
        // covers what is read; the tiles of results are as large as what they are stored to.
        unsafe {
            product!(assemble
                x = in(reg) x.as_ptr(),
                x_stride = in(reg) stride,
                w0 = in(reg) w[0].as_ptr(),
                w1 = in(reg) w[1].as_ptr(),
                dots0 = in(reg) dots0.as_mut_ptr(),
                dots1 = in(reg) dots1.as_mut_ptr(),
                line = in(reg) 64usize,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _,
                options(nostack, preserves_flags)
            )
        }
    }
}

impl Drop for AmxTiles {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: a value of this type proves that the machine has the instruction. No value of a tile is in use.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nomem, nostack, preserves_flags)
            )
        };
        ARE_SHAPED.set(false);
    }
}
