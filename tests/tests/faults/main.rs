//! Faults of machines and plugins, input that is not valid, and limits.

mod chaos;
mod crash_recovery;
mod device_loss;
mod disk;
mod hostile;
mod invalid_outputs;
mod memory;
mod mutations;
mod overload;
mod plugins;
mod processes;
mod resource_limits;
mod state_directory;
mod training_limits;
