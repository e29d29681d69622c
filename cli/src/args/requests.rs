//! Several requests at a time: the memory of their KV cache, and how they are scheduled.

use crate::error::{Error, Result};
use crate::model::OpenModel;
use crate::setup::Setup;
use crate::values;
use clap::{Args, ValueEnum};
use llmrt_engine::EngineOptions;
use llmrt_engine::memory::{KvLimit, kv_blocks};
use llmrt_engine::scheduler::{Policy, Preemption};

/// The flags; without them every sequence has room for the whole context.
#[derive(Args, Debug, Clone, Default)]
pub struct RequestsArgs {
    /// Most memory of the KV cache, on all devices together, such as 512MiB or 4GiB, for sequences that are not all at full
    /// length: where it is full, the last are preempted [default: room for all at full length].
    #[arg(long, value_name = "SIZE", value_parser = values::size, conflicts_with = "memory_utilization")]
    #[arg(help_heading = "Several sequences")]
    pub kv_memory: Option<u64>,
    /// The same by a share of each device's memory, 0 to 1, that weights, compute memory and KV cache may fill together with
    /// what is in use there. No more is taken than all sequences at full length need.
    #[arg(long, value_name = "SHARE", value_parser = values::share, help_heading = "Several sequences")]
    pub memory_utilization: Option<f64>,
    /// Host memory for the KV cache of preempted sequences [default: none; they are computed again].
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Several sequences")]
    pub swap_space: Option<u64>,
    /// Which sequences a step serves.
    #[arg(long, value_enum, default_value_t, value_name = "POLICY", help_heading = "Several sequences")]
    pub scheduling: SchedulingArg,
    /// How preempted sequences get their keys and values back.
    #[arg(long, value_enum, default_value_t, value_name = "MODE", help_heading = "Several sequences")]
    pub preemption: PreemptionArg,
}

/// `--scheduling`.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SchedulingArg {
    /// Decodes first, then chunks of prompts, within --batch tokens: a decode never waits for a prompt.
    #[default]
    Chunked,
    /// Whole prompts, or decodes.
    PrefillFirst,
}

/// `--preemption`.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PreemptionArg {
    /// What is faster by measured times, where there is swap space.
    #[default]
    Auto,
    /// Compute them again.
    Recompute,
    /// Keep them in swap space while there is room.
    Swap,
}

impl RequestsArgs {
    /// Sets the options; `options` has the context and the number of sequences already.
    pub fn apply(&self, options: &mut EngineOptions, setup: &Setup, model: &OpenModel) -> Result<()> {
        options.swap_space = self.swap_space.unwrap_or(0);
        options.policy = match self.scheduling {
            SchedulingArg::Chunked => Policy::Chunked,
            SchedulingArg::PrefillFirst => Policy::PrefillFirst,
        };
        options.preemption = match self.preemption {
            PreemptionArg::Auto => Preemption::Auto,
            PreemptionArg::Recompute => Preemption::Recompute,
            PreemptionArg::Swap => Preemption::Swap,
        };
        if self.preemption == PreemptionArg::Swap && options.swap_space == 0 {
            return Err(Error::usage("--preemption swap: there is no swap space; give --swap-space"));
        }
        let share = self.memory_utilization.map(KvLimit::Share);
        let Some(limit) = self.kv_memory.map(KvLimit::Bytes).or(share) else { return Ok(()) };
        let n_blocks = kv_blocks(&setup.devices, &model.files, options, limit);
        options.kv_blocks = Some(n_blocks.map_err(|e| Error::from(e).of_model(&model.name))?);
        Ok(())
    }

    /// The first flag that is given, if one is.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--kv-memory", self.kv_memory.is_some()),
            ("--memory-utilization", self.memory_utilization.is_some()),
            ("--swap-space", self.swap_space.is_some()),
            ("--scheduling", self.scheduling != SchedulingArg::default()),
            ("--preemption", self.preemption != PreemptionArg::default()),
        ];
        flags.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }
}
