//! Random texts: the same for a seed and a vocabulary.

use super::parts::{DIGITS, EMOJI, MARKS, SCRIPTS, SPACES, WORDS};

/// Most code points of a text, but for what its last part has more.
const MAX_CHARS: usize = 120;

/// Writes texts for one vocabulary.
pub struct Texts<'a> {
    rng: Rng,
    pieces: &'a [String],
    specials: &'a [String],
}

impl<'a> Texts<'a> {
    /// `pieces` and `specials` are texts of tokens, which texts are made of too.
    pub fn new(seed: u64, pieces: &'a [String], specials: &'a [String]) -> Texts<'a> {
        Texts { rng: Rng(seed), pieces, specials }
    }

    /// The next text.
    pub fn text(&mut self) -> String {
        let n = 1 + self.rng.below(MAX_CHARS);
        let mut text = String::new();
        while text.chars().count() < n {
            self.push_part(&mut text);
        }
        text
    }

    fn push_part(&mut self, text: &mut String) {
        let rng = &mut self.rng;
        match rng.below(12) {
            0..=2 => push_chars(text, rng.pick(SCRIPTS), 12, rng),
            3 => push_chars(text, &[(0, 0x10ffff)], 3, rng),
            4 => {
                push_chars(text, rng.pick(SCRIPTS), 1, rng);
                push_chars(text, MARKS, 4, rng);
            }
            5 => push_chars(text, DIGITS, 12, rng),
            6 => {
                let longest = rng.pick(&[1, 3, 40]);
                push_chars(text, rng.pick(SPACES), longest, rng);
            }
            7 => text.push_str(rng.pick(EMOJI)),
            8 | 9 => text.push_str(rng.pick(WORDS)),
            10 if !self.pieces.is_empty() => {
                (0..=rng.below(4)).for_each(|_| text.push_str(&self.pieces[rng.below(self.pieces.len())]));
            }
            11 if !self.specials.is_empty() => {
                push_special(text, &self.specials[rng.below(self.specials.len())], rng)
            }
            _ => push_chars(text, &[(0x20, 0x7e)], 12, rng),
        }
    }
}

/// One to `longest` code points of these ranges; all the same one, or each another.
fn push_chars(text: &mut String, ranges: &[(u32, u32)], longest: usize, rng: &mut Rng) {
    let is_run = rng.below(8) == 0;
    let mut code = rng.code(ranges);
    for _ in 0..=rng.below(longest) {
        text.extend(char::from_u32(code));
        code = if is_run { code } else { rng.code(ranges) };
    }
}

/// A special token, now and then within spaces, or without its end.
fn push_special(text: &mut String, special: &str, rng: &mut Rng) {
    let cut = special.chars().count() - usize::from(rng.below(4) == 0);
    let space = rng.pick(&["", "", " ", "\n"]);
    text.push_str(space);
    text.extend(special.chars().take(cut));
    text.push_str(space);
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn code(&mut self, ranges: &[(u32, u32)]) -> u32 {
        let (first, last) = self.pick(ranges);
        first + self.below((last - first + 1) as usize) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_texts_again_and_another_seed_others() {
        let specials = ["<s>".to_string()];
        let texts = |seed| {
            let mut texts = Texts::new(seed, &[], &specials);
            (0..50).map(|_| texts.text()).collect::<Vec<_>>()
        };
        assert_eq!(texts(1), texts(1));
        assert_ne!(texts(1), texts(2));
        assert!(texts(1).iter().all(|text| !text.is_empty()));
        assert!(texts(1).iter().any(|text| text.contains("<s>")));
    }
}
