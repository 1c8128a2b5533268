//! Tests of mixed-precision training on every device: it matches the interpreter, stays close to single precision, and
//! skips steps that overflow.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use saggar_compile::compile;
use saggar_device::{Backend, Meter};
use saggar_tensor::grad::gradients;
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::mixed_precision::{self, LOSS_SCALE_INITIAL, LossScaleNodes, ScaledGradients};
use saggar_tensor::op::{Conv2d, Scalar};
use saggar_tensor::{DType, Descriptor, GraphBuilder, InterruptCheck, NodeId, Shape, VerifiedGraph, nn, verify};

use support::devices;

const ITEMS: usize = 8;
const CLASSES: usize = 4;

/// The network's parameters. In the list of variables, the loss scale's variables precede them.
const PARAMETERS: [(&str, &[usize]); 4] =
    [("filter", &[6, 1, 3, 3]), ("filter bias", &[6]), ("weight", &[96, CLASSES]), ("bias", &[CLASSES])];

fn tensor_descriptor(dtype: DType, dims: &[usize]) -> Descriptor {
    Descriptor::new(dtype, Shape::new(dims).unwrap())
}

/// Returns pseudo-random numbers between -`most` and `most`.
fn random_values(dims: &[usize], seed: u32, most: f64) -> InterpTensor {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0) * most
    };
    let numbers: Vec<f64> = (0..dims.iter().product()).map(|_| next()).collect();
    InterpTensor::from_numbers(DType::F32, Shape::new(dims).unwrap(), &numbers).unwrap()
}

/// Returns the loss of a convolution, a pooling and a linear layer.
fn loss(g: &mut GraphBuilder, parameters: &[NodeId]) -> NodeId {
    let x = g.input("x", tensor_descriptor(DType::F32, &[ITEMS, 1, 8, 8])).unwrap();
    let labels = g.input("labels", tensor_descriptor(DType::I32, &[ITEMS])).unwrap();
    let conv = Conv2d { padding: [1; 4], strides: [1; 2], dilations: [1; 2], groups: 1 };
    let y = g.conv2d(x, parameters[0], conv).unwrap();
    let bias = g.reshape(parameters[1], &[1, 6, 1, 1]).unwrap();
    let y = g.add(y, bias).unwrap();
    let y = nn::relu(g, y).unwrap();
    let pool = nn::Pool2dOptions { window: Some([2, 2]), strides: [2, 2], ..nn::Pool2dOptions::default() };
    let y = nn::max_pool2d(g, y, pool).unwrap();
    let y = g.reshape(y, &[ITEMS, 96]).unwrap();
    let y = nn::linear(g, y, parameters[2], Some(parameters[3])).unwrap();
    nn::cross_entropy(g, y, labels).unwrap()
}

/// Returns a step of gradient descent that outputs its loss.
fn training_step(is_mixed: bool) -> VerifiedGraph {
    let mut g = GraphBuilder::new();
    let scale = LossScaleNodes {
        scale: g.variable("scale", tensor_descriptor(DType::F32, &[])).unwrap(),
        sound_steps: g.variable("sound steps", tensor_descriptor(DType::I32, &[])).unwrap(),
        skipped_steps: g.variable("left out", tensor_descriptor(DType::I32, &[])).unwrap(),
    };
    let parameters = PARAMETERS.map(|(name, dims)| g.variable(name, tensor_descriptor(DType::F32, dims)).unwrap());
    let loss = loss(&mut g, &parameters);
    let mut scaled_gradients = ScaledGradients::default();
    let derivatives = if is_mixed {
        mixed_precision::scaled_loss_gradients(
            &mut g,
            &mut scaled_gradients,
            scale.scale,
            loss,
            &parameters,
            &InterruptCheck::never(),
        )
        .unwrap()
    } else {
        gradients(&mut g, loss, &parameters).unwrap()
    };
    for (&parameter, &derivative) in parameters.iter().zip(&derivatives) {
        let rate = g.scalar(DType::F32, Scalar::Float(0.25)).unwrap();
        let change = g.mul(derivative, rate).unwrap();
        let next = g.sub(parameter, change).unwrap();
        g.assign_to(parameter, next).unwrap();
    }
    g.output("loss", loss).unwrap();
    if is_mixed {
        let sound = mixed_precision::skip_nonfinite_step(&mut g, &derivatives).unwrap();
        mixed_precision::update_loss_scale(&mut g, sound, &scale).unwrap();
        return verify(mixed_precision::autocast_to_f16(g.graph(), scaled_gradients.contractions()).0).unwrap();
    }
    verify(g.finish()).unwrap()
}

/// Returns the initial values of the variables.
fn initial_variables(scale: f64) -> Vec<InterpTensor> {
    let count = || InterpTensor::zeros(tensor_descriptor(DType::I32, &[]));
    let scale = InterpTensor::from_numbers(DType::F32, Shape::scalar(), &[scale]).unwrap();
    let parameters = (3..).zip(PARAMETERS).map(|(seed, (_, dims))| random_values(dims, seed, 0.3));
    [scale, count(), count()].into_iter().chain(parameters).collect()
}

