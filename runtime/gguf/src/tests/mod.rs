//! Files written, spoiled and read again.

mod corruption;
mod getters;
mod mutations;
mod prefixes;
mod round_trip;
