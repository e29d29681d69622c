//! Cuts text into words before BPE, by one of the known rules.
//!
//! The published patterns end in `\s+(?!\S)|\s+`: a run of spaces leaves its last one to the word after it. That is
//! done here without look-ahead: the run is matched whole and gives its last character back.

mod rules;

use regex_automata::{Input, meta::Regex};

use crate::error::Result;

pub(crate) use rules::Rule;
use rules::Step::{self, Cut, Words};

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
}

/// Number of the pattern `\s+` in a step of kind [`Words`].
const SPACES: usize = 1;

impl Cutter {
    fn new(step: &Step) -> Self {
        let patterns = match step {
            Cut(pattern) => vec![*pattern],
            Words(pattern) => vec![*pattern, r"\s+"],
        };
        let regex =
            Regex::new_many(&patterns).expect("the patterns of the table compile: a test builds every rule");
        Self { regex }
    }

    /// Gives the matches in `text` and what is between them to `visit`.
    fn cut<'t>(&self, text: &'t str, visit: &mut Visit<'_, 't>) -> Result<()> {
        let mut at = 0;
        while let Some(found) = self.regex.search(&Input::new(text).range(at..)) {
            let (start, mut end) = (found.start(), found.end());
            if found.pattern().as_usize() == SPACES && end < text.len() {
                let last = text[start..end].char_indices().next_back().map_or(0, |(place, _)| place);
                end = if last > 0 { start + last } else { end };
            }
            if start > at {
                visit(&text[at..start])?;
            }
            if end > start {
                visit(&text[start..end])?;
            }
            at = end;
            if at >= text.len() {
                return Ok(());
            }
        }
        visit(&text[at..])
    }
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
    fn an_unknown_rule_is_named_with_the_known_ones() {
        let error = Rule::find("no-such").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(
            error.contains("`no-such`") && error.contains("llama-bpe") && error.contains("default"),
            "{error}"
        );
    }
}
