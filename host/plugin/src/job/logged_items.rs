//! Checks the images, tables and histograms that a training logs, and converts them to what its job stores.

use std::collections::BTreeSet;

use saggar_store::limits::{LOGGED_BINS_MAX, LOGGED_COLUMNS_MAX, LOGGED_ITEM_BYTES_MAX, LOGGED_ROWS_MAX};
use saggar_store::logged_items::{
    ColumnValues as StoredValues, LoggedColumn, LoggedHistogram, LoggedImage, LoggedTable,
};
use saggar_store::{LoggedItem, LoggedKey, LoggedKind, is_output_path};
use saggar_tensor::limits::NAME_BYTES_MAX;
use saggar_tensor::{DType, Descriptor};
use wasmtime::component::Resource;

use crate::bindings::job::{ColumnValues, ImageLayout, TableColumn};
use crate::host_error::HostError;
use crate::instance_state::InstanceState;
use crate::tensors::device_tensor::DeviceTensor;

/// The axes of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ImageAxes {
    height: usize,
    width: usize,
    channels: usize,
    layout: ImageLayout,
}

impl InstanceState {
    /// Reads an image from the device. `name` is the name under which it is logged.
    pub(super) fn read_image(
        &mut self,
        name: &str,
        image: &Resource<DeviceTensor>,
        layout: ImageLayout,
    ) -> Result<LoggedImage, HostError> {
        self.record_host_call();
        let buffer = &self.table.get(image)?.buffer;
        let axes = image_axes(name, buffer.descriptor(), layout)?;
        let elements = self.backend.read_cancellable(buffer, self.cancel_token())?;
        let dtype = buffer.descriptor().dtype;
        self.record_host_call();
        convert_image(name, axes, dtype, &elements)
    }
}

/// Returns the key of an image.
pub(super) fn image_key(step: u64, name: String) -> Result<LoggedKey, HostError> {
    checked_key(step, LoggedKind::Image, name)
}

fn checked_key(step: u64, kind: LoggedKind, name: String) -> Result<LoggedKey, HostError> {
    if is_output_path(&name) {
        return Ok(LoggedKey { step, kind, name });
    }
    let kind = kind.name();
    let message = format!(
        "the name of a logged {kind} has at most {NAME_BYTES_MAX} bytes and is made of names of letters, digits, `.`, \
         `_` and `-`, not beginning with `.`, joined by `/`, such as `validation/wrong`"
    );
    Err(HostError::invalid_at(name.chars().take(NAME_BYTES_MAX).collect::<String>(), message))
}

/// Returns the axes of an image, or an error if the tensor is not one.
fn image_axes(name: &str, descriptor: &Descriptor, layout: ImageLayout) -> Result<ImageAxes, HostError> {
    let axes = match (&descriptor.shape[..], layout) {
        (&[height, width, channels], ImageLayout::Hwc) | (&[channels, height, width], ImageLayout::Chw) => {
            ImageAxes { height, width, channels, layout }
        }
        _ => return Err(not_an_image(name, descriptor, layout)),
    };
    let is_pixel_type = matches!(descriptor.dtype, DType::U8 | DType::F32);
    if !is_pixel_type || !matches!(axes.channels, 1 | 3) || axes.height == 0 || axes.width == 0 {
        return Err(not_an_image(name, descriptor, layout));
    }
    if descriptor.shape.elements() > LOGGED_ITEM_BYTES_MAX {
        let message = format!(
            "an image of {descriptor} is too large to be logged: it has at most {LOGGED_ITEM_BYTES_MAX} elements; make \
             it smaller in the graph, with `resample2d`"
        );
        return Err(HostError::invalid_at(name, message));
    }
    Ok(axes)
}

fn not_an_image(name: &str, descriptor: &Descriptor, layout: ImageLayout) -> HostError {
    let (expected, other) = match layout {
        ImageLayout::Hwc => ("[height, width, channels]", "chw"),
        ImageLayout::Chw => ("[channels, height, width]", "hwc"),
    };
    let message = format!(
        "{descriptor} is not an image: expected uint8 or float32 {expected} with 1 or 3 channels; the layout `{other}` \
         has the other order, and a batch must be sliced into its images"
    );
    HostError::invalid_at(name, message)
}

/// Converts little-endian elements to pixels, with the channels of a pixel adjacent.
fn convert_image(name: &str, axes: ImageAxes, dtype: DType, elements: &[u8]) -> Result<LoggedImage, HostError> {
    let ImageAxes { height, width, channels, layout } = axes;
    let pixels = match dtype {
        DType::F32 => quantize(name, elements)?,
        _ => elements.to_vec(),
    };
    let pixels = match layout {
        ImageLayout::Hwc => pixels,
        ImageLayout::Chw => {
            let plane = height * width;
            (0..plane * channels).map(|at| pixels[at % channels * plane + at / channels]).collect()
        }
    };
    Ok(LoggedImage { height, width, channels, pixels })
}

