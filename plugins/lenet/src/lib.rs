//! LeNet: the reference plugin.
//!
//! It classifies small images of any size, grey or RGB: two convolutions, each followed by a pooling, and two linear
//! layers (LeCun et al. 1998, with ReLU and max-pooling as is usual today). It trains on any dataset with the fields
//! `image` (`uint8[height, width]` or `uint8[height, width, 3]`) and `label`. The published model returns the class,
//! its probability and the probabilities of all classes.

mod model;
mod train;
mod wrong_predictions;

pub use model::{Lenet, LenetConfig};
pub use train::train;

saggar_plugin::export!(Lenet, train);
