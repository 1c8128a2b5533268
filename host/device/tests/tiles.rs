//! Products in tiles on every adapter, against the reference interpreter: every tile, with remainders on every side, operands
//! turned and not, read as vectors and one by one, and depths cut in parts; convolutions and both adjoints of them likewise.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use saggar_compile::program::Body;
use saggar_compile::wgsl::{self, Tuning};
use saggar_compile::{Program, compile};
use saggar_device::{Backend, Meter, gpu};
use saggar_tensor::grad::gradients;
use saggar_tensor::interp::{Value, evaluate};
use saggar_tensor::nn::{self, Conv2dOptions};
use saggar_tensor::op::Conv2d;
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Shape, VerifiedGraph, verify};

/// Every adapter with tiles: for one that has few lanes, so that tiles are large and depths whole, and for one with many.
fn devices() -> Vec<(Arc<dyn Backend>, Tuning)> {
    let tuning = |workgroups_at_once| Tuning { workgroups_at_once, ..Tuning::UNLIMITED };
    let tunings = [tuning(1), tuning(128)];
    let adapters = 0..support::adapters("");
    adapters.flat_map(|index| tunings.map(|tuning| (gpu::open_tuned(index, tuning).unwrap(), tuning))).collect()
}

/// Every adapter that has an operation on small matrices, in the same two ways.
fn devices_with_matrices() -> Vec<(Arc<dyn Backend>, Tuning)> {
    let mut devices = Vec::new();
    for index in 0..support::adapters("") {
        let matrices = gpu::matrices(index);
        if matrices.is_none() {
            println!("SKIP: adapter {index} has no operation on small matrices");
            continue;
        }
        for workgroups_at_once in [1, 128] {
            let tuning = Tuning { matrices, workgroups_at_once, ..Tuning::UNLIMITED };
            devices.push((gpu::open_tuned(index, tuning).unwrap(), tuning));
        }
    }
    devices
}

fn value(dtype: DType, dims: &[usize], seed: usize) -> Value {
    let shape = Shape::new(dims).unwrap();
    let numbers: Vec<f64> =
        (0..shape.elements()).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f64 / 1001.5 - 1.0).collect();
    Value::from_numbers(dtype, shape, &numbers).unwrap()
}

/// A graph under construction, with its inputs' values.
struct Given {
    builder: GraphBuilder,
    values: Vec<Value>,
}

impl Given {
    fn new() -> Given {
        Given { builder: GraphBuilder::new(), values: Vec::new() }
    }

    fn input(&mut self, dtype: DType, dims: &[usize]) -> NodeId {
        let seed = self.values.len() + 1;
        self.values.push(value(dtype, dims, seed));
        let descriptor = Descriptor::new(dtype, Shape::new(dims).unwrap());
        self.builder.input(&format!("x{seed}"), descriptor).unwrap()
    }

    fn finish(self) -> (VerifiedGraph, Vec<Value>) {
        (verify(self.builder.finish()).unwrap(), self.values)
    }
}

/// How the products of a program are computed: whether by what their text has in it, and the passes of each.
fn products(program: &Program, tuning: Tuning, by: &str) -> Vec<(bool, usize)> {
    let of_products = |body: &Body| match body {
        Body::MatMul { .. } | Body::Conv2d { .. } | Body::Conv2dInputGrad { .. } | Body::Conv2dFilterGrad { .. } => {
            true
        }
        Body::Map { .. }
        | Body::Fold { .. }
        | Body::ArgFold { .. }
        | Body::Chain { .. }
        | Body::Pool2d { .. }
        | Body::MaxPool2dGrad { .. }
        | Body::SumPool2dGrad { .. }
        | Body::Gather { .. }
        | Body::Scatter { .. } => false,
    };
    let kernels = program.kernels.iter().filter(|kernel| of_products(&kernel.body));
    let how = |passes: Vec<wgsl::Shader>| (passes[0].source.contains(by), passes.len());
    kernels.map(|kernel| how(wgsl::passes(program, kernel, tuning).unwrap())).collect()
}

/// Checks the graph's outputs on each device; whether its products were computed by tiles, device by device.
fn check(what: &str, given: (VerifiedGraph, Vec<Value>)) -> Vec<Vec<(bool, usize)>> {
    check_on(devices(), "tile_a", what, given)
}

