//! A model that learns nothing: `y` is `x`, as many numbers as it was published with. To start from where a model only
//! computes; its training publishes it and is over.

use saggar_plugin::{DataType, Graph, Inputs, Job, Model, Operand, Params, Port, Result, Variables};

/// Its size is all it knows.
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
    /// What is computed. Shape: `[batch, size]` -> `[batch, size]`.
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
