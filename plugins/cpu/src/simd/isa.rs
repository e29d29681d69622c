//! Which instruction set runs the kernels: found at run time, or forced by the option `cpu.isa`.

/// An instruction set that this build has kernels for and this machine has: it comes from [`Isa::available`] alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Isa(Set);

/// The names of all levels, whatever the machine has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Set {
    /// Plain Rust.
    Scalar,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The same with AVX-VNNI, which products of quantised weights make use of.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// The same with AVX-512 VNNI, which products of quantised weights make use of.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    /// The same with AVX-512 BF16, which products of bfloat16 numbers make use of.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    /// Advanced SIMD of 64-bit ARM.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// Advanced SIMD with products of signed bytes.
    #[cfg(target_arch = "aarch64")]
    Dotprod,
    /// Advanced SIMD with products of unsigned with signed bytes.
    #[cfg(target_arch = "aarch64")]
    I8mm,
}

/// An instruction set that this build or this machine does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownIsa(String);

impl std::fmt::Display for UnknownIsa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known: Vec<_> = Isa::available().iter().map(|isa| isa.name()).collect();
        write!(f, "cpu.isa is `{}`, expected one of: {}", self.0, known.join(", "))
    }
}

/// Whether Intel made this processor.
#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
}

impl Isa {
    /// Plain Rust, which runs everywhere.
    pub const SCALAR: Isa = Isa(Set::Scalar);

    /// Those of this machine, the best one last.
    pub fn available() -> Vec<Isa> {
        #[allow(unused_mut)]
        let mut all = vec![Isa::SCALAR];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            let vnni = avx512 && is_x86_feature_detected!("avx512vnni");
            let bf16 = vnni && is_x86_feature_detected!("avx512bf16");
            all.extend(avx2.then_some(Isa(Set::Avx2)));
            all.extend((avx2 && is_x86_feature_detected!("avxvnni")).then_some(Isa(Set::AvxVnni)));
            all.extend(avx512.then_some(Isa(Set::Avx512)));
            let (plain, with_bf16) =
                (vnni.then_some(Isa(Set::Avx512Vnni)), bf16.then_some(Isa(Set::Avx512Bf16)));
            // Where Intel has the instruction it takes longer than the multiplications that it stands for.
            let in_order = if is_intel() { [with_bf16, plain] } else { [plain, with_bf16] };
            all.extend(in_order.into_iter().flatten());
        }
        #[cfg(target_arch = "aarch64")]
        {
            use std::arch::is_aarch64_feature_detected as has;
            all.push(Isa(Set::Neon));
            all.extend(has!("dotprod").then_some(Isa(Set::Dotprod)));
            all.extend(has!("i8mm").then_some(Isa(Set::I8mm)));
        }
        all
    }

    /// The best one of this machine, without a measurement.
    pub fn best() -> Isa {
        Isa::available().into_iter().last().unwrap_or(Isa::SCALAR)
    }

    /// The fastest one of this machine by `speed`. That is the best one but where the one before it may be faster: before
    /// AVX-512 without VNNI, as processors may have one unit for 512 bits, or lower their clock for them.
    pub fn fastest(speed: impl Fn(Isa) -> f64) -> Isa {
        fastest_of(&Isa::available(), speed)
    }

    /// The one with this name, if this machine has it.
    pub fn from_name(name: &str) -> Result<Isa, UnknownIsa> {
        let found = Isa::available().into_iter().find(|isa| isa.name() == name);
        found.ok_or_else(|| UnknownIsa(name.to_string()))
    }

    /// Its name in the option `cpu.isa`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::AvxVnni => "avxvnni",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512Vnni => "avx512vnni",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512Bf16 => "avx512bf16",
            #[cfg(target_arch = "aarch64")]
            Set::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Set::Dotprod => "dotprod",
            #[cfg(target_arch = "aarch64")]
            Set::I8mm => "i8mm",
        }
    }

    /// Whether it is another one but for some products.
    pub fn is_for_products(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self.0, Set::AvxVnni | Set::Avx512Vnni | Set::Avx512Bf16);
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Which one it is.
    pub(crate) fn set(self) -> Set {
        self.0
    }
}

/// [`Isa::fastest`] of these, the best one last.
fn fastest_of(available: &[Isa], speed: impl Fn(Isa) -> f64) -> Isa {
    let best = available.last().copied().unwrap_or(Isa::SCALAR);
    #[cfg(target_arch = "x86_64")]
    if best.0 == Set::Avx512 {
        let before = available[..available.len() - 1].last().copied().unwrap_or(best);
        return if speed(before) > speed(best) { before } else { best };
    }
    let _ = speed;
    best
}

