//! Winograd convolutions and their adjoints in NHWC layout. Tiles are transformed to a domain in which a convolution
//! needs fewer multiplications: with 3x3 taps, 36 for sixteen results instead of 144, or 16 for four instead of 36;
//! with 5x5 taps, 36 for four results instead of 100.
//!
//! A value that is not finite, or beyond about 10^36, spreads to all results of its tiles and not only to those whose
//! windows contain it, because the difference of two infinities is NaN.

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

pub(crate) use filter_grad::WinogradFilterGrad;
pub(crate) use forward::WinogradConv2d;
pub(crate) use input_grad::WinogradInputGrad;
