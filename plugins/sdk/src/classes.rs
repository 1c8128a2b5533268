//! The class names and the outputs of a classifier.

use crate::bindings::tensors::DataType;
use crate::dataset::Field;
use crate::error::Result;
use crate::fit::Objective;
use crate::graph::operand::Operand;
use crate::json::Json;
use crate::losses::accuracy;
use crate::params::FromJson;
use crate::predict::Port;

/// The class names of a classifier, by class index.
///
/// ```
/// use saggar_plugin::{Classes, Params};
///
/// let classes = Classes::new(vec!["cat".to_owned(), "dog".to_owned()]);
/// assert_eq!(classes.count(), 2);
/// let outputs: Vec<String> = classes.ports().iter().map(|port| port.name().to_owned()).collect();
/// assert_eq!(outputs, ["label", "probability", "probabilities"]);
///
/// // Part of a model's configuration:
/// let config = Params::new().with("classes", &classes);
/// assert_eq!(config.to_string(), r#"{"classes":["cat","dog"]}"#);
/// assert_eq!(config.require::<Classes>("classes"), Ok(classes));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes(Vec<String>);

impl Classes {
    /// Returns classes with these names.
    pub fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// Returns the classes of a dataset's field. If the field has no class names, returns `count` classes with the
    /// names `0`, `1`, ...
    pub fn of(field: &Field, count: u32) -> Self {
        match field.classes.as_slice() {
            [] => Self((0..count).map(|class| class.to_string()).collect()),
            named => Self(named.to_vec()),
        }
    }

    /// Returns the class names.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Returns the number of classes.
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Returns the output ports of a classifier: `label` `int32[]`, `probability` `float32[]` (that of `label`) and
    /// `probabilities` `float32[classes]`.
    pub fn ports(&self) -> Vec<Port> {
        vec![
            Port::new("label", DataType::Int32, []).semantics("class").classes(&self.0),
            Port::new("probability", DataType::Float32, []),
            Port::new("probabilities", DataType::Float32, [self.count()]).semantics("probabilities").classes(&self.0),
        ]
    }

    /// Returns the values of [`Classes::ports`] for these logits.
    ///
    /// Shape: `logits` `[batch, classes]` float -> `label` `int32[batch]`, `probability` `float32[batch]`,
    /// `probabilities` `float32[batch, classes]`.
    ///
    /// # Errors
    /// Returns `Host` if the logits have another shape, and `Built` after the graph was built.
    #[track_caller]
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
    /// Returns the usual objective of a classifier: minimises the softmax cross-entropy and also reports the
    /// `accuracy`.
    ///
    /// Shape: `logits` `[batch, classes]` float, `labels` `[batch]` of an integer type.
    ///
    /// ```no_run
    /// # use saggar_plugin::{layers::Linear, optimizers::Adam, *};
    /// # fn f(job: &Job, v: &Variables, adam: &Adam, linear: &Linear, feed: &Feed<'_>) -> Result<()> {
    /// Fit::new(job, v, adam, &|_, batch| {
    ///     Objective::classification(&linear.forward(batch.get("x")?)?, batch.get("label")?)
    /// })
    /// .epochs(feed, 10)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Host` if the shapes do not match, and `Built` after the graph was built.
    #[track_caller]
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
