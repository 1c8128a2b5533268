//! The signature of a model, as its plugin reports it, checked once.

use std::collections::BTreeSet;

use saggar_tensor::limits::NAME_BYTES_MAX;
use saggar_tensor::{Descriptor, Shape};

use crate::bindings::{http_handler, predictor};
use crate::convert;
use crate::error::PluginError;
use crate::http_handler::handler_route::{HandlerRoute, parse_handler_routes};
use crate::limits::{BATCH_ITEMS_MAX, BATCH_SIZES_MAX, CLASSES_MAX, SIGNATURE_PORTS_MAX};

use super::model_port::{ModelPort, encode_in_range};
use super::route::{ModelRoute, parse_routes};

/// The inputs, outputs, batch sizes and routes of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSignature {
    /// Inputs, at least one.
    pub inputs: Vec<ModelPort>,
    /// Outputs, at least one.
    pub outputs: Vec<ModelPort>,
    /// Batch sizes that the model has graphs for, ascending. Empty for a model without batches: then each item is a
    /// separate call.
    pub batch_sizes: Vec<usize>,
    /// Additional paths below the model's path.
    pub routes: Vec<ModelRoute>,
    /// Paths that the plugin answers with its own code.
    pub handlers: Vec<HandlerRoute>,
}

impl ModelSignature {
    /// Returns the input that a request without input names refers to: the only one, or the only one without a default.
    pub fn only_input(&self) -> Option<&ModelPort> {
        if let [port] = self.inputs.as_slice() {
            return Some(port);
        }
        let mut needed = self.inputs.iter().filter(|port| port.default.is_none());
        needed.next().filter(|_| needed.next().is_none())
    }

    /// Checks a signature and the routes of handlers that a plugin reported.
    ///
    /// # Errors
    /// `BadSignature`.
    pub(super) fn from_wit(
        given: predictor::Signature,
        handlers: Vec<http_handler::HandlerRoute>,
    ) -> Result<ModelSignature, PluginError> {
        let batch_sizes = convert::to_usizes(&given.batch_sizes);
        let (smallest, largest) = (batch_sizes.first().copied().unwrap_or(1), batch_sizes.last().copied().unwrap_or(1));
        let ascending = batch_sizes.is_sorted_by(|a, b| a < b);
        if !ascending || smallest == 0 || largest > BATCH_ITEMS_MAX as usize || batch_sizes.len() > BATCH_SIZES_MAX {
            return Err(PluginError::signature(format!(
                "batch sizes {batch_sizes:?} are not up to {BATCH_SIZES_MAX} ascending sizes from 1 to {BATCH_ITEMS_MAX}"
            )));
        }
        let inputs = parse_ports("input", given.inputs, largest)?;
        let outputs = parse_ports("output", given.outputs, largest)?;
        if let Some(port) = outputs.iter().find(|port| port.default.is_some()) {
            let name = &port.name;
            return Err(PluginError::signature(format!("output {name} has a default, which only inputs have")));
        }
        let routes = parse_routes(given.routes, &inputs)?;
        let handlers = parse_handler_routes(handlers, &routes)?;
        Ok(ModelSignature { inputs, outputs, batch_sizes, routes, handlers })
    }
}

fn parse_ports(kind: &str, given: Vec<predictor::Port>, largest: usize) -> Result<Vec<ModelPort>, PluginError> {
    if given.is_empty() || given.len() > SIGNATURE_PORTS_MAX {
        let count = given.len();
        return Err(PluginError::signature(format!("it has {count} {kind}s, not 1 to {SIGNATURE_PORTS_MAX}")));
    }
    let mut names = BTreeSet::new();
    let mut ports = Vec::with_capacity(given.len());
    for predictor::Port { name, item, semantics, classes, default } in given {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !names.insert(name.clone()) {
            return Err(PluginError::signature(format!("the {kind} name {name:?} is empty, too long or used twice")));
        }
        if classes.len() > CLASSES_MAX {
            let count = classes.len();
            return Err(PluginError::signature(format!("{kind} {name} has {count} classes, more than {CLASSES_MAX}")));
        }
        let dims = convert::to_usizes(&item.shape);
        let shape = Shape::new(dims).map_err(|error| PluginError::signature(format!("{kind} {name}: {error}")))?;
        let item = Descriptor::new(convert::dtype(item.data_type), shape);
        let port = ModelPort { name, item, semantics, classes, default, preprocessing: None };
        port.batch_descriptor(largest).map_err(|error| PluginError::signature(error.to_string()))?;
        check_port(kind, &port)?;
        ports.push(port);
    }
    Ok(ports)
}

/// Checks that a port's data type and shape match its semantics and hold its default.
pub(super) fn check_port(kind: &str, port: &ModelPort) -> Result<(), PluginError> {
    let ModelPort { name, item, .. } = port;
    if port.semantics.as_deref() == Some("text") && port.text_bytes_max().is_none() {
        let reason = format!("{kind} {name} is {item}, and a text is uint8 of one dimension, which is not 0");
        return Err(PluginError::signature(reason));
    }
    if port.semantics.as_deref() == Some("boolean") && !port.is_boolean() {
        let reason = format!("{kind} {name} is {item}, and truth values are uint8");
        return Err(PluginError::signature(reason));
    }
    match port.default {
        Some(default) if encode_in_range(item.dtype, default).is_none() => {
            let reason = format!("{kind} {name} has the default {default}, which {} does not hold", item.dtype);
            Err(PluginError::signature(reason))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
