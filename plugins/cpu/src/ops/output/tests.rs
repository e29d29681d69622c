//! Partitions: each element has one member.

use super::*;

const SHAPES: [[usize; 4]; 6] =
    [[1, 1, 1, 1], [8200, 2, 1, 2], [3, 5, 2, 3], [1500, 3, 1, 2], [40, 7, 3, 1], [2, 1, 9, 1]];

/// Executes `write` as each member of teams of several sizes; each adds 1 to all that it is given.
fn expect_each_element_once(ne: [usize; 4], write: impl Fn(Output<'_>)) {
    for n in [1, 2, 3, 16] {
        let mut y = vec![0.0; ne.iter().product()];
        let tensor = Tensor::over(&mut y, ne);
        let taken: Vec<Taken> = (0..n).map(|_| Taken::default()).collect();
        for index in 0..n {
            // SAFETY: `y` is gapless F32; one thread is each member in turn.
            write(unsafe { Output::new(&tensor, Rank::new(index, n), &taken, None) });
        }
        assert!(y.iter().all(|y| *y == 1.0), "{ne:?} by {n}: {y:?}");
    }
}

fn add_1(tile: &mut Tile<'_>) {
    let [_, d1, d2, d3] = tile.dims();
    for (i1, i2, i3) in d3.flat_map(|i3| {
        let d1 = d1.clone();
        d2.clone().flat_map(move |i2| d1.clone().map(move |i1| (i1, i2, i3)))
    }) {
        tile.row([i1, i2, i3]).iter_mut().for_each(|y| *y += 1.0);
    }
}

#[test]
fn each_partition_gives_each_element_to_one_member() {
    for ne in SHAPES {
        expect_each_element_once(ne, |out| {
            out.rows().for_each(|(_, y)| y.floats().iter_mut().for_each(|y| *y += 1.0));
        });
        expect_each_element_once(ne, |out| {
            out.pieces().for_each(|(_, _, y)| y.floats().iter_mut().for_each(|y| *y += 1.0));
        });
        for size in [[1; 4], [16, 2, 1, 1], [4, 9, 2, 2], [5000, 1, 3, 1]] {
            expect_each_element_once(ne, |out| out.tiles(size).for_each(|mut tile| add_1(&mut tile)));
            for fastest in 0..4 {
                expect_each_element_once(ne, |out| {
                    out.take_tiles(size, fastest).for_each(|mut tile| add_1(&mut tile));
                });
            }
        }
        expect_each_element_once(ne, |out| {
            let y = *out.tensor();
            let mut rows = out.scattered();
            for at in (0..y.n_rows()).map(|row| y.unravel(row)) {
                let bytes = rows.row(at).map(|(_, bytes)| bytes);
                let elems = bytes.unwrap_or_default().as_chunks_mut().0;
                elems.iter_mut().for_each(|y| *y = (f32::from_ne_bytes(*y) + 1.0).to_ne_bytes());
            }
        });
        expect_each_element_once(ne, |out| {
            let n = out.tensor().n_elems();
            for out in out.split_at(n / 3) {
                let n = out.tensor().n_elems();
                let tiles = out.reshaped([1, n, 1, 1]).tiles([1, 2, 1, 1]);
                tiles.for_each(|mut tile| add_1(&mut tile));
            }
        });
    }
}

#[test]
#[should_panic(expected = "of tile")]
fn a_tile_refuses_elements_outside_of_it() {
    let mut y = [0.0; 8];
    let tensor = Tensor::over(&mut y, [4, 2, 1, 1]);
    // SAFETY: as above.
    let out = unsafe { Output::new(&tensor, Rank::new(0, 1), &[], None) };
    out.tiles([4, 1, 1, 1]).for_each(|mut tile| tile.row([1, 0, 0]).fill(0.0));
}
