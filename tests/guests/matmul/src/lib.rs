//! Multiplies by the variable `weight` `[784, 10]` and adds `bias` `[10]`: an image, flat, to ten logits.

use saggar_plugin::layers::Linear;
use saggar_plugin::{DataType, Graph, Inputs, Model, Operand, Params, Port, Result, Variables};

const PIXELS: u32 = 784;
const CLASSES: u32 = 10;

/// One linear layer.
#[derive(Debug)]
pub struct Matmul(Linear);

impl Model for Matmul {
    fn load(variables: &Variables, _: &Params) -> Result<Self> {
        Ok(Self(Linear::new(variables, PIXELS, CLASSES)?))
    }

    fn inputs(&self) -> Vec<Port> {
        vec![Port::new("x", DataType::Float32, [PIXELS])]
    }

    fn outputs(&self) -> Vec<Port> {
        vec![Port::new("logits", DataType::Float32, [CLASSES])]
    }

    fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        Ok(vec![("logits", self.0.apply(inputs.get("x")?)?)])
    }
}

saggar_plugin::export!(predict: Matmul);
