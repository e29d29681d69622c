//! The largest numbers that weights and activations may have fit every instruction set's sums.

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

/// Weights at both ends of `BITS` bits meet activations at both ends of theirs.
fn check<const H: usize, const M: usize, const BITS: u32>() {
    let most = ((1u32 << BITS) - 1) as u8;
    for weights in [[most; 4], [0; 4], [most, 0, 0, most]] {
        let q = array(|_| array(|i| weights[i % 4]));
        let panel = [Group::<H, M, BITS> { q, d: [[1.0; 16]; H], m: [[0.0; 16]; M] }];
        let x = [[127; 4], [-127; 4], [127, -127, 127, -127], [-127, 127, 127, -127i8]].map(|x| {
            let sum = x.iter().map(|&x| x as i32).sum::<i32>() * 8 / H as i32;
            let sums = if M == 0 { [-128 * sum; 2] } else { [0; 2] };
            let mut group = XGroup::default();
            (group.q, group.d, group.sums) = ([x.map(|x| x as u8); 8], 1.0, sums);
            group
        });
        let mut expected = [[0.0; 16]; C];
        products(Isa::SCALAR, &panel, &x, &mut expected);
        for isa in Isa::available() {
            let mut found = [[0.0; 16]; C];
            products(isa, &panel, &x, &mut found);
            assert_eq!(found, expected, "{BITS} bits, {H} scales, {M} minima, {weights:?}, {}", isa.name());
        }
    }
}

#[test]
fn the_largest_products_of_every_format_are_exact() {
    check::<1, 0, 4>();
    check::<1, 1, 4>();
    check::<1, 0, 5>();
    check::<1, 1, 5>();
    check::<1, 0, 8>();
    check::<2, 2, 2>();
    check::<2, 0, 3>();
    check::<2, 0, 6>();
}
