//! Batches: checked against the signature, cut and padded to the sizes a model has graphs for, and put together again.

use saggar_tensor::{Descriptor, Shape};

use super::{ModelPort, NamedBytes, Signature};
use crate::error::PluginError;

/// The number of items in a batch whose every input is as the signature says.
///
/// # Errors
/// `BadInput`.
pub(super) fn items(signature: &Signature, inputs: &[NamedBytes]) -> Result<usize, PluginError> {
    if let Some((name, given, _)) = inputs.iter().find(|(name, ..)| !signature.inputs.iter().any(|p| p.name == *name)) {
        let known: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
        return Err(bad(name, format!("only {}", known.join(", ")), given.to_string()));
    }
    let mut items = None;
    for port in &signature.inputs {
        let expected = || format!("{} with the batch before it", port.item);
        let mut named = inputs.iter().filter(|(name, ..)| *name == port.name);
        let (Some((_, given, bytes)), None) = (named.next(), named.next()) else {
            return Err(bad(&port.name, expected(), "none, or more than one".to_owned()));
        };
        let Some((&count, item)) = given.shape.split_first().filter(|(count, _)| **count > 0) else {
            return Err(bad(&port.name, expected(), given.to_string()));
        };
        if given.dtype != port.item.dtype || item != port.item.shape.dims() {
            return Err(bad(&port.name, expected(), given.to_string()));
        }
        if bytes.len() != given.bytes() {
            return Err(bad(&port.name, format!("{} bytes", given.bytes()), format!("{} bytes", bytes.len())));
        }
        if *items.get_or_insert(count) != count {
            return Err(bad(&port.name, "as many items as the other inputs".to_owned(), format!("{count} items")));
        }
    }
    // A signature has an input.
    Ok(items.unwrap_or(0))
}

fn bad(name: &str, expected: String, given: String) -> PluginError {
    PluginError::BadInput { name: name.to_owned(), expected, given }
}

/// How a batch is cut: items of each part, and the size each is padded to. `sizes` are ascending; without any, items are
/// parts of their own.
pub(super) fn plan(sizes: &[usize], items: usize) -> Vec<(usize, usize)> {
    let largest = sizes.last().copied().unwrap_or(1);
    let mut parts = vec![(largest, largest); items / largest];
    let rest = items % largest;
    if rest > 0 {
        let size = sizes.iter().copied().find(|&size| size >= rest).unwrap_or(largest);
        parts.push((rest, size));
    }
    parts
}

/// Items `start .. start + count` of every input, padded with zeros to `size` items, in the signature's order.
pub(super) fn slice(
    signature: &Signature,
    inputs: &[NamedBytes],
    start: usize,
    count: usize,
    size: usize,
) -> Result<Vec<NamedBytes>, PluginError> {
    let part = |port: &ModelPort| {
        let bytes = inputs.iter().find(|(name, ..)| *name == port.name).map_or(&[][..], |(.., bytes)| bytes);
        let item_bytes = port.item.bytes();
        let mut part = bytes[start * item_bytes..(start + count) * item_bytes].to_vec();
        part.resize(size * item_bytes, 0);
        Ok((port.name.clone(), port.batch(size)?, part))
    };
    signature.inputs.iter().map(part).collect()
}

/// Items as a model without batches takes them: whole tensors.
pub(super) fn unwrap(signature: &Signature, inputs: &mut [NamedBytes]) {
    for ((_, descriptor, _), port) in inputs.iter_mut().zip(&signature.inputs) {
        *descriptor = port.item.clone();
    }
}

/// What a model without batches gives, as a batch of one.
///
/// # Errors
/// `BadOutput` for a tensor of the highest rank.
pub(super) fn wrap(outputs: Vec<NamedBytes>) -> Result<Vec<NamedBytes>, PluginError> {
    let wrap = |(name, descriptor, bytes): NamedBytes| {
        let dims = [&[1], descriptor.shape.dims()].concat();
        match Shape::new(dims) {
            Ok(shape) => Ok((name, Descriptor::new(descriptor.dtype, shape), bytes)),
            Err(error) => {
                Err(PluginError::BadOutput { name, expected: error.to_string(), given: descriptor.to_string() })
            }
        }
    };
    outputs.into_iter().map(wrap).collect()
}

/// A batch of which every input is its default, or zeros where it has none.
pub(super) fn first(signature: &Signature, size: usize) -> Result<Vec<NamedBytes>, PluginError> {
    let first = |port: &ModelPort| {
        let descriptor = port.batch(size)?;
        let bytes = port.default_item().map_or_else(|| vec![0; descriptor.bytes()], |item| item.repeat(size));
        Ok((port.name.clone(), descriptor, bytes))
    };
    signature.inputs.iter().map(first).collect()
}

/// The outputs of one part, in the signature's order, if they are what it promises for `size` items.
///
/// # Errors
/// `BadOutput`.
pub(super) fn check(
    signature: &Signature,
    given: Vec<NamedBytes>,
    size: usize,
) -> Result<Vec<NamedBytes>, PluginError> {
    if given.len() != signature.outputs.len() {
        let name = given.first().map_or("none", |(name, ..)| name).to_owned();
        let (expected, given) = (signature.outputs.len(), given.len());
        return Err(PluginError::BadOutput {
            name,
            expected: format!("{expected} outputs"),
            given: format!("{given} outputs"),
        });
    }
    let mut given: Vec<Option<NamedBytes>> = given.into_iter().map(Some).collect();
    let output = |port: &ModelPort| {
        let expected = port.batch(size)?;
        let found = given.iter_mut().find(|given| given.as_ref().is_some_and(|(name, ..)| *name == port.name));
        let broken =
            |given: String| PluginError::BadOutput { name: port.name.clone(), expected: expected.to_string(), given };
        let found = found.and_then(Option::take).ok_or_else(|| broken("no output of this name".to_owned()))?;
        if found.1 == expected { Ok(found) } else { Err(broken(found.1.to_string())) }
    };
    signature.outputs.iter().map(output).collect()
}

/// Outputs put together from parts.
#[derive(Debug)]
pub(super) struct Outputs(Vec<(String, Descriptor, Vec<u8>, usize)>);

impl Outputs {
    /// # Errors
    /// `BadInput` where the outputs of so many items would be too large.
    pub(super) fn new(signature: &Signature, items: usize) -> Result<Outputs, PluginError> {
        let output = |port: &ModelPort| {
            let descriptor = port.batch(items)?;
            let bytes = Vec::with_capacity(descriptor.bytes());
            Ok((port.name.clone(), descriptor, bytes, port.item.bytes()))
        };
        signature.outputs.iter().map(output).collect::<Result<_, _>>().map(Outputs)
    }

    /// Adds the first `count` items of a checked part.
    pub(super) fn append(&mut self, part: Vec<NamedBytes>, count: usize) {
        for ((.., whole, item_bytes), (.., bytes)) in self.0.iter_mut().zip(part) {
            whole.extend_from_slice(&bytes[..count * *item_bytes]);
        }
    }

    pub(super) fn finish(self) -> Vec<NamedBytes> {
        self.0.into_iter().map(|(name, descriptor, bytes, _)| (name, descriptor, bytes)).collect()
    }
}

#[cfg(test)]
mod tests;
