//! The state of a training instance: its job, what it has reported so far, and its loss scale.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saggar_store::ImageInputs;
use saggar_store::dataset::ColumnarDataset;

use crate::job_context::JobContext;
use crate::loss_scale::loss_scale_state::LossScaleState;

/// The additional state of a training instance.
pub(crate) struct TrainRole {
    pub(crate) context: Box<dyn JobContext>,
    pub(crate) datasets: BTreeMap<String, Arc<ColumnarDataset>>,
    /// Digest of the plugin's component.
    pub(crate) plugin_digest: String,
    /// Names of the metrics written so far.
    pub(super) series: BTreeSet<String>,
    /// The declared preprocessing of image inputs.
    pub(crate) image_inputs: ImageInputs,
    /// Names of the fields that batches were created of.
    pub(crate) batch_fields: BTreeSet<String>,
    /// Number of phases started so far.
    pub(super) phases: usize,
    /// Bytes of each file written so far, by path.
    pub(super) outputs: BTreeMap<String, usize>,
    /// Whether the plugin was asked to return.
    pub(crate) stopped: bool,
    /// The loss scale of a training in mixed precision.
    pub(crate) loss_scale_state: LossScaleState,
}

impl TrainRole {
    pub(crate) fn new(
        context: Box<dyn JobContext>,
        datasets: BTreeMap<String, Arc<ColumnarDataset>>,
        plugin_digest: String,
    ) -> TrainRole {
        TrainRole {
            context,
            datasets,
            plugin_digest,
            series: BTreeSet::new(),
            image_inputs: ImageInputs::new(),
            batch_fields: BTreeSet::new(),
            phases: 0,
            outputs: BTreeMap::new(),
            stopped: false,
            loss_scale_state: LossScaleState::default(),
        }
    }
}
