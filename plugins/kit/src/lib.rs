//! What a plugin is written with: safe traits in, the C tables of the ABI out, panics stopped at the edge.
//!
//! A plugin implements [`Driver`], [`Device`], [`Buffer`] and [`Stream`] and ends with
//! [`export_plugin!`]. `plugins/null` is the smallest one; start by copying it.
//! Reading order: [`driver`] for the traits, [`view`] and [`tensor_view`] for graphs and tensors as a plugin sees them,
//! [`host`] for the host's functions, [`error`] for how to report failures. [`captured`], [`in_flight`] and [`pinned`] are for
//! devices with streams of their own.

pub mod captured;
pub mod driver;
pub mod error;
pub mod export;
pub mod graph_copy;
pub mod host;
pub mod in_flight;
pub mod info;
pub mod pinned;
pub mod scratch;
pub mod tensor_view;
pub mod threads;
pub mod view;

pub mod entry;

pub use captured::{CaptureCache, CaptureSlot, CapturedPlan};
pub use driver::{Buffer, Device, Driver, Event, Group, Layout, Plan, Stream, StreamFeatures, StreamParams};
pub use error::{Error, Result};
pub use graph_copy::{GraphCopy, OwnBuffer};
pub use host::{Host, Level};
pub use in_flight::InFlight;
pub use info::{BufferTypeInfo, DeviceInfo, PluginInfo};
pub use llmrt_abi as abi;
pub use llmrt_abi::types::Verdict;
pub use llmrt_abi::{DType, Op, Reason, Scope, Status};
pub use pinned::{PINNED_ALIGNMENT, PinnedBuffer, PinnedMemory};
pub use scratch::{DevmemLimits, Piece, Scratch, ScratchMemory};
pub use tensor_view::{PeerView, TensorView};
pub use threads::{Team, Threads};
pub use view::{GraphView, NodeView};
