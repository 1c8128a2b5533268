//! Models that compute a formula, with various signatures.

use saggar_plugin::{ModelPort, ModelSignature, NamedTensor, PluginError, PredictionOptions};
use saggar_serving::ModelPredictor;
use saggar_tensor::{DType, Descriptor, Shape};

use super::fixture::test_port;

/// A formula by name:
///
/// - `half_plus_two`: `y = x / 2 + 2`;
/// - `above`: whether `x` is above 0, as a class and as probabilities 0.25 and 0.75;
/// - `scale`: `scaled = vector * factor`, where the factor defaults to 2, and `name_bytes`, the input name unchanged.
#[derive(Debug)]
pub(super) struct FormulaPredictor {
    name: String,
    signature: ModelSignature,
}

impl FormulaPredictor {
    pub(super) fn from_name(name: &str) -> FormulaPredictor {
        let x = || test_port("x", DType::F32, &[], None);
        let classes = |name, dtype, shape: &[usize], semantics| {
            let classes = vec!["no".to_owned(), "yes".to_owned()];
            ModelPort { classes, ..test_port(name, dtype, shape, Some(semantics)) }
        };
        let (inputs, outputs) = match name {
            "half_plus_two" => (vec![x()], vec![test_port("y", DType::F32, &[], None)]),
            "above" => {
                let class = classes("class", DType::I32, &[], "class");
                (vec![x()], vec![class, classes("scores", DType::F32, &[2], "probabilities")])
            }
            "scale" => {
                let factor = ModelPort { default: Some(2.0), ..test_port("factor", DType::I64, &[], None) };
                let name = test_port("name", DType::U8, &[4], Some("text"));
                let outputs = vec![
                    test_port("scaled", DType::F32, &[1, 2], None),
                    test_port("name_bytes", DType::U8, &[4], Some("text")),
                ];
                (vec![test_port("vector", DType::F32, &[1, 2], None), factor, name], outputs)
            }
            name => panic!("no formula {name}"),
        };
        FormulaPredictor {
            name: name.to_owned(),
            signature: ModelSignature {
                inputs,
                outputs,
                batch_sizes: vec![1, 4],
                routes: Vec::new(),
                handlers: Vec::new(),
            },
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn bytes(floats: impl IntoIterator<Item = f32>) -> Vec<u8> {
    floats.into_iter().flat_map(f32::to_le_bytes).collect()
}

impl ModelPredictor for FormulaPredictor {
    fn signature(&self) -> &ModelSignature {
        &self.signature
    }

    fn device_bytes(&self) -> u64 {
        0
    }

    fn predict(&self, inputs: Vec<NamedTensor>, _: &PredictionOptions) -> Result<Vec<NamedTensor>, PluginError> {
        let items = inputs[0].descriptor.shape[0];
        let first = floats(&inputs[0].bytes);
        let contents = match self.name.as_str() {
            "half_plus_two" => vec![bytes(first.iter().map(|x| x / 2.0 + 2.0))],
            "above" => {
                let classes = first.iter().flat_map(|&x| i32::from(x > 0.0).to_le_bytes()).collect();
                let scores = first.iter().flat_map(|&x| if x > 0.0 { [0.25, 0.75] } else { [0.75, 0.25] });
                vec![classes, bytes(scores)]
            }
            _ => {
                let factors = inputs[1].bytes.chunks_exact(8);
                let factors = factors.map(|factor| i64::from_le_bytes(factor.try_into().unwrap()) as f32);
                let scaled =
                    first.chunks_exact(2).zip(factors).flat_map(|(pair, factor)| [pair[0] * factor, pair[1] * factor]);
                vec![bytes(scaled), inputs[2].bytes.clone()]
            }
        };
        let output = |(port, bytes): (&ModelPort, Vec<u8>)| {
            let dims = [&[items], port.item.shape.dims()].concat();
            let descriptor = Descriptor::new(port.item.dtype, Shape::new(dims).unwrap());
            NamedTensor { name: port.name.clone(), descriptor, bytes }
        };
        Ok(self.signature.outputs.iter().zip(contents).map(output).collect())
    }
}
