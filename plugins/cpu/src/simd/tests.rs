//! Functions of vectors against f64, and all instruction sets against plain Rust, bit for bit.

use super::{Isa, LANES, Simd, dispatch, math};

type Truth = fn(f64) -> f64;

/// Name in [`math`], the true function, units in the last place it may be off.
const FUNCTIONS: [(&str, Truth, f64); 5] = [
    ("exp", f64::exp, 2.5),
    ("expm1", f64::exp_m1, 8.0),
    ("tanh", f64::tanh, 4.0),
    ("sigmoid", |x| 1.0 / (1.0 + (-x).exp()), 4.0),
    ("silu", |x| x / (1.0 + (-x).exp()), 4.0),
];

dispatch! {
    fn apply(function: &str, x: &[f32; LANES], y: &mut [f32; LANES]) = apply_with;
}

#[inline(always)]
fn apply_with<S: Simd>(s: S, function: &str, x: &[f32; LANES], y: &mut [f32; LANES]) {
    let x = s.load(x);
    let result = match function {
        "exp" => math::exp(s, x),
        "expm1" => math::expm1(s, x),
        "tanh" => math::tanh(s, x),
        "sigmoid" => math::sigmoid(s, x),
        "silu" => math::silu(s, x),
        "gelu" => math::gelu(s, x),
        _ => math::gelu_erf(s, x),
    };
    s.store(result, y);
}

fn of(isa: Isa, function: &str, x: f32) -> f32 {
    let mut y = [0.0; LANES];
    apply(isa, function, &[x; LANES], &mut y);
    y[5]
}

#[test]
fn functions_are_right_to_a_few_units_in_the_last_place_and_the_same_everywhere() {
    for (name, truth, limit) in FUNCTIONS {
        // From just above where exp becomes 0.
        for i in -20_185..20_000 {
            let x = i as f32 * 0.004_31;
            let (y, truth) = (of(Isa::best(), name, x), truth(x as f64));
            let unit = (truth as f32).abs().max(f32::MIN_POSITIVE) as f64 * 2f64.powi(-23);
            assert!((y as f64 - truth).abs() <= limit * unit, "{name}({x}) = {y}, not {truth}");
            for isa in Isa::available() {
                assert_eq!(of(isa, name, x).to_bits(), y.to_bits(), "{name}({x}) on {}", isa.name());
            }
        }
    }
}

#[test]
fn functions_keep_their_limits() {
    for isa in Isa::available() {
        assert_eq!(of(isa, "exp", f32::INFINITY), f32::INFINITY);
        assert!(of(isa, "exp", -87.0).is_normal());
        for low in [-87.001, -88.0, -103.5, -104.0, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(of(isa, "exp", low), 0.0, "e^{low}");
        }
        assert_eq!(of(isa, "exp", 0.0), 1.0);
        assert_eq!(of(isa, "tanh", 40.0), 1.0);
        assert_eq!(of(isa, "tanh", f32::NEG_INFINITY), -1.0);
        assert_eq!(of(isa, "gelu", 100.0), 100.0);
        for low in [-1e19, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(of(isa, "gelu", low), 0.0, "gelu({low}) on {}", isa.name());
        }
        assert_eq!(of(isa, "gelu_erf", 100.0), 100.0);
        assert_eq!(of(isa, "gelu_erf", -100.0), 0.0);
        for huge in [1e19, f32::MAX, f32::INFINITY] {
            assert_eq!(of(isa, "gelu_erf", huge), huge);
        }
        assert_eq!(of(isa, "gelu_erf", f32::MIN), 0.0);
        for function in ["exp", "tanh", "sigmoid", "silu", "gelu", "gelu_erf"] {
            assert!(of(isa, function, f32::NAN).is_nan(), "{function} loses NaN on {}", isa.name());
        }
    }
}

dispatch! {
    fn add_lanes(v: &[[f32; LANES]; LANES], one_by_one: &mut [f32; LANES], together: &mut [f32; LANES]) = add_lanes_with;
}

#[inline(always)]
fn add_lanes_with<S: Simd>(
    s: S,
    v: &[[f32; LANES]; LANES],
    one_by_one: &mut [f32; LANES],
    together: &mut [f32; LANES],
) {
    let v = super::array(|r| s.load(&v[r]));
    *one_by_one = super::array(|r| s.sum(v[r]));
    s.store(s.sums(v), together);
}

#[test]
fn sixteen_sums_together_are_those_made_one_by_one() {
    let v = std::array::from_fn(|r| std::array::from_fn(|lane| ((r * 37 + lane * 61) as f32).sin() * 1000.0));
    let mut plain = [0.0; LANES];
    add_lanes(Isa::SCALAR, &v, &mut plain, &mut [0.0; LANES]);
    for isa in Isa::available() {
        let (mut one_by_one, mut together) = ([0.0; LANES], [0.0; LANES]);
        add_lanes(isa, &v, &mut one_by_one, &mut together);
        assert_eq!((one_by_one, together), (plain, plain), "{}", isa.name());
    }
}

