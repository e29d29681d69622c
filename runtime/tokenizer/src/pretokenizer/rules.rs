//! The known rules for cutting text into words, under the names that files give them.
//!
//! Patterns are facts of the published tokenizers; the alternatives for runs of spaces, which end most of them, are
//! left to [`Step::Words`].

use crate::error::{Error, Result};

/// A known rule: the names that files use for it and what comes with it.
pub(crate) struct Rule {
    pub names: &'static [&'static str],
    /// Each step cuts every piece that the step before left; what is between two matches is a piece too.
    pub steps: &'static [Step],
    /// A word that is a token is taken as it is, whatever the merges would make of it.
    pub ignore_merges: bool,
    /// Whether a sequence starts with `bos` where the file has no such key.
    pub add_bos: bool,
}

pub(crate) enum Step {
    /// Pieces are the matches of this pattern.
    Cut(&'static str),
    /// Pieces are the matches of this pattern, and else runs of spaces that give their last one back.
    Words(&'static str),
}

use Step::{Cut, Words};

pub(crate) const RULES: &[Rule] = &[
    rule(&["default"], &[Cut(r"[\p{P}$+<=>^~|]+"), Words(GPT2), Cut(r"\p{N}+"), Cut("[0-9][0-9][0-9]")]),
    rule(
        &[
            "gpt-2",
            "gpt2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
        ],
        &[Words(GPT2)],
    ),
    Rule {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        steps: &[Words(LLAMA3)],
        ignore_merges: true,
        add_bos: true,
    },
    rule(&["smaug-bpe", "dbrx", "chatglm-bpe", "glm4"], &[Words(LLAMA3)]),
    rule(
        &[
            "qwen2",
            "stablelm2",
            "deepseek-r1-qwen",
            "hunyuan",
            "megrez",
            "solar-open",
            "grok-2",
            "kormo",
            "f2llmv2",
        ],
        &[Words(QWEN2)],
    ),
    rule(&["qwen35"], &[Words(QWEN35)]),
    rule(
        &["deepseek-llm"],
        &[
            Cut(r"[\r\n]"),
            Cut(DEEPSEEK_LETTERS),
            Cut(DEEPSEEK_MARKS),
            Cut(r"\s+$"),
            Cut(CJK_AND_HANGUL),
            Cut(r"\p{N}+"),
        ],
    ),
    rule(
        &["deepseek-coder"],
        &[Cut(r"[\r\n]"), Cut(r"\s?\p{L}+"), Cut(r"\s?\p{P}+"), Cut(CJK_AND_HANGUL), Cut(r"\p{N}")],
    ),
    rule(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        &[Cut(r"\p{N}{1,3}"), Cut(HAN_AND_KANA), Words(DEEPSEEK3)],
    ),
    rule(&["falcon"], &[Cut(r"[\p{P}$+<=>^~|`]+"), Words(GPT2), Cut("[0-9][0-9][0-9]")]),
    rule(
        &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[Cut(r"\p{N}"), Words(GPT2)],
    ),
    rule(&["bloom", "poro-chat", "gpt3-finnish"], &[Cut(BLOOM)]),
    rule(&["viking"], &[Cut(BLOOM), Cut(r"\p{N}")]),
    rule(&["gpt-4o", "llama4", "kanana2", "minimax-m2"], &[Words(GPT4O)]),
    Rule { names: &["tekken"], steps: &[Words(TEKKEN)], ignore_merges: true, add_bos: true },
    rule(&["seed-coder"], &[Words(SEED_CODER)]),
    rule(&["bailingmoe", "bailingmoe2", "llada-moe"], &[Words(BAILING)]),
];

const fn rule(names: &'static [&'static str], steps: &'static [Step]) -> Rule {
    Rule { names, steps, ignore_merges: false, add_bos: false }
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+";
const LLAMA3: &str = concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
);
const QWEN2: &str = concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
);
const QWEN35: &str = concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]",
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
);
const SEED_CODER: &str = concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+"
);
const BAILING: &str = concat!(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]"
);
const DEEPSEEK3: &str = concat!(
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
);
const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
);
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
);
/// All but spaces, brackets, bars and the full stops and commas of several scripts.
const BLOOM: &str = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+";
const CJK_AND_HANGUL: &str = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+";
const HAN_AND_KANA: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";
/// ASCII punctuation, its full-width forms, quotation marks, and the first CJK marks.
const DEEPSEEK_MARKS: &str =
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+";
/// The letters with case, as DeepSeek-LLM's tokenizer lists them.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-z\xB5\xC0-\xD6\xD8-\xF6\xF8-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}",
    r"\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}",
    r"\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}",
    r"\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}",
    r"\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}",
    r"\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}",
    r"\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}",
    r"\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}",
    r"\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}",
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}",
    r"\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}",
    r"\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}",
    r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+"
);

impl Rule {
    /// The rule that files call `name`.
    pub fn find(name: &str) -> Result<&'static Rule> {
        RULES.iter().find(|rule| rule.names.contains(&name)).ok_or_else(|| Error::UnknownPre {
            found: name.to_string(),
            known: RULES.iter().flat_map(|rule| rule.names).copied().collect::<Vec<_>>().join(", "),
        })
    }
}