/// Converts numbers from 0 to 1 to bytes, rounded to nearest. Other numbers are clamped.
fn quantize(name: &str, elements: &[u8]) -> Result<Vec<u8>, HostError> {
    let byte = |(at, element): (usize, &[u8; 4])| {
        let value = f32::from_le_bytes(*element);
        if value.is_nan() {
            let message = format!("element {at} of the image is NaN: the elements of a float32 image are from 0 to 1");
            return Err(HostError::invalid_at(name, message));
        }
        Ok((value.clamp(0.0, 1.0) * 255.0).round() as u8)
    };
    elements.as_chunks::<4>().0.iter().enumerate().map(byte).collect()
}

/// Returns a table and its key, or an error if it is not a table of typed columns.
pub(super) fn check_table(
    step: u64,
    name: String,
    columns: Vec<TableColumn>,
) -> Result<(LoggedKey, LoggedItem), HostError> {
    let key = checked_key(step, LoggedKind::Table, name)?;
    let refused = |message: String| HostError::invalid_at(&key.name, message);
    if columns.is_empty() || columns.len() > LOGGED_COLUMNS_MAX {
        return Err(refused(format!("a table has 1 to {LOGGED_COLUMNS_MAX} columns, not {}", columns.len())));
    }
    let columns: Vec<LoggedColumn> =
        columns.into_iter().map(|TableColumn { name, values }| LoggedColumn { name, values: stored(values) }).collect();
    let mut names = BTreeSet::new();
    let rows = columns[0].values.len();
    for column in &columns {
        if column.name.is_empty() || column.name.len() > NAME_BYTES_MAX || !names.insert(column.name.as_str()) {
            let name: String = column.name.chars().take(NAME_BYTES_MAX).collect();
            return Err(refused(format!(
                "the columns of a table have different names of 1 to {NAME_BYTES_MAX} bytes; `{name}` is empty, too \
                 long or there twice"
            )));
        }
        if column.values.len() != rows {
            let (first, len) = (&columns[0].name, column.values.len());
            let other = &column.name;
            return Err(refused(format!(
                "the columns of a table have one value for each row: `{first}` has {rows} and `{other}` has {len}"
            )));
        }
    }
    if rows > LOGGED_ROWS_MAX {
        return Err(refused(format!("a table has at most {LOGGED_ROWS_MAX} rows, not {rows}")));
    }
    let item = LoggedItem::Table(LoggedTable { columns });
    let bytes = item.encode().map_err(refused)?.len();
    if bytes > LOGGED_ITEM_BYTES_MAX {
        return Err(refused(format!("a table has at most {LOGGED_ITEM_BYTES_MAX} bytes as JSON, not {bytes}")));
    }
    Ok((key, item))
}

fn stored(values: ColumnValues) -> StoredValues {
    match values {
        ColumnValues::Numbers(values) => {
            StoredValues::Number(values.into_iter().map(|value| value.is_finite().then_some(value)).collect())
        }
        ColumnValues::Integers(values) => StoredValues::Integer(values),
        ColumnValues::Texts(values) => StoredValues::Text(values),
        ColumnValues::Booleans(values) => StoredValues::Boolean(values),
    }
}

/// Returns a histogram and its key, or an error if the edges do not rise or do not belong to the counts.
pub(super) fn check_histogram(
    step: u64,
    name: String,
    edges: Vec<f64>,
    counts: Vec<u64>,
) -> Result<(LoggedKey, LoggedItem), HostError> {
    let key = checked_key(step, LoggedKind::Histogram, name)?;
    let refused = |message: String| HostError::invalid_at(&key.name, message);
    if counts.is_empty() || counts.len() > LOGGED_BINS_MAX {
        return Err(refused(format!("a histogram has 1 to {LOGGED_BINS_MAX} bins, not {}", counts.len())));
    }
    if edges.len() != counts.len() + 1 {
        let (edges, counts) = (edges.len(), counts.len());
        return Err(refused(format!(
            "a histogram has one more edge than it has counts: {counts} counts need {} edges, not {edges}",
            counts + 1
        )));
    }
    if let Some(edge) = edges.iter().find(|edge| !edge.is_finite()) {
        return Err(refused(format!("the edges of a histogram are finite, and one is {edge}")));
    }
    if let Some([low, high]) = edges.array_windows().find(|[low, high]| low >= high) {
        return Err(refused(format!("the edges of a histogram rise, and {low} is followed by {high}")));
    }
    Ok((key, LoggedItem::Histogram(LoggedHistogram { edges, counts })))
}

#[cfg(test)]
mod tests;
