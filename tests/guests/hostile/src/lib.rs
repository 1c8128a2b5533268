//! A guest that misbehaves as its parameters state, so that tests can check the host's limits.
//!
//! One component has all misbehaviours: the parameter `train` selects that of [`train`], and the configuration's `load`
//! and `predict` those of the predictor [`HostilePredictor`]. The values are the names in [`TRAININGS`], [`LOADS`] and
//! [`PREDICTIONS`], and for all three those in [`DAMAGES`]. The first name of each of the three behaves well. A
//! well-behaved training publishes a version whose configuration is its parameters `load` and `predict`.

mod damage;
mod predict;
mod slow;
mod train;

pub use damage::DAMAGES;
pub use predict::{HostilePredictor, LOADS, PREDICTIONS};
pub use train::{TRAININGS, train};

saggar_plugin::export!(predictor: HostilePredictor);
saggar_plugin::export!(train: train);
