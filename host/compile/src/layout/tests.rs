use saggar_tensor::grad::gradients;
use saggar_tensor::nn::{self, Conv2dOptions, Pool2dOptions};
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Shape, verify};

use crate::program::{ChannelLayout, KernelBody};
use crate::{CompileTarget, Program, compile};

fn float(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

/// Adds two convolutions with the usual operators between them; the first has one channel.
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

fn compile_channels_last(g: GraphBuilder) -> Program {
    compile(&verify(g.finish()).unwrap(), &CompileTarget::cpu()).unwrap()
}

fn kernel_families(program: &Program) -> Vec<&'static str> {
    program.kernels.iter().map(|kernel| kernel.body.family()).collect()
}

#[test]
fn consecutive_windowed_operators_need_no_transposes() {
    let mut g = GraphBuilder::new();
    let (_, y) = network(&mut g);
    g.output("y", y).unwrap();
    let program = compile_channels_last(g);
    assert_eq!(kernel_families(&program), ["conv2d", "pool2d", "conv2d", "fold"], "{program}");
    for kernel in &program.kernels[..3] {
        assert_eq!(kernel.body.layout(), ChannelLayout::ChannelsLast, "{program}");
    }
}

#[test]
fn gradients_of_windowed_operators_stay_channels_last() {
    let mut g = GraphBuilder::new();
    let (parameters, y) = network(&mut g);
    let loss = g.reduce_sum(y, &[0, 1], false).unwrap();
    for (at, gradient) in gradients(&mut g, loss, &parameters).unwrap().into_iter().enumerate() {
        g.output(&format!("d{at}"), gradient).unwrap();
    }
    let program = compile_channels_last(g);
    for kernel in &program.kernels {
        let windowed = !matches!(kernel.body, KernelBody::Map { .. } | KernelBody::Fold { .. });
        assert!(!windowed || kernel.body.layout() == ChannelLayout::ChannelsLast, "{program}");
    }
}

#[test]
fn convolutions_with_few_channels_stay_channels_first() {
    let mut g = GraphBuilder::new();
    let x = g.input("x", float(&[1, 4, 8, 8])).unwrap();
    let f = g.input("f", float(&[2, 4, 3, 3])).unwrap();
    let y = nn::conv2d(&mut g, x, f, None, Conv2dOptions::default()).unwrap();
    g.output("y", y).unwrap();
    let program = compile_channels_last(g);
    assert_eq!(kernel_families(&program), ["conv2d"]);
    assert_eq!(program.kernels[0].body.layout(), ChannelLayout::ChannelsFirst);
}
