//! How columns are cut into tiles where registers hold 6 of them.

/// Columns of `n` in tiles of 6, so that tiles of 4 leave one at most (of 2 and 3 columns, all).
#[inline(always)]
pub fn in_sixes(n: usize) -> usize {
    let sixes = n / 6;
    6 * if n % 6 % 4 > 1 { sixes.saturating_sub(1) } else { sixes }
}

#[cfg(test)]
mod tests {
    use super::in_sixes;

    #[test]
    fn what_tiles_of_6_leave_are_tiles_of_4_and_one_column_at_most() {
        for n in (0..100).filter(|n| ![2, 3].contains(n)) {
            let sixes = in_sixes(n);
            assert!(sixes.is_multiple_of(6) && sixes <= n, "{n}: {sixes}");
            assert!((n - sixes) % 4 < 2 && n - sixes < 10, "{n}: {sixes}");
        }
    }
}
