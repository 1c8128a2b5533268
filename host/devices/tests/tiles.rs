//! Tests of tiled matrix products on every adapter against the reference interpreter: every tile size with remainders
//! on every side, transposed and plain operands, vector and scalar loads, whole depths and depths split into parts.
//! Convolutions and both of their gradients are tested likewise.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use saggar_compile::program::KernelBody;
use saggar_compile::{Program, compile};
use saggar_device::{Backend, Meter};
use saggar_gpu::wgsl::{self, ShaderTuning};
use saggar_tensor::grad::gradients;
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::nn::{self, Conv2dOptions};
use saggar_tensor::op::Conv2d;
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Shape, VerifiedGraph, verify};

/// Returns every adapter with tiles, tuned twice: for few lanes, so that tiles are large and depths whole, and for many
/// lanes.
fn devices() -> Vec<(Arc<dyn Backend>, ShaderTuning)> {
    let tuning = |workgroups_at_once| ShaderTuning { workgroups_at_once, ..ShaderTuning::UNLIMITED };
    let tunings = [tuning(1), tuning(128)];
    let adapters = 0..support::adapters("");
    adapters.flat_map(|index| tunings.map(|tuning| (saggar_gpu::open_tuned(index, tuning).unwrap(), tuning))).collect()
}

/// Returns every adapter that has a cooperative matrix operation, with the same two tunings.
fn devices_with_cooperative_matrix() -> Vec<(Arc<dyn Backend>, ShaderTuning)> {
    let mut devices = Vec::new();
    for index in 0..support::adapters("") {
        let matrices = saggar_gpu::cooperative_matrix(index);
        if matrices.is_none() {
            println!("SKIP: adapter {index} has no operation on small matrices");
            continue;
        }
        for workgroups_at_once in [1, 128] {
            let tuning = ShaderTuning { cooperative_matrix: matrices, workgroups_at_once, ..ShaderTuning::UNLIMITED };
            devices.push((saggar_gpu::open_tuned(index, tuning).unwrap(), tuning));
        }
    }
    devices
}

fn value(dtype: DType, dims: &[usize], seed: usize) -> InterpTensor {
    let shape = Shape::new(dims).unwrap();
    let numbers: Vec<f64> =
        (0..shape.elements()).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f64 / 1001.5 - 1.0).collect();
    InterpTensor::from_numbers(dtype, shape, &numbers).unwrap()
}

/// A graph under construction, with its inputs' values.
struct TestGraphBuilder {
    builder: GraphBuilder,
    values: Vec<InterpTensor>,
}

impl TestGraphBuilder {
    fn new() -> TestGraphBuilder {
        TestGraphBuilder { builder: GraphBuilder::new(), values: Vec::new() }
    }

    fn input(&mut self, dtype: DType, dims: &[usize]) -> NodeId {
        let seed = self.values.len() + 1;
        self.values.push(value(dtype, dims, seed));
        let descriptor = Descriptor::new(dtype, Shape::new(dims).unwrap());
        self.builder.input(&format!("x{seed}"), descriptor).unwrap()
    }

    fn finish(self) -> (VerifiedGraph, Vec<InterpTensor>) {
        (verify(self.builder.finish()).unwrap(), self.values)
    }
}

/// Returns for each matrix product of a program whether its shader contains the text `by`, and its number of passes.
fn matmul_implementations(program: &Program, tuning: ShaderTuning, by: &str) -> Vec<(bool, usize)> {
    let of_products = |body: &KernelBody| match body {
        KernelBody::MatMul { .. }
        | KernelBody::Conv2d { .. }
        | KernelBody::Conv2dInputGrad { .. }
        | KernelBody::Conv2dFilterGrad { .. } => true,
        KernelBody::Map { .. }
        | KernelBody::Fold { .. }
        | KernelBody::ArgFold { .. }
        | KernelBody::Chain { .. }
        | KernelBody::Pool2d { .. }
        | KernelBody::MaxPool2dGrad { .. }
        | KernelBody::SumPool2dGrad { .. }
        | KernelBody::Gather { .. }
        | KernelBody::Scatter { .. } => false,
    };
    let kernels = program.kernels.iter().filter(|kernel| of_products(&kernel.body));
    let how = |passes: Vec<wgsl::Shader>| (passes[0].source.contains(by), passes.len());
    kernels.map(|kernel| how(wgsl::shader_passes(program, kernel, tuning).unwrap())).collect()
}

/// Checks the graph's outputs on each device. Returns for each device and product whether tiles compute it, and its
/// passes.
fn check(what: &str, given: (VerifiedGraph, Vec<InterpTensor>)) -> Vec<Vec<(bool, usize)>> {
    check_on(devices(), "tile_a", what, given)
}

