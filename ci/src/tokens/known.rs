//! Differences that are no errors, each by what llmrt would have to do to give llama.cpp's ids.

use llmrt_gguf::{Array, Metadata, Value};

/// A difference that is meant: with this vocabulary and this text llmrt gives llama.cpp's ids.
pub struct Known {
    /// `tokenizer.ggml.model`.
    pub model: &'static str,
    /// Why.
    pub reason: &'static str,
    /// The other vocabulary.
    pub vocabulary: fn(&mut Metadata),
    /// The other text.
    pub text: fn(&str) -> String,
}

/// All of them.
pub const ALL: [Known; 3] = [
    Known {
        model: "bert",
        reason: "Hangul syllables become all their letters, as in BERT's own tokenizer; llama.cpp keeps the first alone",
        vocabulary: |_| {},
        text: |text| text.chars().map(first_letter).collect(),
    },
    Known { model: "rwkv", reason: CONTROL, vocabulary: without_control, text: str::to_string },
    Known { model: "plamo2", reason: CONTROL, vocabulary: without_control, text: str::to_string },
];

const CONTROL: &str =
    "a special token in a text stays text unless it is to be parsed; llama.cpp takes it as any other token";

/// Of a syllable its first letter (Unicode 15, section 3.12).
fn first_letter(c: char) -> char {
    const OF_ONE_LETTER: u32 = 21 * 28;
    let syllable = u32::from(c).checked_sub(0xac00).filter(|n| *n < 19 * OF_ONE_LETTER);
    syllable.and_then(|n| char::from_u32(0x1100 + n / OF_ONE_LETTER)).unwrap_or(c)
}

/// Unknown and control tokens become normal ones.
fn without_control(vocabulary: &mut Metadata) {
    const TYPES: &str = "tokenizer.ggml.token_type";
    if let Some(Value::Array(Array::I32(types))) = vocabulary.get(TYPES) {
        let types = types.iter().map(|&kind| if matches!(kind, 2 | 3) { 1 } else { kind }).collect();
        vocabulary.set(TYPES, Value::Array(Array::I32(types)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syllables_have_their_first_letter() {
        let of = |text: &str| text.chars().map(first_letter).collect::<String>();
        assert_eq!(of("a\u{ac00}\u{d593}\u{d7a3}\u{d7a4}"), "a\u{1100}\u{1112}\u{1112}\u{d7a4}");
    }
}
