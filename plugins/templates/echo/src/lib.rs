//! A model that learns nothing: `y` is `x`, a vector of the size that the model was published with. A template for
//! models that only compute; the training only publishes the model.

use saggar_plugin::{DataType, Graph, Inputs, Job, Model, Operand, Params, Port, Result, Variables};

/// The model. Its size is its whole state.
pub struct Echo {
    size: u32,
}

impl Model for Echo {
    fn load(_: &Variables, config: &Params) -> Result<Self> {
        Ok(Self { size: config.require("size")? })
    }
    fn inputs(&self) -> Vec<Port> {
        vec![Port::new("x", DataType::Float32, [self.size])]
    }
    fn outputs(&self) -> Vec<Port> {
        vec![Port::new("y", DataType::Float32, [self.size])]
    }
    /// Builds the prediction. Shape: `[batch, size]` -> `[batch, size]`.
    fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        Ok(vec![("y", inputs.get("x")?.identity()?)])
    }
}

/// Publishes the model. Parameters: `size`, `model` (the name to publish under).
pub fn publish(job: &Job) -> Result<()> {
    let config = Params::new().with("size", job.param("size", 4u32)?);
    let model = job.param("model", env!("CARGO_PKG_NAME").to_owned())?;
    job.params().check()?;
    job.publish(&model, &job.variables(), &config).map(drop)
}

saggar_plugin::export!(Echo, publish);
