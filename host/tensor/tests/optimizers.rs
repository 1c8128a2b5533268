//! Optimizers compared with numbers computed by hand, step by step, and on a small problem.

#![allow(clippy::unwrap_used, reason = "a test's panic names the place")]

use saggar_tensor::grad::gradients;
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::nn::{
    AdamOptions, SgdOptions, WeightDecay, adam, clip_by_global_norm, linear, mean_squared_error, sgd,
};
use saggar_tensor::op::Scalar;
use saggar_tensor::{DType, GraphBuilder, GraphError, NodeId, Shape, verify};

fn floats(dims: &[usize], numbers: &[f64]) -> InterpTensor {
    InterpTensor::from_numbers(DType::F32, Shape::new(dims).unwrap(), numbers).unwrap()
}

type OptimizerFn = dyn Fn(&mut GraphBuilder, NodeId, NodeId, [NodeId; 2], NodeId) -> Result<[NodeId; 3], GraphError>;

/// Returns the parameter, initially 1, after each step with these gradients.
fn parameter_path(given: &[f64], update: &OptimizerFn) -> Vec<f64> {
    let mut g = GraphBuilder::new();
    let scalar = floats(&[], &[0.0]).descriptor().clone();
    let gradient = g.input("gradient", scalar.clone()).unwrap();
    let names = ["parameter", "first", "second", "step"];
    let [parameter, first, second, step] = names.map(|name| g.variable(name, scalar.clone()).unwrap());
    let one = g.scalar(DType::F32, Scalar::Float(1.0)).unwrap();
    let step_next = g.add(step, one).unwrap();
    let next = update(&mut g, parameter, gradient, [first, second], step_next).unwrap();
    for (variable, value) in [parameter, first, second, step].into_iter().zip(next.into_iter().chain([step_next])) {
        g.assign_to(variable, value).unwrap();
    }
    let graph = verify(g.finish()).unwrap();
    let mut state = [1.0, 0.0, 0.0, 0.0].map(|number| floats(&[], &[number]));
    given
        .iter()
        .map(|&number| {
            evaluate(&graph, &[floats(&[], &[number])], &mut state).unwrap();
            state[0].to_f64_numbers()[0]
        })
        .collect()
}

fn learning_rate(g: &mut GraphBuilder) -> Result<NodeId, GraphError> {
    g.scalar(DType::F32, Scalar::Float(0.1))
}

#[track_caller]
fn assert_close(got: &[f64], expected: &[f64], tolerance: f64) {
    let near = |(got, expected): (&f64, &f64)| (got - expected).abs() < tolerance;
    assert!(got.len() == expected.len() && got.iter().zip(expected).all(near), "{got:?} is not {expected:?}");
}

fn sgd_path(options: SgdOptions) -> Vec<f64> {
    parameter_path(&[0.5, -1.0, 0.25], &move |g, parameter, gradient, [first, second], _| {
        let rate = learning_rate(g)?;
        let update = sgd(g, &options, parameter, gradient, first, rate)?;
        Ok([update.parameter, update.velocity, second])
    })
}

#[test]
fn sgd_matches_hand_computed_steps() {
    assert_close(&sgd_path(SgdOptions::default()), &[0.95, 1.05, 1.025], 1e-6);
    // Velocities 0.5, -0.55, -0.245.
    assert_close(&sgd_path(SgdOptions { momentum: 0.9, ..SgdOptions::default() }), &[0.95, 1.005, 1.0295], 1e-6);
    // Steps 0.5 + 0.45, -1 - 0.495, 0.25 - 0.2205.
    assert_close(
        &sgd_path(SgdOptions { momentum: 0.9, nesterov: true, ..SgdOptions::default() }),
        &[0.905, 1.0545, 1.05155],
        1e-6,
    );
    // Directions 0.5 + 0.1, -1 + 0.094, 0.25 + 0.10306.
    assert_close(&sgd_path(SgdOptions { weight_decay: 0.1, ..SgdOptions::default() }), &[0.94, 1.0306, 0.995294], 1e-6);
}

fn adam_path(options: AdamOptions) -> Vec<f64> {
    parameter_path(&[0.5, -1.0], &move |g, parameter, gradient, state, step| {
        let rate = learning_rate(g)?;
        let update = adam(g, &options, parameter, gradient, state, step, rate)?;
        Ok([update.parameter, update.first, update.second])
    })
}

