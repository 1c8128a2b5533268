//! A predictor that answers `y` = `x`, or does not.

use saggar_plugin::{DataType, NamedTensor, Params, Port, Predictor, Result, Signature, Tensor, Variables, descriptor};

use crate::damage;

/// What a load may do besides [`DAMAGES`](crate::DAMAGES): behave, with batches or without, answer an error, or give a
/// signature that is none.
pub const LOADS: [&str; 5] = ["well", "no-batch-sizes", "error", "falling-batch-sizes", "huge-signature"];
/// What a prediction may do besides [`DAMAGES`](crate::DAMAGES): behave, answer an error, or give something else than the
/// signature says.
pub const PREDICTIONS: [&str; 8] =
    ["well", "error", "wrong-shape", "wrong-type", "wrong-batch", "missing", "twice", "nan"];

const SIZE: u32 = 4;

/// A model that does what its configuration says.
#[derive(Debug)]
pub struct Hostile {
    load: String,
    predict: String,
}

impl Predictor for Hostile {
    fn load(_: Variables, config: Params) -> Result<Self> {
        let load = config.get("load", LOADS[0].to_owned())?;
        let predict = config.get("predict", PREDICTIONS[0].to_owned())?;
        if load == "error" {
            // No such parameter: an error as a plugin would answer it.
            config.require::<String>("something that is not there")?;
        }
        if !LOADS.contains(&load.as_str()) {
            damage::run(&load)?;
        }
        Ok(Self { load, predict })
    }

    fn signature(&self) -> Signature {
        let size = if self.load == "huge-signature" { u32::MAX } else { SIZE };
        Signature {
            inputs: vec![Port::new("x", DataType::Float32, [size])],
            outputs: vec![Port::new("y", DataType::Float32, [size])],
            batch_sizes: match self.load.as_str() {
                "no-batch-sizes" => Vec::new(),
                "falling-batch-sizes" => vec![4, 2, 1],
                _ => vec![1, 2, 4],
            },
        }
    }

    fn predict(&self, mut inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>> {
        let batch = inputs.first().and_then(|x| x.tensor.descriptor().shape.first().copied()).unwrap_or(1);
        let y = |tensor: Tensor| Ok(vec![NamedTensor { name: "y".to_owned(), tensor }]);
        let zeros = |shape: &[u32]| Tensor::from_f32(shape, &vec![0.0; shape.iter().product::<u32>() as usize]);
        match self.predict.as_str() {
            "well" => {
                for input in &mut inputs {
                    input.name = "y".to_owned();
                }
                Ok(inputs)
            }
            "error" => y(Tensor::from_f32(&[2], &[0.0])?),
            "wrong-shape" => y(zeros(&[batch, SIZE + 1])?),
            "wrong-type" => {
                y(Tensor::from_bytes(&descriptor(DataType::Int8, [batch, SIZE]), &vec![0; (batch * SIZE) as usize])?)
            }
            "wrong-batch" => y(zeros(&[batch + 1, SIZE])?),
            "missing" => Ok(Vec::new()),
            "twice" => {
                let mut outputs = y(zeros(&[batch, SIZE])?)?;
                outputs.extend(y(zeros(&[batch, SIZE])?)?);
                Ok(outputs)
            }
            "nan" => y(Tensor::from_f32(&[batch, SIZE], &vec![f32::NAN; (batch * SIZE) as usize])?),
            other => {
                damage::run(other)?;
                Ok(inputs)
            }
        }
    }
}
