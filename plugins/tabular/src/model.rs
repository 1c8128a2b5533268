//! The network, for training and for prediction.

use saggar_plugin::layers::{Dropout, Embedding, Linear};
use saggar_plugin::{DataType, Dataset, Graph, Inputs, Model, Operand, Params, Port, Result, Variables, concat};

use crate::columns::{NumberColumn, TableColumns, TargetColumn};
use crate::standardization::ColumnStandardization;

/// The most features of the embedding of a class.
const EMBEDDING_FEATURES_MAX: u32 = 32;
/// The deviation of the initial embeddings, so that they begin smaller than standardised numbers.
const EMBEDDING_DEVIATION: f32 = 0.1;

/// The configuration of a model version, which determines the network's shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct TabularConfig {
    /// The columns of the table.
    pub columns: TableColumns,
    /// The units of each hidden layer.
    pub units: u32,
    /// The hidden layers.
    pub layers: u32,
    /// The share of activations that are dropped in training.
    pub dropout: f64,
}

impl TabularConfig {
    /// Reads the configuration of a model version.
    ///
    /// # Errors
    /// Returns `MissingParameter` or `Parameter` if a value is missing or invalid.
    pub fn from_params(config: &Params) -> Result<Self> {
        Ok(Self {
            columns: TableColumns::from_params(config)?,
            units: config.require("units")?,
            layers: config.require("layers")?,
            dropout: config.require("dropout")?,
        })
    }

    /// Returns the configuration of a model version.
    pub fn to_params(&self) -> Params {
        let params = Params::new().with("units", self.units).with("layers", self.layers).with("dropout", self.dropout);
        self.columns.add_to_params(params)
    }
}

/// The network: standardised numbers and embeddings, hidden layers with a rectifier, one linear output.
#[derive(Debug)]
pub struct TabularModel {
    config: TabularConfig,
    numbers: Vec<ColumnStandardization>,
    embeddings: Vec<Embedding>,
    hidden: Vec<(Linear, Dropout)>,
    output: Linear,
    /// The mean and deviation of a predicted quantity.
    target: Option<ColumnStandardization>,
}

impl TabularModel {
    /// Creates the network over these variables.
    ///
    /// # Errors
    /// Returns `Host` if the variables exist with other shapes.
    pub fn new(v: &Variables, config: TabularConfig) -> Result<Self> {
        let mut width = 0;
        let (inputs, categories) = (v.scope("inputs"), v.scope("categories"));
        let mut numbers = Vec::with_capacity(config.columns.numbers.len());
        for column in &config.columns.numbers {
            let elements = column.shape.iter().product();
            numbers.push(ColumnStandardization::new(&inputs.scope(&column.name), elements)?);
            width += elements;
        }
        let mut embeddings = Vec::with_capacity(config.columns.categories.len());
        for column in &config.columns.categories {
            let count = column.classes.count();
            let features = count.div_ceil(2).clamp(1, EMBEDDING_FEATURES_MAX);
            let scope = categories.scope(&column.name);
            embeddings.push(Embedding::with_std(&scope, count, features, EMBEDDING_DEVIATION)?);
            width += features;
        }
        let mut hidden = Vec::new();
        for layer in 0..config.layers {
            let scope = v.scope(&format!("hidden{}", layer + 1));
            hidden.push((Linear::new(&scope, width, config.units)?, Dropout::new(v, config.dropout)));
            width = config.units;
        }
        let (outputs, target) = match &config.columns.target {
            TargetColumn::Classes { classes, .. } => (classes.count(), None),
            TargetColumn::Quantity { .. } => (1, Some(ColumnStandardization::new(&v.scope("target"), 1)?)),
        };
        let output = Linear::new(&v.scope("output"), width, outputs)?;
        Ok(Self { config, numbers, embeddings, hidden, output, target })
    }

    /// Returns the column that is predicted.
    pub fn target(&self) -> &TargetColumn {
        &self.config.columns.target
    }

    /// Computes the means and deviations of the inputs, and of a predicted quantity, over the training part.
    ///
    /// # Errors
    /// Returns `Host` if the data cannot be read.
    pub fn measure(&self, data: &Dataset) -> Result<()> {
        for (statistics, column) in self.numbers.iter().zip(&self.config.columns.numbers) {
            statistics.measure(data, column)?;
        }
        match &self.target {
            Some(statistics) => {
                let name = self.target().name().to_owned();
                let data_type = data.field(&name)?.item.data_type;
                statistics.measure(data, &NumberColumn { name, data_type, shape: Vec::new() })
            }
            None => Ok(()),
        }
    }

