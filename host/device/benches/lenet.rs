//! LeNet as a graph of one training step or of a prediction, for benchmarks and for tests that need a real network.

use saggar_tensor::grad::gradients;
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::nn::{self, Conv2dOptions, Pool2dOptions};
use saggar_tensor::op::Scalar;
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, NodeId, Shape, VerifiedGraph, verify};

/// Height and width of an image.
const SIDE: usize = 28;
const CLASSES: usize = 10;

/// Names and dimensions of the parameters: the network of Caffe and LeCun's papers, 431,080 numbers.
const PARAMETERS: [(&str, &[usize]); 8] = [
    ("conv1.filter", &[20, 1, 5, 5]),
    ("conv1.bias", &[20]),
    ("conv2.filter", &[50, 20, 5, 5]),
    ("conv2.bias", &[50]),
    ("fc1.weight", &[800, 500]),
    ("fc1.bias", &[500]),
    ("fc2.weight", &[500, CLASSES]),
    ("fc2.bias", &[CLASSES]),
];

/// A graph with values for its inputs and variables.
pub(crate) struct LenetGraph {
    /// The graph.
    pub(crate) graph: VerifiedGraph,
    /// Images and, for training, labels.
    pub(crate) inputs: Vec<InterpTensor>,
    /// Parameters and, for training, velocities.
    pub(crate) variables: Vec<InterpTensor>,
}

fn float(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).expect("small"))
}

fn numbers(count: usize, seed: u32, scale: f64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0) * scale
    };
    (0..count).map(|_| next()).collect()
}

fn logits(g: &mut GraphBuilder, image: NodeId, p: &[NodeId]) -> Result<NodeId, GraphError> {
    let batch = g.descriptor(image).shape[0];
    let pool = Pool2dOptions { window: Some([2, 2]), strides: [2, 2], ..Pool2dOptions::default() };
    let x = g.cast(image, DType::F32)?;
    let scale = g.scalar(DType::F32, Scalar::Float(1.0 / 255.0))?;
    let x = g.mul(x, scale)?;
    let x = nn::conv2d(g, x, p[0], Some(p[1]), Conv2dOptions::default())?;
    let x = nn::max_pool2d(g, x, pool)?;
    let x = nn::relu(g, x)?;
    let x = nn::conv2d(g, x, p[2], Some(p[3]), Conv2dOptions::default())?;
    let x = nn::max_pool2d(g, x, pool)?;
    let x = nn::relu(g, x)?;
    let x = g.reshape(x, &[batch, 800])?;
    let x = nn::linear(g, x, p[4], Some(p[5]))?;
    let x = nn::relu(g, x)?;
    nn::linear(g, x, p[6], Some(p[7]))
}

/// Returns LeNet for a batch of grey images: with `training` a step of SGD with momentum that outputs the loss, else
/// the logits.
pub(crate) fn network(batch: usize, training: bool) -> LenetGraph {
    build(batch, training).expect("the network is valid")
}

fn build(batch: usize, training: bool) -> Result<LenetGraph, GraphError> {
    let mut g = GraphBuilder::new();
    let image = Descriptor::new(DType::U8, Shape::new([batch, 1, SIDE, SIDE])?);
    let pixels: Vec<f64> = numbers(image.shape.elements(), 1, 127.0).iter().map(|x| (x + 128.0).floor()).collect();
    let mut inputs = vec![InterpTensor::from_numbers(DType::U8, image.shape.clone(), &pixels)?];
    let image = g.input("image", image)?;
    let (mut parameters, mut variables) = (Vec::new(), Vec::new());
    for (seed, (name, dims)) in (2..).zip(PARAMETERS) {
        let fan_in = dims.iter().skip(1).product::<usize>().max(dims[0]) as f64;
        let scale = if dims.len() == 1 { 0.0 } else { (3.0 / fan_in).sqrt() };
        parameters.push(g.variable(name, float(dims))?);
        let values = numbers(dims.iter().product(), seed, scale);
        variables.push(InterpTensor::from_numbers(DType::F32, Shape::new(dims)?, &values)?);
    }
    let logits = logits(&mut g, image, &parameters)?;
    if training {
        let labels = Descriptor::new(DType::I32, Shape::new([batch])?);
        let classes: Vec<f64> = (0..batch).map(|i| (i * 7 % CLASSES) as f64).collect();
        inputs.push(InterpTensor::from_numbers(DType::I32, labels.shape.clone(), &classes)?);
        let labels = g.input("label", labels)?;
        let loss = nn::cross_entropy(&mut g, logits, labels)?;
        let rate = g.scalar(DType::F32, Scalar::Float(0.01))?;
        let options = nn::SgdOptions { momentum: 0.9, ..nn::SgdOptions::default() };
        let derivatives = gradients(&mut g, loss, &parameters)?;
        for ((&parameter, gradient), (name, dims)) in parameters.iter().zip(derivatives).zip(PARAMETERS) {
            let velocity = g.variable(&format!("{name}.velocity"), float(dims))?;
            variables.push(InterpTensor::zeros(float(dims)));
            let update = nn::sgd(&mut g, &options, parameter, gradient, velocity, rate)?;
            g.assign_to(parameter, update.parameter)?;
            g.assign_to(velocity, update.velocity)?;
        }
        g.output("loss", loss)?;
    } else {
        g.output("logits", logits)?;
    }
    Ok(LenetGraph { graph: verify(g.finish())?, inputs, variables })
}