/// Checks the graph's outputs on these devices. Returns for each device and product whether its shader contains `by`,
/// and its passes.
fn check_on(
    devices: Vec<(Arc<dyn Backend>, ShaderTuning)>,
    by: &str,
    what: &str,
    (graph, values): (VerifiedGraph, Vec<InterpTensor>),
) -> Vec<Vec<(bool, usize)>> {
    let expected = evaluate(&graph, &values, &mut []).unwrap();
    let each = |(backend, tuning): (Arc<dyn Backend>, ShaderTuning)| {
        let (program, meter) = (Arc::new(compile(&graph, &backend.target()).unwrap()), Meter::unlimited());
        let executable = backend.load(Arc::clone(&program), &meter).unwrap();
        let buffer = |value: &InterpTensor| {
            let buffer = backend.allocate(value.descriptor(), &meter).unwrap();
            backend.write(&buffer, &value.to_bytes()).unwrap();
            buffer
        };
        let inputs: Vec<_> = values.iter().map(buffer).collect();
        let outputs = executable.dispatch(&inputs, &[]).unwrap();
        let again = executable.dispatch(&inputs, &[]).unwrap();
        for (at, (expected, (found, again))) in expected.iter().zip(outputs.iter().zip(&again)).enumerate() {
            let bytes = backend.read(found).unwrap();
            assert!(bytes == backend.read(again).unwrap(), "{what}: output {at} differs in a repeat");
            let found = InterpTensor::from_bytes(expected.descriptor().clone(), &bytes).unwrap().to_f64_numbers();
            let scale = expected.to_f64_numbers().iter().fold(1.0f64, |scale, number| scale.max(number.abs()));
            let unit = if expected.descriptor().dtype == DType::F16 { 2f64.powi(-10) } else { 2f64.powi(-19) };
            for (place, (expected, found)) in expected.to_f64_numbers().iter().zip(found).enumerate() {
                let near = (expected - found).abs() <= 2.0 * unit * scale;
                assert!(near, "{what}, {tuning:?}: element {place} of output {at} is {found}, not {expected}");
            }
        }
        matmul_implementations(&program, tuning, by)
    };
    devices.into_iter().map(each).collect()
}

/// Returns a product of sizes `[batch, m, n, k]`, with a bias and a ReLU as epilogue.
fn product(dtype: DType, [batch, m, n, k]: [usize; 4], transposes: [bool; 2]) -> (VerifiedGraph, Vec<InterpTensor>) {
    let mut given = TestGraphBuilder::new();
    let dims =
        |rows, columns, transposed: bool| if transposed { [batch, columns, rows] } else { [batch, rows, columns] };
    let factors = [(m, k, transposes[0]), (k, n, transposes[1])];
    let [a, b] = factors.map(|(rows, columns, transposed)| {
        let node = given.input(dtype, &dims(rows, columns, transposed));
        if transposed { given.builder.transpose(node, &[0, 2, 1]).unwrap() } else { node }
    });
    let bias = given.input(dtype, &[n]);
    let g = &mut given.builder;
    let y = g.matmul(a, b).unwrap();
    let y = g.add(y, bias).unwrap();
    let y = nn::relu(g, y).unwrap();
    g.output("y", y).unwrap();
    given.finish()
}

#[test]
fn tiled_matmuls_match_the_interpreter() {
    // The tiles for few lanes: 64 by 64, 128 by 128, 32 by 128 and 32 by 32; and one whose sizes are multiples of a
    // vector.
    let sizes = [[2, 130, 135, 33], [1, 250, 250, 40], [1, 30, 250, 64], [3, 20, 40, 17], [1, 128, 64, 32]];
    for (sizes, transposes) in sizes.into_iter().flat_map(|sizes| (0..4).map(move |bits| (sizes, bits))) {
        let transposes = [transposes & 1 == 1, transposes & 2 == 2];
        let what = format!("{sizes:?} {transposes:?}");
        let found = check(&what, product(DType::F32, sizes, transposes));
        assert!(found.iter().all(|products| *products == [(true, 1)]), "{what}: {found:?}");
    }
    check("float16", product(DType::F16, [1, 50, 70, 36], [false, true]));
}

#[test]
fn deep_matmuls_are_split_along_k_on_wide_adapters() {
    for (sizes, transposes) in [([1, 40, 40, 2100], [true, false]), ([2, 33, 50, 1024], [false, false])] {
        let what = format!("{sizes:?}");
        let found = check(&what, product(DType::F32, sizes, transposes));
        for pair in found.chunks(2) {
            assert_eq!(pair, [[(true, 1)], [(true, 2)]], "{what}");
        }
    }
}

/// Returns a convolution with a bias and a ReLU, and the gradients of the sum of its squares.
fn convolution(
    dtype: DType,
    input: [usize; 4],
    filter: [usize; 4],
    conv: Conv2d,
) -> (VerifiedGraph, Vec<InterpTensor>) {
    let mut given = TestGraphBuilder::new();
    let [x, f, b] = [&input[..], &filter[..], &filter[..1]].map(|dims| given.input(dtype, dims));
    let g = &mut given.builder;
    let y = nn::conv2d(g, x, f, Some(b), Conv2dOptions { conv, ..Conv2dOptions::default() }).unwrap();
    let y = nn::relu(g, y).unwrap();
    let squares = g.mul(y, y).unwrap();
    let sum = nn::reduce_mean(g, squares, &[0, 1, 2, 3], false).unwrap();
    g.output("y", y).unwrap();
    for (at, gradient) in gradients(g, sum, &[x, f]).unwrap().into_iter().enumerate() {
        g.output(&format!("d{at}"), gradient).unwrap();
    }
    given.finish()
}

