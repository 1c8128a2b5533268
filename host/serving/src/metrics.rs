//! Metrics and statistics of models, versions and predictions.

pub mod device_usage;
pub mod metered_predictor;
pub mod model_metrics;
pub mod prediction_outcome;
pub mod rejection;
pub mod statistics;
pub mod version_metrics;
