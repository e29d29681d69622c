//! Cuts text into words before BPE, by one of the known rules.
//!
//! The published patterns end in `\s+(?!\S)|\s+`: a run of spaces leaves its last one to the word after it. That is
//! done here without look-ahead: the run is matched whole and gives its last character back.

mod rules;

use regex_automata::{Input, meta::Regex};

use crate::error::Result;

use rules::Step;
pub(crate) use rules::{AddBos, Rule, Spelling, WholeWords};

/// Cuts text into words by one rule.
#[derive(Debug)]
pub(crate) struct Pretokenizer {
    steps: Vec<Cutter>,
}

impl Pretokenizer {
    /// Compiles the patterns of `rule`.
    pub fn new(rule: &Rule) -> Self {
        Self { steps: rule.steps.iter().map(Cutter::new).collect() }
    }

    /// Gives the words of `text` to `visit`, in order; together they are `text`.
    pub fn each_word<'t>(&self, text: &'t str, visit: &mut Visit<'_, 't>) -> Result<()> {
        each_piece(&self.steps, text, visit)
    }
}

/// Takes the pieces of a text one by one.
type Visit<'v, 't> = dyn FnMut(&'t str) -> Result<()> + 'v;

/// Each step cuts the pieces of the step before.
fn each_piece<'t>(steps: &[Cutter], text: &'t str, visit: &mut Visit<'_, 't>) -> Result<()> {
    match steps {
        [] => visit(text),
        [first, others @ ..] => first.cut(text, &mut |piece| each_piece(others, piece, visit)),
    }
}

/// One compiled step.
#[derive(Debug)]
struct Cutter {
    regex: Regex,
    step: Step,
}

/// Number of the pattern `\s+` in a step that has it.
const SPACES: usize = 1;

impl Cutter {
    fn new(step: &Step) -> Self {
        let patterns = match step {
            Step::Cut(pattern) | Step::AfterThrees(pattern) | Step::BeforeThrees(pattern) => vec![*pattern],
            Step::Words(pattern) | Step::Halves(pattern) => vec![*pattern, r"\s+"],
        };
        let regex =
            Regex::new_many(&patterns).expect("the patterns of the table compile: a test builds every rule");
        Self { regex, step: *step }
    }

    /// Gives the matches in `text` and what is between them to `visit`.
    fn cut<'t>(&self, text: &'t str, visit: &mut Visit<'_, 't>) -> Result<()> {
        let mut done = 0;
        let mut cut_at = |at| {
            let piece = &text[done..at];
            done = at;
            if piece.is_empty() { Ok(()) } else { visit(piece) }
        };
        let mut at = 0;
        while let Some(found) = self.regex.search(&Input::new(text).range(at..)) {
            at = found.end();
            let is_spaces = found.pattern().as_usize() == SPACES;
            if is_spaces && at < text.len() {
                at = start_of_last(text, found.start(), at);
            }
            let matched = &text[found.start()..at];
            let mut cut_in = |n| cut_at(found.start() + n);
            match self.step {
                Step::AfterThrees(_) => {
                    threes(matched).skip_while(|n| *n == 0).try_for_each(&mut cut_in)?;
                    cut_in(matched.len())?;
                }
                Step::BeforeThrees(_) => threes(matched).try_for_each(cut_in)?,
                Step::Halves(_) if is_spaces => {
                    cut_in(0)?;
                    halves(matched).try_for_each(cut_in)?;
                }
                Step::Cut(_) | Step::Words(_) | Step::Halves(_) => {
                    cut_in(0)?;
                    cut_in(matched.len())?;
                }
            }
        }
        cut_at(text.len())
    }
}

/// Where the last character of `text[start..end]` starts, or its end if it has no other one.
fn start_of_last(text: &str, start: usize, end: usize) -> usize {
    match text[start..end].char_indices().next_back() {
        Some((place, _)) if place > 0 => start + place,
        _ => end,
    }
}

/// Where groups of three characters start in `run`, counted from its end.
fn threes(run: &str) -> impl Iterator<Item = usize> {
    let n = run.chars().count();
    let places = run.char_indices().enumerate().filter(move |(i, _)| (n - i).is_multiple_of(3));
    places.map(|(_, (place, _))| place)
}

/// Where groups of a power of two of characters end in `run`, 512 at most, the largest first.
fn halves(run: &str) -> impl Iterator<Item = usize> {
    let mut n_left = run.chars().count();
    let mut rest = run.char_indices();
    std::iter::from_fn(move || {
        let n = (1 << n_left.checked_ilog2()?).min(512);
        n_left -= n;
        rest.nth(n - 1).map(|(place, last)| place + last.len_utf8())
    })
}

#[cfg(test)]
mod tests {
    use super::rules::RULES;
    use super::*;

