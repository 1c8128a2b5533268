//! From a verified graph to a program: simplify, fuse, schedule, plan memory, and write kernels as WGSL text.
//!
//! Pure: no I/O, no GPU, no clock. Passes run in the order of [`compile`]; devices execute [`Program`]s.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod expr;
pub mod program;
pub mod target;
