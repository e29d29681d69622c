//! Tokens known by their text: the ones that end a generation, and control tokens whose files call them ordinary.

use std::collections::BTreeSet;

use crate::ids::Ids;
use crate::tokenizer::Index;
use crate::vocab::TokenKind;

/// End a turn; the first one found is the end-of-turn token where the file names none.
const ENDS_TURN: [&str; 11] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// End a generation in some other way.
const ENDS: [&str; 11] = [
    "<|eom_id|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "</s>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
];

/// Past the end of a file in a code model: padding, the start of a repository, the start of a file. The first one found of
/// each row counts where the file names none.
const ENDS_FILE: [&[&str]; 3] = [
    &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
    &["<|file_sep|>"],
];

/// Frame a hole to fill in a code model. Control tokens, but no ends.
const FRAMES_HOLE: [&str; 24] = [
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
];

/// Written out by harmony models between the parts of a message, so never hidden.
const SHOWN: [&str; 4] = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// Sets the kind of well-known tokens, finds the end-of-turn token, and gives all ids that end a generation.
pub(crate) fn find(index: &Index, kinds: &mut [TokenKind], ids: &mut Ids) -> BTreeSet<u32> {
    let present =
        |names: &[&str]| -> Vec<u32> { names.iter().filter_map(|n| index.get(*n)).copied().collect() };
    let mut set = |id: u32, kind: TokenKind| {
        if let Some(slot) = kinds.get_mut(id as usize) {
            *slot = kind;
        }
    };

    let turn_ends = present(&ENDS_TURN);
    ids.eot = ids.eot.or(turn_ends.first().copied());
    ids.eom = ids.eom.or(present(&["<|eom_id|>"]).first().copied());

    let ends_file = ENDS_FILE.iter().zip(ids.fim).filter(|(_, given)| given.is_none());
    let ends_file = ends_file.filter_map(|(names, _)| present(names).first().copied());
    let mut ends: BTreeSet<u32> = turn_ends.into_iter().chain(present(&ENDS)).chain(ends_file).collect();
    ends.iter().copied().chain(present(&FRAMES_HOLE)).for_each(|id| set(id, TokenKind::Control));
    present(&SHOWN).into_iter().for_each(|id| set(id, TokenKind::UserDefined));
    ends.extend([ids.eos, ids.eot, ids.eom].into_iter().chain(ids.fim).flatten());

    // In harmony-like vocabularies <|end|> ends a message, not the answer; gemma4's and PLaMo's </s> is ordinary
    // text.
    let all = |names: &[&str]| present(names).len() == names.len();
    if all(&["<|end|>", "<|return|>", "<|call|>"]) || all(&["<|end|>", "<|calls|>", "<|flush|>"]) {
        present(&["<|end|>"]).into_iter().for_each(|id| {
            ends.remove(&id);
            set(id, TokenKind::UserDefined);
        });
    }
    let plamo = index.get("<|plamo:eos|>").is_some_and(|eos| ends.contains(eos));
    if plamo || all(&["<|tool_response>"]) {
        present(&["</s>"]).into_iter().for_each(|id| {
            ends.remove(&id);
            set(id, TokenKind::Normal);
        });
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tokens: &[&str], eos: Option<u32>, expected: &[u32]) {
        let index: Index = tokens.iter().enumerate().map(|(id, text)| ((*text).into(), id as u32)).collect();
        let mut kinds = vec![TokenKind::Normal; tokens.len()];
        let mut ids = Ids { eos, ..Ids::default() };
        assert_eq!(find(&index, &mut kinds, &mut ids).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn ends_are_the_eos_of_the_file_and_the_well_known_ones() {
        check(&["a", "<|im_end|>", "<|endoftext|>", "x"], Some(3), &[1, 2, 3]);
        check(&["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "b"], None, &[0, 1, 2]);
        check(&["<end_of_turn>", "<eos>", "<|fim_prefix|>"], None, &[0, 1]);
    }

    #[test]
    fn a_message_end_of_harmony_does_not_end_the_answer() {
        check(&["<|end|>", "<|return|>", "<|call|>"], None, &[1, 2]);
        check(&["<|end|>", "x"], None, &[0]);
    }

    #[test]
    fn a_turn_end_that_the_file_calls_ordinary_becomes_control() {
        let index: Index = [("<|im_end|>".into(), 0)].into();
        let mut kinds = [TokenKind::UserDefined];
        let mut ids = Ids::default();
        find(&index, &mut kinds, &mut ids);
        assert_eq!((kinds[0], ids.eot), (TokenKind::Control, Some(0)));
    }
}
