//! One model with several batch sizes, and its weights as variables.

use std::collections::BTreeMap;

use crate::interpreter::{InterpreterBackend, TestWeightStore};
use crate::test_models::small_network;
use onnx::import::{build, import, restore};
use onnx::proto::DimensionProto;
use prost::Message;
use saggar_plugin::Params;
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::{DType, Shape};

/// Runs a configuration's model on a batch of images counted from `start`, and returns the outputs.
fn run_batch(config: &Params, variables: &TestWeightStore, batch: u32, start: usize) -> Vec<f64> {
    let (model, plan) = restore(config).expect("an import wrote it");
    let mut backend = InterpreterBackend::default();
    let built = build(&model, &plan.inputs, Some(batch), &mut backend).expect("the import has built it");
    let shape = Shape::new(plan.inputs[0].shape(Some(batch))).expect("the batch is small");
    let numbers: Vec<f64> = (0..shape.elements()).map(|i| ((start * 16 + i) % 37) as f64 / 37.0).collect();
    let image = InterpTensor::from_numbers(DType::F32, shape, &numbers).expect("as many as the shape says");
    let inputs = BTreeMap::from([("x".to_owned(), image)]);
    let results = backend.run(&built.outputs, &inputs, &variables.0).expect("the graph can be run");
    results[0].to_f64_numbers()
}

#[test]
fn a_batch_gives_the_results_of_its_single_items() {
    let mut network = small_network();
    let graph = network.graph.as_mut().unwrap();
    let tensor = graph.input[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
    tensor.shape.as_mut().unwrap().dim[0] = DimensionProto { dim_value: None, dim_param: Some("n".to_owned()) };
    let mut variables = TestWeightStore::default();
    let options = Params::parse(r#"{"batch": [1, 3]}"#).unwrap();
    let config = import(&network.encode_to_vec(), &options, &mut variables).unwrap();
    let together = run_batch(&config, &variables, 3, 0);
    let apart: Vec<f64> = (0..3).flat_map(|i| run_batch(&config, &variables, 1, i)).collect();
    assert_eq!(together, apart);
    assert!(together.chunks(3).all(|row| (row.iter().sum::<f64>() - 1.0).abs() < 1e-6));
}

#[test]
fn a_model_configuration_round_trips_as_text() {
    let mut variables = TestWeightStore::default();
    let config = import(&small_network().encode_to_vec(), &Params::new(), &mut variables).unwrap();
    let read = Params::parse(&config.to_string()).unwrap();
    assert_eq!(run_batch(&config, &variables, 1, 5), run_batch(&read, &variables, 1, 5));
    // Only a configuration that an import wrote is accepted.
    for (name, value) in [("format", "2"), ("plan", "{}"), ("model", "AAAA"), ("model", "?")] {
        let broken = read.clone().with(name, value);
        assert!(restore(&broken).is_err(), "{name} {value}");
    }
    assert!(restore(&Params::new()).is_err());
}
