//! The sampling flags as a sampler.

use crate::args::{SamplerArg, SamplingArgs};
use crate::clock;
use crate::error::{Error, Result};
use llmrt_engine::{Decoding, Sampler, SamplingParams, TokenId};

/// How tokens are picked by the flags, and the seed.
pub fn decoding(args: &SamplingArgs, n_vocab: u64) -> Result<(Decoding, u64)> {
    match args.sampler {
        SamplerArg::Chain => {
            let (params, seed) = checked(args, n_vocab)?;
            Ok((Decoding::Sample { params, seed }, seed))
        }
        SamplerArg::Llama2c => llama2c(args),
    }
}

/// The numbers of the chain, which fit the vocabulary, and the seed.
fn checked(args: &SamplingArgs, n_vocab: u64) -> Result<(SamplingParams, u64)> {
    let params = params(args)?;
    params.check().map_err(named_by_flag)?;
    if let Some((id, _)) = params.logit_bias.iter().find(|(id, _)| u64::from(*id) >= n_vocab) {
        let last = n_vocab.saturating_sub(1);
        return Err(Error::usage(format!(
            "--logit-bias: token {id} does not exist: the ids are 0 to {last}"
        )));
    }
    Ok((params, args.seed.and_then(|seed| seed.0).unwrap_or_else(clock::seed)))
}

/// The numbers of the chain; without a flag the engine's default.
pub fn params(args: &SamplingArgs) -> Result<SamplingParams> {
    let default = SamplingParams::default();
    if let Some(temp) = args.temp.filter(|t| !t.is_finite() || *t < 0.0) {
        return Err(Error::usage(format!(
            "--temp {temp}: expected a number, 0 or more; 0 always takes the likeliest token"
        )));
    }
    let repeat_last_n = args.repeat_last_n.unwrap_or(default.repeat_last_n.into());
    let top_k = args.top_k.map(|k| k.clamp(0, i32::MAX.into()) as i32);
    Ok(SamplingParams {
        temperature: args.temp.unwrap_or(default.temperature),
        rules: default.rules,
        top_k: top_k.unwrap_or(default.top_k),
        top_p: args.top_p.unwrap_or(default.top_p),
        min_p: args.min_p.unwrap_or(default.min_p),
        typical_p: args.typical.unwrap_or(default.typical_p),
        repeat_penalty: args.repeat_penalty.unwrap_or(default.repeat_penalty),
        frequency_penalty: args.frequency_penalty.unwrap_or(default.frequency_penalty),
        presence_penalty: args.presence_penalty.unwrap_or(default.presence_penalty),
        repeat_last_n: repeat_last_n.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
        logit_bias: args.logit_bias.iter().map(|text| logit_bias(text)).collect::<Result<_>>()?,
        seed: args.seed.and_then(|seed| seed.0),
    })
}

/// As llama2.c's `run` reads its flags: a negative temperature is 0, a top-p outside 0 to 1 is 0.9, seed 0 is the
/// clock's. Flags that it does not have are refused.
fn llama2c(args: &SamplingArgs) -> Result<(Decoding, u64)> {
    let foreign = [
        ("--top-k", args.top_k.is_some()),
        ("--min-p", args.min_p.is_some()),
        ("--typical", args.typical.is_some()),
        ("--repeat-penalty", args.repeat_penalty.is_some()),
        ("--repeat-last-n", args.repeat_last_n.is_some()),
        ("--frequency-penalty", args.frequency_penalty.is_some()),
        ("--presence-penalty", args.presence_penalty.is_some()),
        ("--logit-bias", !args.logit_bias.is_empty()),
        ("--stop", !args.stop.is_empty()),
        ("--ignore-eos", args.ignore_eos),
    ];
    if let Some((flag, _)) = foreign.iter().find(|(_, given)| *given) {
        return Err(Error::usage(format!(
            "{flag} does nothing with --sampler llama2c: leave one of them out"
        )));
    }
    let temperature = args.temp.unwrap_or(1.0);
    let temperature = if temperature < 0.0 { 0.0 } else { temperature };
    let top_p = args.top_p.unwrap_or(0.9);
    let top_p = if (0.0..=1.0).contains(&top_p) { top_p } else { 0.9 };
    let seed = args.seed.and_then(|seed| seed.0).filter(|&seed| seed != 0).unwrap_or_else(clock::seed);
    Sampler::llama2c(temperature, top_p, seed).map_err(named_by_flag)?;
    Ok((Decoding::Llama2c { temperature, top_p, seed }, seed))
}

/// Whether a person needs the seed to get the same text again: it came from the clock, and chance decides.
pub fn is_seed_news(args: &SamplingArgs) -> bool {
    let from_clock = match args.seed.and_then(|seed| seed.0) {
        None => true,
        Some(seed) => seed == 0 && args.sampler == SamplerArg::Llama2c,
    };
    from_clock && args.temp.is_none_or(|temp| temp > 0.0)
}

