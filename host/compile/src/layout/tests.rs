use saggar_tensor::grad::gradients;
use saggar_tensor::nn::{self, Conv2dOptions, Pool2dOptions};
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Shape, verify};

use crate::program::{Body, Layout};
use crate::{Program, Target, compile};

fn float(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

/// Two convolutions with what is usually between them, of one channel first.
fn network(g: &mut GraphBuilder) -> (Vec<NodeId>, NodeId) {
    let x = g.input("x", float(&[2, 1, 12, 12])).unwrap();
    let parameters: Vec<NodeId> = [&[16usize, 1, 3, 3][..], &[16], &[32, 16, 3, 3], &[32]]
        .iter()
        .enumerate()
        .map(|(at, dims)| g.variable(&format!("p{at}"), float(dims)).unwrap())
        .collect();
    let halves = Pool2dOptions { window: Some([2, 2]), strides: [2, 2], ..Pool2dOptions::default() };
    let y = nn::conv2d(g, x, parameters[0], Some(parameters[1]), Conv2dOptions::default()).unwrap();
    let y = nn::relu(g, y).unwrap();
    let y = nn::max_pool2d(g, y, halves).unwrap();
    let y = nn::conv2d(g, y, parameters[2], Some(parameters[3]), Conv2dOptions::default()).unwrap();
    let y = nn::relu(g, y).unwrap();
    (parameters, nn::reduce_mean(g, y, &[2, 3], false).unwrap())
}

fn compiled(g: GraphBuilder) -> Program {
    compile(&verify(g.finish()).unwrap(), &Target::cpu()).unwrap()
}

fn families(program: &Program) -> Vec<&'static str> {
    program.kernels.iter().map(|kernel| crate::label::family(&kernel.body)).collect()
}

#[test]
fn a_region_of_windows_moves_nothing() {
    let mut g = GraphBuilder::new();
    let (_, y) = network(&mut g);
    g.output("y", y).unwrap();
    let program = compiled(g);
    assert_eq!(families(&program), ["conv2d", "pool2d", "conv2d", "fold"], "{program}");
    for kernel in &program.kernels[..3] {
        assert_eq!(kernel.body.layout(), Layout::ChannelsLast, "{program}");
    }
}

#[test]
fn gradients_of_a_region_stay_in_it() {
    let mut g = GraphBuilder::new();
    let (parameters, y) = network(&mut g);
    let loss = g.reduce_sum(y, &[0, 1], false).unwrap();
    for (at, gradient) in gradients(&mut g, loss, &parameters).unwrap().into_iter().enumerate() {
        g.output(&format!("d{at}"), gradient).unwrap();
    }
    let program = compiled(g);
    for kernel in &program.kernels {
        let windowed = !matches!(kernel.body, Body::Map { .. } | Body::Fold { .. });
        assert!(!windowed || kernel.body.layout() == Layout::ChannelsLast, "{program}");
    }
}

#[test]
fn few_channels_stay_first() {
    let mut g = GraphBuilder::new();
    let x = g.input("x", float(&[1, 4, 8, 8])).unwrap();
    let f = g.input("f", float(&[2, 4, 3, 3])).unwrap();
    let y = nn::conv2d(&mut g, x, f, None, Conv2dOptions::default()).unwrap();
    g.output("y", y).unwrap();
    let program = compiled(g);
    assert_eq!(families(&program), ["conv2d"]);
    assert_eq!(program.kernels[0].body.layout(), Layout::ChannelsFirst);
}
