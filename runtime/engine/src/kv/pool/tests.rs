//! What the block pool promises, by example and by property.

use super::*;
use crate::kv::table::BlockTable;
use proptest::prelude::*;
use std::collections::HashMap;

fn pool(n_blocks: usize) -> BlockPool {
    BlockPool::new(n_blocks, 16).unwrap()
}

#[test]
fn blocks_start_at_zero_and_the_one_freed_last_comes_back_first() {
    let mut pool = pool(4);
    let taken: Vec<_> = (0..3).map(|_| pool.alloc().unwrap().0).collect();
    assert_eq!(taken, [0, 1, 2]);
    pool.free(BlockId(0)).unwrap();
    pool.free(BlockId(2)).unwrap();
    let taken: Vec<_> = std::iter::from_fn(|| pool.alloc()).map(|b| b.0).collect();
    assert_eq!(taken, [2, 0, 3]);
}

#[test]
fn freeing_a_block_twice_is_an_error_and_changes_nothing() {
    let mut pool = pool(2);
    let block = pool.alloc().unwrap();
    pool.free(block).unwrap();
    let before = pool.clone();
    assert_eq!(pool.free(block).unwrap_err().to_string(), "block 0 is not in use, so it cannot be freed");
    assert_eq!(pool.share(block).unwrap_err().to_string(), "block 0 is not in use, so it cannot be shared");
    assert_eq!(
        pool.free(BlockId(7)).unwrap_err().to_string(),
        "block 7 does not exist: the pool has 2 blocks"
    );
    assert_eq!(pool, before);
}

#[test]
fn a_shared_block_is_free_when_its_last_user_left() {
    let mut pool = pool(1);
    let block = pool.alloc().unwrap();
    pool.share(block).unwrap();
    pool.free(block).unwrap();
    assert_eq!((pool.n_free(), pool.n_users(block).unwrap()), (0, 1));
    pool.free(block).unwrap();
    assert_eq!((pool.n_free(), pool.n_users(block).unwrap()), (1, 0));
}

#[test]
fn a_pool_whose_slots_do_not_fit_an_i32_is_refused() {
    assert!(BlockPool::new(1 << 27, 16).is_err());
    assert!(BlockPool::new(usize::MAX, 16).is_err());
    assert!(BlockPool::new(4, 0).is_err());
    assert_eq!(BlockPool::new(0, 16).unwrap().alloc(), None);
}

#[test]
fn a_slot_is_block_times_size_plus_offset() {
    let table = |n_left| {
        let mut table = BlockTable::starting_at(n_left);
        [5, 2].into_iter().for_each(|block| table.push(BlockId(block)));
        table
    };
    let slots = |n_left| [0, 15, 16, 31, 32, 47].map(|position| table(n_left).slot(position, 16));
    assert_eq!(slots(0), [Some(80), Some(95), Some(32), Some(47), None, None]);
    assert_eq!(
        slots(1),
        [None, None, Some(80), Some(95), Some(32), Some(47)],
        "after one that was given back"
    );
}

#[test]
fn a_table_grows_by_what_it_needs_or_not_at_all() {
    let mut pool = pool(3);
    let mut table = BlockTable::default();
    assert!(table.grow(16, &mut pool));
    assert!(table.grow(17, &mut pool));
    assert_eq!((table.ids().len(), pool.n_free()), (2, 1));
    assert!(!table.grow(64, &mut pool));
    assert_eq!((table.ids().len(), pool.n_free()), (2, 1));
}

#[derive(Clone, Debug)]
enum Act {
    Grow(usize, usize),
    Shrink(usize, usize),
    ShareFront(usize, usize, usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..4usize, 0..80usize).prop_map(|(table, n)| Act::Grow(table, n)),
        (0..4usize, 0..80usize).prop_map(|(table, n)| Act::Shrink(table, n)),
        (0..4usize, 0..4usize, 0..6usize).prop_map(|(from, to, n)| Act::ShareFront(from, to, n)),
    ]
}

#[test]
fn freed_blocks_with_a_name_are_kept_and_given_up_last_the_oldest_first() {
    let mut pool = BlockPool::new(3, 2).unwrap();
    let hashes = [1, 2].map(|token| BlockHash::ROOT.next(&[token]));
    let blocks = [(); 3].map(|()| pool.alloc().unwrap());
    pool.name(blocks[0], hashes[0]).unwrap();
    pool.name(blocks[1], hashes[1]).unwrap();
    blocks.into_iter().try_for_each(|block| pool.free(block)).unwrap();
    assert_eq!((pool.n_free(), pool.n_kept()), (3, 2));

    assert_eq!(pool.reuse(hashes[0]), Some(blocks[0]), "kept");
    assert_eq!(pool.reuse(hashes[0]), Some(blocks[0]), "in use");
    assert_eq!(pool.n_users(blocks[0]), Ok(2));
    assert_eq!([pool.alloc(), pool.alloc(), pool.alloc()], [Some(blocks[2]), Some(blocks[1]), None]);
    assert_eq!(pool.reuse(hashes[1]), None, "given up");
}

