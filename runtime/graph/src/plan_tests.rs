//! Tests of buffer planning.

use super::*;
use llmrt_abi::DType;
use proptest::prelude::*;

/// Items as `size@first-last`, their offsets as the outcome.
fn check(items: &str, offsets: &[u64], total: u64) {
    let number = |s: &str| s.parse::<u64>().unwrap();
    let items: Vec<Item> = items
        .split(' ')
        .map(|item| {
            let (size, life) = item.split_once('@').unwrap();
            let (first, last) = life.split_once('-').unwrap();
            Item { size: number(size), first_use: number(first) as usize, last_use: number(last) as usize }
        })
        .collect();
    let layout = plan(&items, 16);
    assert_eq!((layout.offsets.as_slice(), layout.total), (offsets, total));
}

#[test]
fn tensors_alive_together_are_side_by_side() {
    check("32@0-1 16@1-2", &[0, 32], 48);
}

#[test]
fn a_dead_tensor_gives_its_bytes_to_the_next() {
    check("32@0-1 32@2-3 32@4-4", &[0, 0, 0], 32);
}

#[test]
fn offsets_are_aligned() {
    check("17@0-1 5@0-1", &[0, 32], 37);
}

#[test]
fn the_smallest_gap_that_fits_is_taken() {
    // At step 1 the 96 and the 48 have gone and left gaps of their sizes; 30 goes into the smaller.
    check("96@0-0 64@0-1 48@0-0 32@0-1 30@1-1", &[0, 96, 160, 208, 160], 240);
}

#[test]
fn a_size_past_all_memory_saturates() {
    assert_eq!(plan(&[Item { size: u64::MAX, first_use: 0, last_use: 1 }; 2], 16).total, u64::MAX);
}

#[test]
fn lifetimes_end_at_the_last_use_through_views() {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[8]);
    let a = g.relu(x); // node 0
    let half = g.slice(a, 0, 0, 4);
    let b = g.relu(x); // node 1
    let c = g.relu(half); // node 2
    let d = g.relu(b); // node 3
    g.output(c, "c");
    let e = g.relu(d); // node 4
    let life = |tensor, first_use, last_use| Lifetime { tensor, first_use, last_use };
    assert_eq!(
        lifetimes(&g, 0..5),
        [life(a, 0, 2), life(b, 1, 3), life(c, 2, 4), life(d, 3, 4), life(e, 4, 4)]
    );
    assert_eq!(lifetimes(&g, 1..3), [life(b, 1, 2), life(c, 2, 2)]);
}

#[test]
fn a_chain_of_layers_needs_no_more_than_its_peak() {
    let mut g = Graph::new();
    let mut x = g.input("x", DType::F32, &[64, 8]);
    for _ in 0..12 {
        let h = g.rms_norm(x, None, 1e-5);
        let h = g.silu(h);
        x = g.add(x, h);
    }
    let items: Vec<Item> = lifetimes(&g, 0..g.nodes.len())
        .iter()
        .map(|l| Item { size: g.def(l.tensor).n_bytes(), first_use: l.first_use, last_use: l.last_use })
        .collect();
    assert_eq!(plan(&items, 64).total, peak(&items));
    assert_eq!(peak(&items), 3 * 64 * 8 * 4);
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let item = (0u64..5000, 0usize..60, 0usize..12);
    let item = item.prop_map(|(size, first_use, n)| Item { size, first_use, last_use: first_use + n });
    prop::collection::vec(item, 0..80)
}

proptest! {
    #[test]
    fn nothing_alive_overlaps_and_the_total_is_near_the_peak(items in items(), align in 0u32..8) {
        let align = 1 << align;
        let layout = plan(&items, align);
        for (i, a) in items.iter().enumerate() {
            prop_assert_eq!(layout.offsets[i] % align, 0);
            prop_assert!(layout.offsets[i] + a.size <= layout.total);
            for (j, b) in items.iter().enumerate().skip(i + 1) {
                let (a_at, b_at) = (layout.offsets[i], layout.offsets[j]);
                let apart = a_at + a.size <= b_at || b_at + b.size <= a_at;
                prop_assert!(apart || !live_together(a, b) || a.size == 0 || b.size == 0, "{i} and {j}");
            }
        }
        let aligned: Vec<_> = items.iter().map(|i| Item { size: i.size.next_multiple_of(align), ..*i }).collect();
        prop_assert!(layout.total >= peak(&items));
        prop_assert!(layout.total <= peak(&aligned) * 3 / 2);
    }
}
