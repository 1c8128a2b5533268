//! The folders of a bucket whose names several modules need.

/// Versions of datasets.
pub(crate) const DATASETS_FOLDER: &str = "datasets";

/// Versions of models.
pub(crate) const MODELS_FOLDER: &str = "models";

/// Uploads of datasets that are not complete.
pub(crate) const UPLOADS_FOLDER: &str = "uploads";

/// Predictions that are too large for a row of the records.
pub const PREDICTIONS_FOLDER: &str = "predictions";