    fn split<'t>(pretokenizer: &Pretokenizer, text: &'t str) -> Vec<&'t str> {
        let mut words = Vec::new();
        let visit = &mut |word| {
            words.push(word);
            Ok(())
        };
        pretokenizer.each_word(text, visit).expect("nothing fails here");
        words
    }

    fn check(name: &str, text: &str, expected: &str) {
        let rule = Rule::find(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(split(&Pretokenizer::new(rule), text).join("|"), expected, "{name}");
    }

    #[test]
    fn every_rule_compiles_and_loses_no_text() {
        let text =
            "I'm 12345 naïve\u{300} cafés,\r\n\n  in 東京 — \"ok\"?\u{3000}\u{85} \t ٣٤ 한국 ½ 🦙\u{0}.  ";
        for rule in RULES {
            let pretokenizer = Pretokenizer::new(rule);
            assert_eq!(split(&pretokenizer, text).concat(), text, "{}", rule.names[0]);
            assert!(split(&pretokenizer, text).iter().all(|word| !word.is_empty()));
            assert_eq!(split(&pretokenizer, "").concat(), "");
        }
    }

    #[test]
    fn a_run_of_spaces_leaves_its_last_one_to_the_next_word() {
        check("gpt-2", "a   b", "a|  | b");
        check("llama-bpe", "a   b", "a|  | b");
        check("gpt-2", "a   ", "a|   ");
        check("gpt-2", "a\n\nb", "a|\n|\n|b");
        check("llama-bpe", "a \n\n b", "a| \n\n| b");
    }

    #[test]
    fn gpt2_has_contractions_in_lower_case_only() {
        check("gpt-2", "I'll WE'LL", "I|'ll| WE|'|LL");
        check("llama-bpe", "I'll WE'LL", "I|'ll| WE|'LL");
    }

    #[test]
    fn digits_come_alone_in_threes_or_whole() {
        check("gpt-2", "a 1234567", "a| 1234567");
        check("llama-bpe", "a 1234567", "a| |123|456|7");
        check("qwen2", "a 12", "a| |1|2");
        check("stablelm2", "a 12", "a| |1|2");
        check("starcoder", "a 12", "a| |1|2");
        check("refact", "x=1", "x|=|1");
        check("command-r", "a 12", "a| |1|2");
        check("deepseek-coder", "a 12", "a| |1|2");
        check("deepseek-llm", "a 12", "a| |12");
        check("falcon", "a 1234567", "a| |123|456|7");
        check("default", "a 1234567", "a| |123|456|7");
        check("mpt", "a 1234567", "a| 1234567");
        check("olmo", "a 1234567", "a| 1234567");
        check("deepseek-v3", "a 1234567", "a| |123|456|7");
    }

    #[test]
    fn falcon_takes_punctuation_out_first() {
        check("falcon", "a b, c", "a| b|,| c");
        check("falcon", "a `b`", "a| |`|b|`");
        check("default", "a `b`", "a| `|b|`");
    }

    #[test]
    fn deepseek_llm_takes_newlines_letters_and_cjk_apart() {
        check("deepseek-llm", "ab cd\n\n東京 x!", "ab| cd|\n|\n|東京| x|!");
        check("deepseek-llm", "a  b", "a| | b");
    }

    #[test]
    fn runs_of_spaces_fall_apart_into_powers_of_two() {
        check("jais-2", "a       b", "a|    |  | b");
        check("jais-2", "a       ", "a|    |  | ");
        let most = " ".repeat(512);
        check("jais-2", &format!("{most}{most}      b"), &format!("{most}|{most}|    | | b"));
    }

    #[test]
    fn groups_of_three_digits_count_from_their_end() {
        check("afmoe", "a 1234567", "a| |1|234|567");
        check("tiny_aya", "123456x", "123|456|x");
        check("superbpe", "so 12345 x 6", "so |12|345| x |6");
        check("tiny_aya", "a  12 b", "a| | |12| b");
    }

    /// Texts, each followed by names of rules and the lengths in characters of the words that llama.cpp makes of it.
    const WORDS: &str = include_str!("pretokenizer/words.tsv");

    #[test]
    fn every_rule_gives_the_words_of_llama_cpp() {
        check_words(WORDS);
    }

    fn check_words(words: &str) {
        let mut text = String::new();
        let mut wrong = Vec::new();
        let mut pretokenizers = std::collections::BTreeMap::new();
        for line in words.lines() {
            let Some((names, expected)) = line.split_once('\t') else {
                text = serde_json::from_str(line).expect("a JSON string");
                continue;
            };
            for name in names.split(' ') {
                let rule = Rule::find(name).unwrap_or_else(|e| panic!("{e}"));
                let pretokenizer =
                    pretokenizers.entry(rule.names[0]).or_insert_with(|| Pretokenizer::new(rule));
                let words = split(pretokenizer, &text);
                let found: Vec<String> = words.iter().map(|word| word.chars().count().to_string()).collect();
                if found.join(" ") != expected {
                    wrong.push(format!("{name}: {words:?}, expected lengths {expected}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{} texts: {}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
        let missing = RULES.iter().map(|rule| rule.names[0]).find(|name| !pretokenizers.contains_key(name));
        assert_eq!(missing, None, "a rule without words in words.tsv");
    }

    #[test]
    fn an_unknown_rule_is_named_with_the_nearest_ones() {
        let error = Rule::find("lama-bpe").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("`lama-bpe`") && error.contains("are llama-bpe, "), "{error}");
        assert!(error.contains("`default`"), "{error}");
    }
}
