//! What every classifier has: names of its classes, and answers with the class and how sure it is.

use crate::bindings::tensors::DataType;
use crate::dataset::Field;
use crate::error::Result;
use crate::fit::Objective;
use crate::json::Json;
use crate::losses::accuracy;
use crate::operand::Operand;
use crate::params::FromJson;
use crate::predict::Port;

/// The names of a classifier's classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes(Vec<String>);

impl Classes {
    /// Classes of these names.
    pub fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// The classes of a dataset's field; where it does not name them `count` classes called `0`, `1` and so on.
    pub fn of(field: &Field, count: u32) -> Self {
        match field.classes.as_slice() {
            [] => Self((0..count).map(|class| class.to_string()).collect()),
            named => Self(named.to_vec()),
        }
    }

    /// Their names.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// The outputs of a classifier: `label`, `probability`, and the `probabilities` of all classes.
    pub fn ports(&self) -> Vec<Port> {
        vec![
            Port::new("label", DataType::Int32, []).semantics("class").classes(&self.0),
            Port::new("probability", DataType::Float32, []),
            Port::new("probabilities", DataType::Float32, [self.count()]).semantics("probabilities").classes(&self.0),
        ]
    }

    /// The values of [`Classes::ports`]. Shape: `logits` `[batch, classes]`.
    ///
    /// # Errors
    /// `Host` if the logits have another shape; `Built`.
    pub fn outputs(&self, logits: &Operand) -> Result<Vec<(&'static str, Operand)>> {
        let probabilities = logits.cast(DataType::Float32)?.softmax(1)?;
        Ok(vec![
            ("label", probabilities.arg_max(1, false)?),
            ("probability", probabilities.reduce_max(&[1], false)?),
            ("probabilities", probabilities),
        ])
    }
}

impl Objective {
    /// What most classifiers minimise: the cross-entropy of class numbers. Reports the `accuracy` too.
    ///
    /// Shape: `logits` `[batch, classes]`, `labels` `[batch]` of an integer type.
    ///
    /// # Errors
    /// `Host` if the shapes do not go together; `Built`.
    pub fn classification(logits: &Operand, labels: &Operand) -> Result<Self> {
        Ok(Self::new(logits.softmax_cross_entropy(labels)?).metric("accuracy", accuracy(logits, labels)?))
    }
}

impl From<&Classes> for Json {
    fn from(classes: &Classes) -> Self {
        classes.0.clone().into()
    }
}

impl FromJson for Classes {
    const EXPECTED: &'static str = "an array of the classes' names";

    fn from_json(value: &Json) -> Option<Self> {
        Vec::from_json(value).map(Self)
    }
}
