//! The network that the plugin `lenet` serves for images of 28 by 28, as a prediction graph.

use saggar_tensor::interp::InterpTensor;
use saggar_tensor::nn::{self, Conv2dOptions, Pool2dOptions};
use saggar_tensor::op::{Conv2d, Scalar};
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, Shape, VerifiedGraph, verify};

/// Names and dimensions of the parameters.
const PARAMETERS: [(&str, &[usize]); 8] = [
    ("conv1.filter", &[16, 1, 5, 5]),
    ("conv1.bias", &[16]),
    ("conv2.filter", &[32, 16, 5, 5]),
    ("conv2.bias", &[32]),
    ("fc1.weight", &[1568, 64]),
    ("fc1.bias", &[64]),
    ("fc2.weight", &[64, 10]),
    ("fc2.bias", &[10]),
];

/// A graph with values for its input and variables.
pub(crate) struct DigitsNetwork {
    /// The graph, from `uint8[batch, 28, 28]` to `float32[batch, 10]`.
    pub(crate) graph: VerifiedGraph,
    /// Images that differ from each other.
    pub(crate) images: InterpTensor,
    /// Parameters.
    pub(crate) variables: Vec<InterpTensor>,
}

/// Returns the network for `batch` images; image `i` is the same in every batch.
pub(crate) fn digits(batch: usize) -> DigitsNetwork {
    build(batch).expect("the network is valid")
}

fn build(batch: usize) -> Result<DigitsNetwork, GraphError> {
    let mut g = GraphBuilder::new();
    let shape = Shape::new([batch, 28, 28])?;
    let pixels: Vec<f64> = (0..shape.elements()).map(|i| (i * 7919 % 2003 % 256) as f64).collect();
    let images = InterpTensor::from_numbers(DType::U8, shape.clone(), &pixels)?;
    let image = g.input("image", Descriptor::new(DType::U8, shape))?;
    let (mut p, mut variables) = (Vec::new(), Vec::new());
    for (seed, (name, dims)) in (1..).zip(PARAMETERS) {
        let shape = Shape::new(dims)?;
        let scale = 1.0 / dims.iter().skip(1).product::<usize>().max(dims[0]) as f64;
        let number = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f64 / 1001.5 - 1.0;
        let numbers: Vec<f64> = (0..shape.elements()).map(|i| number(i) * scale.sqrt()).collect();
        p.push(g.variable(name, Descriptor::new(DType::F32, shape.clone()))?);
        variables.push(InterpTensor::from_numbers(DType::F32, shape, &numbers)?);
    }
    let pool = Pool2dOptions { window: Some([2, 2]), strides: [2, 2], ..Pool2dOptions::default() };
    let conv = Conv2d { padding: [2; 4], strides: [1; 2], dilations: [1; 2], groups: 1 };
    let same = Conv2dOptions { conv, ..Conv2dOptions::default() };
    let x = g.cast(image, DType::F32)?;
    let white = g.scalar(DType::F32, Scalar::Float(255.0))?;
    let mut x = g.div(x, white)?;
    let (two, one) = (g.scalar(DType::F32, Scalar::Float(2.0))?, g.scalar(DType::F32, Scalar::Float(1.0))?);
    x = g.mul(x, two)?;
    x = g.sub(x, one)?;
    x = g.reshape(x, &[batch, 1, 28, 28])?;
    for (filter, bias) in [(p[0], p[1]), (p[2], p[3])] {
        x = nn::conv2d(&mut g, x, filter, Some(bias), same)?;
        x = nn::relu(&mut g, x)?;
        x = nn::max_pool2d(&mut g, x, pool)?;
    }
    x = g.reshape(x, &[batch, 1568])?;
    x = nn::linear(&mut g, x, p[4], Some(p[5]))?;
    x = nn::relu(&mut g, x)?;
    x = nn::linear(&mut g, x, p[6], Some(p[7]))?;
    g.output("logits", x)?;
    Ok(DigitsNetwork { graph: verify(g.finish())?, images, variables })
}
