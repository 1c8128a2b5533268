//! Misbehaves in whichever way it is told to, so that tests can hold the host to its limits.
//!
//! One component does everything: the parameter `train` chooses what [`train`] does, the configuration's `load` and
//! `predict` what the predictor [`HostilePredictor`] does. Their values are the names in [`TRAININGS`], [`LOADS`] and
//! [`PREDICTIONS`], and for all three those in [`DAMAGES`]. The first of each of the three behaves well, and a training
//! that behaves well publishes a version whose configuration is its parameters `load` and `predict`.

mod damage;
mod predict;
mod slow;
mod train;

pub use damage::DAMAGES;
pub use predict::{HostilePredictor, LOADS, PREDICTIONS};
pub use train::{TRAININGS, train};

saggar_plugin::export!(predictor: HostilePredictor);
saggar_plugin::export!(train: train);
