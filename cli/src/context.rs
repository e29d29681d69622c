//! Context length, batch size and KV cache type: the flags, checked.

use crate::args::ContextArgs;
use crate::error::{Error, Result};
use crate::output::note;
use llmrt_abi::DType;
use llmrt_engine::EngineOptions;
use llmrt_engine::device_topk::KEEP_LOGITS_FROM;
use llmrt_engine::memory::KV_TYPES;
use llmrt_engine::options::MAX_BLOCK_SIZE;
use llmrt_engine::tensor_rules::TensorRule;
use llmrt_host::sched::SplitMode;
use std::sync::Arc;

/// Without -c the context is the model's, up to this.
const DEFAULT_MAX_CTX: usize = 4096;

/// Positions are i32, and the cache is made of whole blocks.
const MAX_CTX: usize = i32::MAX as usize / MAX_BLOCK_SIZE * MAX_BLOCK_SIZE;

/// How work is placed.
#[derive(Clone, Default)]
pub struct Placing {
    /// Whether work that falls back to another device is an error.
    pub strict: bool,
    /// How devices share a model.
    pub split: SplitMode,
    /// Weights that are for one device.
    pub tensors: Arc<[TensorRule]>,
    /// Tokens in a block of the KV cache, as the devices prefer.
    pub block_size: Option<usize>,
}

/// What a command takes where no flag is given.
pub struct Defaults {
    /// Tokens of the context; `None`: the model's, at most 4096.
    pub n_ctx: Option<usize>,
    /// Type of the KV cache.
    pub kv_type: DType,
}

/// Checks the flags. `n_ctx_train` is the length the model was trained on; how work is placed is [`crate::setup::Setup::placing`]'s.
pub fn engine_options(
    args: &ContextArgs,
    n_ctx_train: Option<usize>,
    defaults: Defaults,
    placing: Placing,
) -> Result<EngineOptions> {
    let n_ctx = match (args.ctx, defaults.n_ctx) {
        (Some(0), _) => n_ctx_train.unwrap_or(DEFAULT_MAX_CTX),
        (Some(n), _) => n,
        (None, Some(n)) => n,
        (None, None) => n_ctx_train.unwrap_or(DEFAULT_MAX_CTX).min(DEFAULT_MAX_CTX),
    };
    if !(1..=MAX_CTX).contains(&n_ctx) {
        return Err(Error::usage(format!(
            "--ctx {n_ctx}: expected 1 to {MAX_CTX} tokens; 0 is what the model was trained on"
        )));
    }
    if let (Some(trained), Some(given)) = (n_ctx_train.filter(|&n| n < n_ctx), args.ctx) {
        note(format_args!(
            "--ctx {given}: the model was trained on {trained} tokens; beyond them it gets worse"
        ));
    }
    if args.batch == 0 {
        return Err(Error::usage("--batch 0: expected 1 or more tokens; leave it out for 512"));
    }
    let block_size = args.block_size.filter(|n| n.is_power_of_two() && *n <= MAX_BLOCK_SIZE);
    if let (Some(n), None) = (args.block_size, block_size) {
        return Err(Error::usage(format!(
            "--block-size {n}: expected a power of two up to {MAX_BLOCK_SIZE}"
        )));
    }
    let kv_type = args.kv_type.as_deref().map_or(Ok(defaults.kv_type), kv_type)?;
    Ok(EngineOptions {
        n_ctx,
        n_batch: args.batch.min(n_ctx),
        swa_full: args.swa_full,
        sparse: args.sparse.options(),
        neurons: args.sparse.neurons(),
        k_type: kv_type,
        v_type: kv_type,
        strict: placing.strict,
        split: placing.split,
        tensors: placing.tensors,
        block_size: block_size.or(placing.block_size),
        keep_logits_from: KEEP_LOGITS_FROM,
        ..EngineOptions::default()
    })
}

fn kv_type(name: &str) -> Result<DType> {
    let found = DType::from_name(name).filter(|t| KV_TYPES.contains(t));
    found.ok_or_else(|| {
        let names = KV_TYPES.map(|t| t.name().to_ascii_lowercase());
        Error::usage(format!("--kv-type {name}: expected {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        ctx: Option<usize>,
        batch: usize,
        kv_type: &str,
        trained: Option<usize>,
    ) -> Result<(usize, usize, DType)> {
        let kv_type = Some(kv_type.to_string()).filter(|name| !name.is_empty());
        let args = ContextArgs {
            ctx,
            batch,
            kv_type,
            swa_full: false,
            block_size: None,
            sparse: Default::default(),
        };
        let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
        engine_options(&args, trained, defaults, Default::default()).map(|o| (o.n_ctx, o.n_batch, o.k_type))
    }

    #[test]
    fn the_models_context_counts_up_to_4096() {
        assert_eq!(check(None, 512, "", Some(256)).unwrap(), (256, 256, DType::F16));
        assert_eq!(check(None, 512, "", Some(131_072)).unwrap(), (4096, 512, DType::F16));
        assert_eq!(check(None, 512, "", None).unwrap(), (4096, 512, DType::F16));
        assert_eq!(check(Some(0), 512, "", Some(131_072)).unwrap(), (131_072, 512, DType::F16));
        assert_eq!(check(Some(0), 512, "", None).unwrap(), (4096, 512, DType::F16));
        assert_eq!(check(Some(8192), 64, "Q8_0", Some(131_072)).unwrap(), (8192, 64, DType::Q8_0));
    }

    #[test]
    fn blocks_are_as_the_flag_sets_or_as_the_devices_prefer() {
        let of = |flag, preferred| {
            let kv_type = Some("f16".to_string());
            let args = ContextArgs {
                ctx: None,
                batch: 1,
                kv_type,
                swa_full: false,
                block_size: flag,
                sparse: Default::default(),
            };
            let placing = Placing { block_size: preferred, ..Placing::default() };
            let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
            engine_options(&args, None, defaults, placing).map(|options| options.block_size())
        };
        assert_eq!((of(None, None).unwrap(), of(None, Some(128)).unwrap()), (16, 128));
        assert_eq!((of(Some(32), Some(128)).unwrap(), of(Some(1024), None).unwrap()), (32, 1024));
        for refused in [0, 48, 2048] {
            let e = of(Some(refused), Some(128)).unwrap_err().message;
            assert!(e.contains("expected a power of two up to 1024"), "{e}");
        }
    }

    #[test]
    fn absurd_values_are_refused_with_what_would_make_sense() {
        for (ctx, batch, kv_type, expected) in [
            (Some(usize::MAX), 512, "", "expected 1 to 2147482624 tokens"),
            (None, 0, "", "--batch 0: expected 1 or more"),
            (None, 512, "q4_0", "--kv-type q4_0: expected f16, f32, q8_0"),
            (None, 512, "int7", "--kv-type int7: expected"),
        ] {
            let error = check(ctx, batch, kv_type, Some(256)).unwrap_err();
            assert!(error.message.contains(expected), "{}", error.message);
            assert_eq!(error.exit, crate::error::Exit::Usage);
        }
    }
}
