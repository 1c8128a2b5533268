//! A predictor that returns its input: `y` is `x`, a `float32` vector of the configuration's `size` (default 4).

use saggar_plugin::{DataType, Graph, Inputs, Model, Operand, Params, Port, Result, Variables};

/// The model. Its size is its whole state.
#[derive(Debug)]
pub struct EchoGuestModel {
    size: u32,
}

impl Model for EchoGuestModel {
    fn load(_: &Variables, config: &Params) -> Result<Self> {
        Ok(Self { size: config.get("size", 4)? })
    }

    fn inputs(&self) -> Vec<Port> {
        vec![Port::new("x", DataType::Float32, [self.size])]
    }

    fn outputs(&self) -> Vec<Port> {
        vec![Port::new("y", DataType::Float32, [self.size])]
    }

    fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        Ok(vec![("y", inputs.get("x")?.identity()?)])
    }
}

saggar_plugin::export!(predict: EchoGuestModel);
