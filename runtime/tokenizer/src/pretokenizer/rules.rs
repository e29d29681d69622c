//! The known rules for cutting text into words, under the names that files give them.
//!
//! The names are llama.cpp's, and so is what they mean: where its pattern differs from the one published with a model,
//! the pattern here is llama.cpp's, and the published one stands in a comment. The alternatives for runs of spaces, which
//! end most patterns, are left to [`Step::Words`] and [`Step::Halves`].

use crate::error::{Error, Result};
use llmrt_gguf::nearest;

/// A known rule: the names that files use for it and what comes with it.
#[derive(Clone, Copy)]
pub(crate) struct Rule {
    pub names: &'static [&'static str],
    /// Each step cuts every piece that the step before left; what is between two matches is a piece too.
    pub steps: &'static [Step],
    /// Which words are taken as they are if they are tokens, whatever the merges would make of them.
    pub whole_words: WholeWords,
    pub bos: AddBos,
    pub spelling: Spelling,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Pieces are the matches of this pattern.
    Cut(&'static str),
    /// Pieces are the matches of this pattern, and else runs of spaces that give their last one back.
    Words(&'static str),
    /// As `Words`, and the runs of spaces fall apart into powers of two, 512 at most, the largest first.
    Halves(&'static str),
    /// Cuts after each group of three characters of the matches of this pattern, counted from their end, and after the one
    /// or two that are left at their start.
    AfterThrees(&'static str),
    /// Cuts before each group of three characters of the matches of this pattern, counted from their end.
    BeforeThrees(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WholeWords {
    No,
    Newlines,
    All,
}

/// Whether a sequence starts with `bos`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddBos {
    /// If the file has the key and it is true.
    IfKey,
    /// Unless the file has the key and it is false.
    UnlessKey,
    /// Whatever the file has.
    Always,
}

/// How tokens spell the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spelling {
    /// Each byte is a character of byte-level BPE's alphabet.
    Bytes,
    /// As it is, but for spaces, which are U+2581. Bytes of other characters are spelled `<0x0A>`.
    Spaced,
    /// As it is. Bytes of other characters are spelled `<0x0A>`.
    Plain,
}

use Step::{AfterThrees, BeforeThrees, Cut, Halves, Words};

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
    rule(
        &[
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
        &[Words(LLAMA3)],
    )
    .whole_words()
    .with_bos(),
    rule(&["smaug-bpe", "dbrx", "chatglm-bpe"], &[Words(LLAMA3)]),
    rule(&["glm4", "glm5"], &[Words(LLAMA3)]).whole_words(),
    rule(&["jais-2"], &[Halves(LLAMA3)]),
    rule(&["minicpm5"], &[Cut(r"\p{N}{1,3}"), Words(MINICPM5)]).whole_words(),
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
    rule(&["ufakzeka"], &[Words(UFAKZEKA)]),
    rule(&["laguna"], &[Cut(LINES), Words(QWEN2)]),
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
        &["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"],
        &[Cut(r"\p{N}{1,3}"), Cut(HAN_AND_KANA), Words(DEEPSEEK3)],
    ),
    rule(&["spark2_5"], &[Cut(r"\p{N}{1,3}"), Cut(HAN_AND_KANA), Words(SPARK), Cut(r"\p{N}")]),
    rule(&["afmoe"], &[AfterThrees(r"\p{N}+"), Cut(ASIAN), Words(DEEPSEEK3)]),
    rule(&["falcon"], &[Cut(r"[\p{P}$+<=>^~|`]+"), Words(GPT2), Cut("[0-9][0-9][0-9]")]),
    rule(
        &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[Cut(r"\p{N}"), Words(GPT2)],
    ),
    rule(
        &["chameleon"],
        &[
            Cut("<sentinel:[0-9]+>"),
            Cut("IMGIMG[A-I]{1,4}Z"),
            Cut(r"[\t\n]|    |  "),
            Cut(r"\p{N}"),
            Cut(r"[\p{P}!-/:-@\[-`{-~]"),
            Words(GPT2),
        ],
    )
    .with_bos(),
    rule(&["exaone-moe"], &[Words(EXAONE_MOE)]),
    rule(&["bloom", "poro-chat", "gpt3-finnish"], &[Cut(BLOOM)]),
    rule(&["viking"], &[Cut(BLOOM), Cut(r"\p{N}")]),
    rule(&["gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"], &[Words(GPT4O)]),
    rule(&["granite-embed-multi-97m"], &[Words(GRANITE)]).whole_words(),
    rule(&["tekken"], &[Words(TEKKEN)]).whole_words().with_bos(),
    rule(&["tiny_aya", "cohere2moe"], &[AfterThrees(r"\p{N}+"), Words(AYA)]),
    rule(&["youtu"], &[Cut(YOUTU_SCRIPTS), Words(YOUTU)]).whole_words(),
    rule(&["kimi-k2"], &[Words(KIMI)]),
    rule(&["seed-coder"], &[Words(SEED_CODER)]),
    rule(&["bailingmoe", "bailingmoe2", "llada-moe"], &[Words(BAILING)]),
    rule(&["superbpe"], &[Cut(r"\p{N}+"), BeforeThrees("[0-9]+")]),
    Rule {
        whole_words: WholeWords::Newlines,
        bos: AddBos::Always,
        ..rule(&["gemma4", "granite-embed-multi-311m"], &[Cut(LINES)])
    }
    .spelled(Spelling::Spaced),
    rule(&["sarvam-moe"], &[Cut(LINES)]).spelled(Spelling::Spaced),
    rule(&["whitespace"], &[Cut(r"\S+")]).spelled(Spelling::Plain),
];

const fn rule(names: &'static [&'static str], steps: &'static [Step]) -> Rule {
    Rule { names, steps, whole_words: WholeWords::No, bos: AddBos::IfKey, spelling: Spelling::Bytes }
}

impl Rule {
    const fn whole_words(self) -> Self {
        Self { whole_words: WholeWords::All, ..self }
    }

    const fn with_bos(self) -> Self {
        Self { bos: AddBos::UnlessKey, ..self }
    }

    const fn spelled(self, spelling: Spelling) -> Self {
        Self { spelling, ..self }
    }

    /// The rule that files call `name`.
    pub fn find(name: &str) -> Result<&'static Rule> {
        RULES.iter().find(|rule| rule.names.contains(&name)).ok_or_else(|| {
            let names = RULES.iter().flat_map(|rule| rule.names).copied();
            Error::UnknownPre { found: name.to_string(), nearest: nearest(name, names, 3).join(", ") }
        })
    }
}

