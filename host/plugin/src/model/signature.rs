//! What a model says of itself, checked once.

use std::collections::BTreeSet;

use saggar_tensor::limits::NAME_BYTES_MAX;
use saggar_tensor::{Descriptor, Shape};

use crate::bindings::predictor;
use crate::convert;
use crate::error::PluginError;
use crate::limits::{BATCH_ITEMS_MAX, BATCH_SIZES_MAX, CLASSES_MAX, SIGNATURE_PORTS_MAX};

/// A named input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPort {
    /// Its name, unique among the inputs or the outputs.
    pub name: String,
    /// Data type and shape of one item, without the batch.
    pub item: Descriptor,
    /// What it is, so that clients may send and get better forms than numbers: `image`, `class`, `probabilities`.
    pub semantics: Option<String>,
    /// Names of the classes, or empty.
    pub classes: Vec<String>,
}

impl ModelPort {
    /// Data type and shape of a batch: `[items, item...]`.
    ///
    /// # Errors
    /// `BadInput` where it would be too large for a tensor.
    pub fn batch(&self, items: usize) -> Result<Descriptor, PluginError> {
        let dims = [&[items], self.item.shape.dims()].concat();
        match Shape::new(dims) {
            Ok(shape) => Ok(Descriptor::new(self.item.dtype, shape)),
            Err(error) => Err(PluginError::BadInput {
                name: self.name.clone(),
                expected: "a tensor within limits".to_owned(),
                given: format!("{items} items of {}: {error}", self.item),
            }),
        }
    }
}

/// What a model takes and gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// At least one.
    pub inputs: Vec<ModelPort>,
    /// At least one.
    pub outputs: Vec<ModelPort>,
    /// Batch sizes that the model has graphs for: ascending. Empty where it knows no batches: then an item is a whole call.
    pub batch_sizes: Vec<usize>,
}

impl Signature {
    /// # Errors
    /// `BadSignature`.
    pub(super) fn new(given: predictor::Signature) -> Result<Signature, PluginError> {
        let batch_sizes = convert::sizes(&given.batch_sizes);
        let (smallest, largest) = (batch_sizes.first().copied().unwrap_or(1), batch_sizes.last().copied().unwrap_or(1));
        let ascending = batch_sizes.is_sorted_by(|a, b| a < b);
        if !ascending || smallest == 0 || largest > BATCH_ITEMS_MAX as usize || batch_sizes.len() > BATCH_SIZES_MAX {
            return Err(PluginError::signature(format!(
                "batch sizes {batch_sizes:?} are not up to {BATCH_SIZES_MAX} ascending sizes from 1 to {BATCH_ITEMS_MAX}"
            )));
        }
        let inputs = ports("input", given.inputs, largest)?;
        let outputs = ports("output", given.outputs, largest)?;
        Ok(Signature { inputs, outputs, batch_sizes })
    }
}

fn ports(kind: &str, given: Vec<predictor::Port>, largest: usize) -> Result<Vec<ModelPort>, PluginError> {
    if given.is_empty() || given.len() > SIGNATURE_PORTS_MAX {
        let count = given.len();
        return Err(PluginError::signature(format!("it has {count} {kind}s, not 1 to {SIGNATURE_PORTS_MAX}")));
    }
    let mut names = BTreeSet::new();
    let mut ports = Vec::with_capacity(given.len());
    for predictor::Port { name, item, semantics, classes } in given {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !names.insert(name.clone()) {
            return Err(PluginError::signature(format!("the {kind} name {name:?} is empty, too long or used twice")));
        }
        if classes.len() > CLASSES_MAX {
            let count = classes.len();
            return Err(PluginError::signature(format!("{kind} {name} has {count} classes, more than {CLASSES_MAX}")));
        }
        let dims = convert::sizes(&item.shape);
        let shape = Shape::new(dims).map_err(|error| PluginError::signature(format!("{kind} {name}: {error}")))?;
        let item = Descriptor::new(convert::dtype(item.data_type), shape);
        let port = ModelPort { name, item, semantics, classes };
        port.batch(largest).map_err(|error| PluginError::signature(error.to_string()))?;
        ports.push(port);
    }
    Ok(ports)
}
