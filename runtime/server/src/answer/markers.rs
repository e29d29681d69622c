//! Markers in a text that is not complete yet.

/// What a text is up to the first marker.
pub struct Found<'a> {
    /// Text that no marker can begin in.
    pub before: &'a str,
    pub marker: Option<&'static str>,
    /// The text after the marker; without one what may become a marker.
    pub after: &'a str,
}

/// The first of `markers` in `text`.
pub fn find<'a>(text: &'a str, markers: &[&'static str]) -> Found<'a> {
    let found = markers.iter().filter_map(|marker| Some((text.find(marker)?, *marker))).min();
    if let Some((at, marker)) = found {
        return Found { before: &text[..at], marker: Some(marker), after: &text[at + marker.len()..] };
    }
    let (before, after) = text.split_at(text.len() - n_undecided(text, markers));
    Found { before, marker: None, after }
}

/// Bytes at the end of `text` that a marker begins with.
fn n_undecided(text: &str, markers: &[&str]) -> usize {
    let longest = |marker: &&str| (1..marker.len()).rev().find(|n| text.ends_with(&marker[..*n]));
    markers.iter().filter_map(longest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_that_may_become_a_marker_is_held_back() {
        let markers = ["<think>", "<tool_call>"];
        for (text, before, after) in
            [("a <th", "a ", "<th"), ("a <t", "a ", "<t"), ("a <x", "a <x", ""), ("", "", "")]
        {
            let found = find(text, &markers);
            assert_eq!((found.before, found.marker, found.after), (before, None, after));
        }
        let found = find("a<tool_call>b<think>", &markers);
        assert_eq!((found.before, found.marker, found.after), ("a", Some("<tool_call>"), "b<think>"));
    }
}
