//! Batches: checks them against the signature, splits and pads them to the sizes that a model has graphs for, and
//! concatenates the outputs.

use saggar_device::DeviceBuffer;
use saggar_tensor::limits::NAME_BYTES_MAX;

use super::model_port::ModelPort;
use super::named_tensor::NamedTensor;
use super::signature::ModelSignature;
use crate::error::PluginError;

/// Returns the number of items of a batch after checking every input against the signature.
///
/// # Errors
/// `BadInput`.
pub(super) fn count_items(signature: &ModelSignature, inputs: &[NamedTensor]) -> Result<usize, PluginError> {
    if let Some(unknown) = inputs.iter().find(|input| !signature.inputs.iter().any(|port| port.name == input.name)) {
        let known: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
        let (expected, given) = (format!("only {}", known.join(", ")), unknown.descriptor.to_string());
        return Err(bad_input_error(&unknown.name, expected, given));
    }
    let mut items = None;
    for port in &signature.inputs {
        let expected = || format!("{} with the batch before it", port.item);
        let mut named = inputs.iter().filter(|input| input.name == port.name);
        let (Some(NamedTensor { descriptor: given, bytes, .. }), None) = (named.next(), named.next()) else {
            return Err(bad_input_error(&port.name, expected(), "none, or more than one".to_owned()));
        };
        let Some((&count, item)) = given.shape.split_first().filter(|(count, _)| **count > 0) else {
            return Err(bad_input_error(&port.name, expected(), given.to_string()));
        };
        if given.dtype != port.item.dtype || item != port.item.shape.dims() {
            return Err(bad_input_error(&port.name, expected(), given.to_string()));
        }
        if bytes.len() != given.bytes() {
            return Err(bad_input_error(
                &port.name,
                format!("{} bytes", given.bytes()),
                format!("{} bytes", bytes.len()),
            ));
        }
        if *items.get_or_insert(count) != count {
            return Err(bad_input_error(
                &port.name,
                "as many items as the other inputs".to_owned(),
                format!("{count} items"),
            ));
        }
    }
    // A signature has at least one input.
    Ok(items.unwrap_or(0))
}

fn bad_input_error(name: &str, expected: String, given: String) -> PluginError {
    PluginError::BadInput { name: name.to_owned(), expected, given }
}

/// Splits a batch into parts: the items of each, and the size it is padded to. `sizes` are ascending; without any, each
/// item is a separate part.
pub(super) fn plan_parts(sizes: &[usize], items: usize) -> Vec<(usize, usize)> {
    let largest = sizes.last().copied().unwrap_or(1);
    let mut parts = vec![(largest, largest); items / largest];
    let rest = items % largest;
    if rest > 0 {
        let size = sizes.iter().copied().find(|&size| size >= rest).unwrap_or(largest);
        parts.push((rest, size));
    }
    parts
}

/// The inputs of a request, in the signature's order.
pub(super) struct BatchInputs<'s> {
    signature: &'s ModelSignature,
    tensors: Vec<NamedTensor>,
}

