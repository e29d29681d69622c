//! The largest numbers that weights and activations may have fit every instruction set's sums, and these are rounded once.

use super::{Group, Panel, XGroup};
use crate::simd::{Isa, Simd, array, dispatch};

/// Columns: a tile, and one.
const C: usize = 4;

dispatch! {
    fn products<G: Panel>(panel: &[G], x: &[XGroup; C], sums: &mut [[f32; 16]; C]) = products_with;
}

#[inline(always)]
fn products_with<S: Simd, G: Panel>(s: S, panel: &[G], x: &[XGroup; C], sums: &mut [[f32; 16]; C]) {
    let [tile, again] =
        G::add_products::<S, 2, C>(s, [panel; 2], array(|c| &x[c..=c]), (), [[s.zero(); C]; 2]);
    tile.into_iter().zip(again).zip(&mut *sums).for_each(|((v, w), to)| s.store(s.add(v, w), to));
    let [[one]] = G::add_products::<S, 1, 1>(s, [panel], [&x[..1]], (), [[s.zero()]]);
    s.store(s.add(one, s.load(&sums[0])), &mut sums[0]);
}

/// What is taken off the weights: the most that any format does.
const OFFSET: i32 = 128;

/// Weights at both ends of `BITS` bits times activations at both ends of theirs.
fn check<const H: usize, const M: usize, const BITS: u32, const SHIFTED: bool>(scales: &[f32]) {
    let offset = if M == 0 { OFFSET } else { 0 };
    let most = ((1u32 << BITS) - 1) as u8;
    for (weights, &d) in
        [[most; 4], [0; 4], [most, 0, 0, most]].iter().flat_map(|w| scales.iter().map(move |d| (w, d)))
    {
        let q = array(|_| array(|i| weights[i % 4]));
        let panel = [Group::<H, M, BITS, SHIFTED> { q, d: [[d; 16]; H], m: [[0.0; 16]; M] }];
        let activations = [[127; 4], [-127; 4], [127, -127, 127, -127], [-127, 127, 127, -127i8]];
        let quads = (8 / H) as i32;
        let x = activations.map(|x| {
            let sum = quads * x.iter().map(|&x| x as i32).sum::<i32>();
            let start = Group::<H, M, BITS, SHIFTED>::START;
            let sums = if M == 0 { [start - OFFSET * sum; 2] } else { [0; 2] };
            let mut group = XGroup::default();
            (group.q, group.d, group.sums) = ([x.map(|x| x as u8); 8], 1.0, sums);
            group
        });
        let expected = array(|c| {
            let dots = weights.iter().zip(activations[c]).map(|(&w, x)| (w as i32 - offset) * x as i32);
            let half = (quads * dots.sum::<i32>()) as f32;
            let group = H as f32 * (half * d);
            let twice = group + group;
            [if c == 0 { group + twice } else { twice }; 16]
        });
        for isa in Isa::available() {
            let mut found = [[0.0; 16]; C];
            products(isa, &panel, &x, &mut found);
            let name = isa.name();
            assert_eq!(found, expected, "{BITS} bits, {H} scales of {d}, {M} minima, {weights:?}, {name}");
        }
    }
}

#[test]
fn the_largest_products_of_every_format_are_rounded_once() {
    let (half, smallest) = (65504.0, 2f32.powi(-24));
    let halves = [1.0, 0.0, half, -half, smallest, -0.333_251_95];
    check::<1, 0, 4, true>(&halves);
    check::<1, 1, 4, true>(&halves);
    check::<1, 0, 5, true>(&halves);
    check::<1, 1, 5, true>(&halves);
    check::<1, 0, 8, true>(&halves);
    check::<1, 1, 4, true>(&halves.map(|d| d * 63.0));
    check::<1, 0, 8, true>(&halves.map(|d| d * -31.0));
    check::<1, 0, 5, false>(&[f32::MIN_POSITIVE / 4.0, 1.0, 2f32.powi(104), 2f32.powi(106)]);
    for scale in [1.0, 15.0, -31.0, 127.0] {
        check::<2, 2, 2, true>(&halves.map(|d| d * scale));
        check::<2, 0, 3, true>(&halves.map(|d| d * scale));
        check::<2, 0, 6, true>(&halves.map(|d| d * scale));
    }
}
