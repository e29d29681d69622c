//! A text in windows, and what a model predicts in the second half of each.

use crate::error::Result;
use crate::session::Core;
use crate::{interrupt, session};
use llmrt_engine::{EngineEvent, Request, TokenId};

/// The windows of a text, side by side without overlap; what remains after the last whole one is not used.
pub struct Windows<'t> {
    tokens: &'t [TokenId],
    len: usize,
    bos: Option<TokenId>,
}

impl Windows<'_> {
    /// Windows of `len` tokens, at most `n_most`. `bos` takes the place of the first token of each.
    pub fn new(
        tokens: &[TokenId],
        len: usize,
        bos: Option<TokenId>,
        n_most: Option<usize>,
    ) -> std::result::Result<Windows<'_>, String> {
        if len < 4 {
            return Err(format!("-c {len}: expected windows of 4 or more tokens"));
        }
        let n = (tokens.len() / len).min(n_most.unwrap_or(usize::MAX));
        match (n, n_most) {
            (0, Some(0)) => Err("--chunks 0: expected 1 or more windows".into()),
            (0, _) => Err(format!(
                "has {} tokens, a window has {len}: give a longer text, or a smaller -c",
                tokens.len()
            )),
            _ => Ok(Windows { tokens: &tokens[..n * len], len, bos }),
        }
    }

    /// How many there are.
    pub fn n(&self) -> usize {
        self.tokens.len() / self.len
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Window> {
        self.tokens.chunks_exact(self.len).map(|tokens| {
            let mut tokens = tokens.to_vec();
            if let Some(bos) = self.bos {
                tokens[0] = bos;
            }
            Window { tokens }
        })
    }
}

/// A window's tokens.
pub struct Window {
    tokens: Vec<TokenId>,
}

impl Window {
    /// Where the second half begins: from this token on predictions count.
    fn first(&self) -> usize {
        self.tokens.len() / 2
    }

    /// The tokens that are predicted: those after the first of the second half.
    pub fn targets(&self) -> &[TokenId] {
        &self.tokens[self.first() + 1..]
    }
}

/// Logits after each token of the second half but the last one, `[n_targets]` rows of `[n_vocab]`. Fewer after Ctrl-C.
pub fn predictions(core: &mut Core, window: &Window) -> Result<Vec<Vec<f32>>> {
    let n = window.tokens.len() - 1;
    let id = core.add(Request::logits(window.tokens[..n].to_vec(), window.first()))?;
    let mut rows = Vec::with_capacity(n - window.first());
    while !core.is_idle() {
        if interrupt::is_requested() {
            core.abort(id)?;
            break;
        }
        for event in session::step(core)? {
            match event {
                EngineEvent::Logits { logits, .. } => rows.push(logits),
                EngineEvent::Failed { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_half_of_each_window_is_predicted() {
        let tokens: Vec<TokenId> = (10..31).collect();
        let windows = Windows::new(&tokens, 8, Some(1), None).unwrap();
        let shown: Vec<_> = windows.iter().map(|w| (w.tokens[..2].to_vec(), w.targets().to_vec())).collect();
        assert_eq!(shown, [(vec![1, 11], vec![15, 16, 17]), (vec![1, 19], vec![23, 24, 25])]);
        assert_eq!(Windows::new(&tokens, 8, None, Some(1)).unwrap().n(), 1);
    }

    #[test]
    fn texts_that_are_too_short_are_refused() {
        let problem = |n, len, most| Windows::new(&vec![0; n], len, None, most).err().unwrap();
        assert_eq!(problem(7, 8, None), "has 7 tokens, a window has 8: give a longer text, or a smaller -c");
        assert!(problem(8, 8, Some(0)).contains("--chunks 0"));
        assert!(problem(8, 3, None).contains("-c 3"));
    }
}
