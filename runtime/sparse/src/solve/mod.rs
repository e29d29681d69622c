//! Which neurons go to which device: the most activations for a number of neurons, as upstream chooses, or the least
//! time for a token. Both are one choice per layer under a limit per device, solved exactly by one dynamic program.

mod activations;
mod program;
mod time;

pub use activations::{ActivationRequest, UPSTREAM_BATCH, most_activations, upstream_capacity};
pub use time::{Device, LayerCost, Plan, TimeRequest, least_time};