dispatch! {
    fn convert(halves: &[u8; 32], floats: &mut [[f32; LANES]; 3], back: &mut [u8; 32]) = convert_with;
    fn dot(acc: i32, u: u8, i: u8, dots: &mut [[u8; 64]; 3]) = dot_with;
}

#[inline(always)]
fn convert_with<S: Simd>(s: S, halves: &[u8; 32], floats: &mut [[f32; LANES]; 3], back: &mut [u8; 32]) {
    let all = s.load_f16(halves);
    s.store(all, &mut floats[0]);
    s.store(s.halves(s.load_u16(halves)), &mut floats[1]);
    let mut rows = [0; 16 * 3];
    for (row, half) in rows.chunks_mut(3).zip(halves.as_chunks::<2>().0) {
        row[..2].copy_from_slice(half);
    }
    s.store(s.gather_f16(&rows, 3), &mut floats[2]);
    // Halfway to the next half, and not quite so.
    let bits = s.add_i(s.bits(all), s.load_i8(&std::array::from_fn(|i| i as u8 & 1)));
    s.store_f16(s.from_bits(s.add_i(bits, s.splat_i(0xfff))), back);
}

#[inline(always)]
fn dot_with<S: Simd>(s: S, acc: i32, u: u8, i: u8, dots: &mut [[u8; 64]; 3]) {
    let quads = |b: u8| s.load_b(&std::array::from_fn(|n| if n % 4 == 2 { b / 2 } else { b }));
    let run = s.dot4(s.begin(s.splat_i(acc)), quads(u & 127), quads(i));
    s.store_b(s.end(run, s.splat_i(acc)), &mut dots[0]);
    let taken_off = S::CENTRE * (3 * i as i8 as i32 + (i / 2) as i8 as i32);
    let centred = s.dot4_full(s.splat_i(acc), quads(u), quads(i));
    s.store_b(s.add_i(centred, s.splat_i(taken_off)), &mut dots[1]);
    let words = |first: i16, second: i16| s.splat_i(first as u16 as i32 | (second as i32) << 16);
    let signed = i as i8 as i16;
    let products = s.dot2_words(s.splat_i(acc), words(u as i16, u as i16 / 2), words(signed, -(signed / 2)));
    s.store_b(products, &mut dots[2]);
}

#[test]
fn every_half_is_converted_alike_everywhere_in_both_directions() {
    for first in (0..=u16::MAX).step_by(LANES) {
        let of = |isa: Isa| {
            let (mut floats, mut back) = ([[0.0; LANES]; 3], [0; 32]);
            let bytes: Vec<u8> = (first..=first + 15).flat_map(u16::to_le_bytes).collect();
            convert(isa, bytes[..].try_into().unwrap(), &mut floats, &mut back);
            (floats.map(|f| f.map(f32::to_bits)), back)
        };
        let expected = of(Isa::SCALAR);
        for isa in Isa::available() {
            assert_eq!(of(isa), expected, "from {first:#x} on, {}", isa.name());
        }
    }
}

#[test]
fn dot_products_of_the_largest_and_smallest_bytes_are_exact_everywhere() {
    // Activations are at least -127.
    for (u, i) in (0..=u8::MAX).flat_map(|u| (0..=u8::MAX).map(move |i| (u, i))).filter(|&(_, i)| i != 128) {
        let of = |isa: Isa| {
            let mut dots = [[0; 64]; 3];
            dot(isa, 1 << 20, u, i, &mut dots);
            dots
        };
        let expected = of(Isa::SCALAR);
        let words = (1 << 20) + u as i32 * i as i8 as i32 - (u as i32 / 2) * (i as i8 as i32 / 2);
        assert_eq!(expected[2][..4], words.to_le_bytes(), "{u} · {}", i as i8);
        for isa in Isa::available() {
            assert_eq!(of(isa), expected, "{u} · {}, {}", i as i8, isa.name());
        }
    }
}

dispatch! {
    fn nibbles(v: &[u8; LANES], d: f32, y: &mut [f32; LANES]) = nibbles_with;
}

#[inline(always)]
fn nibbles_with<S: Simd>(s: S, v: &[u8; LANES], d: f32, y: &mut [f32; LANES]) {
    s.store(s.scaled_nibbles(s.load_i8(v), s.splat(d)), y);
}

#[test]
fn numbers_of_four_bits_times_a_scale_have_the_same_bits_everywhere() {
    // Bits above the low four do not count.
    for v in [0, 0xf0].map(|high| std::array::from_fn(|i| i as u8 | high)) {
        for d in [1.5, -0.25, 0.0, -0.0, f32::INFINITY, f32::NAN] {
            for isa in Isa::available() {
                let mut y = [0.0; LANES];
                nibbles(isa, &v, d, &mut y);
                for (i, y) in y.into_iter().enumerate() {
                    let expected = (i as f32 - 8.0).mul_add(d, 0.0);
                    let is_same = y.to_bits() == expected.to_bits() || y.is_nan() && expected.is_nan();
                    assert!(is_same, "{i} times {d} is {y} on {}", isa.name());
                }
            }
        }
    }
}