fn inputs() -> [InterpTensor; 2] {
    let labels: Vec<f64> = (0..ITEMS).map(|at| (at % CLASSES) as f64).collect();
    let labels = InterpTensor::from_numbers(DType::I32, Shape::new([ITEMS]).unwrap(), &labels).unwrap();
    [random_values(&[ITEMS, 1, 8, 8], 2, 1.0), labels]
}

/// The losses and variables of some steps on a device or the interpreter.
#[derive(Debug)]
struct TrainingTrace {
    losses: Vec<f64>,
    variables: Vec<Vec<f64>>,
}

impl TrainingTrace {
    /// Returns the loss scale and the number of skipped steps.
    fn scale_and_skipped_steps(&self) -> [f64; 2] {
        [self.variables[0][0], self.variables[2][0]]
    }
}

fn train_on_interpreter(graph: &VerifiedGraph, scale: f64, steps: usize) -> TrainingTrace {
    let mut variables = initial_variables(scale);
    let step = |_| evaluate(graph, &inputs(), &mut variables).unwrap()[0].to_f64_numbers()[0];
    let losses = (0..steps).map(step).collect();
    TrainingTrace { losses, variables: variables.iter().map(InterpTensor::to_f64_numbers).collect() }
}

fn train_on_device(device: &dyn Backend, graph: &VerifiedGraph, scale: f64, steps: usize) -> TrainingTrace {
    let meter = Meter::unlimited();
    let executable = device.load(Arc::new(compile(graph, &device.target()).unwrap()), &meter).unwrap();
    let upload = |value: &InterpTensor| {
        let buffer = device.allocate(value.descriptor(), &meter).unwrap();
        device.write(&buffer, &value.to_bytes()).unwrap();
        buffer
    };
    let (inputs, variables): (Vec<_>, Vec<_>) =
        (inputs().iter().map(upload).collect(), initial_variables(scale).iter().map(upload).collect());
    let numbers = |buffer: &saggar_device::DeviceBuffer| {
        InterpTensor::from_bytes(buffer.descriptor().clone(), &device.read(buffer).unwrap()).unwrap().to_f64_numbers()
    };
    let step = |_| numbers(&executable.dispatch(&inputs, &variables).unwrap()[0])[0];
    let losses = (0..steps).map(step).collect();
    TrainingTrace { losses, variables: variables.iter().map(numbers).collect() }
}

#[test]
fn mixed_precision_training_tracks_single_precision() {
    const STEPS: usize = 30;
    let (single, halved) = (training_step(false), training_step(true));
    let expected = train_on_interpreter(&single, 1024.0, STEPS);
    let defined = train_on_interpreter(&halved, 1024.0, STEPS);
    assert_eq!(defined.scale_and_skipped_steps(), [1024.0, 0.0]);
    let near = |found: &[f64], expected: &[f64], within: f64, what: &str| {
        let off = found.iter().zip(expected).fold(0.0_f64, |off, (a, b)| off.max((a - b).abs()));
        assert!(off <= within, "{what}: off by {off}");
    };
    near(&defined.losses, &expected.losses, 0.01, "interpreted");
    assert!(defined.losses[STEPS - 1] < 0.5 * defined.losses[0], "{:?}", defined.losses);
    for device in devices() {
        let name = device.info().name.clone();
        let found = train_on_device(&*device, &halved, 1024.0, STEPS);
        assert_eq!(found.scale_and_skipped_steps(), [1024.0, 0.0], "{name}");
        near(&found.losses, &defined.losses, 0.01, &name);
        for (at, (name, _)) in (3..).zip(PARAMETERS) {
            near(&found.variables[at], &defined.variables[at], 0.02, name);
        }
    }
}

#[test]
fn steps_with_overflowing_gradients_are_skipped_until_the_loss_scale_fits() {
    let graph = training_step(true);
    // With this scale, the gradients of the first steps overflow regardless of rounding.
    let (scale, steps) = (LOSS_SCALE_INITIAL * 16.0, 2);
    let initial: Vec<Vec<f64>> = initial_variables(scale).iter().map(InterpTensor::to_f64_numbers).collect();
    let held = |trained: &TrainingTrace, name: &str| {
        assert_eq!(trained.scale_and_skipped_steps(), [scale / 4.0, 2.0], "{name}");
        assert_eq!(trained.variables[1], [0.0], "{name}");
        assert_eq!(trained.variables[3..], initial[3..], "{name}");
        assert!(trained.losses[0].is_finite(), "{name}: the loss is not scaled");
    };
    held(&train_on_interpreter(&graph, scale, steps), "interpreted");
    for device in devices() {
        held(&train_on_device(&*device, &graph, scale, steps), &device.info().name);
        let later = train_on_device(&*device, &graph, scale, 30);
        assert!(later.scale_and_skipped_steps()[1] < 12.0, "{:?}", later.scale_and_skipped_steps());
        assert!(later.losses[29] < later.losses[0], "{:?}", later.losses);
    }
}
