//! Differences that are no errors.

/// A difference that is meant.
pub struct Known {
    /// `tokenizer.ggml.model`.
    pub model: &'static str,
    /// Why.
    pub reason: &'static str,
    /// Whether a text can have it: with the special tokens, and whether they are parsed.
    pub can: fn(&str, &[String], bool) -> bool,
}

/// All of them.
pub const ALL: [Known; 3] = [
    Known {
        model: "bert",
        reason: "Hangul syllables become all their letters, as in BERT's own tokenizer; llama.cpp keeps the first alone",
        can: |text, _, _| text.contains(|c| ('\u{ac00}'..='\u{d7a3}').contains(&c)),
    },
    Known { model: "rwkv", reason: CONTROL, can: has_control },
    Known { model: "plamo2", reason: CONTROL, can: has_control },
];

const CONTROL: &str =
    "a special token in a text stays text unless it is to be parsed; llama.cpp always takes it";

fn has_control(text: &str, specials: &[String], is_parsed: bool) -> bool {
    !is_parsed && specials.iter().any(|special| text.contains(special))
}
