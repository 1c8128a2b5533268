//! A training in mixed precision on every device: it goes as the interpreter says, in step with one in single precision, and
//! leaves out what overflows.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use saggar_compile::compile;
use saggar_device::{Backend, Meter};
use saggar_tensor::grad::gradients;
use saggar_tensor::interp::{Value, evaluate};
use saggar_tensor::mixed::{self, LossScale, SCALE_FIRST, Taken};
use saggar_tensor::op::{Conv2d, Scalar};
use saggar_tensor::{DType, Descriptor, GraphBuilder, Interrupt, NodeId, Shape, VerifiedGraph, nn, verify};

use support::devices;

const ITEMS: usize = 8;
const CLASSES: usize = 4;

/// The network's parameters; before them stand the scale's variables.
const PARAMETERS: [(&str, &[usize]); 4] =
    [("filter", &[6, 1, 3, 3]), ("filter bias", &[6]), ("weight", &[96, CLASSES]), ("bias", &[CLASSES])];

fn of(dtype: DType, dims: &[usize]) -> Descriptor {
    Descriptor::new(dtype, Shape::new(dims).unwrap())
}

/// Numbers between -`most` and `most` that follow no pattern.
fn spread(dims: &[usize], seed: u32, most: f64) -> Value {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0) * most
    };
    let numbers: Vec<f64> = (0..dims.iter().product()).map(|_| next()).collect();
    Value::from_numbers(DType::F32, Shape::new(dims).unwrap(), &numbers).unwrap()
}