/// `ID+BIAS` or `ID-BIAS`; `ID-inf` forbids a token.
fn logit_bias(text: &str) -> Result<(TokenId, f32)> {
    let split = text.find(['+', '-']).map(|at| text.split_at(at));
    let parsed = split.and_then(|(id, bias)| Some((id.trim().parse().ok()?, bias.trim().parse().ok()?)));
    parsed.ok_or_else(|| {
        Error::usage(format!(
            "--logit-bias {text}: expected ID+BIAS or ID-BIAS, such as 15043+1.5, or 2-inf to forbid"
        ))
    })
}

/// The engine names parameters; a person typed flags.
fn named_by_flag(e: llmrt_engine::Error) -> Error {
    let llmrt_engine::Error::BadParam { name, found, expected } = e else { return e.into() };
    let flag = match name {
        "temperature" => "temp".to_string(),
        "typical_p" => "typical".to_string(),
        name => name.replace('_', "-"),
    };
    // Fractions were f32 before the engine widened them.
    let found = if found.fract() == 0.0 { found.to_string() } else { (found as f32).to_string() };
    Error::usage(format!("--{flag} {found}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use crate::cmd::run::Run;

    fn parse(flags: &str) -> SamplingArgs {
        args::flags::<Run>(&format!("llmrt run {flags}")).sampling
    }

    fn refused(flags: &str, expected: &str) {
        let error = decoding(&parse(flags), 100).err().unwrap_or_else(|| panic!("{flags} was accepted"));
        assert!(error.message.contains(expected), "{}", error.message);
        assert_eq!(error.exit, crate::error::Exit::Usage);
    }

    #[test]
    fn flags_become_parameters() {
        let p =
            params(&parse("--temp 0.5 --top-k 7 --top-p 0.8 --min-p 0.1 --typical 0.9 --repeat-last-n -1"))
                .unwrap();
        assert_eq!(
            (p.temperature, p.top_k, p.top_p, p.min_p, p.typical_p, p.repeat_last_n),
            (0.5, 7, 0.8, 0.1, 0.9, -1)
        );
        assert_eq!(params(&parse("")).unwrap(), SamplingParams::default());
        assert_eq!(params(&parse("--top-k -1")).unwrap().top_k, 0, "0 keeps all");
    }

    #[test]
    fn a_seed_is_noted_when_it_is_from_the_clock_and_matters() {
        for (flags, expected) in [
            ("", true),
            ("-s -1", true),
            ("-s 7", false),
            ("-s 0", false),
            ("-s 0 --sampler llama2c", true),
            ("--temp 0", false),
        ] {
            assert_eq!(is_seed_news(&parse(flags)), expected, "{flags}");
        }
    }

    #[test]
    fn biases_are_read_in_llama_cpps_spelling() {
        let p = params(&parse("--logit-bias 5+1.5 --logit-bias 6-2 --logit-bias 7-inf")).unwrap();
        assert_eq!(p.logit_bias, [(5, 1.5), (6, -2.0), (7, f32::NEG_INFINITY)]);
    }

    #[test]
    fn values_out_of_range_are_named_by_their_flag() {
        refused("--temp -1", "--temp -1: expected a number, 0 or more; 0 always takes the likeliest");
        refused("--temp nan", "--temp NaN");
        refused("--temp inf", "--temp inf: expected a number, 0 or more; 0 always takes the likeliest");
        refused("--top-p 1.5", "--top-p 1.5: expected 0 to 1");
        refused("--typical 2", "--typical 2: expected 0 to 1");
        refused("--repeat-last-n -9223372036854775808", "--repeat-last-n -2147483648");
        refused("--logit-bias five", "--logit-bias five: expected ID+BIAS");
        refused("--logit-bias -5+1", "--logit-bias -5+1: expected ID+BIAS");
        refused("--logit-bias 5+x", "expected ID+BIAS");
        refused("--logit-bias 5+inf", "logit bias of token 5 is inf");
        refused("--logit-bias 100+1", "token 100 does not exist: the ids are 0 to 99");
    }

    #[test]
    fn llama2c_takes_its_own_flags_only_and_corrects_their_values() {
        assert!(decoding(&parse("--sampler llama2c --temp -3 --top-p 7 --seed 0"), 100).is_ok());
        let (_, seed) = decoding(&parse("--sampler llama2c --seed 42"), 100).unwrap();
        assert_eq!(seed, 42);
        refused("--sampler llama2c --top-k 5", "--top-k does nothing with --sampler llama2c");
        refused("--sampler llama2c --stop x", "--stop does nothing");
        refused("--sampler llama2c --ignore-eos", "--ignore-eos does nothing");
    }
}