#[test]
fn adam_corrects_the_bias_of_its_moments() {
    // Step 1: the corrected means are the gradient and its square, so the step is the rate.
    // Step 2: means 0.9 * 0.05 - 0.1 = -0.055 over 0.19, and 0.999 * 0.00025 + 0.001 = 0.00124975 over 0.001999.
    let second = 0.1 * (-0.055 / 0.19) / (0.00124975f64 / 0.001999).sqrt();
    assert_close(&adam_path(AdamOptions::default()), &[0.9, 0.9 - second], 2e-5);
    // Decoupled: the parameter first shrinks by 0.1 * 0.2 of its value.
    let options = AdamOptions { weight_decay: WeightDecay::Decoupled(0.2), ..AdamOptions::default() };
    assert_close(&adam_path(options), &[0.98 - 0.1, 0.88 * 0.98 - second], 2e-5);
    // In the gradient: 0.5 + 0.2 and -1 + 0.18.
    let options = AdamOptions { weight_decay: WeightDecay::Gradient(0.2), ..AdamOptions::default() };
    let (first, square) = (0.9 * 0.07 - 0.1 * 0.82, 0.999 * 0.00049 + 0.001 * 0.6724);
    let second = 0.1 * (first / 0.19) / (square / 0.001999f64).sqrt();
    assert_close(&adam_path(options), &[0.9, 0.9 - second], 2e-5);
}

#[test]
fn gradients_are_clipped_by_their_global_norm() {
    let mut g = GraphBuilder::new();
    let inputs = [floats(&[2], &[3.0, 0.0]), floats(&[1, 1], &[-4.0])];
    let nodes: Vec<NodeId> =
        inputs.iter().zip(["a", "b"]).map(|(x, name)| g.input(name, x.descriptor().clone()).unwrap()).collect();
    let clipped = clip_by_global_norm(&mut g, &nodes, 1.0).unwrap();
    let untouched = clip_by_global_norm(&mut g, &nodes, 6.0).unwrap();
    for (position, &node) in clipped.iter().chain(&untouched).enumerate() {
        g.output(&format!("y{position}"), node).unwrap();
    }
    let outputs = evaluate(&verify(g.finish()).unwrap(), &inputs, &mut []).unwrap();
    let numbers: Vec<f64> = outputs.iter().flat_map(InterpTensor::to_f64_numbers).collect();
    assert_close(&numbers, &[0.6, 0.0, -0.8, 3.0, 0.0, -4.0], 1e-6);
}

/// Fits a line to noiseless points with gradients, optimizer and variables together.
#[test]
fn gradient_descent_fits_a_line() {
    let mut g = GraphBuilder::new();
    let points = floats(&[4, 1], &[-1.0, 0.0, 1.0, 2.0]);
    let values = floats(&[4, 1], &[-1.5, 0.5, 2.5, 4.5]);
    let x = g.input("x", points.descriptor().clone()).unwrap();
    let t = g.input("t", values.descriptor().clone()).unwrap();
    let slope = g.variable("slope", floats(&[1, 1], &[0.0]).descriptor().clone()).unwrap();
    let offset = g.variable("offset", floats(&[1], &[0.0]).descriptor().clone()).unwrap();
    let y = linear(&mut g, x, slope, Some(offset)).unwrap();
    let loss = mean_squared_error(&mut g, y, t).unwrap();
    let found = gradients(&mut g, loss, &[slope, offset]).unwrap();
    let learning_rate = g.scalar(DType::F32, Scalar::Float(0.1)).unwrap();
    for (name, parameter, gradient) in [("vs", slope, found[0]), ("vo", offset, found[1])] {
        let velocity = g.variable(name, g.descriptor(parameter).clone()).unwrap();
        let options = SgdOptions { momentum: 0.5, ..SgdOptions::default() };
        let update = sgd(&mut g, &options, parameter, gradient, velocity, learning_rate).unwrap();
        g.assign_to(parameter, update.parameter).unwrap();
        g.assign_to(velocity, update.velocity).unwrap();
    }
    g.output("loss", loss).unwrap();
    let graph = verify(g.finish()).unwrap();
    let mut state: Vec<InterpTensor> =
        graph.graph().variables.iter().map(|port| InterpTensor::zeros(port.descriptor.clone())).collect();
    let mut losses = Vec::new();
    for _ in 0..200 {
        let outputs = evaluate(&graph, &[points.clone(), values.clone()], &mut state).unwrap();
        losses.push(outputs[0].to_f64_numbers()[0]);
    }
    assert!(losses[0] > 5.0 && losses[199] < 1e-9, "{} to {}", losses[0], losses[199]);
    assert_close(&state[0].to_f64_numbers(), &[2.0], 1e-4);
    assert_close(&state[1].to_f64_numbers(), &[0.5], 1e-4);
}