impl<'s> BatchInputs<'s> {
    /// Sorts checked inputs, given in any order.
    pub(super) fn new(signature: &'s ModelSignature, mut tensors: Vec<NamedTensor>) -> BatchInputs<'s> {
        let place = |name: &str| signature.inputs.iter().position(|port| port.name == name);
        tensors.sort_by_key(|tensor| place(&tensor.name));
        BatchInputs { signature, tensors }
    }

    /// Returns items `start .. start + count` of every input, padded with zeros to `size` items, in the signature's
    /// order. A model without batches gets them without the leading dimension. The last part can take over the memory
    /// of the whole batch.
    ///
    /// # Errors
    /// `BadInput` for a batch that would be too large.
    pub(super) fn padded_part(
        &mut self,
        start: usize,
        count: usize,
        size: usize,
    ) -> Result<Vec<NamedTensor>, PluginError> {
        let batches = !self.signature.batch_sizes.is_empty();
        let part = |(tensor, port): (&mut NamedTensor, &ModelPort)| {
            let bytes = &mut tensor.bytes;
            let item_bytes = port.item.bytes();
            let whole = start == 0 && count * item_bytes == bytes.len();
            let mut part = if whole {
                std::mem::take(bytes)
            } else {
                let mut part = Vec::with_capacity(size * item_bytes);
                part.extend_from_slice(&bytes[start * item_bytes..(start + count) * item_bytes]);
                part
            };
            part.resize(size * item_bytes, 0);
            let descriptor = if batches { port.batch_descriptor(size)? } else { port.item.clone() };
            Ok(NamedTensor { name: port.name.clone(), descriptor, bytes: part })
        };
        self.tensors.iter_mut().zip(&self.signature.inputs).map(part).collect()
    }
}

/// Returns a batch in which every input has its default, or zeros if it has none.
pub(super) fn default_batch(signature: &ModelSignature, size: usize) -> Result<Vec<NamedTensor>, PluginError> {
    let first = |port: &ModelPort| {
        let descriptor = port.batch_descriptor(size)?;
        let bytes = port.default_item().map_or_else(|| vec![0; descriptor.bytes()], |item| item.repeat(size));
        Ok(NamedTensor { name: port.name.clone(), descriptor, bytes })
    };
    signature.inputs.iter().map(first).collect()
}

/// Returns the outputs of one part in the signature's order, if they match the signature for `size` items.
///
/// # Errors
/// `BadOutput`.
pub(super) fn check_outputs(
    signature: &ModelSignature,
    given: Vec<(String, DeviceBuffer)>,
    size: usize,
) -> Result<Vec<(String, DeviceBuffer)>, PluginError> {
    if given.len() != signature.outputs.len() {
        let name =
            given.first().map_or("none", |(name, _)| &name[..name.floor_char_boundary(NAME_BYTES_MAX)]).to_owned();
        let (expected, given) = (signature.outputs.len(), given.len());
        return Err(PluginError::BadOutput {
            name,
            expected: format!("{expected} outputs"),
            given: format!("{given} outputs"),
        });
    }
    let mut given: Vec<Option<(String, DeviceBuffer)>> = given.into_iter().map(Some).collect();
    let output = |port: &ModelPort| {
        let expected = if signature.batch_sizes.is_empty() { port.item.clone() } else { port.batch_descriptor(size)? };
        let found = given.iter_mut().find(|given| given.as_ref().is_some_and(|(name, _)| *name == port.name));
        let broken =
            |given: String| PluginError::BadOutput { name: port.name.clone(), expected: expected.to_string(), given };
        let found = found.and_then(Option::take).ok_or_else(|| broken("no output of this name".to_owned()))?;
        let descriptor = found.1.descriptor();
        if *descriptor == expected { Ok(found) } else { Err(broken(descriptor.to_string())) }
    };
    signature.outputs.iter().map(output).collect()
}

/// Concatenates the outputs of all parts, each cut to its number of items, to those of one batch of `items`.
///
/// # Errors
/// `BadInput` if the concatenated outputs would be too large.
pub(super) fn concat_outputs(
    signature: &ModelSignature,
    parts: Vec<(Vec<NamedTensor>, usize)>,
    items: usize,
) -> Result<Vec<NamedTensor>, PluginError> {
    let mut parts: Vec<(std::vec::IntoIter<NamedTensor>, usize)> =
        parts.into_iter().map(|(outputs, count)| (outputs.into_iter(), count)).collect();
    let output = |port: &ModelPort| {
        let (descriptor, item_bytes) = (port.batch_descriptor(items)?, port.item.bytes());
        let mut whole = Vec::new();
        for (outputs, count) in &mut parts {
            let Some(NamedTensor { mut bytes, .. }) = outputs.next() else { continue };
            bytes.truncate(*count * item_bytes);
            // Reuses the memory of the first part, which is the only one of most requests.
            if whole.is_empty() { whole = bytes } else { whole.extend_from_slice(&bytes) }
        }
        Ok(NamedTensor { name: port.name.clone(), descriptor, bytes: whole })
    };
    signature.outputs.iter().map(output).collect()
}

#[cfg(test)]
mod tests;