/// Fragments that patterns share.
macro_rules! contractions {
    () => {
        r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
    };
}
macro_rules! letters {
    () => {
        r"[^\r\n\p{L}\p{N}]?\p{L}+"
    };
}
macro_rules! marks {
    () => {
        r" ?[^\s\p{L}\p{N}]+[\r\n]*"
    };
}
macro_rules! line_ends {
    () => {
        r"\s*[\r\n]+"
    };
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+";
const LLAMA3: &str = concat!(contractions!(), "|", letters!(), r"|\p{N}{1,3}|", marks!(), "|", line_ends!());
const MINICPM5: &str = concat!(contractions!(), "|", letters!(), r"|\p{N}+|", marks!(), "|", line_ends!());
const QWEN2: &str = concat!(contractions!(), "|", letters!(), r"|\p{N}|", marks!(), "|", line_ends!());
const UFAKZEKA: &str = concat!(letters!(), r"|\p{N}|", marks!(), "|", line_ends!());
const BAILING: &str = concat!(contractions!(), "|", letters!(), r"|\p{N}|", marks!(), r"|\s*[\r\n]");
const SEED_CODER: &str =
    concat!(contractions!(), "|", letters!(), r"|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|", line_ends!());
const QWEN35: &str = concat!(
    contractions!(),
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|",
    line_ends!()
);
const EXAONE_MOE: &str = concat!(
    contractions!(),
    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]"
);
const DEEPSEEK3: &str = concat!(
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r"| ?[\p{P}\p{S}]+[\r\n]*|",
    line_ends!()
);
const SPARK: &str =
    concat!(r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+", r"| ?[\p{P}\p{S}]+|[\r\n]");
/// Words of letters end where a capital follows a small letter, by ASCII case alone. Published: by the case of all letters,
/// with \p{M} among those of either case.
const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]*[\p{L}--[A-Z]]+(?:",
    contractions!(),
    r")?|[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]+[\p{L}--[A-Z]]*(?:",
    contractions!(),
    r")?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
    line_ends!()
);
const GRANITE: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[[\p{L}\p{M}]--[a-z]]*[[\p{L}\p{M}]--[A-Z]]+(?:",
    contractions!(),
    r")?|[^\r\n\p{L}\p{N}]?[[\p{L}\p{M}]--[a-z]]+[[\p{L}\p{M}]--[A-Z]]*(?:",
    contractions!(),
    r")?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
    line_ends!()
);
/// Published: as with `GPT4O`.
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]*[\p{L}--[A-Z]]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]+[\p{L}--[A-Z]]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
    line_ends!()
);
/// Published: words of letters end where a capital follows a small letter.
const AYA: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:",
    contractions!(),
    r")?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
    line_ends!()
);
/// Published: as with `AYA`.
const YOUTU: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:",
    contractions!(),
    r")?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
    line_ends!()
);
/// Hangul; CJK punctuation; Bopomofo; Han and kana.
const YOUTU_SCRIPTS: &str = concat!(
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+",
    r"|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+",
    r"|[\x{3105}-\x{312F}]+",
    r"|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"
);
macro_rules! han {
    () => {
        concat!(
            r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}",
            r"\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
        )
    };
}
/// Published: words of letters end where a capital follows a small letter, and have \p{M} among their letters.
const KIMI: &str = concat!(
    "[",
    han!(),
    r"]+|[^\r\n\p{L}\p{N}]?[\p{L}--[",
    han!(),
    r"]]+(?:",
    contractions!(),
    r")?|\p{N}{1,3}|",
    marks!(),
    "|",
    line_ends!()
);
/// All but spaces, brackets, bars and the full stops and commas of several scripts.
const BLOOM: &str = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+";
/// Runs of line feeds, and what is between them.
const LINES: &str = r"[^\n]+|\n+";
/// Published: with the spaces among these code points.
const CJK_AND_HANGUL: &str = r"[[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]--\s]+";
const HAN_AND_KANA: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";
/// Scripts without spaces between words: Han, kana, radicals, Thai, Lao, Khmer, Burmese, Hangul.
const ASIAN: &str = concat!(
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}",
    r"\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}",
    r"\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+"
);
/// ASCII punctuation, its full-width forms, quotation marks, and the first CJK marks. Published: with U+3000, a space.
const DEEPSEEK_MARKS: &str =
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}\x{3002}]+";
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