/// Checks the graph's outputs on these devices; whether its products were computed by what their text has in it.
fn check_on(
    devices: Vec<(Arc<dyn Backend>, Tuning)>,
    by: &str,
    what: &str,
    (graph, values): (VerifiedGraph, Vec<Value>),
) -> Vec<Vec<(bool, usize)>> {
    let expected = evaluate(&graph, &values, &mut []).unwrap();
    let each = |(backend, tuning): (Arc<dyn Backend>, Tuning)| {
        let (program, meter) = (Arc::new(compile(&graph, &backend.target()).unwrap()), Meter::unlimited());
        let executable = backend.load(Arc::clone(&program), &meter).unwrap();
        let buffer = |value: &Value| {
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
            let found = Value::from_bytes(expected.descriptor().clone(), &bytes).unwrap().numbers();
            let scale = expected.numbers().iter().fold(1.0f64, |scale, number| scale.max(number.abs()));
            let unit = if expected.descriptor().dtype == DType::F16 { 2f64.powi(-10) } else { 2f64.powi(-19) };
            for (place, (expected, found)) in expected.numbers().iter().zip(found).enumerate() {
                let near = (expected - found).abs() <= 2.0 * unit * scale;
                assert!(near, "{what}, {tuning:?}: element {place} of output {at} is {found}, not {expected}");
            }
        }
        products(&program, tuning, by)
    };
    devices.into_iter().map(each).collect()
}

/// `[batch, m, n, k]`, with a bias and a rectifier at the end.
fn product(dtype: DType, [batch, m, n, k]: [usize; 4], transposes: [bool; 2]) -> (VerifiedGraph, Vec<Value>) {
    let mut given = Given::new();
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
fn products_of_every_tile_are_exact() {
    // The tiles that a small adapter takes: of 64 by 64, 128 by 128, 32 by 128 and 32 by 32; one of sizes that vectors divide.
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
fn deep_products_are_added_up_from_parts() {
    for (sizes, transposes) in [([1, 40, 40, 2100], [true, false]), ([2, 33, 50, 1024], [false, false])] {
        let what = format!("{sizes:?}");
        let found = check(&what, product(DType::F32, sizes, transposes));
        for pair in found.chunks(2) {
            assert_eq!(pair, [[(true, 1)], [(true, 2)]], "{what}");
        }
    }
}

/// A convolution with a bias and a rectifier, and the gradients of the sum of its squares.
fn convolution(dtype: DType, input: [usize; 4], filter: [usize; 4], conv: Conv2d) -> (VerifiedGraph, Vec<Value>) {
    let mut given = Given::new();
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
fn convolutions_are_products_under_a_window() {
    let conv = |padding, strides, dilations, groups| Conv2d { padding, strides, dilations, groups };
    let cases = [
        ([2, 16, 14, 13], [32, 16, 3, 3], conv([1; 4], [1, 1], [1, 1], 1)),
        // Places of whole vectors, and one tap.
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
fn gradients_of_filters_over_many_places_are_added_up_from_parts() {
    let geometry = Conv2d { padding: [1; 4], strides: [1, 1], dilations: [1, 1], groups: 1 };
    for found in check("many places", convolution(DType::F32, [6, 16, 16, 16], [20, 16, 3, 3], geometry)).chunks(2) {
        assert!(found[0].iter().all(|product| *product == (true, 1)), "{found:?}");
        assert!(found[1].contains(&(true, 2)), "{found:?}");
    }
}

#[test]
fn products_of_halves_are_made_of_small_matrices_where_the_adapter_has_them() {
    let by = |what: &str, given| check_on(devices_with_matrices(), "coopMultiplyAdd", what, given);
    // The two tiles there are, with remainders on every side and without; a depth that is cut in parts where lanes are many.
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
fn small_matrices_that_a_driver_refuses_give_way_to_lanes() {
    for index in 0..support::adapters("") {
        let Some(matrices) = gpu::matrices(index) else {
            println!("SKIP: adapter {index} has no operation on small matrices");
            continue;
        };
        let tuning = Tuning { matrices: Some(matrices), workgroups_at_once: 1, ..Tuning::UNLIMITED };
        let refuse: fn(&str) -> bool = |text| text.contains("coopMultiplyAdd");
        let options = gpu::Options { tuning: Some(tuning), refuse: Some(refuse), ..gpu::Options::default() };
        let device = gpu::open_with(index, options).unwrap();
        let (graph, values) = product(DType::F16, [1, 130, 135, 33], [false, false]);
        let program = Arc::new(compile(&graph, &device.target()).unwrap());
        let loaded = format!("{:?}", device.load(Arc::clone(&program), &Meter::unlimited()).unwrap());
        let groups = |tuning| wgsl::passes(&program, &program.kernels[0], tuning).unwrap()[0].workgroups;
        let by_lanes = groups(Tuning { matrices: None, ..tuning });
        let plain = groups(Tuning { matrices: None, workgroup_memory: false, ..tuning });
        assert_ne!(by_lanes, plain);
        assert!(loaded.contains(&format!("workgroups: {by_lanes:?}")), "{loaded}");
        check_on(vec![(device, tuning)], "coopMultiplyAdd", "refused", (graph, values));
    }
}
