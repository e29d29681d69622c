//! A query and a document in one prompt, for models that give such pairs a score.

use crate::error::Result;
use crate::limits::{Limits, Output};
use crate::prompt::Prompt;
use crate::special::Parse;
use crate::tokenizer::{Tokenizer, push};

impl Tokenizer {
    /// The ids of a query and a document: in the file's template for such pairs, if it has one, else one after the other, with
    /// marks at their ends as the vocabulary requires. Control tokens in them are text.
    pub fn encode_pair(&self, query: &str, document: &str, limits: Limits) -> Result<Vec<u32>> {
        if let Some(template) = &self.pair_template {
            return self.encode_rest(&filled(template, query, document), limits);
        }
        let ids = &self.ids;
        let text = Parse { control: false, literal: &[] };
        let eos = ids.eos.or(ids.sep).filter(|_| ids.add_eos);
        let mut output = Output::new(limits);
        push(ids.bos.filter(|_| ids.add_bos), &mut output)?;
        self.encode_parts(query, text, &mut output)?;
        push(eos, &mut output)?;
        push(ids.sep.filter(|_| ids.add_sep), &mut output)?;
        self.encode_parts(document, text, &mut output)?;
        push(eos, &mut output)?;
        Ok(output.into_ids())
    }
}

/// The template with both in their places, `{query}` and `{document}`.
fn filled(template: &str, query: &str, document: &str) -> Prompt {
    let (mut text, mut literal) = (String::new(), Vec::new());
    let mut rest = template;
    let places = [("{query}", query), ("{document}", document)];
    let next = |rest: &str| {
        let found = places.iter().filter_map(|(name, value)| Some((rest.find(name)?, *name, *value)));
        found.min_by_key(|(at, ..)| *at)
    };
    while let Some((at, name, value)) = next(rest) {
        text += &rest[..at];
        literal.extend(text.len()..text.len() + value.len());
        text += value;
        rest = &rest[at + name.len()..];
    }
    Prompt::new(text + rest, literal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_both_in_their_places_as_text() {
        let prompt = filled("<q>{query}<d>{document}{query}</d>", "a{document}", "<s>b");
        assert_eq!(prompt.text(), "<q>a{document}<d><s>ba{document}</d>");
        let literal: Vec<usize> = (0..prompt.text().len()).filter(|at| prompt.is_literal(*at)).collect();
        assert_eq!(literal, (3..14).chain(17..32).collect::<Vec<_>>());
        assert_eq!(filled("no places", "a", "b"), Prompt::from("no places"));
    }
}