/// Makes `fn name(isa, …)` of `fn implementation<S: Simd>(s: S, …)`, compiled for each instruction set but those
/// that only some products make use of ([`dispatch_also!`]), for which others stand in.
/// The implementation and all it calls up to [`super::Simd`]'s methods are `#[inline(always)]`.
macro_rules! dispatch {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<$g:ident : $bound:path>)? ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)?
            = $implementation:ident;
    )*) => {$(
        $(#[$meta])*
        $vis fn $name $(<$g: $bound>)? (isa: $crate::simd::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the features are those of this function, so the machine has them.
                let s = unsafe { $crate::simd::Avx512::new() };
                $implementation::<_ $(, $g)?>(s, $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the features are those of this function, so the machine has them.
                let s = unsafe { $crate::simd::Avx2::new() };
                $implementation::<_ $(, $g)?>(s, $($arg),*)
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon,dotprod")]
            #[allow(clippy::too_many_arguments)]
            fn dotprod $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the feature is one of this function's, so the machine has it.
                let s = $crate::simd::Neon(unsafe { $crate::simd::Dotprod::new() });
                $implementation::<_ $(, $g)?>(s, $($arg),*)
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon,i8mm")]
            #[allow(clippy::too_many_arguments)]
            fn i8mm $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the feature is one of this function's, so the machine has it.
                let s = $crate::simd::Neon(unsafe { $crate::simd::I8mm::new() });
                $implementation::<_ $(, $g)?>(s, $($arg),*)
            }
            match isa.set() {
                $crate::simd::Set::Scalar => $implementation::<_ $(, $g)?>($crate::simd::Scalar, $($arg),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: every `Isa` comes from `Isa::available`, which found these features.
                $crate::simd::Set::Avx2 | $crate::simd::Set::AvxVnni => unsafe {
                    avx2 $(::<$g>)? ($($arg),*)
                },
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Set::Avx512 | $crate::simd::Set::Avx512Vnni | $crate::simd::Set::Avx512Bf16 => {
                    // SAFETY: every `Isa` comes from `Isa::available`, which found these features.
                    unsafe { avx512 $(::<$g>)? ($($arg),*) }
                }
                #[cfg(target_arch = "aarch64")]
                $crate::simd::Set::Neon =>
                    $implementation::<_ $(, $g)?>($crate::simd::Neon($crate::simd::Pairs), $($arg),*),
                #[cfg(target_arch = "aarch64")]
                // SAFETY: every `Isa` comes from `Isa::available`, which found this feature.
                $crate::simd::Set::Dotprod => unsafe { dotprod $(::<$g>)? ($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: every `Isa` comes from `Isa::available`, which found this feature.
                $crate::simd::Set::I8mm => unsafe { i8mm $(::<$g>)? ($($arg),*) },
            }
        }
    )*};
}
pub(crate) use dispatch;

/// As [`dispatch!`], and compiled for more instruction sets of x86: of each, those that share its kernels, and its features.
macro_rules! dispatch_also {
    (; $($function:tt)*) => { $crate::simd::dispatch! { $($function)* } };
    ($Set:ident $(| $Same:ident)* $features:literal $(, $More:ident $(| $Sames:ident)* $more:literal)*;
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<$g:ident : $bound:path>)? ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)?
            = $implementation:ident;
    ) => {
        $(#[$meta])*
        $vis fn $name $(<$g: $bound>)? (isa: $crate::simd::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = $features)]
            fn also $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the features are those of this function, so the machine has them.
                let s = unsafe { $crate::simd::$Set::new() };
                $implementation::<_ $(, $g)?>(s, $($arg),*)
            }
            $crate::simd::dispatch_also! {
                $($More $(| $Sames)* $more),*;
                fn others $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? = $implementation;
            }
            match isa.set() {
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Set::$Set $(| $crate::simd::Set::$Same)* => {
                    // SAFETY: every `Isa` comes from `Isa::available`, which found these features.
                    unsafe { also $(::<$g>)? ($($arg),*) }
                }
                _ => others $(::<$g>)? (isa, $($arg),*),
            }
        }
    };
}
pub(crate) use dispatch_also;

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn avx512_without_vnni_is_taken_where_it_is_not_slower_than_avx2() {
        let sets = [Set::Scalar, Set::Avx2, Set::Avx512, Set::Avx512Vnni].map(Isa);
        let [_, avx2, avx512, vnni] = sets;
        let of = |speeds: [f64; 2]| {
            fastest_of(&sets[..3], |isa| {
                assert!(isa == avx2 || isa == avx512, "{isa:?} is measured");
                speeds[(isa == avx512) as usize]
            })
        };
        assert_eq!(of([1.0, 1.5]), avx512);
        assert_eq!(of([1.0, 1.0]), avx512);
        assert_eq!(of([1.0, 0.9]), avx2);
        // Nothing else is measured.
        let measured = |_| panic!("a measurement");
        assert_eq!((fastest_of(&sets[..2], measured), fastest_of(&sets[..4], measured)), (avx2, vnni));
        assert_eq!(fastest_of(&[], measured), Isa::SCALAR);
    }
}