    /// Returns the logits of the classes, or the standardised quantity. Shape: fields `[batch, item...]` ->
    /// `float32[batch, classes]`, or `float32[batch]` for a quantity.
    ///
    /// # Errors
    /// Returns `Host` if a field has another shape.
    pub fn forward(&self, inputs: &Inputs) -> Result<Operand> {
        let mut parts = Vec::with_capacity(self.numbers.len() + self.embeddings.len());
        for (statistics, column) in self.numbers.iter().zip(&self.config.columns.numbers) {
            let numbers = inputs.get(&column.name)?;
            let batch = numbers.shape()[0];
            let elements = column.shape.iter().product();
            let flat = numbers.reshape(&[batch, elements])?.cast(DataType::Float32)?;
            parts.push(statistics.standardize(&flat)?);
        }
        for (embedding, column) in self.embeddings.iter().zip(&self.config.columns.categories) {
            parts.push(embedding.forward(inputs.get(&column.name)?)?.cast(DataType::Float32)?);
        }
        let mut x = concat(&parts.iter().collect::<Vec<_>>(), 1)?;
        for (linear, dropout) in &self.hidden {
            x = dropout.forward(&linear.forward(&x)?.relu()?)?;
        }
        let answer = self.output.forward(&x)?;
        match self.target() {
            TargetColumn::Classes { .. } => Ok(answer),
            TargetColumn::Quantity { .. } => answer.reduce_sum(&[1], false),
        }
    }

    /// Returns a quantity with mean 0 and deviation 1. Shape: `[batch]` float -> `float32[batch]`.
    ///
    /// # Errors
    /// Returns `Host` if the operand has another shape.
    pub fn standardized_target(&self, target: &Operand) -> Result<Operand> {
        let target = target.cast(DataType::Float32)?;
        self.target.as_ref().map_or(Ok(target.clone()), |statistics| statistics.standardize(&target))
    }
}

impl Model for TabularModel {
    fn load(variables: &Variables, config: &Params) -> Result<Self> {
        Self::new(variables, TabularConfig::from_params(config)?)
    }

    fn inputs(&self) -> Vec<Port> {
        let columns = &self.config.columns;
        let numbers =
            columns.numbers.iter().map(|column| Port::new(&column.name, column.data_type, column.shape.clone()));
        let categories = columns.categories.iter().map(|column| {
            Port::new(&column.name, column.data_type, []).semantics("class").classes(column.classes.names())
        });
        numbers.chain(categories).collect()
    }

    fn outputs(&self) -> Vec<Port> {
        match self.target() {
            TargetColumn::Classes { classes, .. } => classes.ports(),
            TargetColumn::Quantity { .. } => vec![Port::new("target", DataType::Float32, [])],
        }
    }

    fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        let answer = self.forward(inputs)?;
        match (self.target(), &self.target) {
            (TargetColumn::Classes { classes, .. }, _) => classes.outputs(&answer),
            (TargetColumn::Quantity { .. }, Some(statistics)) => Ok(vec![("target", statistics.restore(&answer)?)]),
            (TargetColumn::Quantity { .. }, None) => Ok(vec![("target", answer)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use saggar_plugin::Classes;

    use super::*;
    use crate::columns::CategoryColumn;

    #[test]
    fn a_tabular_config_round_trips_through_params() {
        let target = TargetColumn::Quantity { name: "price".to_owned() };
        let numbers = vec![NumberColumn { name: "x".to_owned(), data_type: DataType::Float32, shape: vec![3] }];
        let classes = Classes::new(vec!["red".to_owned(), "white".to_owned()]);
        let categories =
            vec![CategoryColumn { name: "color".to_owned(), data_type: DataType::Uint8, classes: classes.clone() }];
        let columns = TableColumns { numbers, categories, target };
        let regression = TabularConfig { columns, units: 8, layers: 2, dropout: 0.25 };
        let mut classification = regression.clone();
        classification.columns.target = TargetColumn::Classes { name: "label".to_owned(), classes };
        for config in [regression, classification] {
            let params = Params::parse(&config.to_params().to_string()).unwrap();
            assert_eq!(TabularConfig::from_params(&params).unwrap(), config);
            params.check().unwrap();
        }
    }
}