/// A convolution, a pool and a layer.
fn loss(g: &mut GraphBuilder, parameters: &[NodeId]) -> NodeId {
    let x = g.input("x", of(DType::F32, &[ITEMS, 1, 8, 8])).unwrap();
    let labels = g.input("labels", of(DType::I32, &[ITEMS])).unwrap();
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

/// A step of gradient descent that returns its loss.
fn step(is_mixed: bool) -> VerifiedGraph {
    let mut g = GraphBuilder::new();
    let scale = LossScale {
        scale: g.variable("scale", of(DType::F32, &[])).unwrap(),
        sound_steps: g.variable("sound steps", of(DType::I32, &[])).unwrap(),
        left_out: g.variable("left out", of(DType::I32, &[])).unwrap(),
    };
    let parameters = PARAMETERS.map(|(name, dims)| g.variable(name, of(DType::F32, dims)).unwrap());
    let loss = loss(&mut g, &parameters);
    let mut taken = Taken::default();
    let derivatives = if is_mixed {
        mixed::gradients(&mut g, &mut taken, scale.scale, loss, &parameters, &Interrupt::never()).unwrap()
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
        let sound = mixed::leave_out(&mut g, &derivatives).unwrap();
        mixed::advance(&mut g, sound, &scale).unwrap();
        return verify(mixed::halve(g.graph(), taken.contractions()).0).unwrap();
    }
    verify(g.finish()).unwrap()
}

/// Variables at the beginning.
fn beginning(scale: f64) -> Vec<Value> {
    let count = || Value::zeros(of(DType::I32, &[]));
    let scale = Value::from_numbers(DType::F32, Shape::scalar(), &[scale]).unwrap();
    let parameters = (3..).zip(PARAMETERS).map(|(seed, (_, dims))| spread(dims, seed, 0.3));
    [scale, count(), count()].into_iter().chain(parameters).collect()
}

fn inputs() -> [Value; 2] {
    let labels: Vec<f64> = (0..ITEMS).map(|at| (at % CLASSES) as f64).collect();
    let labels = Value::from_numbers(DType::I32, Shape::new([ITEMS]).unwrap(), &labels).unwrap();
    [spread(&[ITEMS, 1, 8, 8], 2, 1.0), labels]
}

/// What a device or the interpreter did in some steps.
#[derive(Debug)]
struct Trained {
    losses: Vec<f64>,
    variables: Vec<Vec<f64>>,
}

impl Trained {
    /// Scale and steps that were left out.
    fn scale(&self) -> [f64; 2] {
        [self.variables[0][0], self.variables[2][0]]
    }
}

fn interpreted(graph: &VerifiedGraph, scale: f64, steps: usize) -> Trained {
    let mut variables = beginning(scale);
    let step = |_| evaluate(graph, &inputs(), &mut variables).unwrap()[0].numbers()[0];
    let losses = (0..steps).map(step).collect();
    Trained { losses, variables: variables.iter().map(Value::numbers).collect() }
}

fn computed(device: &dyn Backend, graph: &VerifiedGraph, scale: f64, steps: usize) -> Trained {
    let meter = Meter::unlimited();
    let executable = device.load(Arc::new(compile(graph, &device.target()).unwrap()), &meter).unwrap();
    let upload = |value: &Value| {
        let buffer = device.allocate(value.descriptor(), &meter).unwrap();
        device.write(&buffer, &value.to_bytes()).unwrap();
        buffer
    };
    let (inputs, variables): (Vec<_>, Vec<_>) =
        (inputs().iter().map(upload).collect(), beginning(scale).iter().map(upload).collect());
    let numbers = |buffer: &saggar_device::Buffer| {
        Value::from_bytes(buffer.descriptor().clone(), &device.read(buffer).unwrap()).unwrap().numbers()
    };
    let step = |_| numbers(&executable.dispatch(&inputs, &variables).unwrap()[0])[0];
    let losses = (0..steps).map(step).collect();
    Trained { losses, variables: variables.iter().map(numbers).collect() }
}

#[test]
fn a_training_in_mixed_precision_keeps_step_with_one_in_single_precision() {
    const STEPS: usize = 30;
    let (single, halved) = (step(false), step(true));
    let expected = interpreted(&single, 1024.0, STEPS);
    let defined = interpreted(&halved, 1024.0, STEPS);
    assert_eq!(defined.scale(), [1024.0, 0.0]);
    let near = |found: &[f64], expected: &[f64], within: f64, what: &str| {
        let off = found.iter().zip(expected).fold(0.0_f64, |off, (a, b)| off.max((a - b).abs()));
        assert!(off <= within, "{what}: off by {off}");
    };
    near(&defined.losses, &expected.losses, 0.01, "interpreted");
    assert!(defined.losses[STEPS - 1] < 0.5 * defined.losses[0], "{:?}", defined.losses);
    for device in devices() {
        let name = device.info().name.clone();
        let found = computed(&*device, &halved, 1024.0, STEPS);
        assert_eq!(found.scale(), [1024.0, 0.0], "{name}");
        near(&found.losses, &defined.losses, 0.01, &name);
        for (at, (name, _)) in (3..).zip(PARAMETERS) {
            near(&found.variables[at], &defined.variables[at], 0.02, name);
        }
    }
}

#[test]
fn steps_whose_gradients_overflow_are_left_out_until_the_scale_fits() {
    let graph = step(true);
    // In the first steps no gradient fits, whatever rounds it.
    let (scale, steps) = (SCALE_FIRST * 16.0, 2);
    let kept: Vec<Vec<f64>> = beginning(scale).iter().map(Value::numbers).collect();
    let held = |trained: &Trained, name: &str| {
        assert_eq!(trained.scale(), [scale / 4.0, 2.0], "{name}");
        assert_eq!(trained.variables[1], [0.0], "{name}");
        assert_eq!(trained.variables[3..], kept[3..], "{name}");
        assert!(trained.losses[0].is_finite(), "{name}: the loss is not scaled");
    };
    held(&interpreted(&graph, scale, steps), "interpreted");
    for device in devices() {
        held(&computed(&*device, &graph, scale, steps), &device.info().name);
        let later = computed(&*device, &graph, scale, 30);
        assert!(later.scale()[1] < 12.0, "{:?}", later.scale());
        assert!(later.losses[29] < later.losses[0], "{:?}", later.losses);
    }
}
