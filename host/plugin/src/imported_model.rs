//! The result of an import.

use saggar_store::checkpoint::SavedVariable;

/// The result of an import: the content of a model version, except its plugin.
#[derive(Clone, Debug)]
pub struct ImportedModel {
    /// The weights.
    pub variables: Vec<SavedVariable>,
    /// The configuration for the plugin's `predictor.load`.
    pub config: String,
}
