//! The deny-list: words that the project does not use, each with what to write instead.

use super::Finding;
use super::files::TextFile;

/// (words, what to write instead). Whole words in any case; parts of identifiers count: `who_told`, `isWanted`.
const DENIED: &[(&[&str], &str)] = &[
    (&["told", "tell", "tells", "telling"], "report, set, pass, distinguish"),
    (&["say", "says", "said", "saying"], "state, report, specify, set"),
    (&["ask", "asks", "asked", "asking"], "query, request, prefetch, call"),
    (&["know", "knows", "knowing"], "support, have, recognise, record"),
    (&["want", "wants", "wanted"], "require, request, need"),
    (&["anew"], "again"),
    (&["mend", "mends", "mended"], "fix, recover, correct"),
    (&["nobody"], "no caller, no device, no one thread: name what"),
    (&["somebody", "someone"], "a caller, a user, a thread: name what"),
    (&["whoever"], "the caller, the owner: name what"),
    (&["everybody"], "every thread, every caller: name what"),
    (&["lie", "lies", "lying"], "is, is stored, starts at"),
    (&["behind"], "after, at depth, below"),
    (&["meet", "meets", "meeting", "meetings"], "multiply with, join, barrier"),
    (&["brain"], "bf16"),
    (&["homeless"], "unplaceable"),
];

/// The same for phrases, in lower case.
const PHRASES: &[(&str, &str)] = &[
    ("const most", "MAX_…"),
    ("behind our back", "asynchronously"),
    ("computed nonsense", "non-finite logits"),
    ("what the machine can do", "roofline: peak bandwidth and FLOP/s"),
    ("when reading a prompt", "prefill"),
    ("counts more", "takes precedence"),
];

/// Frozen copies of released headers' sources: their text is what was released.
const FROZEN: &str = "tests/golden/";

/// (file, words, reason): what must stay. `*`: the whole file.
const ALLOWED: &[(&str, &[&str], &str)] = &[
    ("ci/src/tidy/words.rs", &["*"], "the deny-list itself"),
    ("cli/assets/stories.golden.txt", &["*"], "texts that the embedded model generates"),
    ("tests/fixtures/trained/stories.txt", &["*"], "stories of the corpus of tools/train"),
    ("cli/src/templates.rs", &["tell", "said", "asked"], "openings of the embedded model's stories"),
    ("docs/contributing/testing.md", &["say", "tell"], "quotes the deny-list"),
    ("tools/train/words.py", &["*"], "vocabulary of the stories that the embedded model was trained with"),
    ("tools/train/corpus.py", &["*"], "sentences of the stories"),
    ("tools/train/plots.py", &["*"], "sentences of the stories"),
    ("tools/train/export.py", &["tells"], "the embedded model's description, part of its bytes"),
];

/// What must be in no file: names of machines' folders, and of package registries.
const MACHINE: &[(&str, &str)] = &[
    ("/home/", "no path of a machine"),
    ("/root/", "no path of a machine"),
    ("/Users/", "no path of a machine"),
    ("/work/", "no path of a machine"),
    ("crates.io", "no host of a registry"),
    ("pypi.org", "no host of a registry"),
    ("pythonhosted.org", "no host of a registry"),
];

/// Words of the deny-list in a file, and in its name.
pub fn check(file: &TextFile) -> Vec<Finding> {
    if file.path.starts_with(FROZEN) {
        return Vec::new();
    }
    let lines = file.text.lines().enumerate().map(|(i, line)| (i + 1, line));
    lines.chain([(0, file.path.as_str())]).flat_map(|(i, line)| check_line(file, i, line)).collect()
}

fn check_line(file: &TextFile, i: usize, line: &str) -> Vec<Finding> {
    let denied = words(line).into_iter().filter_map(|word| {
        let (_, instead) = DENIED.iter().find(|(list, _)| list.contains(&word.as_str()))?;
        Some((word, *instead))
    });
    let lower = line.to_lowercase();
    let phrases = PHRASES.iter().filter(|(phrase, _)| lower.contains(phrase));
    denied
        .chain(phrases.map(|(phrase, instead)| (phrase.to_string(), *instead)))
        .filter(|(word, _)| !is_allowed(&file.path, word))
        .map(|(word, instead)| Finding {
            file: file.path.clone(),
            line: i,
            text: format!("{word} → {instead}"),
        })
        .collect()
}

