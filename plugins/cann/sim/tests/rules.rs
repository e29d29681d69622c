//! What the simulator insists on: each test uses the vendor's functions wrongly, or in a way that is often got wrong, and
//! sees the answer that a card, or only the simulator, gives.

#[path = "rules/machine.rs"]
#[macro_use]
mod machine;

#[path = "rules/memory.rs"]
mod memory;

#[path = "rules/streams.rs"]
mod streams;

#[path = "rules/contexts.rs"]
mod contexts;

#[path = "rules/events.rs"]
mod events;

#[path = "rules/plans.rs"]
mod plans;

#[path = "rules/virtual_memory.rs"]
mod virtual_memory;

#[path = "rules/captures.rs"]
mod captures;

#[path = "rules/attention.rs"]
mod attention;

#[path = "rules/operators.rs"]
mod operators;

#[path = "rules/numbers.rs"]
mod numbers;

#[path = "rules/libraries.rs"]
mod libraries;

#[path = "rules/collectives.rs"]
mod collectives;
