//! What differs between releases, by the text that the libraries report.

/// Whether 16-bit products have F32 results with NZ weights and with several matrices on A2 and A3: from 9.1 on
/// (`matmul_util.cpp` and `batch_matmul_util.cpp` of ops-nn 9.1.0; in none of the betas of 9.1.0). Before, and where the
/// release is not known, these results are rounded to 16 bits first.
pub fn has_wide_products(release: &str) -> bool {
    let mut numbers = release.split(['.', '-', ' ']).map(|n| n.parse::<u32>().ok());
    let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
    major.zip(minor).is_some_and(|version| version >= (9, 1)) && !release.starts_with("9.1.0-beta")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for (release, wide) in [
            ("9.1.0", true),
            ("9.1.0-beta.1", false),
            ("9.2.0-beta.1", true),
            ("10.0.0", true),
            ("9.0.1", false),
            ("8.5.0", false),
            ("runtime 1.17.0", false),
            ("", false),
        ] {
            assert_eq!(has_wide_products(release), wide, "{release}");
        }
    }
}
