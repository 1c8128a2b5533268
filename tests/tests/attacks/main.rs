//! Attacks on the real binary, which `make attack` runs for longer.

mod clients;
mod compile;
mod data;
mod import;
mod memory;
mod rights;
mod time;