/// Paths of machines and names of registries.
pub fn machine_paths(file: &TextFile) -> Vec<Finding> {
    let hits = file.text.lines().enumerate().flat_map(|(i, line)| {
        MACHINE.iter().filter(move |(text, _)| line.contains(text)).map(move |row| (i + 1, row))
    });
    hits.filter(|(_, (text, _))| !is_allowed(&file.path, text))
        .map(|(line, (text, rule))| Finding {
            file: file.path.clone(),
            line,
            text: format!("{text} → {rule}"),
        })
        .collect()
}

/// Rows of the allow-list that allow nothing any more.
pub fn stale(files: &[TextFile]) -> Vec<Finding> {
    let rows = ALLOWED.iter().flat_map(|(path, list, _)| list.iter().map(move |word| (*path, *word)));
    let is_stale = |(path, word): &(&str, &str)| match files.iter().find(|f| f.path == *path) {
        Some(file) => {
            *word != "*" && !file.text.contains(word) && !words(&file.text).iter().any(|w| w == word)
        }
        None => true,
    };
    let finding = |(path, word): (&str, &str)| Finding {
        file: "ci/src/tidy/words.rs".into(),
        line: 0,
        text: format!("ALLOWED has `{path}`: `{word}`, which is not there → remove it"),
    };
    rows.filter(is_stale).map(finding).collect()
}

fn is_allowed(path: &str, word: &str) -> bool {
    ALLOWED.iter().any(|(file, words, _)| *file == path && (words.contains(&"*") || words.contains(&word)))
}

/// Runs of letters, cut where a capital follows a small letter, in lower case.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    for c in line.chars() {
        if c.is_alphabetic() {
            let starts = !before.is_alphabetic() || (before.is_lowercase() && c.is_uppercase());
            if starts {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = TextFile { path: path.into(), text: text.into() };
        check(&file).into_iter().map(|f| format!("{}: {}", f.line, f.text)).collect()
    }

    #[test]
    fn words_are_cut_at_underscores_digits_and_capitals() {
        assert_eq!(words("who_told isWanted q4_k MAX"), ["who", "told", "is", "wanted", "q", "k", "max"]);
    }

    #[test]
    fn a_denied_word_is_found_in_text_identifiers_and_names_of_files() {
        assert_eq!(
            found("x.rs", "fn f() {}\nlet was_told = 1;"),
            ["2: told → report, set, pass, distinguish"]
        );
        assert_eq!(found("x.rs", "struct Wanted;"), ["1: wanted → require, request, need"]);
        assert_eq!(found("src/meeting.rs", ""), ["0: meeting → multiply with, join, barrier"]);
        assert_eq!(found("x.rs", "pub const MOST: u32 = 1;"), ["1: const most → MAX_…"]);
    }

    #[test]
    fn longer_words_that_contain_a_denied_one_are_not_found() {
        assert!(found("x.md", "Essays about beliefs, a task, unknown and wanting.").is_empty());
    }

    #[test]
    fn an_allowed_word_is_allowed_in_its_file_alone() {
        assert!(found("tools/train/words.py", "said").is_empty());
        assert_eq!(found("tools/train/train.py", "said").len(), 1);
        assert!(found("tests/golden/abi-0.1/types/data.rs", "said").is_empty());
    }

    #[test]
    fn paths_of_a_machine_and_registries_are_found() {
        let text = format!("see /{}/x\nand crates{}io", "home", ".");
        let file = TextFile { path: "x.md".into(), text };
        assert_eq!(machine_paths(&file).len(), 2);
    }

    #[test]
    fn an_allowed_word_that_is_gone_is_reported() {
        assert_eq!(stale(&[]).len(), ALLOWED.iter().map(|(_, words, _)| words.len()).sum::<usize>());
    }
}
