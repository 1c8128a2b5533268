//! Compiled programs: their results, their schedules, which operators are fused, and the time to compile them.

#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

mod equivalence;
mod fused_matmul;
mod golden;
mod scaling;