#[test]
fn a_lost_cache_has_no_contents_and_all_unused_blocks_are_free() {
    let mut pool = BlockPool::new(2, 2).unwrap();
    let hash = BlockHash::ROOT.next(&[7]);
    let block = pool.alloc().unwrap();
    pool.name(block, hash).unwrap();
    pool.free(block).unwrap();
    pool.forget_all();
    assert_eq!((pool.reuse(hash), pool.n_free(), pool.n_kept()), (None, 2, 0));
}

#[test]
fn a_block_that_is_written_again_is_not_found() {
    let mut pool = BlockPool::new(1, 2).unwrap();
    let hash = BlockHash::ROOT.next(&[7]);
    let block = pool.alloc().unwrap();
    pool.name(block, hash).unwrap();
    pool.forget(block).unwrap();
    pool.free(block).unwrap();
    assert_eq!((pool.reuse(hash), pool.n_kept()), (None, 0));
    assert!(pool.name(block, hash).is_err() && pool.forget(block).is_err(), "it is not in use");
}

proptest! {
    /// Whatever is allocated, freed, named and used again: a block that is found has the contents that were named.
    #[test]
    fn contents_that_are_found_were_not_overwritten(acts in prop::collection::vec((0..4u8, 0..6u32), 0..200)) {
        let mut pool = BlockPool::new(4, 2).unwrap();
        let (mut used, mut contents): (Vec<BlockId>, HashMap<BlockId, BlockHash>) = Default::default();
        for (act, n) in acts {
            let hash = BlockHash::ROOT.next(&[n]);
            let chosen = used.get(n as usize % used.len().max(1)).copied();
            match (act, chosen) {
                (0, _) => if let Some(block) = pool.alloc() {
                    contents.remove(&block);
                    used.push(block);
                },
                (1, Some(block)) => {
                    used.swap_remove(n as usize % used.len());
                    pool.free(block).unwrap();
                }
                (2, Some(block)) => {
                    contents.entry(block).or_insert(hash);
                    pool.name(block, contents[&block]).unwrap();
                }
                _ => if let Some(block) = pool.reuse(hash) {
                    prop_assert_eq!(contents.get(&block), Some(&hash));
                    used.push(block);
                },
            }
            let in_use: std::collections::HashSet<_> = used.iter().collect();
            prop_assert_eq!(pool.n_free(), 4 - in_use.len());
        }
    }

    #[test]
    fn every_block_is_free_or_counted_once_per_table(acts in prop::collection::vec(act(), 0..60)) {
        let mut pool = BlockPool::new(12, 4).unwrap();
        let mut tables = vec![BlockTable::default(); 4];
        for act in acts {
            match act {
                Act::Grow(table, n) => {
                    let fits = pool.blocks_for(n) <= tables[table].ids().len() + pool.n_free();
                    prop_assert_eq!(tables[table].grow(n, &mut pool), fits);
                }
                Act::Shrink(table, n) => tables[table].shrink(n, &mut pool).unwrap(),
                Act::ShareFront(from, to, n) => {
                    let shared = tables[from].share(0..n, &mut pool).unwrap();
                    tables[to].release(&mut pool).unwrap();
                    tables[to] = shared;
                }
            }
            let mut users = HashMap::new();
            for block in tables.iter().flat_map(|t| t.ids()) {
                *users.entry(*block).or_insert(0) += 1;
            }
            for block in (0..12).map(BlockId) {
                prop_assert_eq!(pool.n_users(block).unwrap(), users.get(&block).copied().unwrap_or(0));
            }
            prop_assert_eq!(pool.n_free(), 12 - users.len());
        }
    }

    #[test]
    fn the_tokens_of_one_table_have_slots_of_their_own(n_tokens in 1..200usize, block_size in 1..40usize) {
        let mut pool = BlockPool::new(200, block_size).unwrap();
        let mut table = BlockTable::default();
        prop_assert!(table.grow(n_tokens, &mut pool));
        let mut slots: Vec<_> = (0..n_tokens).map(|p| table.slot(p, block_size).unwrap()).collect();
        slots.sort_unstable();
        slots.dedup();
        prop_assert_eq!(slots.len(), n_tokens);
    }
}
