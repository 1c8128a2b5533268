//! Predictions, independent of the protocol by which they arrive.

pub mod deadline;
pub mod memory_estimate;
pub mod prediction_call;
pub mod prediction_inputs;
pub mod prediction_record;
pub mod prediction_sampler;
pub mod prediction_service;
pub mod response_cache;
pub mod shadow;
