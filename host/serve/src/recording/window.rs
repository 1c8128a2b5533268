//! The newest rows of a model: what becomes the next version of its dataset.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use saggar_plugin::{ModelPort, NamedTensor};
use saggar_serving::PredictionSample;
use saggar_tensor::Descriptor;

use super::RecordingPolicy;

/// A field of the rows: an input or an output.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordedField {
    /// Its name. An output with the name of an input is `output_NAME`.
    pub(super) name: String,
    /// One item.
    pub(super) item: Descriptor,
    /// The names of the classes, or empty.
    pub(super) classes: Vec<String>,
}

/// The newest rows of a model.
#[derive(Debug)]
pub(super) struct RecordingWindow {
    policy: RecordingPolicy,
    fields: Vec<RecordedField>,
    /// The bytes of each row's fields, one after the other.
    rows: VecDeque<Box<[u8]>>,
    /// Rows since the last version, and when the first of them came.
    new_rows: usize,
    new_since: Option<Instant>,
}

impl RecordingWindow {
    pub(super) fn new(policy: RecordingPolicy) -> RecordingWindow {
        RecordingWindow { policy, fields: Vec::new(), rows: VecDeque::new(), new_rows: 0, new_since: None }
    }

    /// Adds the rows of a sample. Rows of another layout, such as those of a version with other inputs, replace what is
    /// there. Returns the number of rows added: none if the sample's bytes do not match its signature.
    pub(super) fn add(&mut self, sample: &PredictionSample, now: Instant) -> usize {
        let fields = fields(&sample.signature.inputs, &sample.signature.outputs);
        let tensors: Vec<&NamedTensor> = sample.inputs.iter().chain(&sample.outputs).collect();
        let fits = tensors.len() == fields.len()
            && fields.iter().zip(&tensors).all(|(field, it)| it.bytes.len() == sample.items * field.item.bytes());
        if !fits {
            return 0;
        }
        if fields != self.fields {
            (self.fields, self.new_rows, self.new_since) = (fields, 0, None);
            self.rows.clear();
        }
        for row in 0..sample.items {
            let mut bytes = Vec::with_capacity(self.row_bytes());
            for (field, tensor) in self.fields.iter().zip(&tensors) {
                let length = field.item.bytes();
                bytes.extend_from_slice(&tensor.bytes[row * length..(row + 1) * length]);
            }
            self.rows.push_back(bytes.into_boxed_slice());
        }
        self.new_rows += sample.items;
        self.new_since.get_or_insert(now);
        while self.rows.len() > self.rows_max() {
            self.rows.pop_front();
        }
        sample.items
    }

    fn row_bytes(&self) -> usize {
        self.fields.iter().map(|field| field.item.bytes()).sum()
    }

    /// Returns the most rows, by number and by bytes; at least one.
    fn rows_max(&self) -> usize {
        let by_bytes = self.policy.bytes_max / self.row_bytes().max(1);
        self.policy.rows_max.min(by_bytes).max(1)
    }

    /// Returns whether a version is due: the interval has passed since the first new row, or the window is new as a whole.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let is_old = self.new_since.is_some_and(|since| now.saturating_duration_since(since) >= self.policy.every);
        is_old || self.new_rows >= self.rows_max()
    }

    /// Returns whether there are rows that no version has.
    pub(super) fn has_new_rows(&self) -> bool {
        self.new_rows > 0
    }

    /// Marks the rows as published, or as tried, so that a failure is not tried again before new rows are due.
    pub(super) fn mark_published(&mut self) {
        (self.new_rows, self.new_since) = (0, None);
    }

    pub(super) fn fields(&self) -> &[RecordedField] {
        &self.fields
    }

    pub(super) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Returns the bytes of a field in each row.
    pub(super) fn column(&self, field: usize) -> impl Iterator<Item = &[u8]> {
        let start: usize = self.fields[..field].iter().map(|field| field.item.bytes()).sum();
        let end = start + self.fields[field].item.bytes();
        self.rows.iter().map(move |row| &row[start..end])
    }
}

fn fields(inputs: &[ModelPort], outputs: &[ModelPort]) -> Vec<RecordedField> {
    let input_names: BTreeSet<&str> = inputs.iter().map(|port| port.name.as_str()).collect();
    let field = |port: &ModelPort, name: String| RecordedField {
        name,
        item: port.item.clone(),
        // Only integers can have classes in a dataset.
        classes: if !port.item.dtype.is_float() { port.classes.clone() } else { Vec::new() },
    };
    let named = |port: &ModelPort| match input_names.contains(port.name.as_str()) {
        true => format!("output_{}", port.name),
        false => port.name.clone(),
    };
    let inputs = inputs.iter().map(|port| field(port, port.name.clone()));
    inputs.chain(outputs.iter().map(|port| field(port, named(port)))).collect()
}
