//! Linear layers only: from `x` `float32[784]` to ten `logits`, through `depth` hidden layers of `width` units with
//! ReLU. By default `depth` is 0, so the model is one vector-matrix product, the smallest possible model.
//!
//! The training only publishes the initial weights.

use saggar_plugin::layers::Linear;
use saggar_plugin::{DataType, Graph, Inputs, Job, Model, Operand, Params, Port, Result, Variables};

const PIXELS: u32 = 784;
const CLASSES: u32 = 10;

/// The layers, first to last.
#[derive(Debug)]
pub struct MatMulModel(Vec<Linear>);

impl MatMulModel {
    fn new(variables: &Variables, config: &Params) -> Result<Self> {
        let (depth, width): (u32, u32) = (config.get("depth", 0)?, config.get("width", 1)?);
        let outputs = std::iter::repeat_n(width, depth as usize).chain([CLASSES]);
        let mut inputs = PIXELS;
        let mut layers = Vec::new();
        for (number, outputs) in outputs.enumerate() {
            layers.push(Linear::new(&variables.scope(&format!("layer{number}")), inputs, outputs)?);
            inputs = outputs;
        }
        Ok(Self(layers))
    }
}

impl Model for MatMulModel {
    fn load(variables: &Variables, config: &Params) -> Result<Self> {
        Self::new(variables, config)
    }

    fn inputs(&self) -> Vec<Port> {
        vec![Port::new("x", DataType::Float32, [PIXELS])]
    }

    fn outputs(&self) -> Vec<Port> {
        vec![Port::new("logits", DataType::Float32, [CLASSES])]
    }

    fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        let mut x = inputs.get("x")?.clone();
        for (number, layer) in self.0.iter().enumerate() {
            x = layer.forward(&if number == 0 { x } else { x.relu()? })?;
        }
        Ok(vec![("logits", x)])
    }
}

/// Publishes the model under the name `model`, `matmul` by default.
///
/// # Errors
/// Returns the host's error if the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    let name = job.param("model", "matmul".to_owned())?;
    let config = Params::new().with("depth", job.param("depth", 0u32)?).with("width", job.param("width", 1u32)?);
    job.params().check()?;
    let variables = job.variables();
    MatMulModel::new(&variables, &config)?;
    job.publish(&name, &variables, &config).map(|_| ())
}

saggar_plugin::export!(MatMulModel, train);
