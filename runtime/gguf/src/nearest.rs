//! Known names that are near an unknown one, for messages.

/// Characters of an unknown name that count, since files have names of any length.
const MAX_CHARS: usize = 64;

/// The `n` known names that the fewest edits make of `name`; of equals the first.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>, n: usize) -> Vec<&'a str> {
    let end = name.char_indices().nth(MAX_CHARS).map_or(name.len(), |(end, _)| end);
    let mut names: Vec<_> = known.collect();
    names.sort_by_key(|known| n_edits(&name[..end], known));
    names.truncate(n);
    names
}

/// Insertions, removals and replacements of characters that make `b` of `a` (Levenshtein 1966).
pub fn n_edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        let cases = [
            ("", "", 0),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("qwen2", "qwen3", 1),
            ("ab", "ba", 2),
            ("é", "e", 1),
        ];
        cases.iter().for_each(|(a, b, n)| assert_eq!(n_edits(a, b), *n, "{a} {b}"));
    }

    #[test]
    fn the_nearest_names_come_first() {
        let known = ["gpt2", "llama", "llama4", "mamba"];
        assert_eq!(nearest("lama", known.into_iter(), 2), ["llama", "llama4"]);
        assert_eq!(nearest(&"x".repeat(1 << 20), known.into_iter(), 9).len(), 4);
    }
}
