//! The network, for training and for prediction.

use saggar_plugin::layers::Linear;
use saggar_plugin::{Classes, DataType, Graph, Inputs, Model, Operand, Params, Port, Result, Variables};

/// The configuration of a model version, which determines the network's shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct MlpConfig {
    /// The shape of an image.
    pub image: Vec<u32>,
    /// The units of each hidden layer.
    pub unit: u32,
    /// The classes.
    pub classes: Classes,
}

impl MlpConfig {
    /// Reads the configuration of a model version.
    ///
    /// # Errors
    /// Returns `MissingParameter` or `Parameter` if a value is missing or invalid.
    pub fn from_params(config: &Params) -> Result<Self> {
        let (image, unit) = (config.require("image")?, config.require("unit")?);
        Ok(Self { image, unit, classes: Classes::new(config.require("classes")?) })
    }

    /// Returns the configuration of a model version.
    pub fn to_params(&self) -> Params {
        Params::new()
            .with("image", self.image.clone())
            .with("unit", self.unit)
            .with("classes", self.classes.names().to_vec())
    }
}

/// The network.
#[derive(Debug)]
pub struct Mlp {
    architecture: MlpConfig,
    layers: [Linear; 3],
}

impl Mlp {
    /// Creates the network over these variables.
    ///
    /// # Errors
    /// Returns `Host` if the variables exist with other shapes.
    pub fn new(v: &Variables, architecture: MlpConfig) -> Result<Self> {
        let pixels = architecture.image.iter().product();
        let (unit, classes) = (architecture.unit, architecture.classes.count());
        let layers = [
            Linear::new(&v.scope("l1"), pixels, unit)?,
            Linear::new(&v.scope("l2"), unit, unit)?,
            Linear::new(&v.scope("l3"), unit, classes)?,
        ];
        Ok(Self { architecture, layers })
    }

    /// Returns the logits. Shape: `uint8[batch, image...]` -> `float32[batch, classes]`.
    ///
    /// # Errors
    /// Returns `Host` if the image has another size.
    pub fn logits(&self, image: &Operand) -> Result<Operand> {
        let [first, second, last] = &self.layers;
        let x = image.flatten(1)?.cast(image.graph().float())?.div_scalar(255.0)?;
        let x = first.forward(&x)?.relu()?;
        let x = second.forward(&x)?.relu()?;
        last.forward(&x)
    }
}

impl Model for Mlp {
    fn load(variables: &Variables, config: &Params) -> Result<Self> {
        Self::new(variables, MlpConfig::from_params(config)?)
    }

    fn inputs(&self) -> Vec<Port> {
        vec![Port::new("image", DataType::Uint8, self.architecture.image.clone()).semantics("image")]
    }

    fn outputs(&self) -> Vec<Port> {
        self.architecture.classes.ports()
    }

    fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        self.architecture.classes.outputs(&self.logits(inputs.get("image")?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mlp_config_round_trips_through_params() {
        let classes = Classes::new(vec!["zero".to_owned(), "one".to_owned()]);
        let architecture = MlpConfig { image: vec![28, 28], unit: 100, classes };
        let config = Params::parse(&architecture.to_params().to_string()).unwrap();
        assert_eq!(MlpConfig::from_params(&config).unwrap(), architecture);
        config.check().unwrap();
    }
}
