//! Convolutions with channels last, and their adjoints, tile by tile in the domain where they are products of fewer
//! multiplications: with three by three taps 36 for sixteen results instead of 144, or sixteen for four instead of 36, and
//! with five by five taps 36 for four results instead of 100.
//!
//! A number that is not finite, or past about 10^36, reaches all results of its tiles and not only those whose windows
//! it is in: a difference of two infinities is none.

#![expect(clippy::needless_range_loop, reason = "loops over constants are unrolled, so that tiles stay in registers")]

mod filter_grad;
mod filter_transform;
mod forward;
mod input_grad;
mod input_transform;
mod output_transform;
mod tile;
mod tile_grid;
mod transform;

#[cfg(test)]
mod tests;

pub(super) use filter_grad::WinogradFilterGrad;
pub(super) use filter_transform::WinogradFilterLayout;
pub(super) use forward::WinogradConv2d;
pub(super) use input_grad::WinogradInputGrad;
