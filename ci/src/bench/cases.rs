//! The cases: what is run, and what of it counts.

/// A situation that speed is measured in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// A prompt of 512 tokens in one batch.
    Prompt,
    /// 128 tokens, one after the other, from an empty context.
    Decode,
    /// The same at depth 4096.
    DecodeDeep,
    /// Sequences that decode 64 tokens together, each after a prompt of its own.
    Together {
        /// How many.
        n: usize,
        /// Tokens of each prompt.
        depth: usize,
    },
    /// A prompt of 4096 tokens in batches of 512.
    LongPrompt,
    /// From the start of the process to the end of a prompt of 8 tokens, the file in the page cache.
    StartWarm,
    /// The same with the file on disk.
    StartCold,
    /// Most memory that a process had at one time in which it read 512 tokens and wrote 16.
    Memory,
}

/// Tokens of each prompt of sequences that decode together by default.
const DEPTH: usize = 16;

/// What a test needs: a prompt or steps at a depth, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tokens {
    /// Of the prompt.
    pub prompt: usize,
    /// Decoded.
    pub decode: usize,
    /// In the context before.
    pub depth: usize,
}

/// What a run gave.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measure {
    /// Tokens per second, seconds, or bytes, as the case counts.
    pub value: f64,
    /// The least that must be done, for shares of the ceilings.
    pub work: Work,
    /// What all threads read from memory in the seconds before and after, in GB/s, if that was measured.
    pub reads: Option<f64>,
}

/// What the model requires of each step, as `llmrt bench` reports it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Bytes of weights that a step reads.
    pub read_bytes: f64,
    /// Multiplications of a token.
    pub mul_adds: f64,
    /// Bytes of the cache that a step reads for each token of the context.
    pub kv_bytes: f64,
    /// Whether the matrices are of few bits.
    pub is_quantised: bool,
}

impl Case {
    /// All, in the order of a table.
    pub const ALL: [Case; 8] = [
        Case::Prompt,
        Case::Decode,
        Case::DecodeDeep,
        Case::together(8),
        Case::LongPrompt,
        Case::StartWarm,
        Case::StartCold,
        Case::Memory,
    ];

    /// So many sequences that decode together at the default depth.
    pub const fn together(n: usize) -> Case {
        Case::Together { n, depth: DEPTH }
    }

    /// How many sequences it has.
    pub fn sequences(self) -> usize {
        if let Case::Together { n, .. } = self { n } else { 1 }
    }

    /// Its name on the command line; `together-N` is the one of N sequences.
    pub fn name(self) -> &'static str {
        match self {
            Case::Prompt => "prompt",
            Case::Decode => "decode",
            Case::DecodeDeep => "decode-deep",
            Case::Together { .. } => "together",
            Case::LongPrompt => "long-prompt",
            Case::StartWarm => "start-warm",
            Case::StartCold => "start-cold",
            Case::Memory => "memory",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Result<Case, String> {
        let names = || Case::ALL.map(Case::name).join(", ");
        let found = Case::ALL.into_iter().find(|case| case.name() == name.trim());
        let n = name.trim().strip_prefix("together-").and_then(|n| n.parse().ok()).filter(|&n| n > 0);
        let found = found.or(n.map(Case::together));
        found.ok_or_else(|| {
            format!("--cases {name}: expected one of {}, together-N, engine, families", names())
        })
    }

    /// How many tokens it takes; a quarter of them if it must be quick.
    pub fn tokens(self, quick: bool) -> Tokens {
        let (prompt, decode, depth) = match self {
            Case::Prompt => (512, 0, 0),
            Case::Decode => (0, 128, 0),
            Case::DecodeDeep => (0, 128, 4096),
            Case::Together { depth, .. } => (0, 64, depth),
            Case::LongPrompt => (4096, 0, 0),
            Case::StartWarm | Case::StartCold => return Tokens { prompt: 8, decode: 0, depth: 0 },
            Case::Memory => return Tokens { prompt: 512, decode: 16, depth: 0 },
        };
        let part = if quick { 4 } else { 1 };
        Tokens { prompt: prompt / part, decode: decode / part, depth: depth / part }
    }

    /// Its name in the table.
    pub fn title(self, quick: bool) -> String {
        let Tokens { prompt, decode, depth } = self.tokens(quick);
        match self {
            Case::Prompt | Case::LongPrompt => format!("prompt {prompt}, tok/s"),
            Case::Decode => format!("decode {decode}, tok/s"),
            Case::DecodeDeep => format!("decode {decode} at depth {depth}, tok/s"),
            Case::Together { n, depth: DEPTH } => format!("decode {decode} × {}, tok/s", sequences(n)),
            Case::Together { n, .. } => format!("decode {decode} × {} at depth {depth}, tok/s", sequences(n)),
            Case::StartWarm => "start to first token, warm, s".into(),
            Case::StartCold => "start to first token, cold, s".into(),
            Case::Memory => "peak memory, MB".into(),
        }
    }

    /// Whether its rate is one of reading memory.
    pub fn is_read(self) -> bool {
        matches!(self.rate(0.0, &Work::default(), false), Some(Rate::Read(_)))
    }

    /// Whether less is better.
    pub fn is_cost(self) -> bool {
        matches!(self, Case::StartWarm | Case::StartCold | Case::Memory)
    }

    /// What the work of a run came to: GB read per second for steps, 10⁹ multiplications and additions per second for
    /// prompts. Attention is not counted, but its reading is.
    pub fn rate(self, speed: f64, work: &Work, quick: bool) -> Option<Rate> {
        let tokens = self.tokens(quick);
        let context = tokens.depth as f64 + tokens.decode as f64 / 2.0;
        let step = |n: f64| Rate::Read(speed / n * (work.read_bytes + n * context * work.kv_bytes) / 1e9);
        match self {
            Case::Prompt | Case::LongPrompt => Some(Rate::MulAdd(speed * 2.0 * work.mul_adds / 1e9)),
            Case::Decode | Case::DecodeDeep => Some(step(1.0)),
            Case::Together { n, .. } => Some(step(n as f64)),
            _ => None,
        }
    }
}

fn sequences(n: usize) -> String {
    format!("{n} sequence{}", if n == 1 { "" } else { "s" })
}

/// A rate that has a ceiling.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rate {
    /// GB/s read from memory.
    Read(f64),
    /// 10⁹ multiplications and additions per second.
    MulAdd(f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_what_a_step_must_do_times_steps_per_second() {
        let work = Work { read_bytes: 1e9, mul_adds: 0.5e9, kv_bytes: 1e9 / 64.0, is_quantised: true };
        let check = |case: Case, speed, rate| assert_eq!(case.rate(speed, &work, false), rate, "{case:?}");
        check(Case::Prompt, 100.0, Some(Rate::MulAdd(100.0)));
        check(Case::Decode, 10.0, Some(Rate::Read(20.0)));
        check(Case::together(8), 80.0, Some(Rate::Read(70.0)));
        check(Case::Memory, 1.0, None);
    }
}
