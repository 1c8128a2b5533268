//! Samples of predictions, for code that records them. Without a sampler nothing is copied.

use std::any::Any;
use std::fmt::Debug;

use saggar_plugin::{ModelSignature, NamedTensor};

/// Draws predictions and keeps samples of them. It is called on the threads of requests: it must not block or fail.
pub trait PredictionSampler: Debug + Send + Sync {
    /// Draws whether a prediction of this model is sampled. `bytes` is the size of its inputs, which are copied then.
    fn draw(&self, model: &str, bytes: usize) -> Option<SampleTicket>;

    /// Keeps a sample. Its prediction succeeded.
    fn keep(&self, sample: PredictionSample);
}

/// The right to a sample, which holds its share of memory until it is dropped.
#[derive(Debug)]
pub struct SampleTicket(#[expect(dead_code, reason = "held until it is dropped")] Box<dyn Any + Send + Sync>);

impl SampleTicket {
    /// Creates a ticket that holds `share`.
    pub fn new(share: impl Any + Send + Sync) -> SampleTicket {
        SampleTicket(Box::new(share))
    }
}

/// A prediction with its inputs and outputs.
#[derive(Debug)]
pub struct PredictionSample {
    /// The model.
    pub model: String,
    /// Its inputs and outputs.
    pub signature: ModelSignature,
    /// The inputs in the signature's order, of shape `[items, item...]`.
    pub inputs: Vec<NamedTensor>,
    /// The outputs, alike.
    pub outputs: Vec<NamedTensor>,
    /// The number of items.
    pub items: usize,
    /// Holds the sample's memory.
    pub ticket: SampleTicket,
}
