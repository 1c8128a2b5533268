//! Convolutions with channels last, and their adjoints, tile by tile in the domain where they are products of fewer
//! multiplications: with three by three taps 36 for sixteen results instead of 144, or sixteen for four instead of 36, and
//! with five by five taps 36 for four results instead of 100.
//!
//! A number that is not finite, or past about 10^36, reaches all results of its tiles and not only those whose windows
//! it is in: a difference of two infinities is none.

#![expect(clippy::needless_range_loop, reason = "loops over constants are unrolled, so that tiles stay in registers")]

mod filter;
mod filter_grad;
mod forward;
mod grid;
mod images;
mod input_grad;
mod results;
mod tile;
mod transform;

#[cfg(test)]
mod tests;

pub(super) use filter::PointsForm;
pub(super) use filter_grad::FilterGrad;
pub(super) use forward::Forward;
pub(super) use input_grad::InputGrad;
