//! External data: a tar archive of a model and the files that hold its tensors.
//!
//! The host sends such an archive in place of the model's file, with the model as the first member. The host has
//! checked the file names. Sources: the POSIX ustar format; onnx's ExternalData.md.

use std::collections::HashMap;

use crate::error::{Error, OnnxErrorKind, Result};
use crate::node::node_place;
use crate::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
use crate::tensor::EXTERNAL_LOCATION;

/// The block size of an archive, in bytes.
const BLOCK_BYTES: usize = 512;
/// The offset and the value of the magic number in a header.
const MAGIC: (usize, &[u8]) = (257, b"ustar");

/// The external files of a model, by the names that the model uses.
#[derive(Debug, Default)]
pub struct ExternalFiles<'a>(HashMap<&'a str, &'a [u8]>);

/// Splits a file into the model's bytes and its external files. A file that is not an archive is the model alone.
///
/// # Errors
/// Returns `NotOnnx` if the archive is truncated or damaged.
pub fn split_archive(file: &[u8]) -> Result<(&[u8], ExternalFiles<'_>)> {
    let (at, magic) = MAGIC;
    if file.get(at..at + magic.len()) != Some(magic) {
        return Ok((file, ExternalFiles::default()));
    }
    let mut entries = Vec::new();
    let mut rest = file;
    while let Some(header) = rest.get(..BLOCK_BYTES).filter(|header| header[0] != 0) {
        let damaged =
            || Error::from(OnnxErrorKind::NotOnnx { reason: "the archive of the model's files is damaged".to_owned() });
        let name = header_text(&header[..100]).ok_or_else(damaged)?;
        let size = header_text(&header[124..136]).and_then(|size| usize::from_str_radix(size.trim(), 8).ok());
        let size = size.ok_or_else(damaged)?;
        let content = rest.get(BLOCK_BYTES..).and_then(|content| content.get(..size)).ok_or_else(damaged)?;
        entries.push((name, content));
        let blocks = size.div_ceil(BLOCK_BYTES) + 1;
        rest = rest.get(blocks.saturating_mul(BLOCK_BYTES)..).unwrap_or_default();
    }
    let model = entries.first().map_or(&[][..], |(_, content)| *content);
    Ok((model, ExternalFiles(entries.into_iter().skip(1).collect())))
}

/// Returns a header field: the text up to the first zero byte.
fn header_text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).ok()
}

impl ExternalFiles<'_> {
    /// Copies the elements of every external tensor from its file into the tensor.
    ///
    /// # Errors
    /// Returns `Invalid`, naming the tensor and the file, if the file is missing or too short.
    pub fn load_into(&self, model: &mut ModelProto) -> Result<()> {
        if let Some(graph) = &mut model.graph {
            self.load_graph(graph)?;
        }
        model.functions.iter_mut().try_for_each(|function| self.load_nodes(&mut function.node))
    }

    fn load_graph(&self, graph: &mut GraphProto) -> Result<()> {
        for tensor in &mut graph.initializer {
            self.load(tensor).map_err(|error| error.at(|| format!("initializer `{}`", tensor.name)))?;
        }
        self.load_nodes(&mut graph.node)
    }

    fn load_nodes(&self, nodes: &mut [NodeProto]) -> Result<()> {
        for node in nodes {
            let mut attributes = std::mem::take(&mut node.attribute);
            for attribute in &mut attributes {
                if let Some(tensor) = &mut attribute.t {
                    let at = || format!("{}, attribute `{}`", node_place(node), attribute.name);
                    self.load(tensor).map_err(|error| error.at(at))?;
                }
                if let Some(graph) = &mut attribute.g {
                    self.load_graph(graph)?;
                }
            }
            node.attribute = attributes;
        }
        Ok(())
    }

    fn load(&self, tensor: &mut TensorProto) -> Result<()> {
        if tensor.data_location != EXTERNAL_LOCATION {
            return Ok(());
        }
        let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| &*entry.value);
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => text
                .parse::<usize>()
                .map(Some)
                .map_err(|_| Error::invalid(format!("external_data `{key}` must be a number of bytes, not `{text}`"))),
        };
        let Some(name) = entry("location") else { return Err(Error::invalid("external_data names no location")) };
        let Some(file) = self.0.get(name) else {
            return Err(Error::invalid(format!("its elements are in the file `{name}`, which was not sent")));
        };
        let start = number("offset")?.unwrap_or(0);
        let end = match number("length")? {
            Some(length) => start.checked_add(length),
            None => Some(file.len()),
        };
        let Some(bytes) = end.and_then(|end| file.get(start..end)) else {
            let end = end.unwrap_or(usize::MAX);
            let what = format!("its elements are bytes {start} to {end} of `{name}`, which has {} bytes", file.len());
            return Err(Error::invalid(what));
        };
        tensor.raw_data = bytes.to_vec();
        tensor.external_data = Vec::new();
        tensor.data_location = 0;
        Ok(())
    }
}