#[test]
fn convolutions_are_tiled_and_match_the_interpreter() {
    let conv = |padding, strides, dilations, groups| Conv2d { padding, strides, dilations, groups };
    let cases = [
        ([2, 16, 14, 13], [32, 16, 3, 3], conv([1; 4], [1, 1], [1, 1], 1)),
        // Positions in multiples of a vector, and a 1x1 filter.
        ([3, 32, 8, 8], [64, 32, 1, 1], conv([0; 4], [1, 1], [1, 1], 1)),
        ([2, 32, 9, 9], [32, 16, 3, 3], conv([1; 4], [2, 2], [1, 1], 2)),
        ([2, 17, 12, 10], [20, 17, 5, 5], conv([0; 4], [1, 1], [1, 1], 1)),
        ([1, 16, 15, 17], [48, 16, 3, 2], conv([1, 0, 2, 1], [2, 3], [2, 1], 1)),
        ([2, 24, 9, 9], [18, 24, 1, 1], conv([0; 4], [2, 2], [1, 1], 1)),
    ];
    for (input, filter, geometry) in cases {
        let what = format!("{input:?} {filter:?} {geometry:?}");
        let found = check(&what, convolution(DType::F32, input, filter, geometry));
        assert!(found.iter().flatten().all(|(is_tiled, _)| *is_tiled), "{what}: {found:?}");
    }
}

#[test]
fn filter_gradients_over_many_positions_are_split_on_wide_adapters() {
    let geometry = Conv2d { padding: [1; 4], strides: [1, 1], dilations: [1, 1], groups: 1 };
    for found in check("many places", convolution(DType::F32, [6, 16, 16, 16], [20, 16, 3, 3], geometry)).chunks(2) {
        assert!(found[0].iter().all(|product| *product == (true, 1)), "{found:?}");
        assert!(found[1].contains(&(true, 2)), "{found:?}");
    }
}

#[test]
fn float16_matmuls_use_cooperative_matrices_where_supported() {
    let by = |what: &str, given| check_on(devices_with_cooperative_matrix(), "coopMultiplyAdd", what, given);
    // Both tile sizes, with and without remainders on every side, and a depth that is split if the adapter has many
    // lanes.
    let sizes = [[2, 130, 135, 33], [1, 256, 128, 64], [1, 64, 60, 1024], [3, 20, 40, 17]];
    for (sizes, turned) in sizes.into_iter().flat_map(|sizes| (0..4).map(move |bits| (sizes, bits))) {
        let turned = [turned & 1 == 1, turned & 2 == 2];
        let what = format!("{sizes:?} {turned:?}");
        let found = by(&what, product(DType::F16, sizes, turned));
        assert!(found.iter().flatten().all(|(is_so, _)| *is_so), "{what}: {found:?}");
        if sizes[3] == 1024 {
            assert!(found.chunks(2).all(|pair| pair[0][0].1 == 1 && pair[1][0].1 == 2), "{what}: {found:?}");
        }
    }
    let geometry = Conv2d { padding: [1; 4], strides: [1, 1], dilations: [1, 1], groups: 1 };
    let found = by("convolutions", convolution(DType::F16, [2, 32, 12, 11], [48, 32, 3, 3], geometry));
    assert!(found.iter().flatten().all(|(is_so, _)| *is_so), "{found:?}");
}

#[test]
fn rejected_cooperative_matrix_kernels_fall_back_to_tiled_kernels() {
    for index in 0..support::adapters("") {
        let Some(matrices) = saggar_gpu::cooperative_matrix(index) else {
            println!("SKIP: adapter {index} has no operation on small matrices");
            continue;
        };
        let tuning =
            ShaderTuning { cooperative_matrix: Some(matrices), workgroups_at_once: 1, ..ShaderTuning::UNLIMITED };
        let refuse: fn(&str) -> bool = |text| text.contains("coopMultiplyAdd");
        let options = saggar_gpu::GpuOptions {
            tuning: Some(tuning),
            fail_shaders: Some(refuse),
            ..saggar_gpu::GpuOptions::default()
        };
        let device = saggar_gpu::open_with(index, options).unwrap();
        let (graph, values) = product(DType::F16, [1, 130, 135, 33], [false, false]);
        let program = Arc::new(compile(&graph, &device.target()).unwrap());
        let loaded = format!("{:?}", device.load(Arc::clone(&program), &Meter::unlimited()).unwrap());
        let groups = |tuning| wgsl::shader_passes(&program, &program.kernels[0], tuning).unwrap()[0].workgroups;
        let by_lanes = groups(ShaderTuning { cooperative_matrix: None, ..tuning });
        let plain = groups(ShaderTuning { cooperative_matrix: None, workgroup_memory: false, ..tuning });
        assert_ne!(by_lanes, plain);
        assert!(loaded.contains(&format!("workgroups: {by_lanes:?}")), "{loaded}");
        check_on(vec![(device, tuning)], "coopMultiplyAdd", "refused", (graph, values));
    }
}
